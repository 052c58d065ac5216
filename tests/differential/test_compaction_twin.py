"""Compaction compared with a simple Python counterpart, on random logs with keys, nulls, transactions, codecs and gaps.
The logs are compacted again and again while they grow and time passes."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from compacting import ABORT, COMMIT, NOW, SEED, Twin, Writer, compact, read_log
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.compact.compaction import UncleanableLog
from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.storage.log_manager import LogManager

RETENTION_MS = 1000
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"long key " * 4, b"c", b"d", b"e"]))
values = st.one_of(st.none(), st.binary(max_size=60))
headers = st.lists(st.tuples(st.sampled_from(["h", "i"]), st.one_of(st.none(), st.binary(max_size=4))), max_size=2)
records = st.lists(st.tuples(keys, values, headers, st.integers(-1, 50)), min_size=1, max_size=5)
data = st.tuples(
    st.just("data"), st.integers(-1, 5), records, st.sampled_from(CODECS), st.integers(0, 3), st.booleans()
)
marker = st.tuples(st.just("marker"), st.integers(3, 5), st.sampled_from([ABORT, COMMIT]))
rounds = st.lists(
    st.tuples(st.lists(st.one_of(data, data, data, marker), min_size=1, max_size=14), st.integers(0, 2500)),
    min_size=1, max_size=4,
)  # fmt: skip


def follow(handle: PartitionHandle, raw: bytes) -> None:
    assert handle.append_replicated(raw, 7).error == 0


def aborted_on_disk(disk: SimulatedDisk) -> list[tuple[int, int, int]]:
    found = []
    for name in disk.list("/data/orders-0"):
        if name.endswith(".txnindex"):
            for _, producer, first, last, _ in struct.iter_unpack(">hqqqq", disk.read(f"/data/orders-0/{name}")):
                found.append((producer, first, last))
    return sorted(found)


@settings(max_examples=120)
@given(rounds, st.sampled_from([300, 900, 4000]), st.sampled_from([3, 1000]))
def test_compaction_leaves_the_records_of_the_twin(rounds: list, segment_bytes: int, most_keys: int) -> None:  # type: ignore[type-arg]
    disk = SimulatedDisk()
    disk.make_directories("/data")
    wanted = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=64, compact_policy=True)
    manager = LogManager(disk.environment(), ["/data"], lambda topic: wanted, files=disk)
    manager.load()
    (handle,) = manager.create("orders", Uuid.random(), [0])
    handle.become_follower(1, 7)
    key_offsets = KeyOffsets(1 << 20, 0.9, SEED) if most_keys > 3 else KeyOffsets(0, 0.2, SEED)
    writer = Writer(lambda raw: follow(handle, raw))
    known, now_ms, dirty = 0, NOW, 0
    twin = Twin([], [], writer.last)
    for operations, passed_ms in rounds:
        for kind, *rest in operations:
            getattr(writer, kind)(*rest)
        writer.decide()
        now_ms += passed_ms
        whole = read_log(handle)
        twin.batches += [batch for batch in whole if batch.base_offset >= known]
        twin.aborted += [one for one in writer.aborted if one[2] >= known]
        known = writer.offset
        assert whole == twin.batches
        bases = [segment.base_offset for segment in handle.segments()]
        upper_bound = bases[-1]
        if upper_bound <= dirty:
            continue
        key_offsets.begin(max(upper_bound - dirty, 1))
        end = twin.round(bases, dirty, upper_bound, now_ms, RETENTION_MS, key_offsets.limit)
        try:
            dirty = compact(handle, dirty, upper_bound, now_ms, RETENTION_MS, keys=key_offsets)
        except UncleanableLog:
            assert end is None
            break
        assert dirty == end
        left = read_log(handle)
        assert left == twin.batches
        # A batch from which no record was removed has the same bytes as before.
        before = {batch.base_offset: batch.raw for batch in whole}
        assert all(b.raw == before[b.base_offset] for b, t in zip(left, twin.batches, strict=True) if not t.rewritten)
        assert aborted_on_disk(disk) == sorted(twin.aborted)
        for one in twin.batches:
            one.rewritten = False
    manager.close()
