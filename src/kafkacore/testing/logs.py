"""What lies in a partition, as a test looks at it: not over the wire, but in the broker's own log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle, ReadBytes, SegmentInfo
from kafkacore._fast.record.batch import Batch, Batches

_READ_BYTES: Final = 4 << 20
_TO_THE_END: Final = 3  # isolation: whoever leads


class LogRecord(NamedTuple):
    """One record. `timestamp_ms` since 1970, -1 for none; `headers` in their order."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class BatchInfo(NamedTuple):
    """The header of one record batch; -1 where the producer is not idempotent."""

    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    codec: str | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    max_timestamp_ms: int


class Log:
    """One partition's log; every look is a fresh one. Raises OSError when its disk has failed."""

    def __init__(self, handle: PartitionHandle) -> None:
        self._handle = handle

    @property
    def topic(self) -> str:
        return self._handle.topic

    @property
    def partition(self) -> int:
        return self._handle.index

    @property
    def start_offset(self) -> int:
        """What is below has been deleted."""
        return self._handle.log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._handle.end_offset

    @property
    def high_watermark(self) -> int:
        return self._handle.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided."""
        return self._handle.last_stable_offset

    @property
    def leader_epoch(self) -> int:
        return self._handle.leader_epoch

    @property
    def size_bytes(self) -> int:
        return self._handle.size_bytes

    @property
    def segments(self) -> list[SegmentInfo]:
        """Base offset, size and whether it is sealed, oldest first; none before the first record."""
        return self._handle.segments()

    def records(self, start: int | None = None, end: int | None = None, *, control: bool = False) -> list[LogRecord]:
        """Records from offset `start` up to `end`, all where not given; `control`: transactions' markers too."""
        first = self.start_offset if start is None else start
        found: list[LogRecord] = []
        for batch in self._batches(first):
            if end is not None and batch.base_offset >= end:
                break
            if batch.is_control and not control:
                continue
            found += [
                LogRecord(each.offset, each.timestamp, each.key, each.value, each.headers)
                for each in batch
                if each.offset >= first and (end is None or each.offset < end)
            ]
        return found

    def values(self) -> list[bytes | None]:
        """Of every record, in their order."""
        return [each.value for each in self.records()]

    def batches(self) -> list[BatchInfo]:
        """As they lie on the disk."""
        return [
            BatchInfo(
                each.base_offset,
                each.last_offset,
                each.record_count,
                each.size_bytes,
                each.codec_name,
                each.producer_id,
                each.producer_epoch,
                each.base_sequence,
                each.partition_leader_epoch,
                each.is_transactional,
                each.is_control,
                each.max_timestamp,
            )
            for each in self._batches(self.start_offset)
        ]

    def __len__(self) -> int:
        """Records that clients can read: fewer than the offsets where some were compacted away or are markers."""
        return len(self.records(end=self.high_watermark))

    def __repr__(self) -> str:
        return f"<Log {self.topic}-{self.partition}: {self.start_offset} to {self.end_offset}>"

    def _batches(self, offset: int) -> Iterator[Batch]:
        while offset < self.end_offset:
            read: ReadBytes = self._handle.read(offset, _READ_BYTES, _TO_THE_END)
            after = offset
            for batch in Batches(read.records):
                after = batch.next_offset
                yield batch
            if after == offset:  # truncated or deleted meanwhile
                return
            offset = after
