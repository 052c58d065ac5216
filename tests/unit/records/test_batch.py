"""Record batches. They have the same bytes as the batches of other clients, and can be read back. Malformed batches are
refused.
"""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Iterator

import pytest
from aiokafka.record._crecords import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record._crecords import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.codec.compression import Codec, CodecError
from kafkacore._fast.codec.context import live_contexts
from kafkacore._fast.record.batch import (
    Batches,
    ControlRecordType,
    CorruptBatchError,
    InvalidRecordError,
    RecordBatchBuilder,
    live_objects,
)

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

NOW = 1_700_000_000_000
CODEC_IDS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ROWS: list[Row] = [
    (NOW, b"key", b"value", []),
    (NOW + 5, None, b"no key", [("trace", b"1")]),
    (NOW - 70, b"", None, [("a", None), ("a", b"")]),
    (NOW + 2**33, b"k" * 64, b"v" * 70000, [("\u00e9t\u00e9", b"\xff\x00")]),
    (NOW, None, None, []),
]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    gc.collect()
    before = live_objects(), live_contexts()
    yield
    gc.collect()  # a caught exception and its frame refer to each other
    assert (live_objects(), live_contexts()) == before


def build(rows: list[Row] = ROWS, **kwargs: object) -> bytes:
    builder = RecordBatchBuilder(**kwargs)  # type: ignore[arg-type]
    for timestamp, key, value, headers in rows:
        assert builder.append(timestamp, key, value, headers)
    return builder.build()


def read(data: bytes) -> list[Row]:
    return [(r.timestamp, r.key, r.value, r.headers) for batch in Batches(data) for r in batch]


def with_crc(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, checksum(data[21:]))
    return data


def by_aiokafka(rows: list[Row], codec: int = 0, **kwargs: int) -> bytes:
    options = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **kwargs}
    builder = AiokafkaBuilder(magic=2, compression_type=codec, batch_size=1 << 24, **options)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


def by_kafka_python(rows: list[Row]) -> bytes:
    builder = KafkaPythonBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    return bytes(builder.build())


def test_builder_writes_the_bytes_of_aiokafka_and_kafka_python() -> None:
    ours = bytearray(build())
    ours[12:16] = bytes(4)  # both libraries write leader epoch 0, which the checksum does not cover
    theirs = bytearray(by_aiokafka(ROWS))
    theirs[12:16] = bytes(4)
    assert ours == theirs
    theirs = bytearray(by_kafka_python(ROWS))
    theirs[12:16] = bytes(4)
    assert ours == theirs


def test_producer_ids_are_written_as_aiokafka_writes_them() -> None:
    ours = build(producer_id=2**40, producer_epoch=7, base_sequence=99, transactional=True)
    theirs = by_aiokafka(ROWS, is_transactional=1, producer_id=2**40, producer_epoch=7, base_sequence=99)
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_batch_is_read_back_here_and_by_other_clients(codec: str) -> None:
    data = build(codec=codec)
    assert read(data) == ROWS
    (batch,) = Batches(data)
    assert batch.crc_ok
    assert batch.codec_name == codec
    assert batch.record_count == len(ROWS)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (0, 4, 5)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 2**33)
    aiokafka = AiokafkaBatch(data)
    assert aiokafka.validate_crc()
    assert [(r.timestamp, r.key, r.value, r.headers) for r in aiokafka] == ROWS
    if codec not in ("none", "gzip"):
        return  # for the other codecs, kafka-python needs packages that nothing else here needs
    kafka_python = KafkaPythonBatch(data)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in kafka_python] == ROWS


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_batches_of_aiokafka_are_read(codec: str) -> None:
    assert read(by_aiokafka(ROWS, CODEC_IDS[codec])) == ROWS


def test_header_fields_are_read() -> None:
    ids = {"producer_id": 5, "producer_epoch": 3, "base_sequence": 2**31 - 2, "transactional": True}
    data = build(base_offset=2**40, partition_leader_epoch=9, **ids)
    (batch,) = Batches(data)
    assert (batch.base_offset, batch.last_offset) == (2**40, 2**40 + 4)
    assert (batch.partition_leader_epoch, batch.magic) == (9, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 3, 2**31 - 2)
    assert batch.last_sequence == 2, "sequences wrap from 2^31 - 1 to 0"
    assert batch.is_transactional and not batch.is_control
    assert batch.timestamp_type == 0 and batch.delete_horizon_ms is None
    assert [r.offset for r in batch] == [2**40 + i for i in range(5)]
    assert bytes(batch.data) == data
    assert batch.size_bytes == len(data)


def test_log_append_time_gives_every_record_the_batch_timestamp() -> None:
    (batch,) = Batches(build(log_append_time_ms=NOW + 999))
    assert batch.timestamp_type == 1
    assert batch.max_timestamp == NOW + 999
    assert {r.timestamp for r in batch} == {NOW + 999}


def test_delete_horizon_is_the_base_of_the_timestamp_deltas() -> None:
    (batch,) = Batches(build(delete_horizon_ms=NOW + 10**6))
    assert batch.delete_horizon_ms == NOW + 10**6
    assert [r.timestamp for r in batch] == [row[0] for row in ROWS]


def test_control_batch_shows_its_record_types() -> None:
    builder = RecordBatchBuilder(control=True, transactional=True, producer_id=1, producer_epoch=0)
    builder.append(NOW, struct.pack(">hh", 0, ControlRecordType.COMMIT), struct.pack(">hi", 0, 11))
    (batch,) = Batches(builder.build())
    (marker,) = batch
    assert batch.is_control and batch.is_transactional
    assert marker.control_type == ControlRecordType.COMMIT
    assert marker.value == struct.pack(">hi", 0, 11)


def test_batch_keeps_the_gaps_between_offsets_that_compaction_leaves() -> None:
    builder = RecordBatchBuilder(base_offset=100)
    for delta in (0, 3, 70000):
        assert builder.append(NOW, b"k", b"v", offset_delta=delta)
    (batch,) = Batches(builder.build())
    assert [r.offset for r in batch] == [100, 103, 70100]
    assert batch.last_offset == 70100
    with pytest.raises(InvalidRecordError, match="offset delta"):
        growing = RecordBatchBuilder()
        growing.append(NOW, None, None, offset_delta=4)
        growing.append(NOW, None, None, offset_delta=4)


def test_append_returns_false_when_the_batch_is_full() -> None:
    builder = RecordBatchBuilder(limit_bytes=61 + 100)
    assert builder.append(NOW, None, b"x" * 80)
    assert not builder.append(NOW, None, b"x" * 80)
    assert builder.append(NOW, None, b""), "a smaller record must still fit"
    data = builder.build()
    assert len(data) <= 161
    assert [r.value for r in next(Batches(data))] == [b"x" * 80, b""]
    tiny = RecordBatchBuilder(limit_bytes=0)
    assert not tiny.append(NOW, None, None)
    assert len(tiny.build()) == 61


def test_record_that_does_not_fit_leaves_the_timestamps_unchanged() -> None:
    builder = RecordBatchBuilder(limit_bytes=61 + 50)
    assert not builder.append(NOW + 77, None, b"x" * 80)
    assert builder.append(NOW, None, b"x")
    (batch,) = Batches(builder.build())
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW)


def test_builder_refuses_malformed_records() -> None:
    builder = RecordBatchBuilder()
    with pytest.raises(InvalidRecordError, match="timestamp"):
        builder.append(-2, None, None)
    with pytest.raises(InvalidRecordError, match="header must have a name"):
        builder.append(NOW, None, None, [(None, b"")])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        builder.append(NOW, "text", None)  # type: ignore[arg-type]
    assert builder.record_count == 0
    assert builder.append(-1, None, None)
    builder.build()
    with pytest.raises(ValueError, match="built"):
        builder.append(NOW, None, None)
    with pytest.raises(CodecError, match="level"):
        broken = RecordBatchBuilder(codec="gzip", level=99)
        broken.append(NOW, None, b"x")
        broken.build()


@pytest.mark.parametrize("codec", CODEC_IDS)
@pytest.mark.parametrize("value_bytes", [0, 100, 40_000, 900_000])
def test_incompressible_batch_fits_under_any_limit(codec: str, value_bytes: int) -> None:
    value = random.Random(3).randbytes(value_bytes)
    builder = RecordBatchBuilder(codec=codec, limit_bytes=value_bytes + 80)
    assert builder.append(NOW, None, value)
    (record,) = next(Batches(builder.build()))
    assert record.value == value


def test_keys_and_values_may_be_any_buffer() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, bytearray(b"key"), memoryview(b"a value")[2:], [(b"name", bytearray(b"h"))])
    (record,) = next(Batches(builder.build()))
    assert (record.key, record.value, record.headers) == (b"key", b"value", [("name", b"h")])


def test_views_copy_nothing_and_keep_the_bytes_alive() -> None:
    for codec in CODEC_IDS:
        view = next(iter(next(Batches(build(codec=codec))))).value_view
        gc.collect()
        assert view is not None
        assert view.readonly and bytes(view) == b"value"
        del view


@pytest.mark.parametrize("name", ["offset", "timestamp", "key", "value", "headers"])
def test_field_is_the_same_by_attribute_and_by_getattr(name: str) -> None:
    for batch in Batches(build()):
        for record in batch:
            spelled = "".join(list(name))  # a different object than the name in the code
            assert getattr(record, name) == getattr(record, spelled) == getattr(type(record), name).__get__(record)
            with pytest.raises(AttributeError):
                setattr(record, name, None)
            with pytest.raises(AttributeError, match="no attribute 'nothing'"):
                record.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_records_outlive_their_batch() -> None:
    records = [r for codec in CODEC_IDS for batch in Batches(build(codec=codec)) for r in batch]
    gc.collect()
    assert [r.value for r in records] == [row[2] for row in ROWS] * len(CODEC_IDS)


def test_batches_end_at_a_partial_batch() -> None:
    data = build() + build(codec="lz4") + build()
    whole = len(build()) + len(build(codec="lz4"))
    for cut in (len(data) - 1, whole + 61, whole + 60, whole + 12, whole + 11, whole):
        batches = Batches(data[:cut])
        assert len(list(batches)) == 2
        assert batches.position == whole


@pytest.mark.parametrize(
    ("at", "new", "reason"),
    [
        (8, struct.pack(">i", 13), "length"),
        (8, struct.pack(">i", -1), "length"),
        (8, struct.pack(">i", 48), "length"),
        (8, struct.pack(">i", 2**31 - 1), "length"),
        (16, b"\x03", "magic"),
        (16, b"\xff", "magic"),
    ],
)
def test_invalid_batches_are_refused(at: int, new: bytes, reason: str) -> None:
    data = bytearray(build())
    data[at : at + len(new)] = new
    with pytest.raises(CorruptBatchError, match=reason):
        list(Batches(data))


def test_checksum_covers_from_the_attributes_on() -> None:
    data = build()
    for at in range(min(len(data), 200)):
        if 8 <= at < 12 or at == 16:
            continue  # the length and the magic byte decide which fields exist
        changed = bytearray(data)
        changed[at] ^= 0x10
        (batch,) = Batches(changed)
        assert batch.crc_ok == (at < 16), at


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_malformed_records_are_refused(codec: str) -> None:
    both = Codec()
    good = Codec().inflate(codec, build(codec=codec)[61:]) if codec != "none" else build()[61:]
    for body, count in (
        (good[:-1], 5),  # one byte is missing
        (good + b"\0", 5),  # one byte too many
        (good, 6),
        (good, 4),
        (b"\x80" * 6 + good, 5),  # a varint without an end
        (b"\x01" + good, 5),  # a record with size -1
        (b"\x00" + good, 5),  # a record with size 0
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1),  # one header is announced but missing
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),  # -1 headers
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1),  # a key with size -2
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),  # a header without a name
    ):
        stored = body if codec == "none" else both.deflate(codec, body)
        data = bytearray(build(codec=codec)[:61] + stored)
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">i", data, 57, count)
        with pytest.raises(InvalidRecordError):
            for batch in Batches(with_crc(data)):
                list(batch)


def test_body_that_does_not_inflate_is_refused() -> None:
    data = bytearray(build(codec="zstd"))
    data[-1] ^= 0xFF
    data[70] ^= 0xFF
    (batch,) = Batches(with_crc(data))
    with pytest.raises(CodecError, match="does not inflate"):
        list(batch)
    data = bytearray(build())
    data[22] |= 7
    (batch,) = Batches(with_crc(data))
    assert batch.codec_name is None
    with pytest.raises(CodecError):
        list(batch)


def test_batches_of_old_formats_are_walked_and_their_records_are_refused() -> None:
    for magic in (0, 1):
        builder = AiokafkaLegacyBuilder(magic, 0, 1 << 20)
        for offset in range(3):
            builder.append(offset, NOW + offset, b"k", b"v")
        data = bytes(builder.build())
        found = list(Batches(data))
        assert [b.base_offset for b in found] == [0, 1, 2]
        assert [b.magic for b in found] == [magic] * 3
        assert all(b.crc_ok for b in found)
        assert [b.max_timestamp for b in found] == ([NOW, NOW + 1, NOW + 2] if magic else [-1] * 3)
        assert found[0].record_count == -1
        assert b"".join(bytes(b.data) for b in found) == data
        with pytest.raises(CorruptBatchError, match="served as stored"):
            iter(found[0])


@pytest.mark.parametrize("codec", CODEC_IDS)
def test_look_ups_by_time_equal_a_plain_search(codec: str) -> None:
    rng = random.Random(5)
    times = [NOW + rng.randrange(-50, 50) for _ in range(60)]
    (batch,) = Batches(build([(t, None, b"v", []) for t in times], codec=codec, base_offset=1000))
    for timestamp in range(NOW - 55, NOW + 55):
        for start in (0, 1000, 1030, 1060):
            wanted = [(1000 + i, t) for i, t in enumerate(times) if t >= timestamp and 1000 + i >= start]
            assert batch.find_timestamp(timestamp, start) == (wanted[0] if wanted else None)
    assert batch.find_max_timestamp() == (1000 + times.index(max(times)), max(times))


def test_look_ups_by_time_use_log_append_time() -> None:
    (batch,) = Batches(build(log_append_time_ms=NOW + 9, base_offset=5))
    assert batch.find_timestamp(NOW + 9) == (5, NOW + 9)
    assert batch.find_timestamp(NOW + 9, 7) == (7, NOW + 9)
    assert batch.find_timestamp(NOW + 10) is None
    assert batch.find_max_timestamp() == (5, NOW + 9)
