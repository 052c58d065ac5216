"""AlterPartitionReassignments and ListPartitionReassignments: change and list the replicas of partitions (KIP-455,
KIP-860)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkacore.controller.common.partition_change import Election, Target, change
from kafkacore.controller.common.placement import replicas_problem
from kafkacore.controller.quorum.decisions import (
    MAX_RECORDS_PER_USER_OP,
    Decision,
    Settings,
    limit_records,
    min_isr,
    unclean_elections,
)
from kafkacore.controller.quorum.leaders import MAX_SINGLE_DECISIONS, LeaderChanges
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partition_records import ColumnRun, Record, record_count
from kafkacore.metadata.partitions import CHUNK_ROWS, Partition
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    Message,
)
from kafkacore.runtime.slices import Work

if TYPE_CHECKING:
    from kafkacore.metadata.move_kinds import Moved

TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


ROWS_OF_A_STEP: Final = 1_000  # the number of partitions to handle before the event loop does other work


class _Ask(NamedTuple):
    """One partition of a request, and the result of this partition in the response."""

    topic: str
    partition: Any
    result: Any


class Reassignment:
    """Handles one AlterPartitionReassignments request."""

    def __init__(self, image: MetadataImage, settings: Settings) -> None:
        self._image, self._settings = image, settings
        self._changes = LeaderChanges(image, settings)
        self._are_possible: dict[tuple[int, ...], bool] = {}

    def decide(self, request: Any) -> Work[Decision]:
        """Decides about the partitions. An error about one partition does not affect the others. If a partition has
        several entries, only the first entry counts, because the decisions do not see each other's records. Raises
        POLICY_VIOLATION if the request makes too many changes."""
        another_factor = request.allow_replication_factor_change
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=another_factor
        )
        asks: list[_Ask] = []
        seen: set[tuple[str, int]] = set()
        for topic in request.topics:
            yield
            topic_result = TopicResult(name=topic.name)
            for each in topic.partitions:
                yield
                result = PartitionResult(partition_index=each.partition_index, error_message=None)
                topic_result.partitions.append(result)
                key = topic.name, each.partition_index
                if key in seen:
                    result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Duplicate partition."
                else:
                    seen.add(key)
                    asks.append(_Ask(topic.name, each, result))
            response.responses.append(topic_result)
        records: list[Record] = []
        alone: Sequence[_Ask] = asks
        if len(asks) > MAX_SINGLE_DECISIONS:
            records, alone = yield from self._in_columns(asks, another_factor)
        made = record_count(records)
        for ask in alone:
            yield
            try:
                record = self._alter(ask.topic, ask.partition, another_factor)
                if record is not None:
                    records.append(record)
                    made += 1
            except KafkaError as error:
                ask.result.error_code, ask.result.error_message = error.code, str(error)
            limit_records(made)
        return Decision(records, response)

    def _in_columns(self, asks: list[_Ask], another_factor: bool) -> Work[tuple[list[Record], list[_Ask]]]:
        """Makes one decision for all partitions with the same state and the same target. Returns the records, and the
        entries that must be decided one by one: errors, cancellations, and partitions with a reassignment in
        progress."""
        rows: dict[int, _Ask] = {}
        alone: list[_Ask] = []
        for ask in asks:
            yield
            row = self._row_of(ask)
            if row < 0 or len(rows) >= MAX_RECORDS_PER_USER_OP:
                alone.append(ask)
            else:
                rows[row] = ask
        if not rows:
            return [], asks
        records: list[Record] = []
        ordered = sorted(rows)
        for at in range(0, len(ordered), ROWS_OF_A_STEP):
            yield
            part = ordered[at : at + ROWS_OF_A_STEP]
            columns, odd = self._moves(part, [rows[row] for row in part], another_factor)
            alone += [rows[part[index]] for index in odd]
            if columns is not None:
                records.append(ColumnRun(columns, 0, len(columns)))
        return records, alone

    def _moves(self, rows: list[int], asks: list[_Ask], another_factor: bool) -> Moved:
        def decide(index: int) -> Message | None:
            try:
                return self._alter(asks[index].topic, asks[index].partition, another_factor)
            except KafkaError:
                return None

        return self._changes.moves(rows, [tuple(each.partition.replicas) for each in asks], decide)

    def _row_of(self, ask: _Ask) -> int:
        """Returns the partition's row in the image if the partition exists and can get the requested replicas, else
        -1."""
        topic, wanted = self._image.topic(ask.topic), ask.partition.replicas
        if topic is None or not wanted or len(wanted) > len(self._image.brokers):
            return -1
        brokers = tuple(wanted)
        if brokers not in self._are_possible:
            self._are_possible[brokers] = replicas_problem(brokers, self._image.brokers) is None
        return topic.row(ask.partition.partition_index) if self._are_possible[brokers] else -1

    def _alter(self, name: str, asked: Any, another_factor: bool) -> Message | None:
        topic = self._image.topic(name)
        if topic is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        was = self._image.partition(topic, asked.partition_index)
        if was is None:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{asked.partition_index}."
            )
        if asked.replicas is None:
            target = self._reverted(topic, was)
        else:
            problem = replicas_problem(asked.replicas, self._image.brokers)
            if problem:
                raise error_for(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            if not another_factor:
                _check_factor(was, asked.replicas)
            target = _reassigned(was, asked.replicas)
        rules = self._changes.rules(was, min_isr(self._image, self._settings, topic))
        record: Message | None = change(was, topic.topic_id, target, rules)
        return record

    def _reverted(self, topic: Topic, was: Partition) -> Target:
        """Returns the target that restores the replicas that the partition had before the reassignment in progress."""
        if not in_progress(was):
            raise error_for(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = [each for each in was.replicas if each not in was.adding]
        isr = [each for each in was.isr if each not in was.adding]
        unclean = unclean_elections(self._image, self._settings, topic.name)
        eligible = self._image.elr_enabled and not set(was.elr).isdisjoint(replicas)
        if not isr and not eligible:
            # Only replicas that the reassignment added are in sync. After the cancellation, the first old replica would
            # be the only member of the ISR, but it may lack records. With an old replica in the ELR, which has every
            # committed record, the ISR stays empty instead. Apache Kafka 4.3 does not use the ELR here.
            if not replicas:
                raise error_for(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    "Invalid replica assignment: addingReplicas contains all replicas.",
                )
            if not unclean:
                raise error_for(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {topic.name}:{was.partition} because it would require "
                    "an unclean leader election.",
                )
            isr = replicas[:1]
        election = Election.UNCLEAN if unclean else Election.ONLINE
        return Target(isr=isr, replicas=replicas, removing=(), adding=(), election=election)


def in_progress(partition: Partition) -> bool:
    return bool(partition.removing or partition.adding)


def _reassigned(was: Partition, wanted: Sequence[int]) -> Target:
    """Returns the target that adds the new replicas to the old replicas. The old replicas are removed when all new
    replicas are in sync."""
    removing = sorted(set(was.replicas) - set(wanted))
    # A cancellation restores all replicas that are not in `adding`. So a replica that an earlier reassignment adds
    # stays in `adding`, even if this reassignment removes it. Apache Kafka 4.3 replaces `adding` and `removing`, but
    # never by an empty list. There, cancelling the later of two reassignments can leave replicas of the earlier one.
    adding = sorted({*was.adding, *wanted} - (set(was.replicas) - set(was.adding)))
    return Target(replicas=[*wanted, *removing], removing=removing, adding=adding)


def _check_factor(was: Partition, wanted: Sequence[int]) -> None:
    factor = len((set(was.replicas) | set(was.adding)) - set(was.removing))
    if factor != len(wanted):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from {factor} to {len(wanted)}"
        )


def list_reassignments(image: MetadataImage, request: Any) -> Work[Any]:
    """Lists the reassignments in progress, either of the requested partitions or of all partitions."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    if request.topics is None:
        asked: Iterable[tuple[Topic | None, Iterable[int]]] = yield from _under_way(image)
    else:
        asked = ((image.topic(each.name), each.partition_indexes) for each in request.topics)
    for topic, indexes in asked:
        yield
        if topic is None:
            continue
        ongoing = []
        for index in indexes:
            yield
            partition = image.partition(topic, index)
            if partition is not None and in_progress(partition):
                ongoing.append(_ongoing(partition))
        if ongoing:
            response.topics.append(OngoingTopic(name=topic.name, partitions=ongoing))
    return response


def _under_way(image: MetadataImage) -> Work[list[tuple[Topic, list[int]]]]:
    """Returns the reassignments in progress. Searches only the few partitions with rare fields, because a reassignment
    sets one of these fields."""
    found: dict[int, list[int]] = {}
    for number, chunk in enumerate(image.partition_chunks):
        for index in chunk.rare:
            yield
            row = image.partition_at(number * CHUNK_ROWS + index)
            found.setdefault(row.topic_row, []).append(row.partition)
    return [(image.topic_at(row), sorted(indexes)) for row, indexes in sorted(found.items())]


def _ongoing(partition: Partition) -> Any:
    return OngoingPartition(
        partition_index=partition.partition,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
