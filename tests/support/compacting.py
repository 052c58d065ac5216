"""A simple model of log compaction, which follows KIP-98, KIP-534 and Apache Kafka's rules for the offset map, and a
driver for the real compaction. Tests compare the results of the two."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from kafkacore._fast.compact.compaction import DONE, SWAP, Compaction
from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder

SEED = b"0123456789abcdef"
ABORT, COMMIT = 0, 1
NOW = 1_700_000_000_000


@dataclass
class Plain:
    """A decoded batch. `records` are (offset, timestamp, key, value, headers)."""

    base_offset: int
    last_offset: int
    producer: tuple[int, int, int]  # producer id, producer epoch, base sequence
    transactional: bool
    control: bool
    codec: str
    horizon: int | None
    max_timestamp: int
    leader_epoch: int
    records: list[tuple]
    marker: int | None = None
    rewritten: bool = field(default=False, compare=False)
    raw: bytes = field(default=b"", compare=False)


def plain(batch):
    records = [(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in batch]
    kinds = [one.control_type for one in batch] if batch.is_control else []
    return Plain(
        batch.base_offset, batch.last_offset, (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        batch.is_transactional, batch.is_control, batch.codec_name, batch.delete_horizon_ms, batch.max_timestamp,
        batch.partition_leader_epoch, records, kinds[0] if kinds else None, raw=bytes(batch.data),
    )  # fmt: skip


def read_log(handle):
    """Decodes every batch of a log, and asserts that each checksum is correct."""
    found, offset = [], handle.log_start_offset
    while offset < handle.end_offset:
        data = handle.read(offset, 1 << 20).records
        if not data:
            break
        for batch in Batches(data):
            assert batch.crc_ok
            found.append(plain(batch))
            offset = batch.next_offset
    return found


def compact(handle, first_dirty, upper_bound, now_ms, delete_retention_ms, *, keys=None, step_bytes=700, swapped=None):
    """Runs one round of the real compaction, and returns the offset at which the next round begins. Calls `swapped`
    each time the compaction has replaced a group of segments."""
    keys = KeyOffsets(1 << 20, 0.9, SEED) if keys is None else keys
    keys.begin(max(upper_bound - first_dirty, 1))
    compaction = Compaction(
        handle, keys, first_dirty, upper_bound, now_ms=now_ms, delete_retention_ms=delete_retention_ms,
        buffer_bytes=4096,
    )  # fmt: skip
    try:
        while compaction.phase != DONE:
            before = compaction.phase
            compaction.step(step_bytes)
            if before == SWAP and swapped is not None:
                swapped()
        return compaction.end_offset
    finally:
        compaction.close()


@dataclass
class Twin:
    """The model of a log under compaction. `aborted` holds (producer id, first offset, offset of the abort marker) from
    the transaction indexes. `last` maps each producer id to the last offset of its last data batch, and its epoch. That
    offset is None if the log has only markers of the producer."""

    batches: list[Plain]
    aborted: list[tuple[int, int, int]]
    last: dict[int, tuple[int | None, int]]

    def is_aborted(self, batch):
        return batch.transactional and any(
            producer == batch.producer[0] and first <= batch.base_offset <= end
            for producer, first, end in self.aborted
        )  # fmt: skip

    def build_map(self, bases, first_dirty, upper_bound, limit):
        """Returns the offset of each key's last record, and the end offset of the map."""
        offsets, latest = {}, -1
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            if base >= upper_bound or following is None or following <= first_dirty:
                continue
            for batch in self.batches:
                if not base <= batch.base_offset < following or batch.last_offset < first_dirty:
                    continue
                for offset, _, key, *_ in [] if batch.control or self.is_aborted(batch) else batch.records:
                    if key is None or offset < first_dirty:
                        continue
                    if key not in offsets and len(offsets) >= limit:
                        return offsets, latest
                    offsets[key] = offset
                latest = max(latest, batch.last_offset)
            latest = max(latest, following - 1)
        return offsets, latest

    def is_needed(self, marker):
        """Returns whether the log still has a batch of the transaction that `marker` ends."""
        producer = marker.producer[0]
        before = [one for one in self.batches if one.producer[0] == producer and one.base_offset < marker.base_offset]
        since = max((one.base_offset for one in before if one.control), default=-1)
        return any(not one.control and one.transactional and one.base_offset > since for one in before)

    def is_last(self, batch):
        if batch.producer[0] not in self.last:
            return False
        offset, epoch = self.last[batch.producer[0]]
        return batch.last_offset == offset if offset is not None else batch.control and batch.producer[1] == epoch

    def round(self, bases, first_dirty, upper_bound, now_ms, delete_retention_ms, limit):
        """Runs one round of compaction. Returns the offset at which the next round begins, or None if the map has no
        room for the keys of one batch."""
        offsets, latest = self.build_map(bases, first_dirty, upper_bound, limit)
        end_offset = max(latest + 1, first_dirty)
        if end_offset == first_dirty:
            return None
        copied_until = min((base for base in bases if base >= end_offset), default=1 << 62)
        kept, needed_markers = [], set()
        for batch in self.batches:
            if batch.base_offset >= copied_until:
                kept.append(batch)
                continue
            unneeded = batch.control and (not batch.records or not self.is_needed(batch))
            if batch.control and batch.records and not unneeded:
                needed_markers.add(batch.base_offset)
            left = self.left_of(batch, offsets, latest, unneeded, now_ms, now_ms + delete_retention_ms)
            if left.records or self.is_last(batch) or batch.last_offset + 1 == upper_bound:
                kept.append(left)
        self.aborted = [one for one in self.aborted if one[2] >= copied_until or one[2] in needed_markers]
        self.batches = kept
        return end_offset

    def left_of(self, batch, offsets, latest, unneeded, now_ms, horizon):
        passed = batch.horizon is not None and batch.horizon <= now_ms
        if batch.control:
            records = [] if unneeded and passed else batch.records
            new_horizon = unneeded
        else:
            records = [] if self.is_aborted(batch) else [
                one for one in batch.records
                if one[0] > latest or (
                    one[2] is not None and one[0] >= offsets.get(one[2], -1)
                    and (one[3] is not None or not passed))
            ]  # fmt: skip
            new_horizon = any(one[3] is None for one in records)
        if not records:
            return replace(batch, records=[], codec="none", horizon=None, marker=None, rewritten=True)
        if new_horizon and batch.horizon is None:
            batch = replace(batch, horizon=horizon, rewritten=True)
        if len(records) == len(batch.records):
            return batch
        return replace(batch, records=records, max_timestamp=max(one[1] for one in records), rewritten=True)


class Writer:
    """Makes random batches, and passes them with their offsets to `append`. Producers 0 to 2 are idempotent, producers
    3 to 5 are transactional, and -1 means no producer."""

    def __init__(self, append):
        self.append = append
        self.offset = 0
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}  # first offset of the open transaction of each producer
        self.aborted: list[tuple[int, int, int]] = []
        self.last: dict[int, tuple[int | None, int]] = {}

    def data(self, producer, records, codec, gap, log_append):
        ids = {}
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            ids = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[producer] = sequence + len(records)
        self.offset += gap
        builder = RecordBatchBuilder(
            codec=codec, base_offset=self.offset, partition_leader_epoch=7, transactional=producer >= 3,
            log_append_time_ms=NOW + 77 if log_append else None, **ids,
        )  # fmt: skip
        for key, value, attached, late in records:
            builder.append(NOW + late if late >= 0 else -1, key, value, attached)
        self.append(bytes(builder.build()))
        if producer >= 3:
            self.open.setdefault(producer, self.offset)
        self.offset += len(records)
        if producer >= 0:
            self.last[producer] = (self.offset - 1, 0)

    def marker(self, producer, kind):
        builder = RecordBatchBuilder(
            base_offset=self.offset, partition_leader_epoch=7, producer_id=producer, producer_epoch=0,
            transactional=True, control=True,
        )  # fmt: skip
        builder.append(NOW, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1))
        self.append(bytes(builder.build()))
        first = self.open.pop(producer, None)
        if kind == ABORT and first is not None:
            self.aborted.append((producer, first, self.offset))
        self.last.setdefault(producer, (None, 0))
        self.offset += 1

    def decide(self):
        """Ends all open transactions, so that the last stable offset advances."""
        for producer in list(self.open):
            self.marker(producer, COMMIT)
