"""The directory in which a node keeps its replica of the metadata log."""

from __future__ import annotations

import functools
from typing import Final

from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.raft.file_log import FileLog
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.storage import bootstrap, quorum_state
from kafkacore.storage.names import metadata_directory

IO_THREADS: Final = 2


class MetadataOnDisk:
    """The log `__cluster_metadata-0` in metadata.log.dir. Create this object on a thread that may block, because the
    constructor loads the log. Raises OSError."""

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
