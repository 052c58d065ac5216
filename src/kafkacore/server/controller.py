"""The controller role of a node: its plane (listeners, processors and handler loop), its replica of the metadata log,
and the quorum controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.config.listeners import SECURITY_PROTOCOLS
from kafkacore.controller.quorum.controller import QuorumController
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.network.limits import limits_from
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.messages import ControllerRegistrationRequest, Message
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.voters import Endpoints, ReplicaKey
from kafkacore.runtime.process import CONTROLLER, Runtime
from kafkacore.runtime.world import World
from kafkacore.server.channel import ActiveController
from kafkacore.server.controller_context import ControllerContext
from kafkacore.server.controller_registrar import ControllerRegistrar
from kafkacore.server.dispatch import Answered, Dispatcher
from kafkacore.server.features import supported_features
from kafkacore.server.handlers import CONTROLLER as HANDLERS
from kafkacore.server.lanes import OWN
from kafkacore.server.metadata_replica import MetadataReplica, Quorum
from kafkacore.server.metadata_store import MetadataOnDisk
from kafkacore.server.values_in_effect import values_in_effect
from kafkacore.storage import meta_properties
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.names import metadata_directory

LOG: Final = logging.getLogger("kafkacore.server")
# Called with each image of the committed metadata and its changes. If the changes are None, anything may have changed.
OnRoot = Callable[[MetadataImage, MetadataDelta | None], None]


class ControllerServer:
    """The controller of a node. Create this object on a thread that may block on the disk. After that, it belongs to
    the controller plane's loop.

    `on_fault` is called with an error that is fatal for this controller.
    """

    def __init__(
        self,
        config: BrokerConfig,
        cluster_id: str,
        directory_id: Uuid,
        *,
        world: World,
        runtime: Runtime,
        environment: Environment,
        store: MetadataOnDisk,
        on_root: OnRoot,
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self._world = world
        listeners = [Listener(each.listener, each.host, each.port) for each in config.controller_listeners]
        self.plane: Plane = (world.make_plane or Plane)(
            CONTROLLER, listeners, self._answer, apis.api_versions_for("controller"),
            runtime=runtime, environment=environment, limits=limits_from(config),
        )  # fmt: skip
        self.bound = self.plane.open()
        self.endpoints = self._advertised()
        self.replica = MetadataReplica(
            config, cluster_id, ReplicaKey(config.node_id, directory_id), store, Quorum.configured(config), environment,
            world=world, endpoints=self.endpoints, on_fault=on_fault,
        )  # fmt: skip
        settings = Settings(cluster_id, config, world.random)
        self._on_root, self._on_fault = on_root, on_fault
        self.quorum = QuorumController(
            settings, self.replica.raft, store.bootstrap, self.replica.now_ms, world.new_uuid, self._root_committed
        )
        self.context = ControllerContext(self.node_id, cluster_id, self.quorum, self.replica.raft)
        self.dispatcher = self.context.dispatcher = Dispatcher("controller", self.context, HANDLERS)
        self.context.api_ranges = self.dispatcher.api_ranges()
        self.context.values_in_effect = values_in_effect(self.plane)
        self.active = ActiveController(self.replica, self.dispatcher, self.endpoints[0][0], config)
        self.replica.raft.add_listener(self.quorum)
        self.replica.raft.add_listener(self.active)
        self.replica.make_snapshots(store.log, self.quorum.snapshot)
        self._ticking: asyncio.TimerHandle | None = None
        self._registrar = ControllerRegistrar(self._registration(), self._ask_active, world.random)

    def _answer(self, call: RequestContext, body: memoryview) -> Answered:
        return self.dispatcher.answer(call, body)

    def _root_committed(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        if self.quorum.config is not self.config:
            self.config = self.quorum.config
            self.plane.set_limits(limits_from(self.config))
        self._registrar.published(image)
        self._on_root(image, delta)

    def _advertised(self) -> Endpoints:
        """Returns the listeners as other nodes see them. Port 0 is replaced by the bound port, and a wildcard address
        by this machine's name."""
        return tuple(
            (each.listener, each.host or self._world.host_name(), each.port or self.bound[each.listener][1])
            for each in self.config.advertised_controller_listeners
        )

    # --- start and stop, on the loop ---

    async def start(self) -> None:
        """Starts the controller, which then takes part in the quorum.

        Raises LogDirectoryError if the quorum can never have a leader.
        """
        await self.replica.start()
        self._check_voters()
        self._tick()
        await self.plane.start()
        self._registrar.start(self._on_fault)

    def _check_voters(self) -> None:
        """Refuses a start that can never succeed. A node that is not a voter waits for a leader. If it knew no other
        node, it would wait for ever."""
        raft = self.replica.raft.raft
        others = [voter for voter in raft.voters.latest.voters() if voter.key.replica_id != self.node_id]
        here = {(host, port) for _, host, port in self.endpoints}
        # If the configuration has port 0, `endpoints` has the bound port.
        elsewhere = [each for each in raft.config.bootstrap if each[1] and each not in here]
        if raft.is_voter or others or elsewhere:
            return
        path, nobody = self.config.metadata_log_dir, "and no other controller is configured that could lead"
        if raft.voters.latest.get(self.node_id) is not None:
            told = raft.voters.latest.why_not(raft.me)
            raise LogDirectoryError(f"{meta_properties.path_in(path)}: {told}; {nobody}")
        raise LogDirectoryError(
            f"{metadata_directory(path)}: no voter is known, {nobody}: the metadata log is lost, or has never existed. "
            "Restore it from a backup; to begin without any topic, remove meta.properties of the log directories and "
            "format them with --standalone"
        )

    async def stop(self, drain_ms: int) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._registrar.stop()
        await self.plane.stop(drain_ms)
        await self.replica.stop()

    def close(self) -> None:
        """Closes the metadata log. Call this after `stop`, on a thread that may block."""
        self.replica.close()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self.quorum.tick()
        except Exception:
            # The next tick must still run, because without it no broker would be fenced.
            LOG.exception("a periodic task of the controller has failed; it runs again")
        finally:
            self._ticking = loop.call_later(self.quorum.next_tick_ms / 1000, self._tick)

    def _registration(self) -> ControllerRegistrationRequest:
        """Returns the request that reports this controller's listeners and features (KIP-919)."""
        return ControllerRegistrationRequest(
            controller_id=self.node_id,
            incarnation_id=self._world.new_uuid(),
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

    async def _ask_active(self, request: Message) -> Any:
        return await self.active.ask(OWN, None, request, self.config.controller_quorum_request_timeout_ms)
