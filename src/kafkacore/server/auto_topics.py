"""Creates a missing topic when a request asks for that topic. A Metadata request can create any topic
(auto.create.topics.enable), and FindCoordinator creates `__consumer_offsets`.

The controller gets a single request for a topic, even if many clients want the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import CreateTopicsRequest
from kafkacore.storage.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

LOG: Final = logging.getLogger("kafkacore.server")
# This node never creates these topics, because it has no coordinator that needs them. Apache Kafka's coordinators rely
# on the topics' compaction and number of partitions, so a broker of Apache Kafka creates the topics itself.
_LEFT_TO_OTHERS: Final = frozenset((TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC))
# Limit of topics that are being created at once. Above it, a client gets the error that its topic does not exist.
MAX_IN_FLIGHT: Final = 10_000


class AutoTopics:
    """Belongs to one loop. `create` sends a CreateTopicsRequest to the active controller."""

    def __init__(self, create: Callable[[Any], Awaitable[Any]], config: BrokerConfig) -> None:
        self._create = create
        self._config = config
        self._in_flight: dict[str, asyncio.Task[set[str]]] = {}
        self._closed = False
        self._tasks: set[asyncio.Task[set[str]]] = set()

    def request(self, names: Iterable[str]) -> None:
        """Asks the controller to create those topics that have not been requested yet, except the topics of
        coordinators that only Apache Kafka has. The caller must have validated the names. Does nothing after
        `close`."""
        if self._closed:
            return
        wanted = [name for name in names if name not in self._in_flight and name not in _LEFT_TO_OTHERS]
        wanted = wanted[: MAX_IN_FLIGHT - len(self._in_flight)]
        if wanted:
            task = asyncio.create_task(self._send(wanted))
            self._in_flight.update(dict.fromkeys(wanted, task))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def asked(self, name: str) -> bool:
        """Waits for the controller's response about a requested topic. Returns whether the topic exists now."""
        task = self._in_flight.get(name)
        if task is None:
            return False
        await asyncio.wait({task})  # `asyncio.wait` does not cancel the shared task if a waiter is cancelled
        return not task.cancelled() and name in task.result()

    async def _send(self, names: list[str]) -> set[str]:
        """Sends the request. Returns the names of the topics that exist afterwards."""

        there = set()
        try:
            topics = [_creatable(self._config, name) for name in names]
            response = await self._create(CreateTopicsRequest(topics=topics))
            for topic in response.topics:
                if topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    there.add(topic.name)
                else:
                    LOG.warning("topic %s was not created: %s%s", topic.name, topic.error_message, _remedy(topic))
        except (KafkaError, OSError, TimeoutError) as error:
            LOG.warning("%d topics were not created, clients will ask again: %s", len(names), error)
        finally:
            for name in names:
                del self._in_flight[name]
        return there

    def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()


def _remedy(topic: Any) -> str:
    """Returns advice to add to an error message. By Kafka's defaults, `__consumer_offsets` has three replicas, so a
    cluster with a single broker cannot create the topic."""
    if topic.error_code != ErrorCode.INVALID_REPLICATION_FACTOR:
        return ""
    key = "offsets.topic.replication.factor" if topic.name == OFFSETS_TOPIC else "default.replication.factor"
    waits = "; groups wait for it" if topic.name == OFFSETS_TOPIC else ""
    return f" (set {key} to no more than there are brokers{waits})"


def _creatable(config: BrokerConfig, name: str) -> Any:

    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=config.num_partitions, replication_factor=config.default_replication_factor
    )
    if name == OFFSETS_TOPIC:
        topic.num_partitions = config.offsets_topic_num_partitions
        topic.replication_factor = config.offsets_topic_replication_factor
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",  # the coordinator itself compresses (offsets.topic.compression.codec)
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        entry = CreateTopicsRequest.CreatableTopicConfig
        topic.configs = [entry(name=key, value=value) for key, value in configs.items()]
    return topic
