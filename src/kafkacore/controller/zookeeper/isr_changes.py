"""AlterPartition: since inter.broker.protocol.version 2.7-IV2, a leader requests changes of its ISR from the controller
(KIP-497).

All waiting requests are merged into one event, which makes one bulk write and sends one UpdateMetadata to each broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.events import Event, Priority, not_controller
from kafkacore.controller.zookeeper.leadership import RECOVERED, RECOVERING, LeaderAndIsr
from kafkacore.controller.zookeeper.protocols import partition_reassignment
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import AlterPartitionResponse

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
TOPIC_IDS_SINCE: Final = 2
BROKER_EPOCHS_SINCE: Final = 3  # KIP-903
ANY_EPOCH: Final = -1
TopicResult = AlterPartitionResponse.TopicData
PartitionResult = AlterPartitionResponse.PartitionData


class Asked(NamedTuple):
    """One waiting request. The future `answer` gets the response."""

    request: Any
    api_version: int
    answer: asyncio.Future[Any]


class _Proposal(NamedTuple):
    """A requested change of one partition, and the lists of results of all responses that wait for the change. A leader
    that lost its connection repeats its request, so several requests can wait for the same change."""

    now: LeaderAndIsr
    number: int
    awaiting: list[list[Any]]

    def settle(self, result: Any) -> None:
        for results in self.awaiting:
            results.append(result)


class AlterPartitions(Event):
    """Handles AlterPartitionRequests (versions 0 to 3) from any number of brokers."""

    priority: ClassVar = Priority.LEADERSHIP
    state: ClassVar = "IsrChange"
    is_repeated: ClassVar = False

    def __init__(self, request: Any, api_version: int) -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked = [Asked(request, api_version, answer)]
        self._responses: list[Any] = []

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.asked += later.asked

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            raise not_controller()
        context = controller.context
        proposals: dict[int, _Proposal] = {}
        for asked in self.asked:
            self._responses.append(self._judge(context, asked, proposals))
        updated = await controller.states.update(context, {row: each.now for row, each in proposals.items()})
        for row, now in updated.written.items():
            context.leaderships[row] = now
            proposals[row].settle(_accepted(proposals[row].number, now))
        for row in updated.conflicts:
            # Another node has written the state. The leader and this controller must both read the new state before the
            # leader sends another request.
            proposals[row].settle(_refused(proposals[row].number, ErrorCode.INVALID_UPDATE_VERSION))
        for row, code in updated.failed.items():
            LOG.error("the ISR of %s stays: ZooKeeper answers %s", context.name(row), code.name)
            proposals[row].settle(_refused(proposals[row].number, ErrorCode.UNKNOWN_SERVER_ERROR))
        for row, state in (await controller.states.read(context, updated.conflicts)).items():
            context.leaderships[row] = state
        if proposals:
            controller.batch.update_metadata(proposals)
        await partition_reassignment.complete_where_possible(controller, updated.written)

    def complete(self) -> None:
        for asked, response in zip(self.asked, self._responses, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(response)

    def preempt(self, error: KafkaError) -> None:
        for asked in self.asked:
            if not asked.answer.done():
                asked.answer.set_result(AlterPartitionResponse(error_code=error.code))

    def _judge(self, context: ControllerContext, asked: Asked, proposals: dict[int, _Proposal]) -> Any:
        """Returns the response with the results that are already known. Adds an entry to `proposals` for each change
        that must be written. These proposals complete the response later."""
        request, version, _ = asked
        broker = context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            LOG.info("AlterPartition of an unknown generation %d of broker %d", request.broker_epoch, request.broker_id)
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        response = AlterPartitionResponse()
        for topic in request.topics:
            name: str | None = topic.topic_name
            if version >= TOPIC_IDS_SINCE:
                name = context.topic_names.get(topic.topic_id)
            result = TopicResult(topic_id=topic.topic_id, topic_name=topic.topic_name)
            response.topics.append(result)
            for each in topic.partitions:
                index = each.partition_index
                if name is None:
                    result.partitions.append(_refused(index, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                row = context.row(name, index)
                was = None if row is None else context.leaderships[row]
                if row is None or was is None:
                    result.partitions.append(_refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                    continue
                verdict = _verdict(context, request.broker_id, was, each, version)
                if verdict is None:
                    result.partitions.append(_accepted(index, was))
                elif isinstance(verdict, ErrorCode):
                    result.partitions.append(_refused(index, verdict))
                else:
                    now = verdict._replace(controller_epoch=context.epoch)
                    made = proposals.setdefault(row, _Proposal(now, index, []))
                    if made.now == now:
                        made.awaiting.append(result.partitions)
                    else:  # an earlier proposal of this event changes the partition differently
                        result.partitions.append(_refused(index, ErrorCode.INVALID_UPDATE_VERSION))
        return response


def _verdict(
    context: ControllerContext, leader: int, was: LeaderAndIsr, asked: Any, version: int
) -> LeaderAndIsr | ErrorCode | None:
    """Decides about one proposed ISR. Returns the state to write, an error, or None if the partition already has this
    state."""
    members = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]
    if version < BROKER_EPOCHS_SINCE:
        members = [(each, ANY_EPOCH) for each in asked.new_isr]
    isr = tuple(broker_id for broker_id, _ in members)
    if asked.partition_epoch > was.partition_epoch or asked.leader_epoch > was.leader_epoch:
        return ErrorCode.NOT_CONTROLLER  # the leader knows a newer state, so a newer controller is active
    if asked.leader_epoch < was.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    recovery = asked.leader_recovery_state
    if (leader, isr, recovery) == (was.leader, was.isr, was.recovery_state):
        return None
    if asked.partition_epoch < was.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not _is_wellformed(leader, was, isr, recovery):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(context, *member) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA if version >= TOPIC_IDS_SINCE else ErrorCode.OPERATION_NOT_ATTEMPTED
    return was._replace(isr=isr, recovery_state=recovery)


def _is_wellformed(leader: int, was: LeaderAndIsr, isr: tuple[int, ...], recovery: int) -> bool:
    """Returns whether the proposed state is valid and comes from the leader. Apache Kafka 3.9 checks only the recovery
    state. There, any broker becomes the leader if it sends a request."""
    if (
        leader != was.leader
        or leader not in isr
        or len(set(isr)) != len(isr)
        or recovery not in (RECOVERED, RECOVERING)
    ):
        return False
    return recovery == RECOVERED or (was.recovery_state == RECOVERING and len(isr) == 1)


def _is_eligible(context: ControllerContext, broker_id: int, broker_epoch: int) -> bool:
    """Returns whether a replica can join the ISR. A replica cannot join while its broker shuts down, or if the broker
    has restarted since the leader last saw it."""
    return context.is_live(broker_id) and broker_epoch in (ANY_EPOCH, context.brokers[broker_id].epoch)


def _accepted(index: int, now: LeaderAndIsr) -> Any:
    return PartitionResult(
        partition_index=index,
        leader_id=now.leader,
        leader_epoch=now.leader_epoch,
        isr=list(now.isr),
        leader_recovery_state=now.recovery_state,
        partition_epoch=now.partition_epoch,
    )


def _refused(index: int, error: ErrorCode) -> Any:
    return PartitionResult(partition_index=index, error_code=error)
