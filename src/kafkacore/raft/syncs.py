"""The durable offset of a log, and the syncs that advance it. All records below this offset would survive a power loss
now."""

from __future__ import annotations

from kafkacore.raft.log import RaftLog

Sync = tuple[int, int]  # (number of truncations so far, offset up to which the log is synced)


class Syncs:
    """Tracks the syncs of a log. All of the log must be durable when this object is created. The caller takes a sync,
    performs it, and reports that it is done.
    """

    def __init__(self, log: RaftLog) -> None:
        self._log = log
        self._tail = 0
        self.durable_offset = log.end_offset

    def take(self) -> Sync | None:
        """Returns the next sync to perform, or None if all of the log is durable."""
        return (self._tail, self._log.end_offset) if self.durable_offset < self._log.end_offset else None

    def is_moot(self, sync: Sync) -> bool:
        """Returns whether the log was truncated after this sync was taken. If so, the sync does not prove that the
        present records are durable.
        """
        return sync[0] != self._tail

    def done(self, sync: Sync) -> bool:
        """Reports that a sync is done. Returns True if more of the log is durable than before."""
        if self.is_moot(sync) or sync[1] <= self.durable_offset:
            return False
        self.durable_offset = sync[1]
        return True

    def truncated(self) -> None:
        """Updates the state after the end of the log was removed."""
        self._tail += 1
        self.durable_offset = min(self.durable_offset, self._log.end_offset)

    def restarted(self, offset: int) -> None:
        """Updates the state after the log was emptied. The log now starts at `offset`, the end of a durable
        snapshot.
        """
        self._tail += 1
        self.durable_offset = offset
