"""Publishes the ISR changes of leaders. A leader sends AlterPartition to the controller. Below
inter.broker.protocol.version 2.7-IV2, it writes the state znode itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.made_ids import is_made
from kafkacore.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.server.zookeeper.state_znodes import StateChange, StateZnodes, Written
from kafkacore.zookeeper import znodes

Result = AlterPartitionResponse.PartitionData
TopicResult = AlterPartitionResponse.TopicData


class IsrChanges:
    """Runs on the data plane's loop; `states` belongs to `loop`.

    `read_roles` returns the `roles` image (roots.py). `decided_in` returns the epoch of the controller that chose a
    partition's leader. `send` sends a request to the controller, in a given version or in the newest one.
    """

    def __init__(
        self,
        protocol: InterBrokerProtocol,
        states: StateZnodes,
        loop: LoopThread,
        read_roles: Callable[[], MetadataImage],
        decided_in: Callable[[str, int], int],
        send: Callable[..., Awaitable[Any]],
    ) -> None:
        self._protocol = protocol
        self._states, self._loop = states, loop
        self._read_roles, self._decided_in, self._send = read_roles, decided_in, send

    async def alter(self, request: AlterPartitionRequest) -> Any:
        """Makes the changes in the request, through the controller or by writing state znodes. Returns the response.
        Raises KafkaError, TimeoutError."""
        if self._protocol.has_alter_partition and not any(is_made(topic.topic_id) for topic in request.topics):
            return await self._send(request)
        image = self._read_roles()
        names = {
            topic.topic_id: known.name
            for topic in request.topics
            if (known := image.topic_by_id(topic.topic_id)) is not None
        }
        if self._protocol.has_alter_partition:
            return await self._ask_by_name(request, names)
        return await self._write(request, names)

    async def _ask_by_name(self, request: AlterPartitionRequest, names: Mapping[Uuid, str]) -> Any:
        """Sends AlterPartition in a version that identifies topics by name, for a controller that gives topics no
        ids."""
        version = 1 if self._protocol.has_leader_recovery else 0
        named = AlterPartitionRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            topics=[
                AlterPartitionRequest.TopicData(
                    topic_name=names[topic.topic_id], partitions=[_in_old_version(each) for each in topic.partitions]
                )
                for topic in request.topics
                if topic.topic_id in names
            ],
        )
        answer = await self._send(named, version)
        ids = {name: topic_id for topic_id, name in names.items()}
        for topic in answer.topics:
            topic.topic_id = ids.get(topic.topic_name, topic.topic_id)
        return answer

    async def _write(self, request: AlterPartitionRequest, names: Mapping[Uuid, str]) -> AlterPartitionResponse:
        asked = [
            (topic.topic_id, self._change(request.broker_id, names[topic.topic_id], each))
            for topic in request.topics
            if topic.topic_id in names
            for each in topic.partitions
        ]
        work = self._states.write([change for _, change in asked])
        written = await asyncio.wrap_future(self._loop.submit(work))
        topics: dict[Uuid, Any] = {}
        for (topic_id, change), outcome in zip(asked, written, strict=True):
            topic = topics.setdefault(topic_id, TopicResult(topic_id=topic_id, topic_name=change.topic))
            topic.partitions.append(_result(change, outcome))
        return AlterPartitionResponse(topics=list(topics.values()))

    def _change(self, leader: int, name: str, asked: Any) -> StateChange:
        isr = [each.broker_id for each in asked.new_isr_with_epochs]
        epoch = self._decided_in(name, asked.partition_index)
        state = znodes.PartitionState(leader, asked.leader_epoch, isr, epoch, asked.leader_recovery_state)
        return StateChange(name, asked.partition_index, state, asked.partition_epoch)


def _in_old_version(asked: Any) -> Any:
    return AlterPartitionRequest.PartitionData(
        partition_index=asked.partition_index,
        leader_epoch=asked.leader_epoch,
        new_isr=[each.broker_id for each in asked.new_isr_with_epochs],
        leader_recovery_state=asked.leader_recovery_state,
        partition_epoch=asked.partition_epoch,
    )


def _result(change: StateChange, written: Written) -> Any:
    if written.error:
        return Result(partition_index=change.partition, error_code=written.error)
    state = change.state
    return Result(
        partition_index=change.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=written.version,
    )
