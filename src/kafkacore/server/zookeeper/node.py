"""The part of a node that exists only in ZooKeeper mode: its session, its controller, and the creation of its
broker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.protocol.features import MINIMUM_METADATA_VERSION
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.process import Runtime
from kafkacore.runtime.world import World
from kafkacore.server.broker import BrokerServer
from kafkacore.server.zookeeper.broker import ZooKeeperBroker
from kafkacore.server.zookeeper.channel import zookeeper_lanes
from kafkacore.server.zookeeper.controller import LocalController
from kafkacore.server.zookeeper.refused_acls import check_acls
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.storage.directories import NodeDirectories, load
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.client import ClientSettings, ZooKeeperClient
from kafkacore.zookeeper.operations import (
    OPEN_ACL,
    Code,
    Create,
    ZooKeeperError,
)

LOG: Final = logging.getLogger("kafkacore.server")


class ZooKeeperSide:
    """Owns the session and the controller of a node. `open` and `close` run on `loop`, the controllers' loop. `open`
    sets `cluster_id`, and writes the broker's id into `config`."""

    def __init__(
        self, config: BrokerConfig, world: World, loop: LoopThread, on_fault: Callable[[BaseException], None]
    ) -> None:
        self.config = config
        self._world, self._loop, self._on_fault = world, loop, on_fault
        self._session: BrokerSession | None = None
        self._controller: LocalController | None = None
        self._broker: ZooKeeperBroker | None = None
        self.cluster_id = ""

    async def open(self) -> None:
        """Opens the session with ZooKeeper, and reads the cluster's id.

        Raises ConfigError for a malformed address, MetadataError for a cluster that this node must not serve,
        TimeoutError, ZooKeeperError.
        """
        config, world = self.config, self._world
        connect = config.zookeeper_connect or ""
        client = self._client(connect)
        timeout_ms = config.zookeeper_connection_timeout_ms
        hosts, slash, chroot = connect.partition("/")
        if chroot:
            await self._make_chroot(hosts, slash + chroot, timeout_ms or config.zookeeper_session_timeout_ms)
        self._session = session = BrokerSession(
            client, config.node_id, lambda _path: OPEN_ACL,
            connection_timeout_ms=config.zookeeper_session_timeout_ms if timeout_ms is None else timeout_ms,
            on_epoch=self._epoch_changed, on_fault=self._on_fault,
        )  # fmt: skip
        await session.open()
        await check_acls(config, client)
        if config.node_id < 0:
            await self._take_broker_id(session)
        self._controller = LocalController(
            self.config, world, session, zookeeper_lanes(self.config, world), self._on_fault
        )
        self.cluster_id = await session.cluster_id(lambda: str(world.new_uuid()))

    def _client(self, connect: str) -> ZooKeeperClient:
        settings = ClientSettings(session_timeout_ms=self.config.zookeeper_session_timeout_ms)
        try:
            return ZooKeeperClient(connect, settings, randomness=self._world.random, connect=self._world.connect)
        except ValueError as error:
            raise ConfigError("zookeeper.connect", connect, str(error)) from None

    async def _make_chroot(self, hosts: str, chroot: str, timeout_ms: int) -> None:
        """Creates the chroot, below which the cluster has its znodes. Uses a session without that chroot."""
        above = self._client(hosts)
        await above.start(timeout_ms)
        try:
            wanted = [*paths.ancestors(chroot), chroot]
            for path, made in zip(wanted, await above.read([Create(each) for each in wanted]), strict=True):
                if made.code not in (Code.OK, Code.NODE_EXISTS):
                    raise ZooKeeperError(made.code, path)
        finally:
            await above.close()

    async def _take_broker_id(self, session: BrokerSession) -> None:
        """Sets the broker id: the id that the log directories already have, or a new id from ZooKeeper
        (broker.id.generation.enable)."""
        config = self.config
        known = [each.node_id for each in load(config.log_dirs, self._world.files).properties.values()]
        broker_id = next((each for each in known if each is not None), None)
        if broker_id is None:
            if not config.broker_id_generation_enable:
                raise ConfigError("broker.id", config.node_id, "must be set if broker.id.generation.enable=false")
            broker_id = await session.next_broker_id(config.reserved_broker_max_id)
            LOG.info("the cluster has given this broker the id %d", broker_id)
        session.broker_id = broker_id
        own = {"broker.id": str(broker_id), "node.id": str(broker_id)}
        self.config = BrokerConfig({**config.static, **own}, node_defaults=config.node_defaults)

    def _epoch_changed(self, epoch: int) -> None:
        if self._broker is not None:
            self._broker.epoch_changed(epoch)

    def make_broker(self, runtime: Runtime, directories: NodeDirectories) -> Callable[[dict[str, Any]], BrokerServer]:
        """Returns the function that creates the broker from the arguments that both modes share."""
        session, controller = self._session, self._controller
        assert session is not None
        assert controller is not None

        def make(parts: dict[str, Any]) -> BrokerServer:
            self._broker = ZooKeeperBroker(
                self.config,
                directories.cluster_id,
                session=session,
                loop=self._loop,
                controller=controller,
                metadata_version=MINIMUM_METADATA_VERSION.level,
                **parts,
            )
            return self._broker

        return make

    async def close(self) -> None:
        if self._controller is not None:
            await self._controller.stop()
        if self._session is not None:
            await self._session.close()
