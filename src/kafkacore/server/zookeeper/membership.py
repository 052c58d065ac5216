"""A broker's membership in a cluster of ZooKeeper mode, for use on the data plane's loop.

`ZooKeeperMembership` has the methods of `registrar.Membership`. A KRaft broker sends heartbeats to its controller. A
broker in ZooKeeper mode sends no heartbeats. Its registration is a znode that exists as long as the broker's session.
The broker requests a controlled shutdown with ControlledShutdown, and reports a failed log directory with a znode.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import ControlledShutdownRequest
from kafkacore.protocol.response_errors import error_of_peer
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.server.lifecycle import BrokerState
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, Create, CreateMode

LOG: Final = logging.getLogger("kafkacore.server")
RETRY_S: Final = 1.0


class Life:
    """The state that other parts of the broker can read on any thread."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1  # the czxid of the registration


class ZooKeeperMembership:
    """Joins and leaves the cluster. `session` belongs to `loop`. `registration` returns the content of this broker's
    znode. `send` sends a request to the active controller. `resign` makes this node's controller resign."""

    def __init__(
        self,
        config: BrokerConfig,
        session: BrokerSession,
        loop: LoopThread,
        registration: Callable[[], znodes.BrokerRegistration],
        send: Callable[[Any], Awaitable[Any]],
        resign: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.lifecycle = Life(config.node_id)
        self._config = config
        self._session = session
        self._loop = loop
        self._registration = registration
        self._send = send
        self._resign = resign
        self._leaving: asyncio.Future[None] | None = None

    def start(self) -> None:
        self.lifecycle.state = BrokerState.STARTING

    async def register(self) -> None:
        """Registers the broker. Raises BrokerIdTaken, ZooKeeperError."""
        work = self._session.register(self._registration)
        self.lifecycle.broker_epoch = await asyncio.wrap_future(self._loop.submit(work))
        self.lifecycle.state = BrokerState.RUNNING

    def epoch_changed(self, epoch: int) -> None:
        """Takes the broker epoch of a registration in a new session. Can be called on any thread."""
        self.lifecycle.broker_epoch = epoch

    def nudge(self) -> None:
        """Does nothing: in ZooKeeper mode there are no heartbeats."""

    def unfence(self) -> None:
        """Does nothing: a registered broker is never fenced."""

    def watch(self, on_fault: Callable[[BaseException], None]) -> None:
        """Does nothing: the session itself reports fatal errors."""

    def cordon(self, directories: frozenset[Uuid] | None) -> None:
        """Does nothing: a controller of ZooKeeper mode does not choose log directories."""

    def directory_failed(self, directory: Uuid, limit_ms: int, on_fault: Callable[[BaseException], None]) -> None:
        """Reports the failed directory with a znode. The controller then asks this broker about all its replicas, and
        learns which of them are offline."""
        path = paths.log_dir_event()
        create = Create(
            path,
            znodes.encode_log_dir_event(self.lifecycle.node_id),
            CreateMode.PERSISTENT_SEQUENTIAL,
            self._session.acl(path),
        )
        self._loop.submit(self._report(create))

    async def _report(self, create: Create) -> None:
        """Repeats the report until ZooKeeper accepts it. When the session has ended, no report is necessary: after the
        next registration, the controller asks about all replicas anyway."""
        while True:
            [made] = await self._session.sure([create])
            if made.code in (Code.OK, Code.SESSION_EXPIRED, Code.AUTH_FAILED):
                return
            LOG.warning("%s: %s; the broker reports its failed log directory again", create.path, made.code.name)
            await asyncio.sleep(RETRY_S)

    # --- leaving ---

    async def leave(self) -> bool:
        """Starts a controlled shutdown. Returns False if the broker is not in the cluster and has nothing to hand
        over."""
        if self.lifecycle.state is not BrokerState.RUNNING:
            return self.lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self.lifecycle.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._leaving = asyncio.ensure_future(self._hand_over())
        return True

    async def reached(self, *states: BrokerState, limit_ms: int | None = None) -> None:
        """Waits until the controlled shutdown is complete. Raises RuntimeError if the controller did not agree
        to it."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
        if self.lifecycle.state not in states:
            raise RuntimeError(f"broker {self.lifecycle.node_id} still leads partitions")

    async def _hand_over(self) -> None:
        config = self._config
        LOG.info("broker %d requests its controlled shutdown", self.lifecycle.node_id)
        for attempt in range(max(config.controlled_shutdown_max_retries, 1)):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            request = ControlledShutdownRequest(
                broker_id=self.lifecycle.node_id, broker_epoch=self.lifecycle.broker_epoch
            )
            try:
                answer = await self._send(request)
            except (KafkaError, OSError, TimeoutError) as error:
                LOG.warning("the controller did not answer ControlledShutdown: %s", error)
                continue
            if not answer.error_code and not answer.remaining_partitions:
                self.lifecycle.state = BrokerState.SHUTTING_DOWN
                return
            LOG.info(
                "broker %d cannot leave yet: %s, %d partitions remain",
                self.lifecycle.node_id, error_of_peer(answer.error_code).name, len(answer.remaining_partitions),
            )  # fmt: skip

    async def stop(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self.lifecycle.state = BrokerState.SHUTTING_DOWN
        await asyncio.wrap_future(self._loop.submit(self._close()))

    async def _close(self) -> None:
        await self._resign()
        await self._session.close()
