"""AlterPartition: the leader of a partition reports a new ISR (KIP-497).

The request contains the broker epochs of the leader and of the replicas. If a replica has restarted in the meantime,
its epoch differs, and the controller does not let the replica into the ISR (KIP-903). After an unclean election, the
leader is RECOVERING and is the only member of the ISR (KIP-704).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kafkacore.controller.common.partition_change import Election, Target, change
from kafkacore.controller.quorum.cluster import check_epoch
from kafkacore.controller.quorum.decisions import Decision, Settings
from kafkacore.controller.quorum.leaders import LeaderChanges
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partitions import NO_LEADER_CHANGE, NO_RECOVERY_CHANGE, RECOVERED, RECOVERING, Partition
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AlterPartitionResponse, Message
from kafkacore.runtime.slices import Work

BROKER_EPOCHS_SINCE: Final = 3  # first version with the broker epoch of each replica (KIP-903)
ANY_EPOCH: Final = -1
TopicResult = AlterPartitionResponse.TopicData
PartitionResult = AlterPartitionResponse.PartitionData


class _Member(NamedTuple):
    broker_id: int
    broker_epoch: int


class IsrChange:
    """Handles one AlterPartition request."""

    def __init__(self, image: MetadataImage, settings: Settings, api_version: int) -> None:
        self._image = image
        self._api_version = api_version
        self._changes = LeaderChanges(image, settings)
        self._records: list[Message] = []
        self._changed: set[int] = set()  # image rows of the partitions that this request has changed

    def decide(self, request: Any) -> Work[Decision]:
        """Decides about the new ISRs. Raises STALE_BROKER_EPOCH. All other errors are in the results of the
        partitions."""
        check_epoch(self._image, request.broker_id, request.broker_epoch)
        response = AlterPartitionResponse()
        for asked in request.topics:
            yield
            topic = self._image.topic_by_id(asked.topic_id)
            result = TopicResult(topic_id=asked.topic_id)
            for each in asked.partitions:
                yield
                result.partitions.append(self._partition(request.broker_id, topic, each))
            response.topics.append(result)
        return Decision(self._records, response, atomic=False)

    def _partition(self, leader: int, topic: Topic | None, asked: Any) -> Any:
        index = asked.partition_index
        if topic is None:
            return _refused(index, ErrorCode.UNKNOWN_TOPIC_ID)
        was = self._image.partition(topic, index)
        if was is None:
            return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._epoch_problem(leader, was, asked)
        if error is None and len(self._new_isr(asked)) > len(was.replicas):
            error = ErrorCode.INVALID_REQUEST  # too many members to check them one by one
        isr = [] if error else self._isr(asked)
        error = error or _isr_problem(was, isr, asked.leader_recovery_state)
        if error is None and self._changes_twice(topic, index):
            error = ErrorCode.INVALID_UPDATE_VERSION
        if error is None and not all(map(self._is_eligible, isr)):
            error = ErrorCode.INELIGIBLE_REPLICA
        if error is not None:
            return _refused(index, error)
        record = self._change(topic, was, isr, asked.leader_recovery_state)
        if record is None:
            return _accepted(was)
        self._records.append(record)
        self._changed.add(topic.partition_rows[index])
        if record.leader not in (leader, NO_LEADER_CHANGE):
            # The new ISR completes a reassignment that removes this leader. The sender must read the new leader from
            # the metadata before it sends the request again.
            return _refused(index, ErrorCode.NEW_LEADER_ELECTED)
        return _accepted(_merged(was, record))

    def _new_isr(self, asked: Any) -> Sequence[Any]:
        isr: Sequence[Any] = asked.new_isr if self._api_version < BROKER_EPOCHS_SINCE else asked.new_isr_with_epochs
        return isr

    def _isr(self, asked: Any) -> list[_Member]:
        if self._api_version < BROKER_EPOCHS_SINCE:
            return [_Member(each, ANY_EPOCH) for each in asked.new_isr]
        return [_Member(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]

    def _epoch_problem(self, leader: int, was: Partition, asked: Any) -> ErrorCode | None:
        """Returns the reason why the leader must not change this partition now, or None. If the request has a later
        leader epoch or partition epoch than this controller knows, a newer controller exists."""
        if asked.leader_epoch > was.leader_epoch or asked.partition_epoch > was.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if asked.leader_epoch < was.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if leader != was.leader:
            return ErrorCode.INVALID_REQUEST
        if asked.partition_epoch < was.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        return None

    def _changes_twice(self, topic: Topic, index: int) -> bool:
        """Returns whether an earlier entry of this request has changed the partition, and so has raised the partition
        epoch."""
        return topic.partition_rows[index] in self._changed

    def _is_eligible(self, member: _Member) -> bool:
        broker = self._image.brokers.get(member.broker_id)
        return broker is not None and broker.active and member.broker_epoch in (ANY_EPOCH, broker.epoch)

    def _change(self, topic: Topic, was: Partition, isr: Iterable[_Member], recovery_state: int) -> Any | None:
        least_isr, unclean_allowed = self._changes.rules_of(was, topic)
        target = Target(
            isr=[each.broker_id for each in isr],
            recovery_state=recovery_state,
            election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        )
        return change(was, topic.topic_id, target, self._changes.rules(was, least_isr))


def _isr_problem(was: Partition, isr: Sequence[_Member], recovery_state: int) -> ErrorCode | None:
    members = {each.broker_id for each in isr}
    recovers = recovery_state == RECOVERING
    wrong = (
        recovery_state not in (RECOVERED, RECOVERING)
        or len(members) != len(isr)
        or not members.issubset(was.replicas)
        or was.leader not in members
        or (recovers and len(isr) > 1)
        or (recovers and was.recovery_state == RECOVERED)
    )
    return ErrorCode.INVALID_REQUEST if wrong else None


def _merged(was: Partition, record: Any) -> Partition:
    """Returns `was` with the record applied. Updates only the fields that the response contains."""
    new_leader = record.leader != NO_LEADER_CHANGE
    new_state = record.leader_recovery_state
    return was._replace(
        isr=was.isr if record.isr is None else tuple(record.isr),
        leader=record.leader if new_leader else was.leader,
        leader_epoch=was.leader_epoch + new_leader,
        partition_epoch=was.partition_epoch + 1,
        recovery_state=was.recovery_state if new_state == NO_RECOVERY_CHANGE else new_state,
    )


def _accepted(now: Partition) -> Any:
    return PartitionResult(
        partition_index=now.partition,
        leader_id=now.leader,
        leader_epoch=now.leader_epoch,
        isr=list(now.isr),
        leader_recovery_state=now.recovery_state,
        partition_epoch=now.partition_epoch,
    )


def _refused(index: int, error: ErrorCode) -> Any:
    return PartitionResult(partition_index=index, error_code=error)
