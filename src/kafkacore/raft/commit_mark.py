"""A mark for the next start: how far the metadata log on this disk was committed and synced.

Without it, damage to committed records looks like the torn end that a crash leaves. Raft never truncates committed
records. So the mark stays true even while Apache Kafka, which does not know the mark, runs on the directory; the mark
then only lags behind.
"""

from __future__ import annotations

import logging
import os
from typing import Final

from kafkacore.raft.messages import PARTITION, TOPIC
from kafkacore.runtime.files import Files
from kafkacore.storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpoint
from kafkacore.storage.errors import MalformedFileError

LOG: Final = logging.getLogger("kafkacore.raft")


class CommitMark:
    """Methods block, and raise OSError. The file lies in the log's own directory, so it is copied and removed together
    with the log. Its name and format are those of Apache Kafka's checkpoint of high watermarks."""

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
        """Writes that records below `offset` are committed, and synced on this disk."""
        self._checkpoint.write({(TOPIC, PARTITION): offset})
        self.offset = offset

    def remove(self) -> None:
        """Call this before the log is replaced: a crash during the replacement may leave any part of it."""
        if self._files.exists(self._checkpoint.path):
            self._files.unlink(self._checkpoint.path)
            self._files.sync_directory(self._directory)
        self.offset = 0

    def refuse(self, path: str, problem: str) -> MalformedFileError:
        """The error for a log that has lost records below the mark."""
        return MalformedFileError(
            path,
            f"{problem}, but all below offset {self.offset} was committed and is lost here: restore the file; or where "
            f"other controllers have the log, remove {self._directory}, and this node gets the log from them; or "
            f"remove {os.path.basename(self._checkpoint.path)} beside the file, and the records behind the damage are "
            "given up",
        )
