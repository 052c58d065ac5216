"""The content of a partition that a test can inspect. It comes directly from the broker's log, without a socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle, ReadBytes, SegmentInfo
from kafkacore._fast.record.batch import Batch, Batches

_READ_BYTES: Final = 4 << 20
_TO_THE_END: Final = 3  # the isolation with which PartitionHandle.read reads up to the end of the log


class LogRecord(NamedTuple):
    """One record. `timestamp_ms` is in ms since 1970, or -1 for no timestamp. `headers` are in order."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class BatchInfo(NamedTuple):
    """The header of one record batch. The producer fields are -1 if the producer is not idempotent."""

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
    """The log of one partition. Every access reads the current state. Raises OSError if the log's disk has failed."""

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
        """The first offset. Records below it are deleted."""
        return self._handle.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._handle.end_offset

    @property
    def high_watermark(self) -> int:
        return self._handle.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended."""
        return self._handle.last_stable_offset

    @property
    def leader_epoch(self) -> int:
        return self._handle.leader_epoch

    @property
    def size_bytes(self) -> int:
        return self._handle.size_bytes

    @property
    def segments(self) -> list[SegmentInfo]:
        """The segments, oldest first: base offset, size, and whether the segment is sealed. The list is empty before
        the first record."""
        return self._handle.segments()

    def records(self, start: int | None = None, end: int | None = None, *, control: bool = False) -> list[LogRecord]:
        """Returns the records from offset `start` up to, but not including, `end`. By default returns all records. With
        `control`, also returns the transaction markers."""
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
        """Returns the values of all records, in order."""
        return [each.value for each in self.records()]

    def batches(self) -> list[BatchInfo]:
        """Returns the batches as they are on disk."""
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
        """Returns the number of records that clients can read. Compaction and transaction markers make this number
        smaller than the number of offsets."""
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
            if after == offset:  # the log has been truncated or deleted since
                return
            offset = after
