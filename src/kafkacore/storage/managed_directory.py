"""A log directory, together with the state that the log manager and its parts keep for it."""

from __future__ import annotations

import threading

from kafkacore._fast.log.cuts import CutLogs
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.wait.io import LogDirectory

Key = tuple[str, int]  # topic and partition


class ManagedDirectory:
    """A log directory and its logs. The log manager's mutex guards the dictionaries."""

    def __init__(self, native: LogDirectory) -> None:
        self.native = native
        self.partitions: dict[Key, PartitionHandle] = {}
        self.cleaned: dict[Key, int] = {}  # the end offset of the compacted part of each log
        self.stored: dict[str, dict[Key, int]] = {}  # the checkpoints as they are on the disk, by name
        self.checkpointing = threading.Lock()
        # Truncated logs that accept no appends until a checkpoint is written. Only `checkpoint_cuts` uses this list.
        self.cut: list[CutLogs] = []
        self.clean = False  # whether the earlier run shut this directory down cleanly; known once a load has begun
        self.loaded = False  # whether `partitions` contains every log of this directory
        self.failed = False
        self.cordoned = False

    @property
    def path(self) -> str:
        return self.native.path

    def entries(self, checkpoint: str) -> dict[Key, int]:
        """Returns the entries of a checkpoint as they are on the disk."""
        return self.stored.get(checkpoint, {})
