"""Arrow columns encoded as record batches. The tests read the batches back as objects."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from broken_batches import CODECS
from kafkacore._fast.columns.record_encoder import RecordEncoder, murmur2, seal
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError
from seeds import SEED

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def encoded(columns, partitions=1, *, topic=None, partition=None, sticky=0, ignore_keys=False, **options):
    """Returns the records of each partition, in order."""
    encoder = RecordEncoder(columns, now_ms=NOW, **options)
    batches, _ = encoder.encode(partitions, topic=topic, partition=partition, sticky=sticky, ignore_keys=ignore_keys)
    found = defaultdict(list)
    for number, data, count in batches:
        (batch,) = Batches(data)
        assert batch.crc_ok
        assert (batch.record_count, batch.producer_id) == (count, -1)
        found[number] += [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in batch]
    return dict(found)


def batch_of(**columns):
    return pa.record_batch(columns)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_rows_become_records_when_they_have_nulls_and_headers(codec, kind):
    rng = random.Random(SEED)
    keys = [rng.choice([None, b"", b"key"]) for _ in range(500)]
    values = [rng.choice([None, b"", rng.randbytes(100)]) for _ in range(500)]
    headers = [
        rng.choice([None, [], [{"key": "ä", "value": b"1"}, {"key": "", "value": None}]]) for _ in range(500)
    ]  # fmt: skip
    columns = batch_of(key=pa.array(keys, kind), value=pa.array(values, kind), headers=pa.array(headers, HEADERS))
    expected = [
        (NOW, key, value, tuple((each["key"], each["value"]) for each in row or ()))
        for key, value, row in zip(keys, values, headers, strict=True)
    ]
    assert encoded(columns, partition=0, codec=codec, batch_bytes=2000) == {0: expected}
    assert encoded(columns.slice(100, 50), partition=0, codec=codec) == {0: expected[100:150]}


def test_text_is_written_as_utf8_and_times_as_milliseconds():
    columns = batch_of(
        value=pa.array(["ä", None]), timestamp=pa.array([1_500_000_000_123_456, None], pa.timestamp("us", tz="UTC"))
    )
    assert encoded(columns) == {0: [(1_500_000_000_123, None, "ä".encode(), ()), (NOW, None, None, ())]}


# The expected partitions come from UtilsTest.java of Apache Kafka.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829), (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)  # fmt: skip
def test_keys_hash_as_in_kafka(key, expected):
    assert murmur2(key) == expected % (1 << 32)


def test_rows_go_to_the_partition_of_the_column_then_of_the_key_then_the_sticky_one():
    columns = batch_of(
        value=pa.array([b"0", b"1", b"2", b"3"]), key=pa.array([b"abc", b"abc", None, b"21"]),
        partition=pa.array([4, None, None, None], pa.int32()),
    )  # fmt: skip
    by_key = {(479470107 & 0x7FFFFFFF) % 5: b"1", (-973932308 & 0x7FFFFFFF) % 5: b"3"}
    found = {(number, row[2]) for number, rows in encoded(columns, 5, sticky=3).items() for row in rows}
    assert found == {(4, b"0"), (3, b"2"), *by_key.items()}
    ignored = encoded(columns, 5, sticky=3, ignore_keys=True)
    assert {number: [row[2] for row in rows] for number, rows in ignored.items()} == {4: [b"0"], 3: [b"1", b"2", b"3"]}


def test_the_sticky_partition_moves_on_when_its_batch_is_full():
    columns = batch_of(value=pa.array([bytes(100)] * 100))
    found = encoded(columns, 4, batch_bytes=1000)
    assert sum(map(len, found.values())) == 100
    assert {number: len(rows) for number, rows in found.items()}.keys() == {0, 1, 2, 3}


def test_rows_are_split_by_topic_when_there_is_a_column_for_it():
    columns = batch_of(value=pa.array([b"0", b"1", b"2"]), topic=pa.array(["a", "b", "a"]))
    encoder = RecordEncoder(columns, now_ms=NOW)
    assert encoder.topics == ["a", "b"]
    assert [row[2] for row in encoded(columns, topic="a")[0]] == [b"0", b"2"]
    assert encoder.encode(1, topic="c") == ([], 0)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"key": pa.array([b"k"])}, ValueError, "a column `value` is needed"),
        ({"value": pa.array([1])}, TypeError, "value must be binary or string, and its Arrow format is l"),
        ({"value": pa.array([b"v"]), "size": pa.array([1])}, ValueError, "no column 'size' in records"),
        ({"value": pa.array([b"v"]), "partition": pa.array([1])}, TypeError, "partition must be int32"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[b"x"]])}, TypeError, "headers must be list"),
        ({"value": pa.array([b"v"]), "topic": pa.array([None], pa.string())}, InvalidRecordError, "row 0 has no topic"),
        ({"value": pa.array([b"v"]), "partition": pa.array([3], pa.int32())}, InvalidRecordError, "not from 0 to 1"),
        ({"value": pa.array([b"v"]), "partition": pa.array([-1], pa.int32())}, InvalidRecordError, "not from 0 to 1"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([-5], pa.timestamp("ms"))}, InvalidRecordError, "1970"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([2**62], pa.timestamp("s"))}, InvalidRecordError, "64 bits"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([-(2**62)], pa.timestamp("s"))}, InvalidRecordError, "1970"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[{"key": None, "value": b""}]], HEADERS)}, InvalidRecordError,
         "header without a key"),
        ({"value": pa.array([bytes(2000)])}, OverflowError, "row 0 is larger than 1000 bytes"),
    ],
)  # fmt: skip
def test_error_names_the_column_when_it_does_not_fit(columns, error, message):
    with pytest.raises(error, match=message):
        RecordEncoder(pa.record_batch(columns), now_ms=NOW, most_bytes=1000).encode(2)


def test_objects_that_are_not_arrow_are_refused():
    with pytest.raises(TypeError, match="an Arrow record batch is expected, not list"):
        RecordEncoder([b"v"], now_ms=NOW)


def test_a_sealed_batch_has_the_ids_of_its_producer_and_a_right_checksum():
    encoder = RecordEncoder(batch_of(value=pa.array([b"v", b"w"])), now_ms=NOW, codec="lz4")
    ((_, data, _),), _ = encoder.encode(1)
    (batch,) = Batches(seal(data, 77, 3, 12, True))
    assert (batch.crc_ok, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (True, 77, 3, 12)
    assert batch.is_transactional
    assert [each.value for each in batch] == [b"v", b"w"]
    for broken in (data[:-1], data + b"x", data[:-1] + b"\1", b""):
        with pytest.raises(CorruptBatchError, match="not one sound record batch"):
            seal(broken, 77, 3, 12)
