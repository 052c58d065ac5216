"""Batch reads. When Spark plans the query, the driver looks up the first and last offset of each partition. Each range
of offsets becomes a task, unless `minRecordsPerPartition` lets small ranges share tasks."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkacore.client import Range
from kafkacore.spark.columns import RECORD, check_choice
from kafkacore.spark.connections import client
from kafkacore.spark.errors import DataLossError
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.planning import Cluster
from kafkacore.spark.positions import MAX_OFFSET
from kafkacore.spark.ranges import split_ranges
from kafkacore.spark.tasks import CONTINUE, RangeReading, tasks, warn


class BatchReader(DataSourceReader):
    """Reads for `spark.read.format("kafkacore")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_choice(schema, RECORD, "a record")
        self.options = options
        self.reading = RangeReading(options.kafka, schema, options.fail_on_data_loss)

    def partitions(self) -> list[InputPartition]:
        options = self.options
        with client(options.kafka) as connected:
            ranges = self.ranges(Cluster(connected, options))
        ranges = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return tasks(ranges, options.min_records_per_partition)

    def ranges(self, cluster: Cluster) -> list[Range]:
        topics = cluster.topics()
        partitions = cluster.partitions(topics)
        start, _ = cluster.resolve(self.options.start, partitions)
        end, _ = cluster.resolve(self.options.end, partitions)
        found = []
        for topic, partition in partitions:
            first, last = start[topic, partition], end[topic, partition]
            if first > last:
                what = f"{topic}-{partition} would be read from offset {first} to {last}, which is lower"
                if self.options.fail_on_data_loss:
                    raise DataLossError(what + CONTINUE)
                warn(DataLossError(what))
            found.append(Range(topic, partition, first, max(first, last), topics[topic].id))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.read(partition)


class FilteringReader(BatchReader):
    """The reader for queries with the option `pushFilters`. Comparisons of topic, partition and offset in the query
    limit the offsets that the reader fetches.

    Spark passes filters to a reader only if `spark.sql.python.filterPushdown.enabled` is true. If this setting is
    false, every query whose reader has the method `pushFilters` fails. So only queries with the option get this reader.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.filters: list[tuple[str, str, Any]] = []

    # The annotations are strings because PySpark 4.0 does not define `Filter`.
    def pushFilters(self, filters: "list[datasource.Filter]") -> "Iterable[datasource.Filter]":  # noqa: N802
        for one in filters:
            taken = understood(one)
            if taken is None:
                yield one
            else:
                self.filters.append(taken)

    def ranges(self, cluster: Cluster) -> list[Range]:
        found: list[Range] = super().ranges(cluster)
        for name, comparison, value in self.filters:
            found = [kept for one in found if (kept := narrow(one, name, comparison, value)) is not None]
        return found


# All records of a range have the same topic and partition, so a filter on these columns keeps or drops the whole range.
_SAME = {"topic", "partition"}


def understood(one: "datasource.Filter") -> tuple[str, str, Any] | None:
    """Returns the column, the comparison and the value of a filter that the reader applies completely. Returns None for
    other filters."""
    name = ".".join(getattr(one, "attribute", ()))
    kind = type(one).__name__
    value = getattr(one, "value", None)
    if name not in {*_SAME, "offset"}:
        return None
    if kind == "IsNotNull":
        return name, kind, None
    if kind == "In" and all(item is not None for item in value or ()) and name in _SAME:
        return name, kind, set(value or ())
    if value is None:
        return None
    if kind in {"EqualTo", "EqualNullSafe"}:
        return name, "EqualTo", value
    if name == "offset" and kind in {"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"}:
        return name, kind, value
    return None


def narrow(one: Range, name: str, comparison: str, value: Any) -> Range | None:
    """Returns the part of `one` that satisfies the comparison, or None if no part does."""
    if comparison == "IsNotNull":
        return one
    if name != "offset":
        mine = getattr(one, name)
        return one if (mine in value if comparison == "In" else mine == value) else None
    first, end = {
        "EqualTo": (value, value + 1),
        "GreaterThan": (value + 1, MAX_OFFSET),
        "GreaterThanOrEqual": (value, MAX_OFFSET),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }[comparison]
    start, end = max(one.start, first), min(one.end, end)
    return one._replace(start=start, end=end) if start < end else None
