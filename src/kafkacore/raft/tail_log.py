"""The metadata log of an observer that keeps nothing on disk: in memory, and without applied records."""

from __future__ import annotations

from kafkacore.raft.committed import CommittedBatch, NothingToLoad
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch


class TailLog(MemoryLog):
    """For a replica that nobody fetches from, and that begins empty with each start of its process. As the last
    listener of its replica, it removes the records that all others have applied."""

    def begin_sync(self) -> None:
        """Nothing has to outlive the process."""

    def end_sync(self) -> bool:
        return True

    def flush(self) -> None:
        """Likewise."""

    def on_batch(self, batch: CommittedBatch) -> None:
        self.trim(batch.last_offset + 1)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> NothingToLoad:
        return NothingToLoad(lambda: self._forget(OffsetAndEpoch(offset + 1, epoch)))

    def _forget(self, loaded: OffsetAndEpoch) -> None:
        """The listeners have the records of a snapshot: only its id is needed. Earlier downloads were given up."""
        self._snapshots = {
            each: b"" if each == loaded else data for each, data in self._snapshots.items() if each >= loaded
        }
        self._partial = {each: data for each, data in self._partial.items() if each > loaded}

    def on_leading(self, epoch: int) -> None:
        """Such a replica never leads."""

    def on_following(self, epoch: int) -> None:
        """Such a replica always follows."""
