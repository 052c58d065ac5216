"""Makes snapshots of the metadata. Deletes old snapshots, and the records below the oldest snapshot that is kept
(KIP-630)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, Protocol

from kafkacore.raft import snapshots
from kafkacore.raft.committed import CommittedBatch, NothingToLoad
from kafkacore.raft.log import OffsetAndEpoch, RaftLog

LOG: Final = logging.getLogger("kafkacore.raft")


class Contents(NamedTuple):
    """The contents of a snapshot: all records up to `offset`, and the epoch and time of the last record."""

    offset: int
    epoch: int
    timestamp_ms: int
    values: Iterator[bytes]


class SnapshotLimits(NamedTuple):
    """The snapshot settings from the configuration: metadata.log.max.record.bytes.between.snapshots,
    metadata.log.max.snapshot.interval.ms (0: never by time), metadata.max.retention.bytes and metadata.max.retention.ms
    (-1: no limit).
    """

    bytes_between: int = 20 << 20
    interval_ms: int = 3_600_000
    retention_bytes: int = 100 << 20
    retention_ms: int = 604_800_000


class CleanableLog(RaftLog, Protocol):
    @property
    def size_bytes(self) -> int: ...
    def delete_snapshot(self, snapshot_id: OffsetAndEpoch) -> None: ...


Write = Callable[[OffsetAndEpoch, Iterator[bytes], int], Awaitable[None]]
Change = Callable[[Callable[[], None]], Awaitable[None]]


class Snapshotter:
    """Makes and deletes snapshots. It is a listener of the driver; add it after the listener that applies the metadata.
    `contents` returns the applied metadata, or None before any metadata is applied. `write` is the driver's
    write_snapshot, and `change` is its change_log. The monotonic clock `now_ms` decides when the next snapshot is due.
    The time of day `wall_ms` serves to compute the age of snapshots.
    """

    def __init__(
        self,
        log: CleanableLog,
        limits: SnapshotLimits,
        contents: Callable[[], Contents | None],
        write: Write,
        change: Change,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._log, self._limits, self._contents = log, limits, contents
        self._write, self._change = write, change
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._bytes = 0
        self._last_ms = now_ms()
        self._task: asyncio.Task[None] | None = None

    def on_batch(self, batch: CommittedBatch) -> None:
        self._bytes += batch.size_bytes
        if self._is_due() and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._make())

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> NothingToLoad:
        return NothingToLoad(self._reset)

    def on_leading(self, epoch: int) -> None:
        """Does nothing, because leaders and followers make snapshots alike."""

    def on_following(self, epoch: int) -> None:
        """Does nothing, because leaders and followers make snapshots alike."""

    async def close(self) -> None:
        """Stops writing an unfinished snapshot. At its next start, the node removes the unfinished file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_due(self) -> bool:
        limits = self._limits
        if self._bytes >= limits.bytes_between:
            return True
        # A snapshot is due even if all new records are NoOpRecords. Otherwise the node would have to read all of them
        # at its next start.
        return limits.interval_ms > 0 and self._now_ms() - self._last_ms >= limits.interval_ms

    def _reset(self) -> None:
        self._bytes, self._last_ms = 0, self._now_ms()

    async def _make(self) -> None:
        try:
            contents = self._contents()
            if contents is None:
                return
            self._reset()
            snapshot_id = OffsetAndEpoch(contents.offset + 1, contents.epoch)
            await self._write(snapshot_id, contents.values, contents.timestamp_ms)
            await self._change(self.clean)
        except OSError:
            LOG.exception(
                "no snapshot could be made; the next attempt follows after %d more bytes", self._limits.bytes_between
            )

    def clean(self) -> None:
        """While the retention settings require it, deletes the oldest snapshot and the records below the next snapshot.
        Blocks.
        """
        while True:
            ids = self._log.snapshots()
            if len(ids) < 2 or not self._is_too_much(ids):
                return
            self._log.trim(ids[1].offset)
            self._log.delete_snapshot(ids[0])

    def _is_too_much(self, ids: list[OffsetAndEpoch]) -> bool:
        limits = self._limits
        if limits.retention_bytes >= 0:
            total = self._log.size_bytes + sum(self._log.snapshot_size(each) for each in ids)
            if total > limits.retention_bytes:
                return True
        if limits.retention_ms < 0:
            return False
        return self._wall_ms() - self._timestamp_ms(ids[0]) > limits.retention_ms

    def _timestamp_ms(self, snapshot_id: OffsetAndEpoch) -> int:
        try:
            return snapshots.read_timestamp(self._log, snapshot_id)
        except snapshots.SnapshotError as error:
            LOG.warning("snapshot %d-%d is deleted, because it is damaged: %s", *snapshot_id, error)
            return snapshots.NO_TIMESTAMP
