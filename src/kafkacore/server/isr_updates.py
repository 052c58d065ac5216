"""Sends the ISR manager's decisions to the active controller, and passes edges from native partitions to the ISR
manager. An edge is the report that a follower has caught up or fallen behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kafkacore._fast.log.partition_edges import ACTIVE, FENCED, LEAVING, PartitionEdges
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.protocol.errors import KafkaError
from kafkacore.replication.isr_manager import IsrManager
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.runtime.watched import watch

LOG: Final = logging.getLogger("kafkacore.server")
RETRY_S: Final = 0.05  # as in Apache Kafka's AlterPartitionManager
EDGES_IN_A_TURN: Final = 1000  # limited, because for each edge the ISR manager may check all followers of a partition


class IsrUpdates:
    """Belongs to the data plane's loop. `send` sends a request to the active controller. `timers` follow the clock of
    the partitions."""

    def __init__(
        self,
        isrs: IsrManager,
        edges: PartitionEdges,
        send: Callable[[Any], Awaitable[Any]],
        timers: Scheduler,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._isrs = isrs
        self._edges = edges
        self._send = send
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._loop.add_reader(edges.fileno(), self._deliver)
        # As in Apache Kafka, a follower leaves the ISR at most replica.lag.time.max.ms / 2 after it has exceeded
        # replica.lag.time.max.ms.
        self._check = timers.every(max(edges.max_lag_ms / 2, 1), edges.check_lag, "replicas that fell behind")

    def brokers_changed(self, image: MetadataImage) -> None:
        """Passes the states of all brokers to the partitions. Call this before the replica manager applies `image`."""
        self._edges.set_brokers([(each.broker_id, _state(each), each.epoch) for each in image.brokers.values()])

    def applied(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Applies a metadata image. Call this after the replica manager has applied the same image."""
        self._isrs.applied(image)
        if delta is None or delta.brokers:
            # While no records arrive, a follower fetches only rarely. This check lets the follower join without waiting
            # for its next Fetch.
            self._edges.check_lag()
        self._go_on()

    def _deliver(self) -> None:
        self._isrs.look(self._edges.take(EDGES_IN_A_TURN))
        self._go_on()

    def _go_on(self) -> None:
        # Metadata still arrives while the broker stops.
        if not self._closed and self._isrs.has_more and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._run())
            watch(self._task, self._on_fault)

    async def _run(self) -> None:
        isrs = self._isrs
        while (request := isrs.request()) is not None:
            try:
                calm = isrs.answered(await self._send(request))
            except (KafkaError, OSError, TimeoutError) as error:
                LOG.info("changes of ISRs could not be sent: %s; the broker sends them again", error)
                isrs.lost()
                calm = False
            if not calm:
                await asyncio.sleep(RETRY_S)

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._edges.fileno())
        self._check.cancel()
        if self._task is not None:
            self._task.cancel()


def _state(broker: BrokerRegistration) -> int:
    if broker.fenced:
        return FENCED
    return LEAVING if broker.in_controlled_shutdown else ACTIVE
