"""An operator whose actions the seed decides: reassignments, elections, topic configurations, and changes of voters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from kafkacore._fast.base.uuid import Uuid
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    RemoveRaftVoterRequest,
)
from kafkacore.simulation.actor import Actor
from kafkacore.simulation.checkers.observations import MetadataAcknowledged, MetadataMaybe
from kafkacore.simulation.clients import MIN_ISR, NS_OF_A_MS, SET, TOPIC, UNCLEAN
from kafkacore.simulation.cluster import CONTROLLER_PORT, CONTROLLERS, SimulatedNodes
from kafkacore.simulation.judge import Judge

TIMEOUT_MS: Final = 8_000
PREFERRED: Final = 0
UNCLEAN_ELECTION: Final = 1
LEAST_VOTERS: Final = 2
OPERATOR: Final = "operator"


class SeededOperator(Actor):
    """Changes the topics of all clients, one operation at a time. `lossy` holds the names of the topics for which the
    operator may start an unclean election. `directories` has the ids of the voters' metadata log directories. If it is
    not empty, the operator sometimes removes a voter and later adds it again."""

    def __init__(
        self,
        cluster: SimulatedNodes,
        judge: Judge,
        random: Random,
        replicas: int,
        lossy: dict[str, None],
        *,
        directories: Mapping[int, Uuid],
    ) -> None:
        super().__init__(cluster, OPERATOR)
        self._cluster, self._judge, self._random = cluster, judge, random
        self._replicas, self._lossy, self._directories = replicas, lossy, directories
        self._brokers = [node.node_id for node in cluster.brokers]
        self._controllers = [node.node_id for node in cluster.controllers]
        self._without: int | None = None  # the controller that is not a voter now
        self._orders = 0
        self._took_ms = 0  # the duration of the last request
        self._unknown: set[str] = set()  # partitions whose final replicas the operator cannot know
        self.resources: dict[str, None] = {}

    async def _work(self) -> None:
        while not self._is_stopped:
            await asyncio.sleep(self._random.choice((0.1, 0.5, 2.0)))
            await self.act()

    async def act(self) -> None:
        what = self._random.choices(
            (
                self.reassign, self.cancel, self.elect_preferred, self.elect_uncleanly, self.set_min_isr,
                self.allow_unclean, self.change_voters,
            ),
            (4, 1, 2, 1, 2, 1, 1),
        )[0]  # fmt: skip
        await what()

    async def _ask(self, request: Any) -> Any | None:
        """Sends a request to a random broker. Returns the response, or None if no response comes."""
        return await self._send(self._random.choice(self._brokers), request, None)

    async def _send(self, node: int, request: Any, listener: str | None) -> Any | None:
        began_ns = self._cluster.schedule.now_ns
        try:
            return await self._client.send(node, request, listener=listener, timeout_ms=TIMEOUT_MS)
        except (OSError, TimeoutError, KafkaError):
            return None
        finally:
            self._took_ms = (self._cluster.schedule.now_ns - began_ns) // NS_OF_A_MS

    def _changed(self, resource: str, value: object, *, sure: bool) -> None:
        self._orders += 1
        self.resources[resource] = None
        if sure:
            self._judge.see(MetadataAcknowledged(resource, value, self._orders, self._took_ms))
        else:
            self._judge.see(MetadataMaybe(resource, value, self._orders))

    async def _partition(self, *, lossy: bool = False) -> tuple[str, int] | None:
        """Returns a random partition of any topic. With `lossy`, only considers topics that can lose records."""
        answer = await self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        found = [
            (topic.name, each.partition_index)
            for topic in (() if answer is None else answer.topics)
            for each in topic.partitions
            if not lossy or topic.name in self._lossy
        ]
        return self._random.choice(sorted(found)) if found else None

    # --- reassignments ---

    async def reassign(self) -> None:
        """Adds replicas to a partition, removes some, or moves it."""
        chosen = await self._partition()
        if chosen is None or self._replicas > len(self._brokers):
            return
        count = self._random.randint(1, self._replicas)
        target = self._random.sample(self._brokers, count)
        await self._alter(*chosen, target)

    async def cancel(self) -> None:
        chosen = await self._partition()
        if chosen is not None:
            await self._alter(*chosen, None)

    async def _alter(self, name: str, index: int, target: list[int] | None) -> None:
        asked = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=target)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[asked])
        answer = await self._ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        error = None
        if answer is not None:
            error = answer.error_code or answer.responses[0].partitions[0].error_code
        resource = f"replicas {name}-{index}"
        if target is None:
            # After a cancellation, the operator does not know the final replicas of the partition. An error response
            # does not help: the forwarding broker may have sent the request twice, and the error may answer the second
            # attempt.
            self._unknown.add(resource)
            self.resources.pop(resource, None)
        elif resource not in self._unknown:
            self._changed(resource, tuple(sorted(target)), sure=error == ErrorCode.NONE)

    # --- elections ---

    async def elect_preferred(self) -> None:
        await self._elect(await self._partition(), PREFERRED)

    async def elect_uncleanly(self) -> None:
        await self._elect(await self._partition(lossy=True), UNCLEAN_ELECTION)

    async def _elect(self, chosen: tuple[str, int] | None, kind: int) -> None:
        if chosen is None:
            return
        asked = ElectLeadersRequest.TopicPartitions(topic=chosen[0], partitions=[chosen[1]])
        await self._ask(ElectLeadersRequest(election_type=kind, topic_partitions=[asked], timeout_ms=TIMEOUT_MS))

    # --- topics ---

    async def set_min_isr(self) -> None:
        chosen = await self._partition()
        if chosen is not None:
            await self._configure(chosen[0], MIN_ISR, self._random.choice(("1", "2")))

    async def allow_unclean(self) -> None:
        chosen = await self._partition(lossy=True)
        if chosen is not None:
            await self._configure(chosen[0], UNCLEAN, self._random.choice(("true", "false")))

    async def _configure(self, name: str, key: str, value: str) -> None:
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=SET, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC, resource_name=name, configs=[config]
        )
        answer = await self._ask(IncrementalAlterConfigsRequest(resources=[resource]))
        self._changed(f"{key} {name}", value, sure=answer is not None and not answer.responses[0].error_code)

    # --- voters ---

    async def change_voters(self) -> None:
        """Removes a voter, or adds the voter that the operator removed before (KIP-853). Sends the request to any
        controller. The leader executes it."""
        if not self._directories or len(self._controllers) <= LEAST_VOTERS:
            return
        active = self._cluster.active_controller
        asked = self._random.choice(self._controllers)
        if active is not None and self._random.random() < 0.8:
            asked = active.node_id
        if self._without is None:
            leaver = self._random.choice(self._controllers)
            directory = self._directories[leaver]
            request = RemoveRaftVoterRequest(voter_id=leaver, voter_directory_id=directory)
            answer = await self._send(asked, request, CONTROLLERS)
            if answer is None or answer.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                self._without = leaver  # the removal may have succeeded
            return
        back = self._without
        listener = AddRaftVoterRequest.Listener(name=CONTROLLERS, host=f"node-{back}", port=CONTROLLER_PORT)
        joins = AddRaftVoterRequest(
            timeout_ms=TIMEOUT_MS, voter_id=back, voter_directory_id=self._directories[back],
            listeners=[listener],
        )  # fmt: skip
        answer = await self._send(asked, joins, CONTROLLERS)
        if answer is not None and answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
            self._without = None
