"""The broker role of a node: its plane (listeners, processors and handler loop), its partitions, and its membership in
the cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore._fast.hot import fetch, list_offsets, produce
from kafkacore._fast.hot.fetch_session import FetchSessionCache
from kafkacore._fast.hot.heartbeats import PublishedGroups
from kafkacore._fast.hot.state import HotState, publish_table
from kafkacore._fast.log.partition_table import Table
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.config.listeners import SECURITY_PROTOCOLS
from kafkacore.metadata.delta import MetadataDelta, rows_of_older_topics
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import MetadataError
from kafkacore.network.limits import limits_from, physical_memory_bytes
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Answer, Plane
from kafkacore.observability import request_log
from kafkacore.observability.metrics import Sample
from kafkacore.protocol.apis import ApiKey, NodeVersions, with_controller
from kafkacore.protocol.errors import error_for
from kafkacore.protocol.messages import AllocateProducerIdsRequest, CreateTopicsRequest, CreateTopicsResponse
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.making import Threads, make_fetchers
from kafkacore.replication.replica_manager import Placed
from kafkacore.replication.throttles import Quotas
from kafkacore.runtime.process import DATA, Runtime
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.runtime.workers import Workers
from kafkacore.runtime.world import World
from kafkacore.server.auto_topics import AutoTopics
from kafkacore.server.broker_logs import BrokerLogs
from kafkacore.server.broker_replicas import BrokerReplicas
from kafkacore.server.channel import ControllerChannel
from kafkacore.server.context import BrokerContext
from kafkacore.server.directory_assignments import DirectoryAssignments
from kafkacore.server.dispatch import Dispatcher
from kafkacore.server.features import supported_features
from kafkacore.server.handlers import BROKER, api_versions
from kafkacore.server.lifecycle import AdvertisedListener, BrokerLifecycle, BrokerState
from kafkacore.server.partition_waits import PartitionWaits
from kafkacore.server.producer_ids import ProducerIdBlock, ProducerIds
from kafkacore.server.refused_metadata import check_served
from kafkacore.server.registrar import Membership, Registrar
from kafkacore.server.replica_selector import selects_by_rack
from kafkacore.server.uncoordinated import Uncoordinated
from kafkacore.server.unenforced_quotas import UnenforcedQuotas
from kafkacore.server.values_in_effect import values_in_effect
from kafkacore.storage.cleaner import LogCleaner, cleaner_settings
from kafkacore.storage.names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from kafkacore.server.groups import Groups
    from kafkacore.server.transactions import Transactions

LOG: Final = logging.getLogger("kafkacore.server")
SESSIONS_MEMORY_SHARE: Final = 64  # fetch sessions may use 1/64 of the machine's memory
# The broker reports a failed directory after at most this time. Until then, it waits for the controller to accept the
# reports about replicas that do not move to this directory after all.
TAKE_BACK_S: Final = 1.0
API_VERSIONS: Final = range(5)  # the versions of ApiVersions whose responses are published to the processors


class BrokerServer:
    """The broker of a node. Create, start and stop this object on the data plane's loop. `publisher` is updated on the
    same loop.

    `cluster_id` and `directory_ids` come from the log directories. `previous_epoch` is -1 unless all of these
    directories were closed cleanly.
    """

    KIND: ClassVar = "broker"  # the kind of the broker's listeners, as in the tables of APIs
    HANDLERS: ClassVar[Mapping[int, str]] = BROKER

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        directory_ids: Sequence[Uuid],
        *,
        world: World,
        runtime: Runtime,
        publisher: MetadataPublisher,
        channel: ControllerChannel,
        logs: BrokerLogs,
        blocking: Workers,
        read_kraft_version: Callable[[], int],
        previous_epoch: int = -1,
        on_fault: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self._world, environment = world, world.environment
        self._publisher = publisher
        self._table = Table()
        self._awaiting: list[asyncio.Future[None]] = []
        self._logs = logs
        self._blocking = blocking
        self._on_fault = on_fault
        self._intercepted = False
        self._asked_gate: GatePolicy | None = None
        self._leaving: asyncio.Future[None] | None = None
        self._taking_back: set[asyncio.Future[Any]] = set()  # failed directories that wait to be reported
        # Deadlines of clients' requests use the environment's clock, which a test may move. The clock of a real loop
        # does not move with the environment's clock.
        self.timers = Scheduler(environment, asyncio.get_running_loop().call_later)
        self.cleaner: LogCleaner | None = None  # None until log cleaning has started
        sessions = _fetch_sessions(config, world)
        self.quotas = Quotas(config, environment)
        self.hot = HotState(sessions, config.fetch_max_bytes, self.node_id, selects_by_rack(config), self.quotas.leader)
        self._channel = channel
        self._parts = BrokerReplicas(
            config, logs, self._publish_table, self._reconfigure, environment=environment, timers=self.timers,
            fetchers=make_fetchers(
                config, environment, world.random, world.connect, self._broker_epoch,
                None if world.make_plane else self._threads, world.watch_link, self.quotas.follower, on_fault,
            ),
            send=self._send, broker_epoch=self._broker_epoch, on_fault=on_fault,
        )  # fmt: skip
        self.replicas, self.fetchers = self._parts.manager, self._parts.fetchers
        self.isr_counts = self._parts.isrs.counts
        self.context = BrokerContext(
            node_id=self.node_id,
            cluster_id=cluster_id,
            read_image=lambda: publisher.image,
            read_kraft_version=read_kraft_version,
            replicas=self.replicas,
            logs=logs,
            channel=channel,
            producer_ids=ProducerIds(self._allocate_producer_ids),
            auto_topics=AutoTopics(self._create_asked, config),
            waits=PartitionWaits(environment, self.timers, environment),
            timers=self.timers,
            fetch_sessions=sessions,
            blocking=blocking,
            make_groups=lambda: self._make_groups(environment),
            make_transactions=self._make_transactions,
        )
        self.dispatcher = Dispatcher(self.KIND, self.context, self.HANDLERS)
        self.context.api_ranges = self.dispatcher.api_ranges()
        self.plane = self._make_plane(runtime)
        # A follower may send a Fetch before this broker hosts any partition.
        publish_table(self.plane.native, self._table)
        self.context.loggers_changed = self._set_gate
        self.context.values_in_effect = values_in_effect(self.plane)
        self._unenforced_quotas = UnenforcedQuotas()
        self.uncoordinated = Uncoordinated(self.node_id)
        self.bound = self.plane.open()
        self.registrar = self._make_membership(cluster_id, directory_ids, previous_epoch)
        self._assignments = DirectoryAssignments(self.node_id, self._broker_epoch, channel.send, on_fault)
        self.moves = self.context.moves = logs.moves(
            self._report_directory,
            config.num_replica_alter_log_dirs_threads,
            lambda: self.replicas.config.replica_alter_log_dirs_io_max_bytes_per_second,
            config.replica_fetch_backoff_ms,
        )

    @property
    def planes(self) -> list[Plane]:
        """The planes of the broker's listeners."""
        return [self.plane]

    def more_metrics(self) -> Iterable[Sample]:
        """Returns the metrics that only a KRaft broker or only a ZooKeeper broker has."""
        return ()

    def _threads(self) -> Threads:
        return Threads(self.plane.native, self.plane.processors)

    def _broker_epoch(self) -> int:
        return self.registrar.lifecycle.broker_epoch

    async def _send(self, request: Any) -> Any:
        """Sends one of the broker's own requests to the active controller."""
        return await self._channel.send(request)

    async def _report_directory(self, replica: tuple[Uuid, int], directory: Uuid) -> None:
        """Reports to the controller that a replica is about to move to another log directory."""
        await self._assignments.told(replica, directory)

    async def _create_asked(self, request: CreateTopicsRequest) -> Any:
        """Creates topics that the node's owner or a client's request has asked for."""
        return await self._channel.send(request)

    def _make_membership(self, cluster_id: str, directory_ids: Sequence[Uuid], previous_epoch: int) -> Membership:
        lifecycle = self._make_lifecycle(cluster_id, directory_ids, previous_epoch)
        registrar = Registrar(lifecycle, self._channel.live, lambda: self._publisher.applied_offset)
        return Membership(registrar, self._channel.loop)

    def _make_lifecycle(self, cluster_id: str, directory_ids: Sequence[Uuid], previous_epoch: int) -> BrokerLifecycle:
        return BrokerLifecycle(
            node_id=self.node_id,
            cluster_id=cluster_id,
            incarnation_id=self._world.new_uuid(),
            rack=self.config.broker_rack,
            listeners=self._advertised(),
            log_dir_ids=directory_ids,
            features=supported_features(),
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
            session_timeout_ms=self.config.broker_session_timeout_ms,
            previous_broker_epoch=previous_epoch,
        )

    def _make_plane(self, runtime: Runtime) -> Plane:
        plane: Plane = (self._world.make_plane or Plane)(
            DATA,
            [Listener(each.listener, each.host, each.port) for each in self.config.data_plane_listeners],
            self.dispatcher.answer,
            self.dispatcher.known_ranges(),
            runtime=runtime,
            environment=self._world.environment,
            limits=limits_from(self.config),
            hot=(
                (ApiKey.PRODUCE, produce.api(self.hot)),
                (ApiKey.FETCH, fetch.api(self.hot)),
                (ApiKey.LIST_OFFSETS, list_offsets.api(self.hot)),
            ),
            cached_apis=(ApiKey.METADATA,),
            urgent_apis=self._urgent_apis(),
        )
        if request_log.enabled():
            plane.native.publish_gate(GatePolicy("punt"))
        return plane

    def _urgent_apis(self) -> Iterable[int]:
        """Returns the APIs whose requests overtake the requests of clients."""
        return ()

    def intercept(self, around: Callable[[Answer], Answer] | None, gate: GatePolicy | None = None) -> None:
        """Puts a test's code between clients and handlers, as Plane.intercept describes. With `gate`, requests that
        processors would answer also go to Python. Runs on the loop."""
        self.plane.intercept(around)
        self._intercepted, self._asked_gate = around is not None, gate
        self._set_gate()
        self._publish_api_versions()

    def _publish_api_versions(self) -> None:
        made = None if self._intercepted else api_versions.bodies(self.context, API_VERSIONS)
        self.plane.native.publish_api_versions(made)

    def _take_versions(self, controller: NodeVersions | None) -> None:
        """Advertises only those versions of forwarded APIs that the active controller supports too."""
        self.context.api_ranges = with_controller(self.dispatcher.api_ranges(), controller)
        self._publish_api_versions()

    def _set_gate(self) -> None:
        """Decides which requests of the hot APIs (Produce, Fetch and the like) go to Python. While the request log is
        on, all of them go there, so that the log is complete."""
        self.plane.native.publish_gate(GatePolicy("punt") if request_log.enabled() else self._asked_gate)

    def _reconfigure(self, config: BrokerConfig) -> None:
        """Applies settings that changed at run time. The settings of logs arrive with the topics' settings instead."""
        for plane in self.planes:
            plane.set_limits(limits_from(config))
        self.quotas.take(config)
        self._blocking.resize(config.num_io_threads)
        self._logs.recover_with(config.num_recovery_threads_per_data_dir)
        self.fetchers.resize(config.num_replica_fetchers)
        if self.cleaner is not None:
            self.cleaner.configure(cleaner_settings(config))

    def _make_groups(self, environment: Environment) -> Groups:

        # The coordinator is imported and created when a client first asks for a group, so that it does not slow down
        # the start of a node.
        from kafkacore.server.groups import Groups  # noqa: PLC0415

        context, published_groups = self.context, PublishedGroups(environment)
        made = Groups(
            self.config, self.replicas, context.read_image, context.count_partitions, context.auto_topics,
            context.waits, environment, self.timers, self._blocking, published_groups, self._world.random_bytes,
            self.uncoordinated.found_groups,
        )  # fmt: skip
        self.plane.native.install(ApiKey.HEARTBEAT, published_groups.api())
        self.plane.native.install(ApiKey.SYNC_GROUP, published_groups.sync_group_api())
        return made

    def _make_transactions(self) -> Transactions:
        # Few brokers ever handle a transaction, so a broker imports this module only when it needs the module.
        from kafkacore.server.transactions import Transactions  # noqa: PLC0415

        context, world = self.context, self._world
        return Transactions(
            lambda: context.config, context.read_image, context.count_partitions, world.random, world.connect
        )

    def _advertised(self) -> list[AdvertisedListener]:
        """Returns the listeners as clients see them. Port 0 is replaced by the bound port, and a wildcard address by
        this machine's name."""
        told = []
        for each in self.config.advertised_listeners:
            host = each.host or self._world.host_name()
            port = each.port or self.bound[each.listener][1]
            protocol = SECURITY_PROTOCOLS.index(each.security_protocol)
            told.append(AdvertisedListener(each.listener, host, port, protocol))
        return told

    # --- start and stop ---

    async def start(self) -> None:
        """Starts the broker and returns when the broker serves clients. Raises RegistrationRefused, TimeoutError,
        LogDirectoryError, and MetadataError for a cluster that the broker must not serve."""
        # This subscription comes first, so that no other subscriber runs while outdated responses are still cached.
        self._publisher.subscribe(self._forget_answers)
        self._publisher.subscribe(self._nudge)
        # The registration shows the controller's versions, so the broker knows them before the first client connects.
        self._channel.watch_versions(self._take_versions)
        self.registrar.start()
        await self._reached(BrokerState.RECOVERY, BrokerState.RUNNING)
        check_served(self.config, self._publisher.image)
        # The broker now knows the configurations of the logs' topics, and which logs in its directories are stray.
        self.replicas.take_config(self._publisher.image)
        await asyncio.get_running_loop().run_in_executor(self._blocking, self._load)
        gone = self._logs.delete_gone(self._publisher.image, self.node_id)
        self._publisher.subscribe(self._apply)
        self.moves.resume(gone)
        self.registrar.unfence()
        await self._reached(BrokerState.RUNNING)
        # The first response to Metadata must contain this broker.
        while self._publisher.image.brokers[self.node_id].fenced:
            await self._applied()
        await self.plane.start()
        self.registrar.watch(self._on_fault)

    async def _reached(self, *states: BrokerState) -> None:
        limit_ms = self.config.initial_broker_registration_timeout_ms
        try:
            await self.registrar.reached(*states, limit_ms=limit_ms)
        except TimeoutError as error:
            raise TimeoutError(
                f"broker {self.node_id} was not accepted by the cluster within "
                f"initial.broker.registration.timeout.ms={limit_ms}: {error}; is a majority of the controllers running?"
            ) from None

    def _load(self) -> None:
        self._logs.load(self._publisher.image, self.node_id)

    async def stop(self, controlled_ms: int | None, drain_ms: int) -> None:
        """Stops the broker. If controlled.shutdown.enable is true, hands over this broker's leaderships, and spends at
        most `controlled_ms` on that. If `controlled_ms` is None, hands over nothing. Answers the requests in progress,
        and closes the partitions."""
        # Topics that clients have just asked for are no longer created, because this broker would not serve them.
        self.context.auto_topics.close()
        if controlled_ms is not None and self.config.controlled_shutdown_enable:
            self.replicas.leave()
            if await self.registrar.leave():
                await self._leave(controlled_ms)
        for waits in self._taking_back:
            waits.cancel()
        await self.moves.close()
        await self._parts.close()
        await self.registrar.stop()
        if self.context.groups_made is not None:
            await self.context.groups.close()
        if self.context.transactions_made is not None:
            await self.context.transactions.close()
        await self.plane.stop(drain_ms)
        self._assignments.close()
        self.context.producer_ids.close()
        self.context.waits.close()
        self.timers.close()
        self.replicas.close()

    async def _leave(self, controlled_ms: int) -> None:
        self._leaving = asyncio.ensure_future(self.registrar.reached(BrokerState.SHUTTING_DOWN))
        await asyncio.wait({self._leaving}, timeout=controlled_ms / 1000)
        if self._leaving.done() and not self._leaving.cancelled() and self._leaving.exception() is None:
            return
        self._leaving.cancel()
        LOG.warning(
            "broker %d stops although the controller has not agreed. Its leaderships move to other brokers only when "
            "its session ends",
            self.node_id,
        )

    def abandon(self) -> None:
        """Marks the node as failed, so that the stop does not wait for the controller's consent."""
        if self._leaving is not None:
            self._leaving.cancel()

    async def create_topics(
        self, topics: list[tuple[str, int]], configs: Mapping[str, str] = MappingProxyType({})
    ) -> list[tuple[str, int, str | None]]:
        """Creates topics as an administrator would, all with `configs`. When this returns, the broker serves the topics
        that were created."""

        set_to = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        made = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=-1, configs=set_to)
            for name, count in topics
        ]
        answer = await self._create_asked(CreateTopicsRequest(topics=made))
        for topic in answer.topics:
            while not topic.error_code and not self._serves(topic):
                await self._applied()
        return [(topic.name, topic.error_code, topic.error_message) for topic in answer.topics]

    def _serves(self, created: CreateTopicsResponse.CreatableTopicResult) -> bool:
        """Returns whether this broker knows a topic that was just created."""
        return self.context.image.topic_by_id(created.topic_id) is not None

    def settings_of(self, topic: str) -> LogSettings:
        """Returns the settings of a topic's logs."""
        return self.replicas.settings_of(self._publisher.image, topic)

    async def run_timers(self) -> int | None:
        """Runs the timers that are due. A test calls this after it has moved the environment's clock. Returns the time
        at which the next timer is due."""
        self.timers.catch_up()
        if self.context.groups_made is not None:
            await self.context.groups.runtime.settled()
        return self.timers.next_due_ns()

    async def _applied(self) -> None:
        """Waits until a newer metadata image is published."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting.append(future)
        await future

    def directory_failed(self, directory_id: Uuid) -> None:
        """Reports the failed directory to the controller, which moves the directory's leaderships to other brokers
        (KIP-858). Before that, the broker stops fetching the directory's partitions, and reports which replicas do not
        move to this directory after all. Otherwise the controller would take these replicas offline too."""

        def report() -> None:
            self.registrar.directory_failed(directory_id, self.config.log_dir_failure_timeout_ms, self._on_fault)

        path = self._logs.path_of_id(directory_id)
        if path is not None:
            self.replicas.stop_fetching_from(path)
        stays = set() if path is None else self.moves.take_back(path)
        if not stays:
            report()
            return
        waits = asyncio.ensure_future(asyncio.wait(stays, timeout=TAKE_BACK_S))
        self._taking_back.add(waits)
        waits.add_done_callback(self._taking_back.discard)
        waits.add_done_callback(lambda done: None if done.cancelled() else report())

    # --- the committed metadata ---

    def _apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        try:
            check_served(self.config, image, delta)
        except MetadataError as error:
            self._on_fault(error)
        self._parts.apply(image, delta)
        self.uncoordinated.apply(image)
        if self.context.groups_made is not None or image.topic(OFFSETS_TOPIC) is not None:
            self.context.groups.apply(image, delta)
        if delta is None or delta.configs or delta.features:
            self._tell_cordoned(image)
        if delta is None or delta.kept:
            self._unenforced_quotas.apply(image, delta)
        self._assignments.tell(self._logs.take_placed())
        awaiting, self._awaiting = self._awaiting, []
        for future in awaiting:
            if not future.done():
                future.set_result(None)
        if delta is None or delta.brokers:
            self._publish_endpoints(image)
        if delta is None or delta.features:
            self.context.finalized_epoch = image.offset
            self._publish_api_versions()

    def _tell_cordoned(self, image: MetadataImage) -> None:
        """Reports the cordoned directories to the controller once metadata.version supports them (KIP-1066)."""
        cordoned = self._logs.cordoned_ids
        told = cordoned if image.metadata_version.cordoned_log_dirs_supported else None
        if told is None and cordoned:
            LOG.warning(
                "cordoned.log.dirs: it cannot be reported to the controller, because metadata.version is %s and "
                "must be at least 4.3-IV0; new replicas go to this broker's other log directories, or to the first one "
                "if all are cordoned",
                image.metadata_version.name,
            )
        self.registrar.cordon(told)

    def _forget_answers(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Drops the cached responses about topics that changed. If a broker changed, drops all cached responses."""
        if delta is None or delta.brokers:
            self.plane.forget(None)
            return
        changed: set[object] = {*delta.topics_created, *delta.topics_deleted}
        changed.update(topic.topic_id for topic in image.topics_of_rows(rows_of_older_topics(image, delta)))
        if changed:
            self.plane.forget(changed)

    def _nudge(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Sends the next heartbeat as soon as the new metadata image is applied, in these cases:
        - the controller waits for this broker to catch up;
        - the controller has fenced this broker although it runs;
        - the controller lets this broker leave;
        - another broker is leaving, and waits until this broker has taken over its partitions.
        """
        lifecycle = self.registrar.lifecycle
        waits_for_us = (delta is None or delta.brokers or delta.most_rows) and image.somebody_leaves
        if waits_for_us or lifecycle.state is not BrokerState.RUNNING or not image.is_active(lifecycle.node_id):
            # The heartbeat is sent in the next iteration of the loop, when the other subscribers have the image too.
            asyncio.get_running_loop().call_soon(self.registrar.nudge)

    def _publish_table(self, changed: list[Placed], gone: list[Uuid]) -> None:
        self._table = self._table.changed(changed, gone)
        publish_table(self.plane.native, self._table)

    def _publish_endpoints(self, image: MetadataImage) -> None:
        told = []
        for number, each in enumerate(self.config.data_plane_listeners):
            for broker in image.brokers.values():
                where = broker.endpoint(each.listener)
                if where is not None and not broker.fenced:
                    told.append((number, broker.broker_id, where.host, where.port, broker.rack))
        self.hot.publish_endpoints(self.plane.native, told)

    async def _allocate_producer_ids(self) -> ProducerIdBlock:

        lifecycle = self.registrar.lifecycle
        answer = await self._channel.send(
            AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=lifecycle.broker_epoch)
        )
        if answer.error_code:
            raise error_for(error_of_peer(answer.error_code))
        return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)


def _fetch_sessions(config: BrokerConfig, world: World) -> FetchSessionCache:
    return FetchSessionCache(
        config.max_incremental_fetch_session_cache_slots,
        world.random.getrandbits(192),
        physical_memory_bytes() // SESSIONS_MEMORY_SHARE,
    )
