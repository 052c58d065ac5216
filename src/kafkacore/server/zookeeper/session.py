"""A broker's session with ZooKeeper: the znodes that every broker creates, the cluster's id, and the broker's
registration.

Everything runs on the controllers' loop. The ephemeral znode in `/brokers/ids` disappears with the session. The znode
that the broker creates in its next session has a new czxid, which is the new broker epoch (KIP-380).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kafkacore.metadata.records import MetadataError
from kafkacore.runtime.watched import watch
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.client import SessionState, ZooKeeperClient
from kafkacore.zookeeper.operations import (
    Acl,
    Code,
    Create,
    CreateMode,
    Delete,
    EventType,
    Exists,
    GetData,
    Operation,
    Result,
    SetData,
    WatchEvent,
    ZooKeeperError,
)

LOG: Final = logging.getLogger("kafkacore.server")
RETRY_S: Final = 0.1
# The registration of a killed broker stays until its session expires. When the broker starts again, it waits for the
# expiry. It waits longer than one session timeout, because a ZooKeeper server checks sessions only at each tick.
SESSIONS_TO_WAIT: Final = 2


class BrokerIdTaken(Exception):
    """Another live broker has this broker's id."""


class BrokerSession:
    """Belongs to one event loop. `registration` returns the content of `/brokers/ids/ID`. `acl` returns the ACL of a
    new znode.

    The session calls `on_epoch` with each new broker epoch, and `on_fault` with an error that is fatal for this broker.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        broker_id: int,
        acl: Callable[[str], Sequence[Acl]],
        *,
        connection_timeout_ms: int,
        on_epoch: Callable[[int], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self.client = client
        self.broker_id = broker_id
        self.acl = acl
        self._connection_timeout_ms = connection_timeout_ms
        self._on_epoch = on_epoch
        self._on_fault = on_fault
        self._registration: Callable[[], znodes.BrokerRegistration] | None = None
        self._registered: tuple[int, int] | None = None  # the session id and the broker epoch
        self._connected_s = 0.0  # when the client connected last, by the event loop's clock
        self._registering = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._closing = False
        self._watched: dict[str, asyncio.Event] = {}
        # Called in each new session after the broker has registered, because the watches of the former session are
        # lost.
        self.on_new_session: list[Callable[[], Awaitable[None]]] = []
        client.on_watch(self._fired)
        client.on_state(self._moved)

    # --- opening ---

    async def open(self) -> None:
        """Connects, and creates the znodes that every broker needs. Raises TimeoutError, ZooKeeperError."""
        await self.client.start(self._connection_timeout_ms)
        await self.make_paths(paths.PERSISTENT)

    async def make_paths(self, wanted: Sequence[str]) -> None:
        """Creates persistent znodes and their parents. Existing znodes keep their data. The data of a new znode is
        null, as in Apache Kafka: an empty block of producer ids would stop Apache Kafka's brokers below 3.0."""
        every = dict.fromkeys(path for each in wanted for path in (*paths.ancestors(each), each))
        creates = [Create(path, None, acl=self.acl(path)) for path in every]
        for create, result in zip(creates, await self.sure(creates), strict=True):
            if result.code not in (Code.OK, Code.NODE_EXISTS):
                raise ZooKeeperError(result.code, create.path)

    async def sure(self, operations: Sequence[Operation]) -> list[Result]:
        """Submits operations that can safely be repeated. Repeats each operation whose outcome is unknown."""
        return await self.client.read(operations)

    async def cluster_id(self, propose: Callable[[], str]) -> str:
        """Returns the id of the cluster. Creates it if this is the first broker of the cluster. Raises ZooKeeperError,
        and MetadataError for an id that cannot be read."""
        while True:
            [found] = await self.sure([GetData(paths.CLUSTER_ID)])
            if found.is_ok:
                try:
                    return znodes.decode_cluster_id(found.value[0])
                except znodes.MalformedZnodeError as error:
                    raise MetadataError(f"{paths.CLUSTER_ID} cannot be read: {error}") from None
            if found.code != Code.NO_NODE:
                raise ZooKeeperError(found.code, paths.CLUSTER_ID)
            await self.make_paths([paths.CLUSTER])
            data = znodes.encode_cluster_id(propose())
            create = Create(paths.CLUSTER_ID, data, acl=self.acl(paths.CLUSTER_ID))
            [made] = await self.client.submit([create])
            if made.code not in (Code.OK, Code.NODE_EXISTS, Code.CONNECTION_LOSS):
                raise ZooKeeperError(made.code, paths.CLUSTER_ID)

    async def next_broker_id(self, reserved: int) -> int:
        """Returns an id above `reserved` that no other broker gets (broker.id.generation.enable)."""
        [found] = await self.sure([SetData(paths.BROKER_SEQUENCE_ID, b"")])
        if not found.is_ok:
            raise ZooKeeperError(found.code, paths.BROKER_SEQUENCE_ID)
        return int(found.value.version) + reserved

    # --- registration ---

    @property
    def broker_epoch(self) -> int:
        return -1 if self._registered is None else self._registered[1]

    async def register(self, registration: Callable[[], znodes.BrokerRegistration] | None = None) -> int:
        """Registers this broker in the current session, if it has not done so yet. Returns the broker epoch.

        Raises BrokerIdTaken, ZooKeeperError.
        """
        self._registration = registration or self._registration
        async with self._registering:
            session_id = self.client.session_id
            if self._registered is None or self._registered[0] != session_id:
                epoch = await self._register()
                self._registered = session_id, epoch
                LOG.info("broker %d is registered in ZooKeeper with broker epoch %d", self.broker_id, epoch)
                self._on_epoch(epoch)
                self._reopen_if_over()
            return self._registered[1]

    async def _register(self) -> int:
        assert self._registration is not None
        path = paths.broker(self.broker_id)
        data = znodes.encode_broker(self._registration())
        limit_s = SESSIONS_TO_WAIT * self.client.session_timeout_ms / 1000
        began_s = asyncio.get_running_loop().time()
        while True:
            [made] = await self.client.submit([Create(path, data, CreateMode.EPHEMERAL, self.acl(path))])
            if made.is_ok:
                return int(made.value.stat.czxid)
            if made.code not in (Code.NODE_EXISTS, Code.CONNECTION_LOSS):
                raise ZooKeeperError(made.code, path)
            changed = self._watch(path)
            [found] = await self.sure([Exists(path, watch=True)])
            if found.code == Code.NO_NODE:
                continue
            if not found.is_ok:
                raise ZooKeeperError(found.code, path)
            owner = found.value.ephemeral_owner
            if owner == self.client.session_id:
                return int(found.value.czxid)  # this broker's own znode: the response to the Create was lost
            if owner in self.client.former_session_ids:
                [gone] = await self.client.submit([Delete(path, found.value.version)])
                if gone.code not in (Code.OK, Code.NO_NODE, Code.BAD_VERSION, Code.CONNECTION_LOSS):
                    raise ZooKeeperError(gone.code, path)
                continue
            LOG.info("%s belongs to another session: the broker waits until that session ends", path)
            if await self._changes(changed, began_s, limit_s):
                continue
            # After a pause of this machine, the time may be over before the broker learns that the znode is gone.
            [found] = await self.sure([Exists(path)])
            if found.is_ok:
                raise BrokerIdTaken(
                    f"{path} belongs to another live broker: the znode still exists after {limit_s:.0f} s. Give each "
                    "broker a broker.id of its own"
                )

    async def _changes(self, changed: asyncio.Event, began_s: float, limit_s: float) -> bool:
        """Waits at most `limit_s` seconds for the event. Returns whether the event came. The event also comes when the
        session ends, and then the next request fails. Time without a connection does not count. Each new connection
        starts the time again, because after an outage ZooKeeper gives each session its whole timeout again."""
        loop = asyncio.get_running_loop()
        while True:
            deadline_s = max(began_s, self._connected_s) + limit_s
            is_connected = self.client.state is SessionState.CONNECTED
            if is_connected and loop.time() >= deadline_s:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline_s if is_connected else loop.time() + RETRY_S):
                    await changed.wait()
                    return True

    def _watch(self, path: str) -> asyncio.Event:
        return self._watched.setdefault(path, asyncio.Event())

    def _fired(self, event: WatchEvent) -> None:
        waiting = self._watched.pop(event.path, None)
        if waiting is not None and event.type is not EventType.CHILDREN_CHANGED:
            waiting.set()

    # --- the end of the session ---

    def _moved(self, state: SessionState, session_id: int) -> None:
        if state is SessionState.CONNECTED:
            self._connected_s = asyncio.get_running_loop().time()
        if state is SessionState.CONNECTING and self._registered is not None and not self._closing:
            LOG.warning("broker %d lost its connection to ZooKeeper: roles and ISRs stay as they are", self.broker_id)
        elif state is SessionState.AUTH_FAILED:
            self._on_fault(ZooKeeperError(Code.AUTH_FAILED, self.client.connect_string))
        if state in (SessionState.CLOSED, SessionState.AUTH_FAILED):
            for waiting in self._watched.values():  # no watch of this session will fire
                waiting.set()
            self._watched.clear()
        self._reopen_if_over()

    def _reopen_if_over(self) -> None:
        """Opens another session if the broker is registered and its session has ended."""
        if self.client.state is not SessionState.CLOSED or self._registered is None:
            return
        if not self._closing and self._reopening is None:
            LOG.warning("broker %d: its session with ZooKeeper has ended; the broker opens another", self.broker_id)
            self._reopening = asyncio.create_task(self._reopen())
            watch(self._reopening, self._on_fault)

    async def _reopen(self) -> None:
        """Opens a new session, however long ZooKeeper is unreachable. Then registers the broker again, and informs the
        callbacks. Starts again if the new session ends meanwhile. Raises BrokerIdTaken, and ZooKeeperError with
        AUTH_FAILED."""
        try:
            while not self._closing:
                await self._register_again()
                for callback in self.on_new_session:
                    await callback()
                if self.client.state is not SessionState.CLOSED:
                    return
        finally:
            self._reopening = None

    async def _register_again(self) -> None:
        """Registers the broker again, and first opens a session if no session is open. Tries until ZooKeeper accepts
        the registration. Raises BrokerIdTaken, and ZooKeeperError with AUTH_FAILED."""
        while not self._closing:
            try:
                if self.client.state is SessionState.CLOSED:
                    await self.client.start(self._connection_timeout_ms)
                await self.register()
            except TimeoutError as error:
                LOG.warning("broker %d: %s", self.broker_id, error)
            except ZooKeeperError as error:
                if error.code is Code.AUTH_FAILED:
                    raise
                LOG.warning("broker %d could not register again: %s", self.broker_id, error)
            else:
                return
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        """Ends the session, and with it this broker's registration."""
        self._closing = True
        if self._reopening is not None:
            self._reopening.cancel()
        await self.client.close()
