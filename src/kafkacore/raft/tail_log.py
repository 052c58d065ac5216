"""The metadata log of a broker beside a controller that has it on disk: in memory, and without applied records."""

from __future__ import annotations

from collections.abc import Iterable

from kafkacore.protocol.messages import Message
from kafkacore.raft.committed import CommittedBatch
from kafkacore.raft.log import MemoryLog


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

    def on_snapshot(self, records: Iterable[Message], offset: int, epoch: int, timestamp_ms: int) -> None:
        latest = self.snapshots()[-1]
        self._snapshots = {latest: b""}  # only its id is needed: the listeners have its records
        self._partial.clear()  # downloads that were given up

    def on_leading(self, epoch: int) -> None:
        """Such a replica never leads."""

    def on_following(self, epoch: int) -> None:
        """Such a replica always follows."""
