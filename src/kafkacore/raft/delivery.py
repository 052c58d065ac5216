"""Passes committed metadata to listeners: each batch once and in order, or a snapshot in parts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from kafkacore._fast.record.batch import Batch, Batches
from kafkacore.raft import snapshots
from kafkacore.raft.committed import CommittedBatch, Listener
from kafkacore.raft.effects import ReadRecords
from kafkacore.raft.log import OffsetAndEpoch, RaftLog

DELIVER_BYTES: Final = 1 << 20  # number of bytes delivered in one iteration of the event loop
LOAD_RECORDS: Final = 1000  # number of snapshot records delivered in one iteration of the event loop


class Delivery:
    """Passes committed metadata to the listeners. Must be used on one event loop only. `blocking` runs a function on a
    thread that can wait for a disk. `spawn` starts a task. `again` schedules another call of `turn`.
    """

    def __init__(
        self,
        log: RaftLog,
        decode: Callable[[Batch], Sequence[Any]],
        blocking: Callable[..., Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        again: Callable[[], None],
    ) -> None:
        self._log, self._decode = log, decode
        self._blocking, self._spawn, self._again = blocking, spawn, again
        self._own: dict[int, Sequence[Any]] = {}
        self._reading = False
        self._to_load: deque[OffsetAndEpoch] = deque()
        self.listeners: list[Listener] = []
        self.offset = 0  # all records below this offset are delivered

    def keep(self, base_offset: int, records: Sequence[Any]) -> None:
        """Keeps the decoded records of a batch that this node appends. When the batch is committed, the listeners get
        these objects, so nothing is decoded again.
        """
        self._own[base_offset] = records

    def forget(self) -> None:
        """Drops the kept records. Call this when this replica does not lead, because another leader's batch may replace
        a batch that this replica has appended.
        """
        self._own.clear()

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Starts the delivery of a snapshot. Batches wait until the whole snapshot is delivered."""
        self._to_load.append(snapshot_id)
        if len(self._to_load) == 1:
            self._spawn(self._load_all())

    async def _load_all(self) -> None:
        while self._to_load:
            await self.load(self._to_load[0])
            self._to_load.popleft()
        self._again()

    async def load(self, snapshot_id: OffsetAndEpoch) -> None:
        """Delivers a snapshot in parts; between two parts the loop does other work. Raises SnapshotError."""
        timestamp = await self._blocking(snapshots.read_timestamp, self._log, snapshot_id)
        loads = [
            each.begin_snapshot(snapshot_id.offset - 1, snapshot_id.epoch, timestamp) for each in list(self.listeners)
        ]
        parts = snapshots.read_parts(self._log, snapshot_id)
        while (part := await self._blocking(next, parts, None)) is not None:
            for records in _steps(map(self._decode, part)):
                for load in loads:
                    load.take(records)
                await asyncio.sleep(0)
        for load in loads:
            load.finish()
        self.offset = snapshot_id.offset
        self._own.clear()

    def turn(self, high_watermark: int) -> None:
        """Delivers committed batches: all of them, or as many as one iteration of the event loop allows."""
        if self._reading or self._to_load or self.offset >= high_watermark:
            return
        data = self._log.read_recent(self.offset, DELIVER_BYTES)
        if data is None:
            self._reading = True
            self._spawn(self._read(high_watermark))
        else:
            self._deliver(data, high_watermark)

    async def _read(self, high_watermark: int) -> None:
        read = ReadRecords(self.offset, DELIVER_BYTES)
        data = await self._blocking(read.perform, self._log)
        self._reading = False
        if read.offset == self.offset and not self._to_load:
            self._deliver(data, high_watermark)
        self._again()

    def _deliver(self, data: bytes, high_watermark: int) -> None:
        for batch in Batches(data):
            if batch.next_offset > high_watermark:
                break
            if batch.base_offset < self.offset:
                continue
            records = self._own.pop(batch.base_offset, None)
            if batch.is_control:
                records = ()
            elif records is None:
                records = self._decode(batch)
            made = CommittedBatch(
                batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp, records,
                batch.size_bytes,
            )  # fmt: skip
            for listener in self.listeners:
                listener.on_batch(made)
            self.offset = batch.next_offset
        if self.offset < high_watermark:
            self._again()


def _steps(batches: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yields the records of batches, at most LOAD_RECORDS at a time."""
    for records in batches:
        rest = iter(records)
        while step := list(islice(rest, LOAD_RECORDS)):
            yield step
