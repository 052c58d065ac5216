"""The at-least-once sink for batch queries, and the code that writes the rows of all sinks.

Each task sends its rows, and returns when the brokers have acknowledged all of them.

If Spark runs a task or a batch of a stream again, the sink sends the same rows again. Each task's producer is
idempotent, so a retry within one task duplicates nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkacore.spark.columns import HEADERS
from kafkacore.spark.connections import producer
from kafkacore.spark.errors import SchemaError
from kafkacore.spark.options import SinkOptions
from kafkacore.spark.workers import exempt_modules_from_collection

# The columns that Spark's connector writes. The connector ignores other columns, and so does this sink.
_ALLOWED: Final = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS.simpleString(),),
}


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver when all its rows are acknowledged."""

    rows: int


@dataclass(frozen=True)
class RowWriting:
    """Writes the rows of a DataFrame with a producer. The columns give the topic, the partition, the key and the value.
    The option `topic` replaces the column `topic`."""

    options: SinkOptions
    columns: tuple[str, ...]

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> "RowWriting":
        """:raises SchemaError: a column is missing, or has a type that a record cannot hold"""
        by_name = {field.name.lower(): field for field in schema.fields}
        for name, types in _ALLOWED.items():
            if name in by_name and by_name[name].dataType.simpleString() not in types:
                raise SchemaError(
                    f"column {name} must be {' or '.join(types)}, but it is {by_name[name].dataType.simpleString()}"
                )
        if "value" not in by_name:
            raise SchemaError(f"the column value is missing; the columns are {', '.join(schema.names) or 'none'}")
        if options.topic is None and "topic" not in by_name:
            raise SchemaError("the option topic is missing, and there is no column topic")
        left_out = {"topic"} if options.topic is not None else set()
        return cls(options, tuple(name for name in _ALLOWED if name in by_name and name not in left_out))

    def batches(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Returns the rows in the form that a producer accepts: keys and values as bytes.

        :raises SchemaError: a row has no topic
        """
        for batch in iterator:
            names = {field.name.lower(): number for number, field in enumerate(batch.schema)}
            columns = [batch.column(names[name]) for name in self.columns]
            if "topic" in self.columns and columns[self.columns.index("topic")].null_count:
                raise SchemaError(
                    "a row has no topic: the column topic is null; the option topic sets a topic for all rows"
                )
            yield pa.RecordBatch.from_arrays(
                [
                    column.cast(pa.binary()) if name in {"key", "value"} else column
                    for name, column in zip(self.columns, columns, strict=True)
                ],
                names=list(self.columns),
            )

    def send(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        exempt_modules_from_collection()
        rows = 0
        with producer(self.options.kafka) as sending:
            for batch in self.batches(iterator):
                sending.send(self.options.topic, None, batch)
                rows += batch.num_rows
            sending.flush()
        return Written(rows)


class BatchWriter(DataSourceArrowWriter):
    """Writes for `df.write.format("kafkacore").mode("append")`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.writing = RowWriting.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writing.send(iterator)

    def commit(self, messages: Sequence[Any]) -> None:
        """Does nothing, because the rows are already acknowledged."""

    def abort(self, messages: Sequence[Any]) -> None:
        """Does nothing, because a broker cannot take records back."""
