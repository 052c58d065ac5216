"""The table `records`: the records of segments, decoded into Arrow without a Python object for each record."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from kafkacore._fast.columns.record_columns import COLUMNS, ArrowRows, RecordColumns
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError
from kafkacore.spark.log.rows import batches_of, repeated
from kafkacore.spark.log.scanning import Block, Damage, blocks
from kafkacore.spark.log.splits import Split

_NATIVE: Final = frozenset(COLUMNS)


def record_batches(split: Split, schema: pa.Schema, *, corrupt_rows: bool) -> Iterator[pa.RecordBatch]:
    """Returns the records of a split. With `corrupt_rows`, damage becomes a row with a `problem`; otherwise damage
    raises CorruptBatchError."""
    replica = split.segment.replica
    wanted = {field.name for field in schema} & _NATIVE
    new_columns = partial(RecordColumns, wanted or {"offset"}, replica.topic, replica.partition, check_crcs=False)
    columns = new_columns()
    broker = replica.log_dir.broker
    place = {"broker": broker, "topic": replica.topic, "partition": replica.partition}
    for block in blocks(split):
        for part in [block] if isinstance(block, Damage) else _decoded(block, columns, new_columns):
            if not isinstance(part, Damage):
                yield _shown(part, schema, broker)
                continue
            if not corrupt_rows:
                raise CorruptBatchError(part.text())
            yield from (_shown(rows, schema, broker) for rows in _rest(columns))
            yield from batches_of([{**place, "problem": part.text()}], schema)
    yield from (_shown(rows, schema, broker) for rows in _rest(columns))


def _decoded(
    block: Block, columns: RecordColumns, new_columns: Callable[[], RecordColumns]
) -> Iterator[ArrowRows | Damage]:
    """Decodes a block with `columns`, and yields the Arrow batches that are full. For a batch that has a correct
    checksum and malformed records, yields the damage, and continues after this batch."""
    left = block
    while len(left.data):
        fed = False
        try:
            columns.feed(left.data)
            fed = True
            yield from iter(columns.take, None)
        except (CorruptBatchError, InvalidRecordError):
            damage, end = _first_damage(left, new_columns())
        else:
            return
        if not fed:  # `feed` has refused the batches before the damage too
            columns.feed(left.data[: damage.position - left.position])
            yield from iter(columns.take, None)
        yield damage
        left = Block(left.path, left.position + end, left.data[end:])


def _first_damage(block: Block, columns: RecordColumns) -> tuple[Damage, int]:
    """Returns the first batch of a block that `columns` refuses, and the end of this batch in the block.

    A refusal drops all bytes that `columns` holds, and its error has no position. So this function decodes one batch at
    a time.
    """
    batches = Batches(block.data)
    for batch in batches:
        try:
            columns.feed(batch.data)
            for _ in _rest(columns):
                pass
        except (CorruptBatchError, InvalidRecordError) as error:
            position = block.position + batches.position - batch.size_bytes
            reason = str(error).split(": ", 2)[-1]  # after the partition and the batch
            return Damage(block.path, position, batch.base_offset, reason), batches.position
    raise AssertionError("all batches of the block can be decoded")


def _rest(columns: RecordColumns) -> Iterator[ArrowRows]:
    while (rows := columns.take(last=True)) is not None:
        yield rows


def _shown(rows: ArrowRows, schema: pa.Schema, broker: int) -> pa.RecordBatch:
    batch = pa.record_batch(rows)
    return pa.RecordBatch.from_arrays([_column(batch, field, broker) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, broker: int) -> pa.Array:
    if field.name == "broker":
        return repeated(broker, len(batch), field.type)
    if field.name == "problem":
        return pa.nulls(len(batch), field.type)
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)
