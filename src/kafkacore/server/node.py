"""A node: its directories, its roles, and the order in which they start and stop."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from types import MappingProxyType
from typing import Any, Final, Self

from kafkacore._fast.codec.compression import codec_libraries
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import MetadataError
from kafkacore.network.limits import limits_from
from kafkacore.network.plane import Plane
from kafkacore.observability.metrics import MetricRegistry, Sample, Source
from kafkacore.observability.planes import plane_source
from kafkacore.observability.prometheus import MetricsServer
from kafkacore.observability.sampled_requests import SampledRequestLog
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.voters import ReplicaKey
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.process import CONTROLLER, DATA, Runtime
from kafkacore.runtime.world import World
from kafkacore.server.broker import BrokerServer
from kafkacore.server.broker_logs import BrokerLogs
from kafkacore.server.channel import ActiveController, ControllerChannel
from kafkacore.server.controller import ControllerServer
from kafkacore.server.metadata_feed import MetadataFeed
from kafkacore.server.metadata_replica import MetadataReplica, Quorum
from kafkacore.server.metadata_store import MetadataOnDisk
from kafkacore.server.metrics import broker_metrics, recovery_metrics
from kafkacore.server.missing import refuse_what_is_missing
from kafkacore.server.quorum_metrics import (
    ControllerMetrics,
    ReplicaMetrics,
    broker_metadata_metrics,
    metadata_metrics,
)
from kafkacore.server.registrar import RegistrationRefused
from kafkacore.storage import clean_shutdown
from kafkacore.storage.clean_shutdown import NO_EPOCH
from kafkacore.storage.cleaner import LogCleaner, cleaner_settings
from kafkacore.storage.directories import NodeDirectories, open_directories, open_zookeeper_directories
from kafkacore.storage.directory_lock import DirectoryLocks
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.log_upkeep import LogUpkeep, intervals_from

LOG: Final = logging.getLogger("kafkacore.server")
CONTROLLED_SHUTDOWN_MS: Final = 30_000  # the longest time that a broker takes to hand over its leaderships
DRAIN_MS: Final = 2_000  # the longest time that connections get to take their last responses
_STOP_SECONDS: Final = 60.0
_CREATE_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 0.00005
MakeBroker = Callable[[dict[str, Any]], BrokerServer]  # takes the arguments that both modes share


class NodeFailed(Exception):
    """An error that stops the node. The log has the details."""


class StartAbandoned(Exception):
    """`Node.abandon_start` has ended the start."""


class Node:
    """A Kafka node in this process, created from its configuration. Call `start` and `stop` from any thread that is not
    the thread of a loop.

    `start` raises LogDirectoryError, ConfigError, OSError (for example if a port is in use or the disk is full),
    RegistrationRefused, TimeoutError, StartAbandoned, and NodeFailed (for metadata that this release cannot apply). If
    `start` raises, it has stopped everything that it had started.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        world: World | None = None,
    ) -> None:
        """Creates a node that is not running. `world` is the real world, unless a test or a simulation passes another
        one."""
        self.config = config
        self.world = world = world or World()
        self._files = world.files
        self._undo: list[Callable[[], Awaitable[object] | object]] = []
        self._mutex = threading.Lock()
        self._crashed = self._abandoned = False
        self._broker: BrokerServer | None = None
        self._controller: ControllerServer | None = None
        self._upkeep: LogUpkeep | None = None
        self.metrics_address: str | None = None
        self._metrics: MetricRegistry | None = None
        self._sampled_requests: SampledRequestLog | None = None
        self._feed: MetadataFeed
        self._replica: MetadataReplica
        self._channel: ControllerChannel
        self.fault: BaseException | None = None
        self._faulted: Future[None] = Future()
        self.on_fault: Callable[[BaseException], None] | None = None

    def start(self) -> None:
        with self._mutex:
            self.world.drive(self.begin())

    def abandon_start(self) -> None:
        """Ends a start that waits for the cluster or for the recovery of logs, or that has not begun yet. Has no effect
        after the start. Runs on any thread."""
        with contextlib.suppress(InvalidStateError):
            self._faulted.set_result(None)

    def stop(self) -> None:
        """Hands over this node's leaderships, answers the requests in progress, and marks its directories as clean.
        Idempotent."""
        with self._mutex:
            self.world.drive(self.end())

    def kill(self) -> None:
        """Ends the node in this process as a crash would. Hands over nothing, drops open requests, and writes no
        checkpoint and no clean-shutdown file. Idempotent."""
        self._crashed = True
        try:
            self.stop()
        finally:
            self._crashed = False

    async def begin(self) -> None:
        """Performs the steps of `start`. The node's world (real or simulated) runs this coroutine."""
        if self._undo:
            raise RuntimeError(f"node {self.config.node_id} runs already")
        self.fault = None
        try:
            await self._start()
        except GeneratorExit:
            raise  # the simulated world has ended, so there is nothing to undo
        except BaseException:
            await self.end()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- addresses ---

    @property
    def addresses(self) -> dict[str, str]:
        """`host:port` of each listener, with the bound port. Empty while the node is not running."""
        bound = dict(self._broker.bound) if self._broker is not None else {}
        bound |= self._controller.bound if self._controller is not None else {}
        return {name: f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for name, (host, port) in bound.items()}

    @property
    def bootstrap(self) -> str | None:
        """The address for clients: the first listener of the broker."""
        endpoints = self.config.data_plane_listeners
        return self.addresses.get(endpoints[0].listener) if self._broker is not None and endpoints else None

    @property
    def controller(self) -> str | None:
        endpoints = self.config.controller_listeners
        return self.addresses.get(endpoints[0].listener) if endpoints else None

    @property
    def broker(self) -> BrokerServer:
        """The node's broker. Raises RuntimeError if no broker is running."""
        if self._broker is None:
            raise RuntimeError(f"node {self.config.node_id} runs no broker")
        return self._broker

    @property
    def controller_server(self) -> ControllerServer | None:
        """The node's controller, or None while it is not running."""
        return self._controller

    @property
    def replica(self) -> MetadataReplica | None:
        """The node's replica of the metadata log, or None while it is not running."""
        return self.__dict__.get("_replica")

    def run_timers(self, limit_seconds: float) -> int | None:
        """Runs those timers of the broker's loop that are due by the environment's clock. Returns the time of the next
        timer, in ns. Raises TimeoutError."""
        return self.broker.plane.loop.run(self.broker.run_timers(), limit_seconds)

    def catch_up(self, limit_seconds: float) -> list[str]:
        """Runs everything that is due after a test has moved the environment's clock. Returns the names of the parts
        that did not finish in time."""
        late = []
        deadline = time.monotonic() + limit_seconds
        if self._upkeep is not None and not self._upkeep.catch_up(limit_seconds):
            late.append("the upkeep of the logs (retention, expiry of producers)")
        cleaner = self.broker.cleaner
        if cleaner is not None and not cleaner.settle(max(deadline - time.monotonic(), 0)):
            late.append("the log cleaner")
        try:
            self.run_timers(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            late.append("timers of the broker's loop")
        awaited = [(processor, processor.look()) for processor in self.broker.plane.processors]
        while any(processor.turns < turns for processor, turns in awaited):
            if time.monotonic() > deadline:
                late.append("requests that wait")
                break
            time.sleep(_TURN_SECONDS)  # processors send no signal at the end of a turn
        return late

    def create_topics(
        self, topics: Iterable[tuple[str, int]], configs: Mapping[str, str] = MappingProxyType({})
    ) -> list[tuple[str, int, str | None]]:
        """Asks the active controller to create topics, given as `(name, partitions)`, and waits until this broker has
        them.

        Returns the name, error code and message of each topic. Raises KafkaError and TimeoutError, and RuntimeError if
        this node has no broker.
        """
        return self.broker.plane.loop.run(self.broker.create_topics(list(topics), configs), _CREATE_SECONDS)

    # --- the steps of the start, in order; the stop undoes them in the opposite order ---

    async def _start(self) -> None:
        config, world, files = self.config, self.world, self._files
        refuse_what_is_missing(config)
        codec_libraries()  # opens the libraries now, because later no file descriptor might be free for them
        if config.zookeeper_mode:
            await self._start_in_zookeeper_mode()
            return
        directories = open_directories(config, world.environment.wall_ms(), files, world.new_uuid)
        data_dirs = [path for path in directories.directory_ids if path != config.metadata_log_dir]
        locks = DirectoryLocks(directories.directory_ids, files, dispensable=data_dirs)
        self._undo.append(locks.close)
        directories = directories.without(locks.failed)
        runtime = self._take_runtime()
        config = self.config
        if "controller" not in config.process_roles:
            await self._follow_controllers(runtime, directories)
        else:
            await self._start_controller(runtime, directories)
        if config.metrics_port >= 0:
            await self._start_metrics(runtime)
        if "broker" in config.process_roles:
            await self._start_broker(runtime, directories, self._make_broker(runtime, directories))
        self._show_planes(runtime)
        self._start_request_log()
        LOG.info("node %d is ready: %s", config.node_id, self.addresses)

    def _take_runtime(self) -> Runtime:
        """Takes a share of the process's threads, and computes the defaults that depend on the machine."""
        config = self.config
        # If num.network.threads is not set, the number of processors depends on the machine, because Kafka's default of
        # 3 is too high for a machine with few cores.
        processors = config.num_network_threads if config.is_set("num.network.threads") else None
        runtime = self.world.runtime(processors)
        self._undo.append(runtime.release)
        self._open_request_log()
        # These defaults depend on the machine. DescribeConfigs reports the values in effect.
        defaults = {
            "num.network.threads": str(runtime.data_processors),
            "queued.max.request.bytes": str(limits_from(config).memory_bytes),
        }
        self.config = config.with_node_defaults(defaults)
        return runtime

    def _open_request_log(self) -> None:
        """Opens the sampled request log. This happens before the planes are created, so that the log closes after the
        planes and gets their last requests."""
        config, world = self.config, self.world
        # A simulated plane has no processors, so it has no samples.
        if not config.sampled_request_log_file or world.environment.is_simulated:
            return
        log = self._sampled_requests = SampledRequestLog(
            config.sampled_request_log_file,
            config.sampled_request_log_max_bytes,
            world.environment.wall_ms,
            world.thread,
        )
        self._undo.append(log.close)

    def _start_request_log(self) -> None:
        if self._sampled_requests is not None:
            self._sampled_requests.add(self._planes())
            self._sampled_requests.start()

    async def _start_in_zookeeper_mode(self) -> None:
        # A node in KRaft mode does not import this.
        from kafkacore.server.zookeeper.node import ZooKeeperSide  # noqa: PLC0415

        world, files = self.world, self._files
        runtime = self._take_runtime()
        side = ZooKeeperSide(self.config, world, runtime.loop(CONTROLLER), self._failed)
        self._undo.append(lambda: world.on(runtime.loop(CONTROLLER), side.close(), _STOP_SECONDS))
        await self._run_start(runtime.loop(CONTROLLER), side.open())
        config = self.config = side.config
        directories = open_zookeeper_directories(
            config, side.cluster_id, world.environment.wall_ms(), files, world.new_uuid
        )
        locks = DirectoryLocks(directories.directory_ids, files, dispensable=list(directories.directory_ids))
        self._undo.append(locks.close)
        directories = directories.without(locks.failed)
        if config.metrics_port >= 0:
            await self._start_metrics(runtime)
        await self._start_broker(runtime, directories, side.make_broker(runtime, directories))
        self._show_planes(runtime)
        self._start_request_log()
        LOG.info("node %d is ready: %s", config.node_id, self.addresses)

    async def _start_controller(self, runtime: Runtime, directories: NodeDirectories) -> None:

        config, loop = self.config, runtime.loop(CONTROLLER)
        feed = self._feed = MetadataFeed(MetadataPublisher(), runtime.loop(DATA), self._failed)
        store = self._open_metadata()
        controller = self._controller = ControllerServer(
            config,
            directories.cluster_id,
            directories.directory_ids[config.metadata_log_dir],
            world=self.world,
            runtime=runtime,
            environment=self.world.environment,
            store=store,
            on_root=feed.on_root if "broker" in config.process_roles else _nobody_follows,
            on_fault=self._failed,
        )
        self._replica = controller.replica
        self._undo.append(controller.close)
        self._channel = ControllerChannel(controller.active, loop, config.controller_quorum_request_timeout_ms)
        self._undo.append(lambda: self.world.on(loop, controller.stop(self._drain_ms()), _STOP_SECONDS))
        await self._run_start(loop, controller.start())

    def _open_metadata(self) -> MetadataOnDisk:
        store = MetadataOnDisk(self.config, self.world.environment, self._files)
        self._undo.append(store.close)
        return store

    async def _follow_controllers(self, runtime: Runtime, directories: NodeDirectories) -> None:
        """Starts a replica of the metadata log that only follows, for a broker without a controller in the same
        process."""
        config, loop = self.config, runtime.loop(CONTROLLER)
        store = self._open_metadata()
        me = ReplicaKey(config.node_id, directories.directory_ids[config.metadata_log_dir])
        feed = self._feed = MetadataFeed(MetadataPublisher(), runtime.loop(DATA), self._failed)
        replica = self._replica = MetadataReplica(
            config, directories.cluster_id, me, store, Quorum.configured(config), self.world.environment,
            world=self.world, endpoints=(), on_fault=self._failed,
        )  # fmt: skip
        self._undo.append(replica.close)

        async def join() -> None:
            listener = config.controller_listener_names[0]
            active = ActiveController(replica, None, listener, config)
            self._channel = ControllerChannel(active, loop, config.controller_quorum_request_timeout_ms)
            replica.raft.add_listener(feed)
            replica.raft.add_listener(active)

        await self.world.on(loop, join())
        self._undo.append(lambda: self.world.on(loop, replica.stop(), _STOP_SECONDS))
        replica.make_snapshots(store.log, feed.snapshot)
        await self._run_start(loop, replica.start())

    def _make_broker(self, runtime: Runtime, directories: NodeDirectories) -> MakeBroker:
        def make(parts: dict[str, Any]) -> BrokerServer:
            return BrokerServer(
                self.config,
                directories.cluster_id,
                publisher=self._feed.publisher,
                channel=self._channel,
                read_kraft_version=lambda: self._replica.raft.kraft_version,
                **parts,
            )

        return make

    async def _start_broker(self, runtime: Runtime, directories: NodeDirectories, make_broker: MakeBroker) -> None:
        config, loop, environment = self.config, runtime.loop(DATA), self.world.environment
        # Threads for handlers that wait for a disk. If all threads are busy, further handlers wait for a free thread.
        blocking = self.world.workers(config.num_io_threads, "kafkacore-io")
        self._undo.append(lambda: blocking.shutdown(cancel_futures=True))
        ids = {directories.directory_ids[path]: path for path in directories.serving(config.log_dirs)}
        # A missing directory may not have been closed cleanly.
        previous_epoch = (
            clean_shutdown.common_epoch(ids.values(), self._files) if len(ids) == len(config.log_dirs) else NO_EPOCH
        )

        def settings_of(topic: str) -> LogSettings:
            return broker.settings_of(topic)

        manager = LogManager(
            environment,
            ids.values(),
            settings_of,
            on_failure=lambda path: self._directory_failed(manager, path, ids),
            recovery_threads=config.num_recovery_threads_per_data_dir,
            failed=[path for path in config.log_dirs if path in directories.failed],
            files=self._files,
            make_pool=self.world.pool,
            new_uuid=self.world.new_uuid,
        )

        self._show_recovery(manager)
        logs = BrokerLogs(manager, ids, blocking)

        async def make() -> BrokerServer:
            return make_broker(
                {
                    "directory_ids": list(ids),
                    "world": self.world,
                    "runtime": runtime,
                    "logs": logs,
                    "blocking": blocking,
                    "previous_epoch": previous_epoch,
                    "on_fault": self._failed,
                }
            )

        broker = self._broker = await self.world.on(loop, make())
        self._undo.append(lambda: self._close_logs(manager, broker, previous_epoch))
        # `broker.stop` cancels the coroutine that waits for the load of the logs, but not the load itself.
        self._undo.append(logs.abandon_load)
        self._undo.append(self._close_upkeep)
        self._undo.append(
            lambda: self.world.on(loop, broker.stop(self._hand_over_ms(), self._drain_ms()), _STOP_SECONDS)
        )
        await self._run_start(loop, broker.start())
        self._start_upkeep(manager, environment, broker)

    def _start_upkeep(self, manager: LogManager, environment: Environment, broker: BrokerServer) -> None:

        world, settings = self.world, cleaner_settings(broker.replicas.config)
        cleaner = broker.cleaner = LogCleaner(manager, environment, settings, world.thread, world.random_bytes)
        self._undo.append(cleaner.close)
        upkeep = self._upkeep = LogUpkeep(
            manager, environment, intervals_from(self.config), cleaner, world.background_loop("upkeep")
        )
        upkeep.start()
        self._undo.append(upkeep.end_tasks)

    def _close_upkeep(self) -> None:
        if self._upkeep is not None:
            self._upkeep.close()

    def _hand_over_ms(self) -> int | None:
        """Returns the time that a shutdown can take to hand over leaderships. After a fault, the shutdown does not wait
        for the controller, because the controller is a possible cause of the fault. After an abandoned start, the
        broker leads nothing."""
        if self._crashed:
            return None
        return 0 if self.fault is not None or self._abandoned else CONTROLLED_SHUTDOWN_MS

    def _drain_ms(self) -> int:
        return 0 if self._crashed else DRAIN_MS

    async def _run_start(self, loop: LoopThread, start: Coroutine[Any, Any, None]) -> None:
        """Runs a start and waits for it, as long as server.max.startup.time.ms allows, because the recovery of many
        logs can take long. A fault and `abandon_start` end the wait."""
        limit_ms = self.config.server_max_startup_time_ms
        try:
            ready = await self.world.first(loop, start, self._faulted, limit_ms / 1000)
        except MetadataError as error:  # a cluster that this node must not serve
            ready = False
            self._failed(error)
        if not ready:
            self.raise_fault()
            if self._faulted.done():
                self._abandoned = True
                raise StartAbandoned(f"the start of node {self.config.node_id} was ended")
            raise TimeoutError(
                f"node {self.config.node_id} was not ready within server.max.startup.time.ms={limit_ms}: "
                "the log shows what it waits for; otherwise raise the limit"
            )

    def raise_fault(self) -> None:
        """Raises NodeFailed if the node has a fault."""
        if self.fault is not None:
            raise NodeFailed(f"node {self.config.node_id} cannot continue: {self.fault}") from self.fault

    def _directory_failed(self, manager: LogManager, path: str, ids: dict[Uuid, str]) -> None:
        """Handles the failure of a directory. Runs on any thread. The node continues as long as the metadata log's
        directory and at least one log directory work."""
        broker = self._broker
        why = None
        if not manager.native_directories:
            why = f"every log directory has failed, the last one was {path}: {manager.failure(path)}"
        elif path == self.config.metadata_log_dir:
            why = f"the metadata log's directory {path} has failed: {manager.failure(path)}"
        if why is not None:
            self._failed(OSError(f"{why}; put that right, and start the node again"))
        elif broker is not None:
            for directory_id, each in ids.items():
                if each == path:
                    broker.plane.loop.call(broker.directory_failed, directory_id)

    def _close_logs(self, manager: LogManager, broker: BrokerServer, previous_epoch: int) -> None:
        # If the cluster never accepted this broker, it has not served clients. So its directories are as clean as they
        # were at the start (KIP-966).
        epoch = broker.registrar.lifecycle.broker_epoch
        manager.close(epoch if epoch >= 0 else previous_epoch, clean=not self._crashed)
        self._broker = None

    async def _start_metrics(self, runtime: Runtime) -> None:
        """Starts the metrics server. This happens before the broker starts, because the recovery of the broker's logs
        can take long."""

        loop = runtime.loop(DATA if "broker" in self.config.process_roles else CONTROLLER)
        self._metrics = MetricRegistry()
        # Metrics are served on the address of the first listener. A client that can connect to that address is allowed
        # to read the metrics.
        host = self.config.listeners[0].host
        server = MetricsServer(self._metrics)
        await self.world.on(loop, server.start(host, self.config.metrics_port))
        self._undo.append(lambda: self.world.on(loop, server.stop(), _STOP_SECONDS))
        self.metrics_address = f"http://{host or 'localhost'}:{server.port}/metrics"

    def _show(self, source: Source) -> None:
        """Adds the source to the metrics until the node stops."""
        registry = self._metrics
        if registry is not None:
            registry.add(source)
            self._undo.append(lambda: registry.remove(source))

    def _planes(self) -> list[Plane]:
        broker, controller = self._broker, self._controller
        planes = [] if broker is None else broker.planes
        return planes if controller is None else [*planes, controller.plane]

    def _show_planes(self, runtime: Runtime) -> None:
        if self._metrics is None:
            return

        broker, controller = self._broker, self._controller
        for plane in self._planes():
            self._show(plane_source(plane))
        if broker is not None:
            self._show(lambda: broker_metrics(broker))
        if broker is not None and self.config.zookeeper_mode:
            self._show(broker.more_metrics)
            return
        feed = self._feed
        if controller is not None:
            self._show(ControllerMetrics(controller, lambda: self.fault))
        replica = self._replica
        self._show(ReplicaMetrics(replica, runtime.loop(CONTROLLER)))
        self._show(lambda: metadata_metrics(replica, controller, None if broker is None else feed.publisher.image))
        if broker is not None:
            self._show(lambda: broker_metadata_metrics(feed.publisher.image, replica, self.config, self.fault))

    def _show_recovery(self, manager: LogManager) -> None:
        def source() -> Iterable[Sample]:

            return recovery_metrics(manager)

        self._show(source)

    # --- stopping ---

    async def end(self) -> None:
        """Performs the steps of `stop`. The node's world (real or simulated) runs this coroutine."""
        while self._undo:
            undo = self._undo.pop()
            try:
                undone = undo()
                if isinstance(undone, Awaitable):
                    await undone
            except Exception:
                LOG.exception("node %d: a part of the shutdown failed", self.config.node_id)
        self._broker = self._controller = self._upkeep = self.metrics_address = self._metrics = None
        self._sampled_requests = None
        for part in ("_feed", "_replica", "_channel"):
            self.__dict__.pop(part, None)
        # `begin` does not reset these fields, so that an `abandon_start` just before `begin` has an effect.
        self._faulted, self._abandoned = Future(), False

    def _failed(self, error: BaseException) -> None:
        """Notes that this node has failed. The owner of the node must stop it. Runs on any thread."""
        # Errors of the metadata, of the system or of a directory need no explanation; any other error is logged with
        # its traceback.
        where = None if isinstance(error, (MetadataError, OSError, LogDirectoryError, RegistrationRefused)) else error
        LOG.critical("node %d cannot continue: %s", self.config.node_id, error, exc_info=where)
        self.fault = error
        try:
            self._faulted.set_result(None)
        except InvalidStateError:
            LOG.debug("node %d has failed before", self.config.node_id)
        broker = self._broker
        if broker is not None:
            broker.plane.loop.call(broker.abandon)
        if self.on_fault is not None:
            self.on_fault(error)


def _nobody_follows(image: MetadataImage, delta: MetadataDelta | None) -> None:
    """Receives the metadata images of a controller that has no broker in its process, and ignores them."""
