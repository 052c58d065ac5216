"""The controller of a node in ZooKeeper mode, as the node's broker and handlers use it.

Every node of such a cluster can become the controller. `controller.zookeeper` makes the decisions. This module provides
its connections to the brokers, its timers and its link to the broker in the same process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.config.dynamic import adopted
from kafkacore.controller.zookeeper.controller import ZooKeeperController
from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.controller.zookeeper.surroundings import ControllerSettings, LiveBroker
from kafkacore.metadata.image import BROKER, TOPIC, ConfigKey
from kafkacore.network.lanes import Lanes
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.world import World
from kafkacore.server.zookeeper.channel import CONTROL
from kafkacore.server.zookeeper.session import BrokerSession

LOG: Final = logging.getLogger("kafkacore.server")


class _Surroundings:
    """Connects the controller to this node: its network, clock, timers and broker."""

    def __init__(self, world: World, session: BrokerSession, lanes: Lanes) -> None:
        self._world = world
        self._session = session
        self._lane = lanes[CONTROL]

    async def send(self, broker: LiveBroker, listener: str, api_key: int, api_version: int, body: Any) -> Any:
        """Sends a request to a broker. Uses the network even for the broker in the same process, as Apache Kafka does.
        If the caller is cancelled, closes the connection: the response may never come, and requests to the next
        generation of the broker would wait for it."""
        for each in broker.registration.endpoints:
            if each.listener == listener:
                try:
                    return await self._lane.send(each.host, each.port, body, api_version)
                except asyncio.CancelledError:
                    self._lane.disconnect(each.host, each.port)
                    raise
        raise ConnectionError(f"broker {broker.broker_id} does not advertise the listener {listener}")

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    def now_ms(self) -> int:
        return self._world.environment.wall_ms()

    def new_topic_id(self) -> Uuid:
        return self._world.new_uuid()

    async def register_broker(self) -> int:
        return await self._session.register()


class LocalController:
    """Belongs to the controllers' loop. `is_active` can be read on any thread."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        session: BrokerSession,
        lanes: Lanes,
        on_fault: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.lanes = lanes
        self._config = config  # with the dynamic settings in ZooKeeper
        self.controller = ZooKeeperController(
            _settings(config, session), session.client, _Surroundings(world, session, lanes), on_fault
        )
        self._started = False

    @property
    def is_active(self) -> bool:
        return self.controller.is_active

    async def start(self) -> None:
        """Takes part in elections. Call this after the broker has registered itself."""
        self._started = True
        await self.controller.start()

    async def stop(self) -> None:
        """Resigns, and closes the connections. Idempotent."""
        if self._started:
            self._started = False
            await self.controller.stop()
        await self.lanes.close()

    def configs_changed(self, settings: Mapping[ConfigKey, Mapping[str, str]]) -> None:
        """Informs the controller when unclean elections become allowed or forbidden. If they are allowed, a partition
        without a leader may get one. The default for topics is a dynamic setting of brokers (KIP-226)."""
        default, own = settings.get((BROKER, "")), settings.get((BROKER, str(self._config.node_id)))
        if default is not None or own is not None:
            was = self._config
            self._config = adopted(
                was,
                was.dynamic_default if default is None else default,
                was.dynamic_broker if own is None else own,
                tell=False,
            )
            self.controller.set_unclean_default(is_allowed=self._config.unclean_leader_election_enable)
        for (kind, name), values in settings.items():
            if kind == TOPIC and values.get(UNCLEAN_ELECTION, "").strip().lower() == "true":
                self.controller.allow_unclean_elections(name)

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Executes a request of this broker; without `version`, in the newest version. Raises NOT_CONTROLLER."""
        return await self.answer(request, apis.api(request.API_KEY).highest if version is None else version)

    async def answer(self, request: Message, api_version: int) -> Any:
        """Executes a request that any node has sent to the controller. Raises NOT_CONTROLLER."""
        if not self.is_active:
            raise error_for(ErrorCode.NOT_CONTROLLER)
        name = _METHODS[request.API_KEY]
        method: Callable[[Any, int], Awaitable[Any]] = getattr(self.controller, name)
        return await method(request, api_version)


def _settings(config: BrokerConfig, session: BrokerSession) -> ControllerSettings:
    control = config.control_plane_listener
    return ControllerSettings(
        broker_id=config.node_id,
        inter_broker_listener=config.inter_broker_listener_name,
        control_plane_listener=None if control is None else control.listener,
        inter_broker_protocol=InterBrokerProtocol(config.inter_broker_protocol_version),
        delete_topic_enable=config.delete_topic_enable,
        unclean_leader_election_enable=config.unclean_leader_election_enable,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
        acl=session.acl,
    )


UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_METHODS: Final = {
    ApiKey.ALTER_PARTITION: "alter_partition",
    ApiKey.ALLOCATE_PRODUCER_IDS: "allocate_producer_ids",
    ApiKey.CONTROLLED_SHUTDOWN: "controlled_shutdown",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_reassignments",
}
