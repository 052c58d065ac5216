"""The broker of a node in ZooKeeper mode. It differs from a broker in KRaft mode in two points: the source of its
metadata, and how it joins and leaves its cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from kafkacore._fast.log.settings import LogSettings
from kafkacore.config import BrokerConfig
from kafkacore.config.listeners import SECURITY_PROTOCOLS
from kafkacore.controller.zookeeper.controller import ZooKeeperController
from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.plane import Plane
from kafkacore.observability.metrics import Sample
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import AlterPartitionRequest, CreateTopicsResponse
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.server.broker import BrokerServer
from kafkacore.server.handlers import ZOOKEEPER_BROKER
from kafkacore.server.producer_ids import ProducerIdBlock
from kafkacore.server.zookeeper.admin import ZooKeeperAdmin, has_leaders
from kafkacore.server.zookeeper.channel import BY_INTER_BROKER, Address, ZooKeeperChannel
from kafkacore.server.zookeeper.configs import ConfigWatch, Settings
from kafkacore.server.zookeeper.control_plane import ControlPlane
from kafkacore.server.zookeeper.control_requests import ControlRequests
from kafkacore.server.zookeeper.controller import LocalController
from kafkacore.server.zookeeper.coordinator_topics import CoordinatorTopics
from kafkacore.server.zookeeper.features import FeatureWatch
from kafkacore.server.zookeeper.isr_changes import IsrChanges
from kafkacore.server.zookeeper.membership import ZooKeeperMembership
from kafkacore.server.zookeeper.metrics import channel_metrics, controller_metrics, event_metrics, session_metrics
from kafkacore.server.zookeeper.parts import ZooKeeperParts
from kafkacore.server.zookeeper.producer_id_znode import allocate
from kafkacore.server.zookeeper.roots import ZooKeeperRoots
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.server.zookeeper.state_znodes import StateZnodes
from kafkacore.storage.names import OFFSETS_TOPIC
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import GetChildren, Sync

LOG: Final = logging.getLogger("kafkacore.server")
OF_THE_CONTROLLER: Final = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)
# Metadata requests wait at most this long for the first UpdateMetadata with topics. It may come late, because an
# UpdateMetadata leaves out topics that have no leader yet.
TOPICS_LIMIT_S: Final = 10.0
# In ZooKeeper mode, a broker of Apache Kafka 3.9 announces no features, because `/feature` has no finalized ones.
NO_FEATURES: Final[Mapping[str, tuple[int, int]]] = {}


class ZooKeeperBroker(BrokerServer):
    """Create, start and stop this object on the data plane's loop. `session` and `configs` belong to the controllers'
    loop."""

    KIND: ClassVar = "zkBroker"
    HANDLERS: ClassVar = ZOOKEEPER_BROKER

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        *,
        directory_ids: Sequence[Uuid],
        session: BrokerSession,
        loop: LoopThread,
        controller: LocalController,
        metadata_version: int,
        **parts: Any,
    ) -> None:
        """Creates the broker. `loop` is the controllers' loop. `parts` are the other arguments of BrokerServer."""
        self._session, self._controllers_loop = session, loop
        self._controller = controller
        self._roots = ZooKeeperRoots(config.node_id, metadata_version, self._broker_epoch, parts["on_fault"])
        channel: Any = ZooKeeperChannel(
            controller.lanes, loop, self._where, controller.ask, config.controller_socket_timeout_ms
        )
        super().__init__(
            config, cluster_id, directory_ids, publisher=self._roots.view, channel=channel,
            read_kraft_version=lambda: 0, **parts,
        )  # fmt: skip
        self._coordinator_topics = CoordinatorTopics(session, loop)
        self.context.count_partitions = self._coordinator_topics.count
        self._protocol = protocol = InterBrokerProtocol(config.inter_broker_protocol_version)
        self.requests = ControlRequests(
            self.node_id, self._roots, self._broker_epoch, self._load_configs, self._logs.is_offline, self._delete_log,
            self._logs.undeleted, self._read_topics, self._coordinator_topics.read,
            keeps_epochs=not protocol.has_alter_partition,
        )  # fmt: skip
        self._states = StateZnodes(session)
        self._isr_changes = IsrChanges(
            protocol, self._states, loop, lambda: self._roots.roles.image, self.requests.decided_in, channel.send
        )
        self.context.zookeeper = ZooKeeperParts(self.requests, controller)
        self.context.zookeeper_controller = lambda: self._roots.controller_id
        self._admin = ZooKeeperAdmin(
            config, cluster_id, self._world, session, loop, lambda: self._roots.view.image, self._applied,
            controller.answer, lambda: controller.is_active,
        )  # fmt: skip
        channel.admin = self._admin.answer
        self.control_plane: ControlPlane | None = None
        if config.control_plane_listener is not None:
            self.control_plane = ControlPlane(config, self._world, parts["runtime"], self.context)
            self.bound |= self.control_plane.bound
        self._configs = ConfigWatch(session, self._take_configs_soon, self._world.environment.wall_ms, self._on_fault)
        self._features = FeatureWatch(session, NO_FEATURES, self._take_features_soon, self._on_fault)
        self._loop = asyncio.get_running_loop()

    def _urgent_apis(self) -> Iterable[int]:
        """Returns the APIs of the controller's requests, if the controller uses the listener of other requests
        (KAFKA-4453)."""
        return () if self.config.control_plane_listener is not None else OF_THE_CONTROLLER

    @property
    def controller(self) -> ZooKeeperController:
        """This node's controller, which belongs to the controllers' loop."""
        return self._controller.controller

    @property
    def roles(self) -> MetadataImage:
        """The image of the partitions that this broker hosts, with its role in each (roots.py)."""
        return self._roots.roles.image

    @property
    def view(self) -> MetadataImage:
        """The image that clients see."""
        return self._roots.view.image

    @property
    def planes(self) -> list[Plane]:
        return super().planes if self.control_plane is None else [*super().planes, self.control_plane.plane]

    def more_metrics(self) -> Iterable[Sample]:
        controller = self.controller
        yield from controller_metrics(controller.gauges, controller.state, is_active=controller.is_active)
        yield from event_metrics(len(controller.events), controller.measures)
        yield from channel_metrics(controller.senders, controller.measures)
        yield from session_metrics(self._session.client)

    # --- requests to the controller ---

    def _where(self, api_key: int) -> Address | None:
        """Returns the address of the active controller for a request."""
        controller_id = self._roots.controller_id
        if controller_id == self.config.node_id:
            return ZooKeeperChannel.HERE
        broker = self._roots.view.image.brokers.get(controller_id)
        control = self.config.control_plane_listener
        names = [self.config.inter_broker_listener_name]
        if control is not None and api_key not in BY_INTER_BROKER:
            names.insert(0, control.listener)
        for name in names if broker is not None else ():
            found = broker.endpoint(name) if broker is not None else None
            if found is not None:
                return found.host, found.port
        return None

    async def _send(self, request: Any) -> Any:
        if not isinstance(request, AlterPartitionRequest):
            return await super()._send(request)
        answer = await self._isr_changes.alter(request)
        # The ISR manager must process the response first.
        asyncio.get_running_loop().call_soon(self._take_isrs, answer)
        return answer

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        if self._protocol.has_producer_id_blocks:
            return await super()._allocate_producer_ids()
        return await asyncio.wrap_future(self._controllers_loop.submit(allocate(self._session)))

    def _take_isrs(self, answer: Any) -> None:
        """Writes the ISRs that the controller has accepted into the `roles` image."""
        self._roots.take_isrs(
            (self.replicas.in_image((told.topic_id, each.partition_index)), each)
            for told in answer.topics
            for each in told.partitions
            if not each.error_code
        )

    async def _report_directory(self, replica: tuple[Uuid, int], directory: Uuid) -> None:
        """Does nothing: in ZooKeeper mode, no controller needs the directories of replicas."""

    async def _create_asked(self, request: Any) -> Any:
        """Writes the znodes of topics. In ZooKeeper mode, the broker that gets the request does this itself."""
        return await self._admin.create_topics(request)

    async def create_topics(
        self, topics: list[tuple[str, int]], configs: Mapping[str, str] = MappingProxyType({})
    ) -> list[tuple[str, int, str | None]]:
        while not self._roots.view.image.brokers:  # after the start, until a controller names the live brokers
            await self._applied()
        return await super().create_topics(topics, configs)

    def _serves(self, created: CreateTopicsResponse.CreatableTopicResult) -> bool:
        return has_leaders(self._roots.view.image, created.name, created.num_partitions)

    # --- membership ---

    def _make_membership(self, cluster_id: str, directory_ids: Sequence[Uuid], previous_epoch: int) -> Any:
        return ZooKeeperMembership(
            self.config, self._session, self._controllers_loop, self._registration, self._channel.send,
            self._controller.stop,
        )  # fmt: skip

    def _registration(self) -> znodes.BrokerRegistration:
        endpoints = tuple(
            znodes.Endpoint(each.name, SECURITY_PROTOCOLS[each.security_protocol], each.host, each.port)
            for each in self._advertised()
        )
        return znodes.BrokerRegistration(
            self.node_id, endpoints, self.config.broker_rack, NO_FEATURES, -1, self._world.environment.wall_ms(),
            self._protocol.registration_version,
        )  # fmt: skip

    def epoch_changed(self, epoch: int) -> None:
        """Takes the broker epoch of a registration in a new session. Can be called on any thread. The controller's
        requests for the new registration may have arrived before this call. Until this call, the fetchers that these
        requests started use the former epoch."""
        self.registrar.lifecycle.broker_epoch = epoch
        self.plane.loop.call(self.fetchers.registered, epoch)

    # --- start and stop ---

    async def start(self) -> None:
        """Starts the broker and returns when the broker serves clients. Raises BrokerIdTaken, ZooKeeperError,
        LogDirectoryError."""
        roots, loop = self._roots, asyncio.get_running_loop()
        # This subscription comes first, so that no other subscriber runs while outdated responses are still cached.
        roots.view.subscribe(self._forget_answers)
        self.registrar.start()
        await asyncio.wrap_future(self._controllers_loop.submit(self._configs.start()))
        if self._protocol.has_feature_versions:
            await asyncio.wrap_future(self._controllers_loop.submit(self._features.start()))
        await self._coordinator_topics.read()
        self.replicas.take_config(roots.roles.image)
        await loop.run_in_executor(self._blocking, self._logs.load_all)
        roots.roles.subscribe(self._apply_roles)
        roots.view.subscribe(self._apply_view)
        self.moves.resume()
        membership: Any = self.registrar
        await membership.register()
        await self._expect_topics()
        if self.control_plane is not None:
            await self.control_plane.start()
        await self.plane.start()
        await asyncio.wrap_future(self._controllers_loop.submit(self._controller.start()))

    async def _expect_topics(self) -> None:
        """Lets Metadata requests wait for the controller's first UpdateMetadata with topics, if the cluster has any."""
        knows_topics = self.requests.knows_topics
        if await self._read_topics():
            asyncio.get_running_loop().call_later(TOPICS_LIMIT_S, knows_topics.set)
        else:
            knows_topics.set()

    async def _read_topics(self) -> Collection[str] | None:
        """Returns the names of all topics in ZooKeeper, or None if they cannot be read. Because of the sync, the names
        include every topic that the controller knew before this call."""
        work = self._session.sure([Sync(paths.TOPICS), GetChildren(paths.TOPICS)])
        _, found = await asyncio.wrap_future(self._controllers_loop.submit(work))
        return set(found.value[0]) if found.is_ok else None

    async def stop(self, controlled_ms: int | None, drain_ms: int) -> None:
        self.requests.knows_topics.set()
        await asyncio.wrap_future(self._controllers_loop.submit(self._configs.stop()))
        await asyncio.wrap_future(self._controllers_loop.submit(self._features.stop()))
        self._controllers_loop.call(self._states.close)
        await super().stop(controlled_ms, drain_ms)
        if self.control_plane is not None:
            await self.control_plane.stop(drain_ms)
        self.requests.close()

    def settings_of(self, topic: str) -> LogSettings:
        """Returns a topic's log settings, as BrokerServer.settings_of does. Settings that were read before the logs
        were loaded are in the `roles` image."""
        return self.replicas.settings_of(self._roots.roles.image, topic)

    # --- the images ---

    def _apply_roles(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        self._parts.apply(image, delta)
        self._logs.take_placed()  # discarded: in ZooKeeper mode, no controller needs the directories of replicas
        self.uncoordinated.apply(image)
        if self.context.groups_made is not None or image.topic(OFFSETS_TOPIC) is not None:
            # A topic that leaves this broker is not deleted, so the coordinator must not get the delta.
            self.context.groups.apply(image, None)

    def _apply_view(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        told = delta is None or delta.topics_created or delta.topics_deleted
        if told and self.context.groups_made is not None:
            # Roles come from the other image. This image says which topics exist, and a request may be waiting for
            # `__consumer_offsets` to exist.
            self.context.groups.apply(self._roots.roles.image, delta)
        awaiting, self._awaiting = self._awaiting, []
        for future in awaiting:
            if not future.done():
                future.set_result(None)
        if delta is None or delta.brokers:
            self._publish_endpoints(image)
        if delta is None or delta.features:
            self._publish_api_versions()

    # --- configurations ---

    def _take_configs_soon(self, settings: Settings) -> None:
        """Passes on settings that `ConfigWatch` has read. Runs on the controllers' loop."""
        self.plane.loop.call(self._roots.set_configs, settings)
        self._controller.configs_changed(settings)

    async def _load_configs(self, topics: list[str]) -> None:
        await asyncio.wrap_future(self._controllers_loop.submit(self._configs.read_topics(topics)))
        # The settings reached this loop before the end of `read_topics` did, so they are applied by now.

    # --- features ---

    def _take_features_soon(self, levels: Mapping[str, int], epoch: int) -> None:
        """Passes on the features that `FeatureWatch` has read. Runs on the controllers' loop."""
        self.plane.loop.call(self._take_features, levels, epoch)

    def _take_features(self, levels: Mapping[str, int], epoch: int) -> None:
        self.context.zookeeper.finalized_features, self.context.finalized_epoch = levels, epoch
        self._publish_api_versions()

    # --- logs ---

    def _delete_log(self, topic: str, index: int) -> None:
        log = self._logs.find(topic, index)
        if log is not None:
            log.close(gone=True)
            self._logs.delete(log)
