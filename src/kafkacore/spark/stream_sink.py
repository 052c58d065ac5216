"""The at-least-once sink for streams. It is in a separate module because PySpark 4.0 lacks its base class."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafkacore.spark.options import SinkOptions
from kafkacore.spark.sink import RowWriting


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes at least once for `df.writeStream.format("kafkacore")`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.writing = RowWriting.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.writing.send(iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Does nothing, because the rows are already acknowledged."""

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        """Does nothing. Spark runs the batch again, and the sink sends its rows again."""
