"""Headers of record batches as Arrow columns. The tests compare them with the objects of `record.batch`."""

from __future__ import annotations

import random

import pytest

from broken_batches import CODECS, broken, sound_batches
from kafkacore._fast.columns.batch_columns import BATCH_COLUMNS, BatchColumns
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from old_messages import entries
from seeds import SEED
from transactions import COMMIT, marker, records

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
NOW = 1_700_000_000_000


def rows_of(data, position=0, **options):
    """Returns the rows, the number of bytes used, and the reported damage."""
    columns = BatchColumns("f.log", **options)
    used = columns.feed(data, position)
    rows = columns.take()
    assert columns.take() is None
    if rows is None:
        return [], used, columns.damage
    batch = pa.record_batch(rows)
    batch.validate(full=True)
    assert batch.schema.names == list(BATCH_COLUMNS)
    return batch.to_pylist(), used, columns.damage


def test_columns_hold_what_batch_objects_hold():
    data, base = b"", 0
    for codec in CODECS:
        builder = RecordBatchBuilder(
            codec=codec, base_offset=base, partition_leader_epoch=4, producer_id=9, producer_epoch=2, base_sequence=base
        )
        for i in range(3):
            builder.append(NOW + i, None, b"value")
        data += bytes(builder.build())
        base += 3
    found, used, damage = rows_of(data + records(15, 7) + marker(17, 7, COMMIT), 1000)
    assert (used, damage) == (len(data) + len(records(15, 7) + marker(17, 7, COMMIT)), None)
    position = 1000
    for row, batch in zip(found, Batches(data), strict=False):
        assert row == {
            "file": "f.log", "position": position, "baseOffset": batch.base_offset, "lastOffset": batch.last_offset,
            "leaderEpoch": 4, "producerId": 9, "producerEpoch": 2, "baseSequence": batch.base_sequence,
            "recordCount": 3, "baseTimestamp": row["baseTimestamp"], "maxTimestamp": row["maxTimestamp"],
            "timestampType": 0, "magic": 2, "sizeBytes": batch.size_bytes, "crc": batch.crc,
            "codec": batch.codec_name, "crcOk": True,
            "control": False, "transactional": False,
        }  # fmt: skip
        assert round(row["maxTimestamp"].timestamp() * 1000) == NOW + 2
        position += batch.size_bytes
    assert [(row["control"], row["transactional"]) for row in found[-2:]] == [(False, True), (True, True)]


def test_feed_stops_at_a_partial_batch_at_damage_and_at_max_rows():
    one = records(0, 7)
    assert rows_of(one + one[:-1])[1:] == (len(one), None)
    assert rows_of(one * 3, max_rows=2)[1:] == (2 * len(one), None)
    bad = bytearray(one)
    bad[16] = 9
    assert rows_of(one + bytes(bad))[1:] == (len(one), "the magic byte is not 0, 1 or 2")
    bad = bytearray(one)
    bad[8:12] = (-5).to_bytes(4, signed=True)
    assert rows_of(one + bytes(bad))[2] == "the batch has an impossible length for its magic byte"


def test_a_wrong_checksum_is_a_row_that_says_so():
    bad = bytearray(records(0, 7))
    bad[-1] ^= 1
    assert [row["crcOk"] for row in rows_of(records(0, 7) + bytes(bad))[0]] == [True, False]
    assert [row["crcOk"] for row in rows_of(bytes(bad), check_crcs=False)[0]] == [None]


def test_old_messages_have_rows_too():
    found, _, _ = rows_of(entries(5, 0, "none") + entries(8, 1, "gzip"))
    assert [(row["magic"], row["baseOffset"], row["codec"], row["timestampType"]) for row in found] == [
        (0, 5, "none", -1), (0, 6, "none", -1), (0, 7, "none", -1), (1, 10, "gzip", 0),
    ]  # fmt: skip
    assert {row["recordCount"] for row in found} == {-1}


def test_broken_bytes_give_rows_or_damage():
    rng = random.Random(SEED)
    sound = sound_batches()
    for _ in range(1000):
        data = broken(rng, rng.choice(sound) + rng.choice(sound))
        columns = BatchColumns("f.log", max_rows=rng.choice((1, 100)))
        used = columns.feed(data, 0)
        if (rows := columns.take()) is None:
            assert used == 0
            continue
        batch = pa.record_batch(rows)
        batch.validate(full=True)
        assert used == sum(batch.column("sizeBytes").to_pylist()) <= len(data)
