"""Record batches decoded into Arrow columns. The tests compare them with the objects of `record.batch`, and pyarrow
validates them."""

from __future__ import annotations

import gc
import random

import pytest

from broken_batches import CODECS, broken, broken_within, sealed, sound_batches
from kafkacore._fast.codec.compression import Codec
from kafkacore._fast.columns.record_columns import COLUMNS, RecordColumns, live
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError, RecordBatchBuilder
from old_messages import NOW as OLD
from old_messages import entries
from seeds import SEED
from transactions import ABORT, COMMIT, marker, records

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)  # fmt: skip


def decoded(data, *, wanted=COLUMNS, start=0, end=1 << 40, aborted=None, **options):
    """Returns all Arrow batches, which pyarrow has validated."""
    columns = RecordColumns(wanted, "t", 3, **options)
    columns.feed(data, start, end, aborted)
    return taken(columns)


def taken(columns):
    found = []
    while (rows := columns.take(last=True)) is not None:
        assert rows.num_rows == len(rows) > 0
        batch = pa.record_batch(rows)
        batch.validate(full=True)
        found.append(batch)
    return found


def rows_of(batches):
    return [row for batch in batches for row in batch.to_pylist()]


def offsets(batches):
    return [row["offset"] for row in rows_of(batches)]


def built(count, base_offset=0, *, value=b"v", **options):
    builder = RecordBatchBuilder(base_offset=base_offset, limit_bytes=1 << 30, **options)
    for i in range(count):
        builder.append(NOW + i, b"k%d" % i, value)
    return bytes(builder.build())


def test_columns_have_the_schema_of_the_connector_when_all_are_wanted():
    (batch,) = decoded(built(2))
    assert batch.schema.equals(SCHEMA)
    assert batch.to_pylist()[1] == {
        "key": b"k1", "value": b"v", "topic": "t", "partition": 3, "offset": 1,
        "timestamp": batch.column("timestamp")[1].as_py(), "timestampType": 0, "headers": None,
    }  # fmt: skip
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [NOW * 1000, (NOW + 1) * 1000]


@pytest.mark.parametrize("codec", CODECS)
def test_columns_hold_what_record_objects_hold_when_batches_have_every_shape(codec):
    rng = random.Random(SEED)
    data, base = b"", 0
    for count in (1, 7, 300):
        builder = RecordBatchBuilder(codec=codec, base_offset=base, limit_bytes=1 << 24)
        for _ in range(count):
            headers = [("näme", b"value"), ("", None), ("x", b"")][: rng.randrange(4)]
            key, value = (rng.choice([None, b"", b"key", rng.randbytes(200)]) for _ in range(2))
            builder.append(NOW + rng.randrange(-9, 9), key, value, headers)
        data += bytes(builder.build())
        base += count
    expected = [
        (each.offset, each.timestamp, each.key, each.value, each.headers) for batch in Batches(data) for each in batch
    ]
    found = [
        (
            row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows_of(decoded(data, max_rows=11))
    ]  # fmt: skip
    assert [(*each[:4], tuple(each[4])) for each in expected] == found


def test_batches_end_at_max_rows_when_records_are_small():
    assert [batch.num_rows for batch in decoded(built(25), max_rows=10)] == [10, 10, 5]


def test_batches_end_at_max_bytes_and_a_larger_record_stands_alone():
    data = built(3, value=b"v" * 400) + built(1, 3, value=b"v" * 5000) + built(2, 4, value=b"v" * 400)
    assert [offsets([batch]) for batch in decoded(data, max_bytes=1000)] == [[0, 1], [2], [3], [4, 5]]


def test_take_returns_nothing_when_the_bytes_do_not_fill_a_batch():
    columns = RecordColumns(COLUMNS, "t", 0, max_rows=10)
    assert columns.feed(built(6)) == 6
    assert columns.take() is None
    assert columns.feed(built(6, 6), 6) == 12
    assert len(columns.take()) == 10
    assert columns.take() is None
    assert [columns.take(last=True).num_rows, columns.take(last=True)] == [2, None]


def test_rows_lie_between_start_and_end_when_batches_reach_beyond_them():
    assert offsets(decoded(built(5) + built(5, 5) + built(5, 10), start=3, end=12)) == list(range(3, 12))


def test_gaps_stay_gaps_when_the_log_was_compacted():
    builder = RecordBatchBuilder(base_offset=10)
    for delta in (0, 3, 7):
        builder.append(NOW, b"k", b"v", offset_delta=delta)
    assert offsets(decoded(bytes(builder.build()), start=11)) == [13, 17]


def test_next_offset_passes_what_has_no_rows_and_leaves_a_partial_batch():
    columns = RecordColumns(["offset"], "t", 0)
    whole = records(0, 7) + marker(2, 7, COMMIT)
    assert columns.feed(whole + built(4, 3)[:-1]) == 3
    assert offsets(taken(columns)) == [0, 1]
    assert columns.feed(b"", 3) == 3


def test_aborted_records_are_left_out_when_read_committed():
    data = (
        records(0, 7) + records(2, 8) + marker(4, 7, ABORT) + records(5, 7, sequence=2) + marker(7, 8, COMMIT)
        + marker(8, 7, COMMIT) + built(1, 9)
    )  # fmt: skip
    assert offsets(decoded(data)) == [0, 1, 2, 3, 5, 6, 9]
    assert offsets(decoded(data, aborted=[])) == [0, 1, 2, 3, 5, 6, 9]
    assert offsets(decoded(data, aborted=[(7, 0)])) == [2, 3, 5, 6, 9]
    assert offsets(decoded(data, aborted=[(8, 2), (7, 0)])) == [5, 6, 9]
    twice = records(0, 7) + marker(2, 7, ABORT) + records(3, 7, sequence=2) + marker(5, 7, ABORT)
    assert offsets(decoded(twice, aborted=[(7, 0), (7, 3)])) == []


def test_log_append_time_comes_from_the_batch():
    (batch,) = decoded(built(2, log_append_time_ms=NOW + 77))
    assert batch.column("timestampType").to_pylist() == [1, 1]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [(NOW + 77) * 1000] * 2


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, "none"), (0, "gzip"), (0, "snappy"), (1, "none"), (1, "gzip"), (1, "snappy"), (1, "lz4")]
)
def test_old_messages_become_rows_with_their_offsets_and_types(magic, codec):
    found = decoded(entries(40, magic, codec), start=41)
    assert [(row["offset"], row["key"], row["value"]) for row in rows_of(found)] == [
        (41, None, b"v\xff"), (42, b"key", None),
    ]  # fmt: skip
    assert found[0].column("timestampType").to_pylist() == [-1 if magic == 0 else 0] * 2
    times = [-1, -1] if magic == 0 else [OLD + 1, OLD + 2]
    assert found[0].column("timestamp").cast(pa.int64()).to_pylist() == [each * 1000 for each in times]


def test_only_wanted_columns_are_there_and_unknown_names_are_refused():
    (batch,) = decoded(built(2), wanted=["timestamp", "offset"])
    assert batch.schema.names == ["offset", "timestamp"]
    with pytest.raises(ValueError, match="no column 'Key'; there are key, value"):
        RecordColumns(["Key"], "t", 0)
    (batch,) = decoded(built(2), wanted=[])
    assert (batch.num_rows, batch.num_columns) == (2, 0)


def test_names_of_headers_are_text_when_their_bytes_are_not_utf8():
    builder = RecordBatchBuilder()
    builder.append(NOW, None, None, [(b"a\xff\xfeb", b"\xff")])
    (row,) = rows_of(decoded(bytes(builder.build())))
    assert row["headers"] == [{"key": "a\ufffd\ufffdb", "value": b"\xff"}]


@pytest.mark.parametrize("timestamp", [-1, 0, (1 << 63) - 1])
def test_timestamps_stay_within_64_bits(timestamp):
    builder = RecordBatchBuilder()
    builder.append(timestamp, None, b"v")
    (batch,) = decoded(bytes(builder.build()))
    assert batch.column("timestamp").cast(pa.int64())[0].as_py() == min(timestamp * 1000, (1 << 63) - 1)


def test_a_wrong_checksum_is_named_with_its_offset_and_rows_before_it_remain():
    bad = bytearray(built(2, 5))
    bad[-2] ^= 1  # a byte of the last value
    columns = RecordColumns(COLUMNS, "t", 3)
    columns.feed(built(5) + bytes(bad))
    with pytest.raises(CorruptBatchError, match="t-3: the batch at offset 5: the checksum does not match"):
        columns.take()
    assert offsets(taken(columns)) == [0, 1, 2, 3, 4]
    assert offsets(decoded(bytes(bad), check_crcs=False)) == [5, 6]


def test_a_body_that_inflates_too_far_is_refused():
    data = built(1, value=bytes(1 << 20), codec="zstd")
    with pytest.raises(CorruptBatchError, match="inflates beyond its limits"):
        decoded(data, max_inflated_bytes=1 << 16)


def test_a_wrong_number_of_records_is_refused():
    data = bytearray(built(2))
    data[57:61] = (3).to_bytes(4)
    with pytest.raises(InvalidRecordError, match="the number of records is wrong"):
        decoded(sealed(data))
    data[57:61] = (1).to_bytes(4)
    with pytest.raises(InvalidRecordError, match="the number of records is wrong"):
        decoded(sealed(data))


def test_impossible_offsets_are_refused_when_fed():
    data = bytearray(built(2))
    data[23:27] = (-1).to_bytes(4, signed=True)
    with pytest.raises(CorruptBatchError, match="its offsets are impossible"):
        decoded(sealed(data))


def test_rows_are_exported_once_and_released_when_nobody_holds_them():
    gc.collect()
    before = live()
    columns = RecordColumns(COLUMNS, "t", 0)
    columns.feed(built(5) + built(5, 5))
    rows = columns.take(last=True)
    batch = pa.record_batch(rows)
    with pytest.raises(ValueError, match="exported already"):
        pa.record_batch(rows)
    del columns, rows
    column = batch.column("topic")
    del batch
    assert column.to_pylist() == ["t"] * 10
    del column
    RecordColumns(COLUMNS, "t", 0).feed(built(1))
    gc.collect()
    assert live() == before


def test_broken_bytes_give_rows_or_an_error_and_never_more():
    rng = random.Random(SEED)
    codec = Codec()
    sound = sound_batches()
    kept = 0
    for _ in range(3000):
        data = rng.choice(sound)
        damaged = broken_within(rng, data, codec) if rng.random() < 0.4 else broken(rng, data + rng.choice(sound))
        aborted = [(rng.randrange(-1, 9), rng.randrange(9)) for _ in range(rng.randrange(4))]
        try:
            kept += sum(
                batch.num_rows
                for batch in decoded(
                    damaged, start=rng.randrange(3), max_rows=rng.choice((1, 7, 1000)), aborted=aborted,
                    max_bytes=rng.choice((1, 1 << 20)), check_crcs=rng.random() < 0.5, max_inflated_bytes=1 << 18,
                )
            )  # fmt: skip
        except (CorruptBatchError, InvalidRecordError):
            continue
    assert kept > 1000
