"""Appends many records to a batch with one call. The call appends all of them, or none."""

from __future__ import annotations

import pytest

from kafkacore._fast.record.batch import Batches, InvalidRecordError, RecordBatchBuilder

PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (b"", None), (None, b""), (b"b" * 300, b"2" * 5000)]


def one_by_one(pairs: list[tuple[bytes | None, bytes | None]], **fields: int) -> RecordBatchBuilder:
    builder = RecordBatchBuilder(**fields)
    for key, value in pairs:
        assert builder.append(7, key, value)
    return builder


def test_append_all_equals_single_appends() -> None:
    builder = RecordBatchBuilder(codec="zstd")
    assert builder.append_all(7, iter(PAIRS))
    assert builder.build() == one_by_one(PAIRS, codec=4).build()


def test_append_all_leaves_the_batch_unchanged_when_not_all_records_fit() -> None:
    builder = RecordBatchBuilder(limit_bytes=6000)
    assert builder.append_all(7, PAIRS)
    assert not builder.append_all(9, [(b"small", b"fits"), (b"c", b"v" * 5000)])
    assert (builder.record_count, builder.size_bytes) == (4, one_by_one(PAIRS).size_bytes)
    assert builder.append_all(8, [(b"d", b"last")])
    [batch] = Batches(builder.build())
    assert [(each.offset, each.key, each.timestamp) for each in batch][-1] == (4, b"d", 8)
    assert batch.max_timestamp == 8


def test_append_all_leaves_the_batch_unchanged_when_a_record_is_refused() -> None:
    builder = RecordBatchBuilder()
    with pytest.raises(TypeError):
        builder.append_all(7, [(b"a", b"1"), ("b", b"2")])  # type: ignore[list-item]
    with pytest.raises(InvalidRecordError):
        builder.append_all(-2, [(b"a", b"1")])
    assert builder.record_count == 0
    builder.build()
    with pytest.raises(ValueError, match="built"):
        builder.append_all(7, [])
