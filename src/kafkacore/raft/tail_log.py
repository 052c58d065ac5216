"""The metadata log of an observer that stores nothing on disk. The log is in memory, and drops records that all
listeners have applied."""

from __future__ import annotations

from kafkacore.raft.committed import CommittedBatch, NothingToLoad
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch


class TailLog(MemoryLog):
    """A log for a replica from which no other replica fetches. The log is empty whenever the process starts. The log is
    also a listener of its replica. It must be the last listener, because it removes the records that all other
    listeners have applied."""

    def begin_sync(self) -> None:
        """Does nothing, because no record has to survive the process."""

    def end_sync(self) -> bool:
        return True

    def flush(self) -> None:
        """Does nothing, because no record has to survive the process."""

    def on_batch(self, batch: CommittedBatch) -> None:
        self.trim(batch.last_offset + 1)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> NothingToLoad:
        return NothingToLoad(lambda: self._forget(OffsetAndEpoch(offset + 1, epoch)))

    def _forget(self, loaded: OffsetAndEpoch) -> None:
        """Drops a snapshot's records and keeps only its id, because the listeners have read the records. Also drops the
        parts of earlier, abandoned downloads.
        """
        self._snapshots = {
            each: b"" if each == loaded else data for each, data in self._snapshots.items() if each >= loaded
        }
        self._partial = {each: data for each, data in self._partial.items() if each > loaded}

    def on_leading(self, epoch: int) -> None:
        """Does nothing, because a replica with this log never leads."""

    def on_following(self, epoch: int) -> None:
        """Does nothing, because a replica with this log always follows."""
