"""Requests that Spark's driver sends to a Kafka cluster, to find out which partitions a query reads, and its start and
end offsets."""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kafkacore.client import EARLIEST, LATEST, Client, Offset, Topic, TopicMissing
from kafkacore.spark.errors import OptionError
from kafkacore.spark.options import Bound, SourceOptions, compile_pattern
from kafkacore.spark.positions import Positions, TopicPartition, names

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Cluster:
    """The topics and offsets that a query's options name, as they are in the cluster. A named topic or partition that
    does not exist is an error. With `may_miss` it is left out instead."""

    def __init__(self, client: Client, options: SourceOptions, *, may_miss: bool = False) -> None:
        self.client = client
        self.options = options
        self.may_miss = may_miss
        self.isolation_level = options.kafka.get("isolation.level", "read_uncommitted")

    def topics(self) -> dict[str, Topic]:
        """Returns the topics that the query names. A pattern must match the whole name, and matches no internal topic.

        :raises TopicMissing: a topic that `subscribe` or `assign` names does not exist
        """
        options = self.options
        if options.pattern is None:
            return self._named({*options.topics, *(topic for topic, _ in options.assigned)})
        pattern = compile_pattern(options.pattern)
        every = self.client.topics(None)
        return {name: topic for name, topic in every.items() if name not in INTERNAL and pattern.fullmatch(name)}

    def _named(self, names: set[str]) -> dict[str, Topic]:
        while True:
            try:
                return self.client.topics(sorted(names))
            except TopicMissing as missing:
                if not self.may_miss:
                    raise
                names.discard(missing.topic)

    def partitions(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        """Returns the partitions of `topics` that the query reads."""
        assigned = self.options.assigned
        if assigned:
            found = {
                (topic, number) for topic, number in assigned if topic in topics and number in topics[topic].partitions
            }
            if not self.may_miss and (missing := assigned - found):
                raise OptionError(f"option assign names {names(missing)}, but the topics do not have these partitions")
            return sorted(found)
        return sorted((name, number) for name, topic in topics.items() for number in topic.partitions)

    def resolve(
        self, bound: Bound, partitions: Collection[TopicPartition], *, may_lack: bool = False
    ) -> tuple[Positions, bool]:
        """Returns the position of each partition at `bound`, and whether any position is the current end of a log. With
        `may_lack`, leaves out the partitions that `bound` should name and does not name.

        :raises OptionError: the bound lacks a partition, names a partition that the query does not read, or has a
        timestamp that is later than the timestamps of all records
        """
        if bound.kind in {"earliest", "latest"}:
            return self.at(partitions, EARLIEST if bound.kind == "earliest" else LATEST), bound.kind == "latest"
        if bound.kind == "timestamp":
            return self._at_times(bound, dict.fromkeys(partitions, bound.timestamp_ms))
        check_names(bound, partitions, may_lack=may_lack)
        if bound.kind == "timestamps":
            return self._at_times(bound, bound.offsets)
        asked = {which: offset for which, offset in bound.offsets.items() if offset < 0}
        found = {which: answer.offset for which, answer in self._ask(asked).items()}
        return {**bound.offsets, **found}, LATEST in asked.values()

    def at(self, partitions: Iterable[TopicPartition], where: int) -> Positions:
        """Returns the earliest or the latest offset of each partition. For read_committed, the latest offset is the
        last stable offset."""
        return {which: answer.offset for which, answer in self._ask(dict.fromkeys(partitions, where)).items()}

    def latest(self, partitions: Collection[TopicPartition], known: Mapping[TopicPartition, int]) -> Positions:
        """Returns the latest offsets. If a new leader returns a lower offset than the query has already read, repeats
        the request, as `fetchOffset.numRetries` and `fetchOffset.retryIntervalMs` allow."""
        found = self.at(partitions, LATEST)
        for _ in range(self.options.offset_retries):
            if all(offset >= known.get(which, 0) for which, offset in found.items()):
                break
            time.sleep(self.options.offset_retry_interval_ms / 1000)
            found = self.at(partitions, LATEST)
        return found

    def _at_times(self, bound: Bound, times: Mapping[TopicPartition, int]) -> tuple[Positions, bool]:
        found = {which: answer.offset for which, answer in self._ask(times).items()}
        unmatched = [which for which, offset in found.items() if offset < 0]
        if not unmatched:
            return found, False
        if bound.option.startswith("starting") and not self.options.unmatched_start_is_latest:
            first = min(unmatched)
            raise OptionError(
                f"no record of {names([first])} has the timestamp {times[first]} of option {bound.option} or a later"
                " one; with startingOffsetsByTimestampStrategy=latest the query starts at the end of the log"
            )
        return {**found, **self.at(unmatched, LATEST)}, True

    def _ask(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        return self.client.offsets(times, self.isolation_level) if times else {}


def check_names(bound: Bound, partitions: Collection[TopicPartition], *, may_lack: bool = False) -> None:
    """Raises OptionError if `bound` names partitions, but not exactly these. With `may_lack`, it may name fewer."""
    if bound.kind not in {"offsets", "timestamps"}:
        return
    named, read = set(bound.offsets), set(partitions)
    if named - read or (read - named and not may_lack):
        raise OptionError(
            f"option {bound.option} must name exactly the partitions of the query: it names {names(named)},"
            f" but the query reads {names(read)}; -2 is the earliest offset, -1 the latest"
        )


def topic_ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    """Returns the topic ids as text. The result is empty if the cluster has no topic ids."""
    return {name: str(topic.id) for name, topic in topics.items() if topic.id is not None}
