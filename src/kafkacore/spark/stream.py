"""Streaming reads. The driver plans offsets, with admission control and Trigger.AvailableNow.

Spark writes the end of each batch into its checkpoint, but not the start of the first batch. If Spark restarts before a
batch is complete, it calls `initialOffset` again. For a query that starts at the end of the logs, the second result may
be later than the first. So the first batch of such a query is empty. The end of this batch is the query's start, and
Spark writes it into the checkpoint. The second result may also contain partitions that did not exist when the batch was
planned. The next batch reads these partitions from their beginning.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkacore.client import EARLIEST, Client, PartitionMissing, Range, TopicMissing
from kafkacore.protocol.uuid import Uuid
from kafkacore.spark.columns import RECORD, check_choice
from kafkacore.spark.connections import new_client
from kafkacore.spark.errors import DataLossError
from kafkacore.spark.options import SourceOptions
from kafkacore.spark.planning import Cluster, check_names, topic_ids
from kafkacore.spark.positions import Positions, TopicPartition, from_json_object, names, to_json_object
from kafkacore.spark.ranges import Delay, backlog, limit_rows, split_ranges
from kafkacore.spark.tasks import CONTINUE, RangeReading, tasks, warn


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads for `spark.readStream.format("kafkacore")`. One instance plans a query's batches on the driver. Its copies
    read in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_choice(schema, RECORD, "a record")
        self.options = options
        self.reading = RangeReading(options.kafka, schema, options.fail_on_data_loss)
        self.client: Client | None = None
        self.initial: dict[str, Any] | None = None  # the first result of initialOffset, which Spark calls twice
        self.first_batch_is_empty = False
        self.has_asked = False  # whether Spark has called latestOffset
        self.unchecked: Collection[TopicPartition] = ()  # the partitions that the options of a new query must name
        self.target: tuple[Positions, dict[str, str]] | None = None  # the end that Trigger.AvailableNow has fixed
        self.missing: set[str] = set()  # the topics that the options name and that do not exist
        self.seen: dict[str, Any] | None = None  # the latest offsets, for the progress report
        self.delay = Delay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "client": None}  # a task has its own connections

    def cluster(self, *, may_miss: bool = False) -> Cluster:
        if self.client is None:
            self.client = new_client(self.options.kafka)
        return Cluster(self.client, self.options, may_miss=may_miss)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self.initial is None:
            cluster = self.cluster()
            topics = cluster.topics()
            partitions = cluster.partitions(topics)
            if self.target is not None:  # a partition that is younger than the target would look like a deleted one
                partitions = [which for which in partitions if which in self.target[0]]
            positions, self.first_batch_is_empty = cluster.resolve(self.options.start, partitions, may_lack=True)
            self.unchecked = partitions
            self.initial = to_json_object(positions, topic_ids(topics))
        return self.initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.latest({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if self.unchecked:
            check_names(self.options.start, self.unchecked)
        self.has_asked = True
        begin, ids_then = from_json_object(start)
        latest, ids = self.with_missing(begin, ids_then, *(self.target or self.latest(begin)))
        self.seen = to_json_object(latest, ids)
        if start == self.initial:
            self.report_starts_beyond_end(latest)
        if self.first_batch_is_empty and start == self.initial:
            self.first_batch_is_empty = False
            return start
        begin = self.still_there(begin, ids_then, latest, ids)
        # Spark supports either a maximum or a minimum. If a query has both, Spark passes the maximum, and this class
        # applies the minimum.
        limited = not isinstance(limit, ReadAllAvailable)
        waits = limited and self.target is None and self.options.min_offsets_per_trigger is not None
        if waits and self.delay.waits(backlog(begin, latest), time.monotonic() * 1000):
            return start
        if isinstance(limit, ReadMaxRows):
            new = latest.keys() - begin.keys()
            latest = limit_rows(begin, latest, limit.max_rows, self.cluster().at(new, EARLIEST))
        return to_json_object(latest, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self.seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, ids_then = from_json_object(start)
        last, ids = from_json_object(end)
        self.unchecked = ()  # the options of this query were right when the batch was planned
        if start == self.initial:  # the batch may be older than this result of `initialOffset`
            first = {which: at for which, at in first.items() if which in last}
        kept = self.still_there(first, ids_then, last, ids)
        earliest = self.first_of(last.keys() - kept.keys())
        self.report_late_starts({which: at for which, at in earliest.items() if at > 0 and which not in first})
        begin = {**kept, **earliest}
        # `initialOffset` may return greater offsets than `end` although no log has lost records. If Spark restarts
        # before the first commit, it repeats the first batch without a call of `latestOffset`. With
        # Trigger.AvailableNow, the logs may have grown since `prepareForTriggerAvailableNow`.
        if start != self.initial:
            self.report_steps_back(begin, last)
        elif self.has_asked and self.target is None:
            named = self.options.start.offsets  # `latestOffset` has reported named offsets beyond the end
            self.report_steps_back({which: at for which, at in begin.items() if named.get(which) != at}, last)
        found = [
            Range(topic, number, begin[topic, number], last[topic, number], uuid(ids.get(topic)))
            for topic, number in sorted(begin)
            if begin[topic, number] < last[topic, number]
        ]
        options = self.options
        ranges = split_ranges(found, options.min_partitions, options.max_records_per_partition)
        return tasks(ranges, options.min_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.read(partition)

    def stop(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    def latest(self, known: Positions) -> tuple[Positions, dict[str, str]]:
        cluster = self.cluster(may_miss=not self.options.fail_on_data_loss)
        try:
            topics = cluster.topics()
        except TopicMissing as missing:
            if all(topic != missing.topic for topic, _ in known):
                raise
            raise DataLossError(f"{missing}: it was deleted{CONTINUE}") from missing
        return cluster.latest(cluster.partitions(topics), known), topic_ids(topics)

    def first_of(self, new: Collection[TopicPartition]) -> Positions:
        """Returns the first offsets of new partitions. Leaves out partitions that were deleted since the batch was
        planned."""
        found: Positions = {}
        for name in sorted({topic for topic, _ in new}):
            try:
                found |= self.cluster().at([which for which in new if which[0] == name], EARLIEST)
            except (TopicMissing, PartitionMissing) as missing:
                self.lost(f"{missing}: it was deleted before the query read it")
        return found

    def with_missing(
        self, begin: Positions, ids_then: dict[str, str], latest: Positions, ids: dict[str, str]
    ) -> tuple[Positions, dict[str, str]]:
        """Adds the positions of named topics that are missing from the latest offsets. If a broker was only slow to
        learn of a topic, the query later continues at these positions. If the topic was created again, its id shows
        this."""
        if self.options.pattern is not None:
            return latest, ids
        missing = {topic for topic, _ in begin} - {topic for topic, _ in latest}
        for topic in sorted(missing - self.missing):
            warn(DataLossError(f"topic {topic} does not exist"))
        self.missing = missing
        kept = {which: at for which, at in begin.items() if which[0] in missing}
        return latest | kept, ids | {topic: topic_id for topic, topic_id in ids_then.items() if topic in missing}

    def still_there(
        self, begin: Positions, ids_then: dict[str, str], last: Positions, ids: dict[str, str]
    ) -> Positions:
        """Returns the positions in `begin` that are still valid for the partitions in `last`. Leaves out partitions
        that no longer exist. Also leaves out the partitions of a topic that was created again, which the query reads
        from its beginning."""
        gone = begin.keys() - last.keys()
        if gone:
            self.lost(f"partitions are gone: {names(gone)}")
        recreated = {topic for topic, then in ids_then.items() if ids.get(topic, then) != then}
        if recreated:
            first = min(recreated)
            self.lost(
                f"topic {first} was deleted and created again: its id was {ids_then[first]} and is {ids[first]} now;"
                f" its records after {names(which for which in begin if which[0] in recreated)} are gone"
            )
        return {which: at for which, at in begin.items() if which in last and which[0] not in recreated}

    def report_late_starts(self, late: Positions) -> None:
        if late:
            which = min(late)
            self.lost(f"new partition {names([which])} begins at offset {late[which]}: its records before it are gone")

    def report_starts_beyond_end(self, latest: Positions) -> None:
        bound = self.options.start
        beyond = sorted(which for which, at in bound.offsets.items() if at > latest.get(which, at))
        if beyond and bound.kind == "offsets":
            which = beyond[0]
            self.lost(
                f"option {bound.option} starts {names([which])} at offset {bound.offsets[which]}, but its log ends at"
                f" offset {latest[which]}"
            )

    def report_steps_back(self, begin: Positions, last: Positions) -> None:
        back: list[TopicPartition] = sorted(which for which in begin if begin[which] > last[which])
        if back:
            which = back[0]
            self.lost(
                f"the log of {names([which])} ended at offset {last[which]}, but offset {begin[which]} was read before:"
                " it has lost records at its end"
            )

    def lost(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLossError(what + CONTINUE)
        warn(DataLossError(what))


def uuid(text: str | None) -> Uuid | None:
    return None if text is None else Uuid.parse(text)
