"""Topics that a Metadata request brings into being (auto.create.topics.enable).

The client is answered at once and asks again; the controller is asked once for a topic, however many clients want it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode, KafkaError

LOG: Final = logging.getLogger("kafkacore.server")
MAX_IN_FLIGHT: Final = 10_000  # topics; a client that asks for more is told that they do not exist, and asks again

USE_DEFAULT: Final = -1  # num.partitions and default.replication.factor, which the controller knows


class AutoTopics:
    """Belongs to one loop. `create` sends a CreateTopicsRequest to the active controller."""

    def __init__(self, create: Callable[[Any], Awaitable[Any]], num_partitions: int, replication_factor: int) -> None:
        self._create = create
        self._num_partitions = num_partitions
        self._replication_factor = replication_factor
        self._in_flight: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, names: Iterable[str]) -> None:
        """Asks for those that are not under way; their names are known to be valid."""
        wanted = [name for name in names if name not in self._in_flight][: MAX_IN_FLIGHT - len(self._in_flight)]
        if wanted:
            self._in_flight.update(wanted)
            task = asyncio.create_task(self._send(wanted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, names: list[str]) -> None:
        from kafkacore.protocol.messages import CreateTopicsRequest

        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name, num_partitions=self._num_partitions, replication_factor=self._replication_factor
            )
            for name in names
        ]
        try:
            response = await self._create(CreateTopicsRequest(topics=topics))
            for topic in response.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    LOG.warning("topic %s was not created: %s", topic.name, topic.error_message)
        except (KafkaError, OSError, TimeoutError) as error:
            LOG.warning("%d topics were not created, clients will ask again: %s", len(names), error)
        finally:
            self._in_flight.difference_update(names)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
