"""The controller's role of a node: its plane, its replica of the metadata log, and the decisions it makes as the active one."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kafkacore._fast.env import Environment
from kafkacore._fast.io import LogDirectory
from kafkacore.config import BrokerConfig
from kafkacore.config.listeners import SECURITY_PROTOCOLS
from kafkacore.controller.quorum.controller import QuorumController
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.records import decode_record
from kafkacore.network.limits import limits_from
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.messages import ControllerRegistrationRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.file_log import FileLog
from kafkacore.raft.snapshotting import Snapshotter, SnapshotLimits
from kafkacore.raft.voters import Endpoints, ReplicaKey, Voter, VoterSet
from kafkacore.runtime.process import CONTROLLER, Runtime
from kafkacore.runtime.randomness import randomness
from kafkacore.server.controller_context import ControllerContext
from kafkacore.server.dispatch import Dispatcher
from kafkacore.server.features import supported_features
from kafkacore.server.handlers import CONTROLLER as HANDLERS
from kafkacore.storage import bootstrap, quorum_state
from kafkacore.storage.names import metadata_directory

LOG: Final = logging.getLogger("kafkacore.server")
# Given each committed root with what changed; None: everything may have.
OnRoot = Callable[[MetadataImage, MetadataDelta | None], None]
RAFT_THREADS: Final = 2  # one syncs the log, one writes votes and snapshots
METADATA_IO_THREADS: Final = 2


class ControllerServer:
    """Made on a thread that may wait for the disk: it loads the metadata log. Then it belongs to the controller plane's loop.

    `on_fault` is told what this controller cannot go on after.
    """

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        directory_id: Uuid,
        *,
        runtime: Runtime,
        environment: Environment,
        clean: bool,
        on_root: OnRoot,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self._environment = environment
        self._executor = ThreadPoolExecutor(RAFT_THREADS, "kafkacore-raft")
        self._directory = LogDirectory(environment, config.metadata_log_dir, METADATA_IO_THREADS)
        self._log = FileLog(self._directory, segment_bytes=config.metadata_log_segment_bytes, clean=clean)
        listeners = [Listener(each.listener, each.host, each.port) for each in config.controller_listeners]
        self.plane = Plane(
            CONTROLLER, listeners, self._answer, _api_ranges(), runtime=runtime, environment=environment,
            limits=limits_from(config),
        )  # fmt: skip
        self.bound = self.plane.open()
        self.endpoints = self._advertised()
        self.raft = self._replica(cluster_id, directory_id, on_fault)
        settings = Settings(cluster_id, config, randomness())
        records = bootstrap.read_bootstrap(config.metadata_log_dir) or ()
        self.quorum = QuorumController(settings, self.raft, records, self._now_ms, on_root=on_root)
        self._snapshotter = Snapshotter(
            self._log, _snapshot_limits(config), self.quorum.snapshot, self.raft.write_snapshot, environment.wall_ms
        )
        self.raft.add_listener(self.quorum)
        self.raft.add_listener(self._snapshotter)
        self.context = ControllerContext(self.node_id, cluster_id, config, self.quorum, self.raft)
        self.dispatcher = self.context.dispatcher = Dispatcher("controller", self.context, HANDLERS)
        self.context.api_ranges = self.dispatcher.api_ranges()
        self._ticking: asyncio.TimerHandle | None = None
        self._registering: asyncio.Task[None] | None = None

    def _now_ms(self) -> int:
        return self._environment.monotonic_ns() // 1_000_000

    def _answer(self, call: RequestContext, body: memoryview) -> object:
        return self.dispatcher.answer(call, body)

    def _advertised(self) -> Endpoints:
        """What other nodes are told: a port 0 is the one that was bound, the wildcard is this machine's name."""
        return tuple(
            (each.listener, each.host or socket.getfqdn(), each.port or self.bound[each.listener][1])
            for each in self.config.advertised_controller_listeners
        )

    def _replica(self, cluster_id: str, directory_id: Uuid, on_fault: Callable[[BaseException], None]) -> RaftDriver:
        config, listener = self.config, self.config.controller_listener_names[0]
        static = VoterSet(
            Voter(ReplicaKey(voter.node_id), ((listener, voter.address.host, voter.address.port),))
            for voter in config.controller_quorum_voters
        )
        directory = metadata_directory(config.metadata_log_dir)
        return RaftDriver(
            RaftConfig(
                node_id=self.node_id,
                directory_id=directory_id,
                cluster_id=cluster_id,
                voters=static,
                bootstrap=tuple((each.host, each.port) for each in config.controller_quorum_bootstrap_servers),
                listener=listener,
                endpoints=self.endpoints,
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            ),
            self._log,
            quorum_state.read(directory),
            persist=functools.partial(quorum_state.write, directory),
            network=None,
            executor=self._executor,
            random=randomness(),
            decode=decode_record,
            now_ms=self._now_ms,
            wall_ms=self._environment.wall_ms,
            on_fault=on_fault,
        )

    # --- life, on the loop ---

    async def start(self) -> None:
        """Takes part in the quorum from now on; whether it leads is told to the listeners of `raft`."""
        self.raft.start()
        self._tick()
        await self.plane.start()
        self._registering = asyncio.create_task(self._register())

    async def stop(self, drain_ms: int) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._registering is not None:
            self._registering.cancel()
        await self.plane.stop(drain_ms)
        await self._snapshotter.close()
        await self.raft.stop()

    def close(self) -> None:
        """After `stop`, on a thread that may wait."""
        self._executor.shutdown()
        self._log.close()
        self._directory.close()

    def _tick(self) -> None:
        self.quorum.tick()
        loop = asyncio.get_running_loop()
        self._ticking = loop.call_later(self.quorum.tick_interval_ms / 1000, self._tick)

    async def _register(self) -> None:
        """This controller tells the active one where it listens (KIP-919)."""
        request = ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=Uuid.random(),
            listeners=[
                ControllerRegistrationRequest.Listener(
                    name=name,
                    host=host,
                    port=port,
                    security_protocol=SECURITY_PROTOCOLS.index(self.config.listener_security_protocol_map[name]),
                )
                for name, host, port in self.endpoints
            ],
            features=[
                ControllerRegistrationRequest.Feature(
                    name=name, min_supported_version=least, max_supported_version=most
                )
                for name, (least, most) in supported_features().items()
            ],
        )
        call = RequestContext(ApiKey.CONTROLLER_REGISTRATION, 0, 0, None, self.endpoints[0][0], "")
        while True:
            answer = await self.dispatcher.ask(call, request)
            if not answer.error_code:
                return
            await asyncio.sleep(self.config.controller_quorum_retry_backoff_ms / 1000)


def _snapshot_limits(config: BrokerConfig) -> SnapshotLimits:
    return SnapshotLimits(
        bytes_between=config.metadata_log_max_record_bytes_between_snapshots,
        interval_ms=config.metadata_log_max_snapshot_interval_ms,
        retention_bytes=config.metadata_max_retention_bytes,
        retention_ms=config.metadata_max_retention_ms,
    )


def _api_ranges() -> list[tuple[int, int, int]]:
    from kafkacore.protocol import apis

    return list(apis.api_versions_for("controller", frozenset(HANDLERS)))
