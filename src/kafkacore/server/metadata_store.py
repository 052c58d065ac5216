"""Where a node keeps its replica of the metadata log: on disk, or in memory if the node's controller is a process of
its own and has it on disk."""

from __future__ import annotations

import functools
from typing import Final, Protocol

from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.raft.driver import SyncedLog
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.tail_log import TailLog
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import bootstrap, quorum_state
from kafkacore.storage.names import metadata_directory
from kafkacore.storage.quorum_state import QuorumState

IO_THREADS: Final = 2


class MetadataStore(Protocol):
    @property
    def log(self) -> SyncedLog: ...
    @property
    def state(self) -> QuorumState | None:
        """The quorum state that the last run left."""

    def persist(self, state: QuorumState, version: int) -> None:
        """Blocking."""

    def close(self) -> None:
        """Blocking."""


class MetadataOnDisk:
    """`__cluster_metadata-0` in metadata.log.dir. Made on a thread that may wait: it loads the log. Raises OSError."""

    def __init__(self, config: BrokerConfig, environment: Environment, files: Files = OS_FILES) -> None:
        self._directory = LogDirectory(environment, config.metadata_log_dir, IO_THREADS, urgent=True)
        self.log = FileLog(
            self._directory,
            segment_bytes=config.metadata_log_segment_size_bytes,
            segment_ms=config.metadata_log_segment_ms,
            files=files,
        )
        path = metadata_directory(config.metadata_log_dir)
        self.bootstrap = bootstrap.read_bootstrap(config.metadata_log_dir, files) or ()
        self.state = quorum_state.read(path, files)
        self.persist = functools.partial(quorum_state.write, path, files=files)

    def close(self) -> None:
        self.log.close()
        self._directory.close()


class MetadataInMemory:
    """For an observer: its next run does not need what this run knows about votes and the quorum."""

    state: QuorumState | None = None

    def __init__(self) -> None:

        self.log = TailLog()

    def persist(self, state: QuorumState, version: int) -> None:
        """Stores nothing: this state ends with the process."""

    def close(self) -> None:
        """Does nothing, because no file is open."""
