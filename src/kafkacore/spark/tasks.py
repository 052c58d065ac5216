"""The tasks of a read. Each task reads one range of a partition as Arrow batches."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kafkacore.client import OffsetOutOfRange, PartitionMissing, Range, TopicMissing, TopicRecreated
from kafkacore.spark.columns import arrow_schema, fit
from kafkacore.spark.connections import client
from kafkacore.spark.errors import DataLossError
from kafkacore.spark.ranges import size

CONTINUE = "; set failOnDataLoss=false to continue without them"


def tasks(ranges: Sequence[Range]) -> list[InputPartition]:
    """Returns a task for each range. The largest ranges come first, so that no large task is left at the end."""
    return [InputPartition(one) for one in sorted(ranges, key=size, reverse=True)]


@dataclass(frozen=True)
class RangeReading:
    """The data of a query that every task needs. Spark pickles this object."""

    kafka: Mapping[str, str]
    schema: StructType
    fail_on_data_loss: bool

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Reads the records of a range. For an empty read, Spark runs one task without a range. In PySpark 4.0 this
        task gets no InputPartition."""
        if partition is None or partition.value is None:
            return
        wanted = partition.value
        schema = arrow_schema(self.schema)
        isolation_level = self.kafka.get("isolation.level", "read_uncommitted")
        try:
            with client(self.kafka) as connected:
                on_lost = None if self.fail_on_data_loss else warn
                for rows in connected.read([wanted], self.schema.names, isolation_level, on_lost=on_lost):
                    yield fit(pa.record_batch(rows), schema)
        except (OffsetOutOfRange, TopicRecreated, TopicMissing, PartitionMissing) as lost:
            if self.fail_on_data_loss:
                what = f"records of {wanted.topic}-{wanted.partition}, offsets {wanted.start} to {wanted.end}, are lost"
                raise DataLossError(f"{what}: {lost}{CONTINUE}") from lost
            warn(lost)


def warn(lost: Exception) -> None:
    """Writes a warning to stderr, which Spark copies into its log."""
    print(f"kafkacore: records are lost, and failOnDataLoss=false: {lost}", file=sys.stderr)
