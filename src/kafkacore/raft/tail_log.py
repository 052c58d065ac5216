"""The metadata log of an observer that keeps nothing on disk. It is in memory, and drops records that are applied."""

from __future__ import annotations

from kafkacore.raft.committed import CommittedBatch, NothingToLoad
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch


class TailLog(MemoryLog):
    """For a replica from which nobody fetches, and which begins empty at each start of its process. It is the last
    listener of its replica, and so it removes records that all other listeners have applied."""

    def begin_sync(self) -> None:
        """Does nothing: no record has to outlive the process."""

    def end_sync(self) -> bool:
        return True

    def flush(self) -> None:
        """Does nothing, as `begin_sync`."""

    def on_batch(self, batch: CommittedBatch) -> None:
        self.trim(batch.last_offset + 1)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> NothingToLoad:
        return NothingToLoad(lambda: self._forget(OffsetAndEpoch(offset + 1, epoch)))

    def _forget(self, loaded: OffsetAndEpoch) -> None:
        """The listeners have taken the records of the snapshot, so only its id is kept. Earlier downloads were given
        up."""
        self._snapshots = {
            each: b"" if each == loaded else data for each, data in self._snapshots.items() if each >= loaded
        }
        self._partial = {each: data for each, data in self._partial.items() if each > loaded}

    def on_leading(self, epoch: int) -> None:
        """Such a replica never leads."""

    def on_following(self, epoch: int) -> None:
        """Such a replica always follows."""
