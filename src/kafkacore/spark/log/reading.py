"""Plans and runs a read of log directories. Each task reads a part of a segment, or the small files of a log
directory."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kafkacore.spark.columns import arrow_schema, check_choice
from kafkacore.spark.log.batches import header_batches
from kafkacore.spark.log.internal_topics import decoded_batches
from kafkacore.spark.log.layout import LogDirectory, Replica, Segment, log_directories, segments
from kafkacore.spark.log.moving import Listed, listings
from kafkacore.spark.log.options import LogOptions
from kafkacore.spark.log.records import record_batches
from kafkacore.spark.log.rows import batches_of
from kafkacore.spark.log.small_files import checkpoint_rows, index_rows, segment_rows
from kafkacore.spark.log.snapshots import snapshot_segments
from kafkacore.spark.log.splits import Split, splits
from kafkacore.spark.log.tables import SCHEMAS
from kafkacore.spark.workers import exempt_modules_from_collection
from kafkacore.storage import names

_TOPICS = {"groups": names.OFFSETS_TOPIC, "transactions": names.TRANSACTIONS_TOPIC}


class SplitTask(InputPartition):
    """A task that reads a part of a segment."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class DirectoryTask(InputPartition):
    """A task that reads the small files of a log directory and of its replicas."""

    def __init__(self, log_dir: LogDirectory, found: list[Replica]) -> None:
        super().__init__(log_dir)
        self.log_dir = log_dir
        self.replicas = found


class LogReader(DataSourceReader):
    """Lists files on the driver and reads them in tasks. So the driver and all tasks must have access to the same
    directories."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        check_choice(schema, SCHEMAS[options.table], f"table {options.table}")
        self.options = options
        self.given = schema

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = []
        for listing in listings(log_directories(self.options.paths), self.options.kinds):
            found = [task for listed in listing for task in self._tasks(listed)]
        return found

    def _tasks(self, listed: Listed) -> Iterator[InputPartition]:
        wanted = [each for each in listed.replicas if self._wants(each.topic)]
        if self.options.table in ("segments", "indexes", "checkpoints"):
            yield DirectoryTask(listed.log_dir, wanted)
        else:
            for each in wanted:
                yield from map(SplitTask, self._splits(each))

    def _wants(self, topic: str) -> bool:
        if self.options.table == "metadata":
            return topic == names.CLUSTER_METADATA_TOPIC
        if self.options.table in _TOPICS:
            return topic == _TOPICS[self.options.table]
        return self.options.wants(topic)

    def _splits(self, replica: Replica) -> Iterator[Split]:
        listed: list[Segment] = segments(replica)
        if self.options.table == "metadata":
            listed = [*snapshot_segments(replica), *listed]
        for segment in listed:
            yield from self._splits_of(segment)

    def _splits_of(self, segment: Segment) -> Iterator[Split]:
        return splits(segment, self.options.split_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        exempt_modules_from_collection()
        schema, options = arrow_schema(self.given), self.options
        if isinstance(partition, SplitTask):
            yield from _split_rows(partition.split, options, schema)
        elif isinstance(partition, DirectoryTask):
            yield from batches_of(_small_rows(partition, options), schema)


def _small_rows(task: DirectoryTask, options: LogOptions) -> Iterator[dict[str, Any]]:
    if options.table == "checkpoints":
        return checkpoint_rows(task.log_dir, task.replicas)
    if options.table == "segments":
        return (row for replica in task.replicas for row in segment_rows(replica))
    return (row for replica in task.replicas for row in index_rows(replica, options.index_types))


def _split_rows(split: Split, options: LogOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if options.table == "records":
        return record_batches(split, schema, corrupt_rows=options.corrupt_rows)
    if options.table == "batches":
        return header_batches(split, schema, corrupt_rows=options.corrupt_rows)
    return decoded_batches(split, options.table, schema, corrupt_rows=options.corrupt_rows)
