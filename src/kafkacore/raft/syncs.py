"""How much of a log would survive a power loss now, and the syncs that make more of it durable."""

from __future__ import annotations

from kafkacore.raft.log import RaftLog

Sync = tuple[int, int]  # a count of truncations, and the offset up to which the log is synced


class Syncs:
    """All of the log is durable when this object is made. The owner of the disk takes a sync, performs it, and reports
    it as done."""

    def __init__(self, log: RaftLog) -> None:
        self._log = log
        self._tail = 0
        self.durable_offset = log.end_offset

    def take(self) -> Sync | None:
        """The sync that is due; None when all of the log is durable."""
        return (self._tail, self._log.end_offset) if self.durable_offset < self._log.end_offset else None

    def is_moot(self, sync: Sync) -> bool:
        """The log was truncated after the sync was taken: the sync no longer proves anything."""
        return sync[0] != self._tail

    def done(self, sync: Sync) -> bool:
        """True when the sync proves that more of the log is durable."""
        if self.is_moot(sync) or sync[1] <= self.durable_offset:
            return False
        self.durable_offset = sync[1]
        return True

    def truncated(self) -> None:
        """Notes that the end of the log was removed."""
        self._tail += 1
        self.durable_offset = min(self.durable_offset, self._log.end_offset)

    def restarted(self, offset: int) -> None:
        """Notes that the log is empty and begins at `offset`, the end of a durable snapshot."""
        self._tail += 1
        self.durable_offset = offset
