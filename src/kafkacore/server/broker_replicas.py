"""The part of the broker that controls its partitions: the roles that the committed metadata assigns, the fetchers of
followed partitions, and the ISRs of led partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.fetchers import Address, Fetchers
from kafkacore.replication.isr_manager import IsrManager
from kafkacore.replication.replica_manager import Logs, Placed, ReplicaManager
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.server.isr_updates import IsrUpdates


class BrokerReplicas:
    """Belongs to the data plane's loop. `manager` holds the partitions, and `isrs` decides about their ISRs."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: Logs,
        publish: Callable[[list[Placed], list[Uuid]], None],
        on_config: Callable[[BrokerConfig], None],
        *,
        environment: Environment,
        timers: Scheduler,
        fetchers: Fetchers,
        send: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        """Creates the managers, without partitions. `publish` and `on_config` are passed to the replica manager. `send`
        sends a request to the active controller."""
        self._node_id = config.node_id
        self._listener = config.inter_broker_listener_name
        edges = PartitionEdges(config.replica_lag_time_max_ms, environment)
        self.fetchers = fetchers
        self.manager = ReplicaManager(config.node_id, config, logs, publish, on_config, fetchers, edges)
        self.isrs = IsrManager(
            config.node_id, lambda key: self.manager.by_id(*key), broker_epoch, self.manager.in_image
        )
        self._updates = IsrUpdates(self.isrs, edges, send, timers, on_fault)

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Applies a newer metadata image."""
        if delta is None or delta.brokers:
            self._updates.brokers_changed(image)
            own = image.brokers.get(self._node_id)
            self.fetchers.brokers(self._addresses(image), -1 if own is None else own.epoch)
        self.manager.apply(image, delta)
        self._updates.applied(image, delta)

    def _addresses(self, image: MetadataImage) -> dict[int, Address]:
        """Returns the addresses of the brokers from which this broker can fetch. Leaves out fenced brokers, because
        they lead no partition."""
        found = {}
        for broker in image.brokers.values():
            where = broker.endpoint(self._listener)
            if where is not None and not broker.fenced and broker.broker_id != self._node_id:
                found[broker.broker_id] = Address(where.host, where.port)
        return found

    async def close(self) -> None:
        """Stops the fetchers and the changes of ISRs. The partitions keep their states."""
        self._updates.close()
        await self.fetchers.close()
