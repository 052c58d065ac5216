"""The table `records`: the records of segments, decoded into Arrow without a Python object for each record."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kafkacore._fast.columns.record_columns import COLUMNS, RecordColumns
from kafkacore._fast.record.batch import CorruptBatchError, InvalidRecordError
from kafkacore.spark.log.rows import batches_of, repeated
from kafkacore.spark.log.scanning import Damage, blocks
from kafkacore.spark.log.splits import Split

_NATIVE: Final = frozenset(COLUMNS)


def record_batches(split: Split, schema: pa.Schema, *, corrupt_rows: bool) -> Iterator[pa.RecordBatch]:
    """Returns the records of a split. With `corrupt_rows`, damage becomes a row with a `problem`; otherwise damage
    raises CorruptBatchError."""
    replica = split.segment.replica
    wanted = {field.name for field in schema} & _NATIVE
    columns = RecordColumns(wanted or {"offset"}, replica.topic, replica.partition, check_crcs=False)
    broker = replica.log_dir.broker
    place = {"broker": broker, "topic": replica.topic, "partition": replica.partition}
    for block in blocks(split):
        try:
            if not isinstance(block, Damage):
                columns.feed(block)
                yield from _taken(columns, schema, broker, last=False)
                continue
            problem = block.text()
        # The checksum was correct, but the records are damaged.
        except (CorruptBatchError, InvalidRecordError) as error:
            problem = str(error)
        if not corrupt_rows:
            raise CorruptBatchError(problem)
        yield from _taken(columns, schema, broker, last=True)
        yield from batches_of([{**place, "problem": problem}], schema)
    yield from _taken(columns, schema, broker, last=True)


def _taken(columns: RecordColumns, schema: pa.Schema, broker: int, *, last: bool) -> Iterator[pa.RecordBatch]:
    while (rows := columns.take(last=last)) is not None:
        batch = pa.record_batch(rows)
        yield pa.RecordBatch.from_arrays([_column(batch, field, broker) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field, broker: int) -> pa.Array:
    if field.name == "broker":
        return repeated(broker, len(batch), field.type)
    if field.name == "problem":
        return pa.nulls(len(batch), field.type)
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)
