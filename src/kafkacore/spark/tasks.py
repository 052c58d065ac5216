"""The tasks of a read. Each task reads one or more ranges of partitions as Arrow batches."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kafkacore.client import OffsetOutOfRange, PartitionMissing, Range, TopicMissing, TopicRecreated
from kafkacore.spark.columns import arrow_schema, fit
from kafkacore.spark.connections import client
from kafkacore.spark.errors import DataLossError
from kafkacore.spark.ranges import join_ranges, size
from kafkacore.spark.workers import acknowledge_at_once, exempt_modules_from_collection

CONTINUE = "; set failOnDataLoss=false to continue without them"


def tasks(ranges: Sequence[Range], min_records: int = 1) -> list[InputPartition]:
    """Returns the tasks that read the ranges. Ranges with fewer than `min_records` offsets share tasks. The largest
    tasks come first, so that no large task is left at the end."""
    shares = join_ranges(ranges, min_records)
    return [InputPartition(one) for one in sorted(shares, key=lambda one: sum(map(size, one)), reverse=True)]


@dataclass(frozen=True)
class RangeReading:
    """The data of a query that every task needs. Spark pickles this object."""

    kafka: Mapping[str, str] = field(repr=False)
    schema: StructType
    fail_on_data_loss: bool

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Reads the records of the task's ranges. For an empty read, Spark runs one task without ranges. In PySpark 4.0
        this task gets no InputPartition."""
        if partition is None or partition.value is None:
            return
        exempt_modules_from_collection()
        ranges: Sequence[Range] = partition.value
        schema = arrow_schema(self.schema)
        isolation_level = self.kafka.get("isolation.level", "read_uncommitted")
        on_lost = None if self.fail_on_data_loss else warn
        try:
            with client(self.kafka) as connected:
                for rows in connected.read(ranges, self.schema.names, isolation_level, on_lost=on_lost):
                    yield fit(pa.record_batch(rows), schema)
        except (OffsetOutOfRange, TopicRecreated, TopicMissing, PartitionMissing) as lost:
            raise DataLossError(f"{lost_records(ranges, lost)}: {lost}{CONTINUE}") from lost


def lost_records(
    ranges: Iterable[Range], lost: OffsetOutOfRange | TopicRecreated | TopicMissing | PartitionMissing
) -> str:
    """Names the ranges that an error concerns. An error about a whole topic concerns all ranges of the topic, any other
    error only those of its partition."""
    partition = getattr(lost, "partition", None)
    concerned = (one for one in ranges if one.topic == lost.topic and partition in {None, one.partition})
    named = ", ".join(f"{one.topic}-{one.partition} from offset {one.start} to {one.end}" for one in concerned)
    return f"records are lost: {named}"


def warn(lost: Exception) -> None:
    """Writes a warning to stderr, which Spark copies into its log."""
    print(f"kafkacore: records are lost, and failOnDataLoss=false: {lost}", file=sys.stderr)
