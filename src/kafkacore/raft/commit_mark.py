"""Stores an offset (the mark) on disk. All records of the metadata log below the mark are committed and synced. The
node reads the mark at its next start.

Without the mark, damage to committed records could not be distinguished from an incomplete batch that a crash leaves at
the end of the log. Raft never truncates committed records. So if Apache Kafka runs on the directory for a while and
does not advance the mark, the mark stays valid.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from kafkacore.raft.messages import PARTITION, TOPIC
from kafkacore.runtime import open_files
from kafkacore.runtime.files import Files
from kafkacore.storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpoint
from kafkacore.storage.errors import MalformedFileError

LOG: Final = logging.getLogger("kafkacore.raft")


class CommitMark:
    """The file that contains the mark. All methods block, and raise OSError. The file is in the log's own directory, so
    the file is copied and removed together with the log. It has the name and the format of Apache Kafka's checkpoint of
    high watermarks.
    """

    def __init__(self, directory: str, files: Files) -> None:
        self._directory, self._files = directory, files
        self._checkpoint = OffsetCheckpoint(directory, REPLICATION_OFFSET, files)
        self.offset = self._read()

    def _read(self) -> int:
        try:
            return max(0, self._checkpoint.read().get((TOPIC, PARTITION), 0))
        except MalformedFileError as error:
            LOG.warning("the mark of committed records cannot be read and is ignored: %s", error)
            return 0

    def move(self, offset: int) -> None:
        """Advances the mark: stores that all records below `offset` are committed, and synced on this disk."""
        self._checkpoint.write({(TOPIC, PARTITION): offset})
        self.offset = offset

    def remove(self) -> None:
        """Removes the mark. Call this before the log is replaced. Otherwise a crash during the replacement could leave
        a log that ends below the mark, and the node would refuse this log at its next start.
        """
        if self._files.exists(self._checkpoint.path):
            self._files.unlink(self._checkpoint.path)
            open_files.finish(self._files.sync_directory, self._directory)
        self.offset = 0

    def refuse(self, path: str, problem: str) -> MalformedFileError:
        """Returns the error for a log that has lost records below the mark."""
        return MalformedFileError(
            path,
            f"{problem}, but all records below offset {self.offset} were committed, and some are lost: restore the "
            f"file; if other controllers have the log, you can remove {self._directory}, and this node gets the log "
            f"from them; or remove {os.path.basename(self._checkpoint.path)} in the same directory, which gives up the "
            "records after the damage",
        )
