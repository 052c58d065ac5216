"""Sends the requests of one simulated program, and remembers which broker leads each partition."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.simulation.cluster import SimulatedNodes

TIMEOUT_MS: Final = 8_000
METADATA: Final = 9  # the newest version in which requests contain the topic's name instead of its id
Leader = tuple[int, int]  # broker and leader epoch
UNKNOWN: Final[Leader] = (-1, -1)


class Routes:
    """The connections of the machine `name` to all brokers."""

    def __init__(self, cluster: SimulatedNodes, name: str, random: Random) -> None:
        self._client = cluster.client(name)
        self._random = random
        self._brokers = [node.node_id for node in cluster.brokers]
        self._leaders: dict[tuple[str, int], Leader] = {}  # the newest leaders in the responses to Metadata requests

    @property
    def wall_ms(self) -> int:
        return self._client.machine.clock.wall_ms()

    async def ask(
        self, request: Any, version: int | None = None, node: int | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> Any | None:
        """Sends a request to a broker, by default to a random one. Returns the response, or None if no response
        comes."""
        try:
            return await self._client.send(
                self.any_broker() if node is None else node, request, version=version, timeout_ms=timeout_ms
            )
        except (OSError, TimeoutError, KafkaError):
            return None

    def any_broker(self) -> int:
        return self._random.choice(self._brokers)

    async def leader_of(self, name: str, index: int) -> int | None:
        """Returns the leader of a partition, as far as this program knows. Sometimes returns None, so that the caller
        uses a random broker."""
        if self._random.random() < 0.1:
            return None
        broker, _ = await self.leadership(name, index)
        return None if broker < 0 else broker

    async def leadership(self, name: str, index: int) -> Leader:
        """Returns the leader and the leader epoch of a partition, as far as this program knows."""
        if (name, index) not in self._leaders:
            wanted = MetadataRequest.MetadataRequestTopic(name=name)
            answer = await self.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), METADATA)
            for topic in () if answer is None else answer.topics:
                for each in topic.partitions:
                    known = self._leaders.get((name, each.partition_index), UNKNOWN)
                    if each.leader_epoch > known[1] and each.leader_id >= 0:
                        self._leaders[name, each.partition_index] = each.leader_id, each.leader_epoch
        return self._leaders.get((name, index), UNKNOWN)

    def doubt(self, name: str, index: int) -> None:
        """Looks the leader up again before the next request."""
        self._leaders.pop((name, index), None)

    def forget(self, name: str) -> None:
        """Drops everything about a topic."""
        drop_topic(name, self._leaders)


def drop_topic(name: str, *known: dict[tuple[str, int], Any]) -> None:
    """Removes the partitions of a topic from dictionaries whose keys are topic and index."""
    for each in known:
        for key in [key for key in each if key[0] == name]:
            del each[key]
