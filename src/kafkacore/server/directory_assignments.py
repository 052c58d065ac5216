"""Reports to the controller which log directory holds each replica (KIP-858). So the controller knows which replicas a
failed disk takes offline.

A broker with a single directory has nothing to report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import AssignReplicasToDirsRequest as Request
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.watched import watch

LOG: Final = logging.getLogger("kafkacore.server")
MAX_PER_REQUEST: Final = 2_250  # the number that Apache Kafka puts into a request
RETRY_S: Final = 0.5

Replica = tuple[Uuid, int]  # topic id and partition


class DirectoryAssignments:
    """Belongs to one event loop. `send` sends a request to the active controller. `broker_epoch` is called for each
    request."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        send: Callable[[Any], Awaitable[Any]],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._on_fault = on_fault
        self._untold: dict[Replica, Uuid] = {}
        self._awaited: dict[Replica, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def tell(self, placed: Mapping[Replica, Uuid]) -> None:
        """Reports replicas that are not in the directory that the committed metadata assigns to them. Repeats the
        report until the controller accepts it. `close` ends the repetition; the broker reports the replicas again after
        its next start."""
        self._untold.update(placed)
        if not self._closed and self._untold and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())
            watch(self._task, self._on_fault)

    async def told(self, replica: Replica, directory: Uuid) -> None:
        """Reports a replica's directory. Returns when the controller has accepted the report, or when another directory
        is reported for the replica."""
        before = self._awaited.pop(replica, None)
        if before is not None and not before.done():
            before.set_result(None)
        future = self._awaited[replica] = asyncio.get_running_loop().create_future()
        self.tell({replica: directory})
        await future

    async def _run(self) -> None:
        while self._untold:
            part = dict(islice(self._untold.items(), MAX_PER_REQUEST))
            try:
                answer = await self._send(self._request(part))
                taken = answer.error_code == ErrorCode.NONE
                if not taken:
                    LOG.info(
                        "the controller refused %d assignments to log directories: error %d; the broker repeats them",
                        len(part),
                        answer.error_code,
                    )
            except (KafkaError, OSError, TimeoutError) as error:
                LOG.info(
                    "%d assignments to log directories could not be sent: %s; the broker sends them again",
                    len(part),
                    error,
                )
                taken = False
            if not taken:
                await asyncio.sleep(RETRY_S)
                continue
            for replica, directory in part.items():
                # If a replica has moved again in the meantime, its new directory must still be reported. A replica that
                # the controller no longer knows needs no report.
                if self._untold.get(replica) == directory:
                    del self._untold[replica]
                    awaited = self._awaited.pop(replica, None)
                    if awaited is not None and not awaited.done():
                        awaited.set_result(None)

    def _request(self, part: Mapping[Replica, Uuid]) -> Any:

        placed: dict[Uuid, dict[Uuid, list[int]]] = {}
        for (topic_id, index), directory in part.items():
            placed.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return Request(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                Request.DirectoryData(
                    id=directory,
                    topics=[
                        Request.TopicData(
                            topic_id=topic_id,
                            partitions=[Request.PartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in placed.items()
            ],
        )

    def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
