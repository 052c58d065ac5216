"""CreateTopics and CreatePartitions. The requests are checked as in Apache Kafka. Then the new partitions are
placed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final

from kafkacore.config import BrokerConfig, ConfigError, TopicConfig
from kafkacore.controller.common.placement import PlacementError, UsableBroker, place, replicas_problem
from kafkacore.controller.quorum.decisions import (
    MAX_PARTITIONS_PER_REQUEST,
    Decision,
    Settings,
    limit_records,
)
from kafkacore.controller.quorum.leaders import default_directory
from kafkacore.metadata.image import (
    TOPIC,
    MetadataImage,
    Topic,
    has_collision_characters,
    unify_collision_characters,
)
from kafkacore.metadata.partition_records import PartitionRecords, PartitionRun, record_count
from kafkacore.metadata.partitions import Ids
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    ConfigRecord,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    Message,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import Work, counted
from kafkacore.storage.names import CLUSTER_METADATA_TOPIC, topic_name_problem

USE_DEFAULT: Final = -1
MAX_DESCRIPTIONS: Final = 256  # when the cache has this many entries, it is emptied
Result = CreateTopicsResponse.CreatableTopicResult
Placed = list[list[int]]


class TopicDescriptions:
    """Caches the configurations of topics in the form that responses to CreateTopics use. Topics with equal settings
    share one immutable list, so a request for a thousand such topics creates the list only once."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._known: dict[tuple[tuple[str, str], ...], list[Any]] = {}

    def of(self, overrides: dict[str, str]) -> list[Any]:
        key = tuple(sorted(overrides.items()))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_DESCRIPTIONS:
                self._known.clear()
            known = self._known[key] = self._describe(overrides)
        return known

    def _describe(self, overrides: dict[str, str]) -> list[Any]:
        config = TopicConfig(self._config, overrides)
        made = CreateTopicsResponse.CreatableTopicConfigs
        told = [config.describe(name) for name in sorted(config.described_names())]
        return [
            made(
                name=each.name,
                value=None if each.sensitive else each.value,
                read_only=each.read_only,
                config_source=int(each.source),
                is_sensitive=each.sensitive,
            )
            for each in told
        ]


class TopicCreation:
    """Handles one CreateTopics request. `new_id` returns the id of a new topic."""

    def __init__(
        self, image: MetadataImage, settings: Settings, new_id: Callable[[], Uuid], descriptions: TopicDescriptions
    ) -> None:
        self._image, self._settings, self._new_id, self._descriptions = image, settings, new_id, descriptions
        self._placement = Placement(image, settings)
        self._records: list[Message | PartitionRun] = []
        self._lookalikes: dict[str, str] = {}  # names of topics that this request creates, by their unified names

    def decide(self, request: Any) -> Work[Decision]:
        """Decides about the topics. Raises POLICY_VIOLATION if the request creates too many partitions. All other
        errors are in the topics' results."""
        yield from self._limit_partitions(request.topics)
        counts = yield from counted(topic.name for topic in request.topics)
        results = []
        for name, count in counts.items():
            yield
            if count > 1:
                results.append(self._refused(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for topic in request.topics:
            yield
            if counts[topic.name] == 1:
                results.append((yield from self._create(topic)))
        self._placement.finish()
        yield
        limit_records(record_count(self._records))
        return Decision([] if request.validate_only else self._records, CreateTopicsResponse(topics=results))

    def _limit_partitions(self, topics: Sequence[Any]) -> Work[None]:
        usual, total = self._settings.config.num_partitions, 0
        for topic in topics:
            yield
            count = usual if topic.num_partitions == USE_DEFAULT else max(0, topic.num_partitions)
            total += len(topic.assignments) or count
            if total > MAX_PARTITIONS_PER_REQUEST:
                raise error_for(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")

    def _refused(self, name: str, error: ErrorCode, message: str) -> Any:
        return Result(name=name, error_code=error, error_message=message)

    def _create(self, topic: Any) -> Work[Any]:
        try:
            self._check_name(topic.name)
            overrides = yield from self._check_configs(topic)
            replicas = self._placement.of_new_topic(topic)
        except KafkaError as error:
            return self._refused(topic.name, ErrorCode(error.code), str(error))
        if has_collision_characters(topic.name):
            self._lookalikes[unify_collision_characters(topic.name)] = topic.name
        topic_id = self._new_id()
        records = self._records
        records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        for key in sorted(overrides):
            records.append(ConfigRecord(resource_type=TOPIC, resource_name=topic.name, name=key, value=overrides[key]))
        records.append(self._placement.run(topic_id, 0, replicas))
        return Result(
            name=topic.name,
            topic_id=topic_id,
            num_partitions=len(replicas),
            replication_factor=len(replicas[0]),
            configs=self._descriptions.of(overrides),
        )

    def _check_name(self, name: str) -> None:
        if name == CLUSTER_METADATA_TOPIC:
            raise error_for(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        problem = topic_name_problem(name)
        if problem:
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name in self._image.topics_by_name:
            raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if has_collision_characters(name):
            key = unify_collision_characters(name)
            other = next(iter(self._image.lookalikes.get(key) or ()), self._lookalikes.get(key))
            if other is not None:
                raise error_for(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def _check_configs(self, topic: Any) -> Work[dict[str, str]]:
        if not topic.configs:
            return {}
        nulls, overrides = [], {}
        for config in topic.configs:
            yield
            overrides[config.name] = config.value
            if config.value is None:
                nulls.append(config.name)
        if nulls:
            raise error_for(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls))
        try:
            TopicConfig.validate(self._settings.config, overrides)
        except ConfigError as error:
            raise error_for(ErrorCode.INVALID_CONFIG, str(error)) from None
        return overrides


class PartitionGrowth:
    """Handles one CreatePartitions request."""

    def __init__(self, image: MetadataImage, settings: Settings) -> None:
        self._image = image
        self._placement = Placement(image, settings)
        self._records: list[Message | PartitionRun] = []
        self._count = 0

    def decide(self, request: Any) -> Work[Decision]:
        counts = yield from counted(topic.name for topic in request.topics)
        made = CreatePartitionsResponse.CreatePartitionsTopicResult
        results = []
        for name, count in counts.items():
            yield
            if count > 1:
                results.append(
                    made(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
                )
        for topic in request.topics:
            yield
            if counts[topic.name] > 1:
                continue
            result = made(name=topic.name)
            try:
                self._grow(topic)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, str(error)
            results.append(result)
        self._placement.finish()
        yield
        return Decision([] if request.validate_only else self._records, CreatePartitionsResponse(results=results))

    def _grow(self, asked: Any) -> None:
        topic = self._image.topic(asked.name)
        if topic is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        count = len(topic.partition_rows)
        if asked.count == count:
            raise error_for(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
        if asked.count < count:
            raise error_for(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {asked.name} currently has {count} partition(s); {asked.count} would not be an increase.",
            )
        if asked.count - count > MAX_PARTITIONS_PER_REQUEST:
            raise error_for(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        replicas = self._placement.of_more(topic, asked, count)
        self._records.append(self._placement.run(topic.topic_id, count, replicas))
        self._count += len(replicas)
        # If the request creates too many partitions, all of it fails. So the limit is checked as early as possible.
        limit_records(self._count)


def _spans(placed: Placed) -> list[tuple[list[int], int]]:
    """Groups consecutive equal placements. Returns each placement with the length of its run."""
    if placed.count(placed[0]) == len(placed):
        return [(placed[0], len(placed))]  # the usual case with one broker
    return [(placement, len(list(alike))) for placement, alike in groupby(placed)]


class Placement:
    """Places the replicas of new partitions, either as the request assigns them or as `place` decides. Chooses the
    first leaders."""

    def __init__(self, image: MetadataImage, settings: Settings) -> None:
        self._image, self._settings = image, settings
        self._usable = [
            UsableBroker(each.broker_id, each.rack, each.fenced)
            for _, each in sorted(image.brokers.items())
            if not each.in_controlled_shutdown and each.has_uncordoned_directory
        ]
        self._active = {each.broker_id for each in image.brokers.values() if each.active}
        self._columns = PartitionRecords()
        self._placements: dict[Ids, tuple[Ids, Ids, list[Uuid]]] = {}
        self._placed: list[Any] = []  # [placement, length] of each run; `finish` fills the columns with them

    def of_new_topic(self, topic: Any) -> Placed:
        if topic.assignments:
            return self._by_hand(topic)
        count, factor = topic.num_partitions, topic.replication_factor
        if factor < USE_DEFAULT or factor == 0:
            raise error_for(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count < USE_DEFAULT or count == 0:
            raise error_for(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        config = self._settings.config
        return self._automatically(
            config.num_partitions if count == USE_DEFAULT else count,
            config.default_replication_factor if factor == USE_DEFAULT else factor,
        )

    def of_more(self, topic: Topic, asked: Any, count: int) -> Placed:
        # While a reassignment moves the first partition, its replica list still contains the replicas that will be
        # removed. Apache Kafka 4.3 counts these too, so a new partition gets too many replicas there.
        first = self._image.partition_at(topic.partition_rows[0])
        factor = len(set(first.replicas) - set(first.removing))
        additional = asked.count - count
        if asked.assignments is None:
            return self._automatically(additional, factor)
        if len(asked.assignments) != additional:
            raise error_for(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} "
                "assignment(s) were specified.",
            )
        placed = []
        for index, assignment in enumerate(asked.assignments):
            self._check_assignment(assignment.broker_ids, factor)
            self._check_active(assignment.broker_ids, count + index)
            placed.append(list(assignment.broker_ids))
        return placed

    def run(self, topic_id: Uuid, first: int, placed: Placed) -> PartitionRun:
        """Returns the records of new partitions of a topic. The columns of the records are empty until `finish` fills
        them."""
        columns = self._columns
        begin, partition = len(columns), first
        for placement, count in _spans(placed):
            columns.number(topic_id, partition, count)
            partition += count
            known = self._known(tuple(placement))
            if self._placed and self._placed[-1][0] is known:
                self._placed[-1][1] += count
            else:
                self._placed.append([known, count])
        return PartitionRun(topic_id, columns, begin, len(placed))

    def finish(self) -> None:
        """Fills the columns of all runs. Called after the last run."""
        for (replicas, isr, directories), count in self._placed:
            self._columns.place(count, replicas, isr, isr[0], directories)
        self._placed.clear()

    def _known(self, replicas: Ids) -> tuple[Ids, Ids, list[Uuid]]:
        """Returns the replicas, the first ISR and the directory of each replica. Caches the result for each list of
        replicas."""
        known = self._placements.get(replicas)
        if known is None:
            isr = tuple([each for each in replicas if each in self._active])
            directories = [default_directory(self._image, each) for each in replicas]
            known = self._placements[replicas] = replicas, isr, directories
        return known

    def _automatically(self, partitions: int, factor: int) -> Placed:
        try:
            return place(self._usable, partitions, factor, self._settings.random)
        except PlacementError as error:
            raise error_for(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {error}"
            ) from None

    def _by_hand(self, topic: Any) -> Placed:
        if topic.replication_factor != USE_DEFAULT:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != USE_DEFAULT:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        placed: dict[int, list[int]] = {}
        factor = None
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in placed:
                raise error_for(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {index}",
                )
            self._check_assignment(assignment.broker_ids, factor)
            factor = len(assignment.broker_ids)
            self._check_active(assignment.broker_ids, index)
            placed[index] = list(assignment.broker_ids)
        if sorted(placed) != list(range(len(placed))):
            raise error_for(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
            )
        return [placed[index] for index in range(len(placed))]

    def _check_active(self, replicas: Sequence[int], partition: int) -> None:
        if not self._active.intersection(replicas):
            raise error_for(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
                "controlled shutdown.",
            )

    def _check_assignment(self, replicas: Sequence[int], factor: int | None) -> None:
        problem = replicas_problem(replicas, self._image.brokers)
        if problem is None and factor is not None and len(replicas) != factor:
            problem = (
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )
        if problem:
            raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
