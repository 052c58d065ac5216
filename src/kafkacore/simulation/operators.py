"""An operator that a seed drives: reassignments, elections, settings of topics, and voters that come and go."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    RemoveRaftVoterRequest,
)
from kafkacore.simulation.checkers.observations import MetadataAcknowledged, MetadataMaybe
from kafkacore.simulation.clients import MIN_ISR, SET, TOPIC, UNCLEAN
from kafkacore.simulation.cluster import CONTROLLER_PORT, CONTROLLERS, SimulatedCluster
from kafkacore.simulation.judge import Judge

TIMEOUT_MS: Final = 8_000
PREFERRED: Final = 0
UNCLEAN_ELECTION: Final = 1
LEAST_VOTERS: Final = 2
OPERATOR: Final = "operator"


class SeededOperator:
    """Changes topics of all clients, one thing at a time. `lossy` names those where it may order an unclean election.
    `voters_change`: it removes a voter now and then, and adds it again."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        judge: Judge,
        random: Random,
        replicas: int,
        lossy: dict[str, None],
        *,
        voters_change: bool,
    ) -> None:
        self._client = cluster.client(OPERATOR)
        self._cluster, self._judge, self._random = cluster, judge, random
        self._replicas, self._lossy, self._voters_change = replicas, lossy, voters_change
        self._brokers = [node.node_id for node in cluster.brokers]
        self._controllers = [node.node_id for node in cluster.controllers]
        self._without: int | None = None  # the controller that is no voter
        self._orders = 0
        self._is_stopped = False
        self.task: asyncio.Task[None] | None = None
        self._unknown: set[str] = set()  # partitions whose replicas at the end it cannot know
        self.resources: dict[str, None] = {}

    def start(self) -> None:
        self.task = self._client.start(self._work())

    def check(self) -> None:
        """Raises what ended the operator."""
        if self.task is not None and self.task.done():
            self.task.result()

    def stop(self) -> None:
        """Ends the operator after the work that it is doing now."""
        self._is_stopped = True

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
        """Asks a broker at random. Returns None if it gives no answer."""
        return await self._send(self._random.choice(self._brokers), request, None)

    async def _send(self, node: int, request: Any, listener: str | None) -> Any | None:
        try:
            return await self._client.send(node, request, listener=listener, timeout_ms=TIMEOUT_MS)
        except (OSError, TimeoutError, KafkaError):
            return None

    def _changed(self, resource: str, value: object, *, sure: bool) -> None:
        self._orders += 1
        self.resources[resource] = None
        self._judge.see((MetadataAcknowledged if sure else MetadataMaybe)(resource, value, self._orders))

    async def _partition(self, *, lossy: bool = False) -> tuple[str, int] | None:
        """Any partition of any topic, or of one that may lose records."""
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
        """Grows, shrinks or moves a partition."""
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
        if target is None or resource in self.resources:
            # A cancelled partition returns to replicas that this operator does not know. An error says nothing: it may
            # be the answer to a second attempt of the broker that forwards the request. A second reassignment goes on
            # with what the first one removes unless it names others to remove, as in Apache Kafka.
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
        """Removes a voter, or adds the one that was removed (KIP-853). Any controller may be asked; the leader acts."""
        if not self._voters_change or len(self._controllers) <= LEAST_VOTERS:
            return
        active = self._cluster.active_controller
        asked = self._random.choice(self._controllers)
        if active is not None and self._random.random() < 0.8:
            asked = active.node_id
        if self._without is None:
            leaver = self._random.choice(self._controllers)
            directory = self._cluster.directories[leaver]
            request = RemoveRaftVoterRequest(voter_id=leaver, voter_directory_id=directory)
            answer = await self._send(asked, request, CONTROLLERS)
            if answer is None or answer.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                self._without = leaver  # perhaps
            return
        back = self._without
        listener = AddRaftVoterRequest.Listener(name=CONTROLLERS, host=f"node-{back}", port=CONTROLLER_PORT)
        joins = AddRaftVoterRequest(
            timeout_ms=TIMEOUT_MS, voter_id=back, voter_directory_id=self._cluster.directories[back],
            listeners=[listener],
        )  # fmt: skip
        answer = await self._send(asked, joins, CONTROLLERS)
        if answer is not None and answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
            self._without = None
