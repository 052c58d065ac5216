"""A deterministic ZooKeeper: sessions, watches, zxids, multi, digest authentication, and the wire format.

`SimulatedZooKeeper` is the service. Its state survives when its servers stop. A test connects to the servers with
`connect`, on any loop. In a simulated world the servers listen on the simulated network. `Server.lag` makes a server
lag behind the service.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from kafkacore.simulation.zookeeper_server import Connection, Server, Transaction
from kafkacore.simulation.zookeeper_tree import Tree
from kafkacore.zookeeper.operations import Operation, Result

MAX_TICKS: Final = 20  # the longest session timeout in ticks; the shortest is 2 ticks


class SimulatedSession:
    """A client's session with the service. Any server continues the session if the client sends the session's
    password."""

    def __init__(self, session_id: int, password: bytes, timeout_ms: int, opened_zxid: int) -> None:
        self.session_id = session_id
        self.opened_zxid = opened_zxid
        self.password = password
        self.timeout_ms = timeout_ms
        self.heard_at_ms = 0.0
        self.connection: Connection | None = None


class SimulatedZooKeeper:
    """The ZooKeeper service. `source` provides the randomness for session ids and passwords. A tick is the unit of
    session timeouts (`tick_ms`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: random.Random, tick_ms: int = 500) -> None:
        self.tree = Tree()
        self.loop = loop
        self.tick_ms = tick_ms
        self.sessions: dict[int, SimulatedSession] = {}
        self.servers: dict[tuple[str, int], Server] = {}
        self.writes = 0  # the number of writes that clients have sent
        # The server calls `lose_before` before a write takes effect. If the call returns True, the server drops the
        # write and cuts the connection. The server calls `lose_after` when the write has taken effect, before it sends
        # the answer. If the call returns True, the server cuts the connection, so that the client does not learn the
        # result.
        self.lose_before: Callable[[int, Operation], bool] = _keep
        self.lose_after: Callable[[int, Operation], bool] = _keep
        self._source = source
        self._timer: asyncio.TimerHandle | None = None

    def server(self, host: str = "zookeeper", port: int = 2181) -> Server:
        made = self.servers.get((host, port))
        if made is None:
            made = self.servers[host, port] = Server(self)
        return made

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connects as `loop.create_connection` does, but without a network. Raises ConnectionRefusedError."""
        await asyncio.sleep(0)
        server = self.servers.get((host, port))
        if server is None or not server.is_up:
            raise ConnectionRefusedError(f"{host}:{port} refuses the connection")
        protocol = factory()
        near, far = _Pipe(self.loop), _Pipe(self.loop)
        near.peer, far.peer = far, near
        near.protocol, far.protocol = protocol, server.accept(far)
        far.protocol.connection_made(far)
        protocol.connection_made(near)
        return near, protocol

    # --- sessions ---

    def now_ms(self) -> float:
        return self.loop.time() * 1000

    def open_session(self, timeout_ms: int) -> SimulatedSession:
        session_id = self._source.getrandbits(62) + 1
        self.commit(Transaction(session_id))
        granted_ms = min(max(timeout_ms, 2 * self.tick_ms), MAX_TICKS * self.tick_ms)
        session = self.sessions[session_id] = SimulatedSession(
            session_id, self._source.randbytes(16), granted_ms, self.tree.zxid
        )
        session.heard_at_ms = self.now_ms()
        self._watch_the_time()
        return session

    def expire(self, session_id: int) -> None:
        """Ends a session, as an expired timeout does. The client learns this when it connects again."""
        session = self.end_session(session_id)
        if session is not None and session.connection is not None:
            session.connection.cut()

    def end_session(self, session_id: int) -> SimulatedSession | None:
        """Ends a session and deletes its ephemeral znodes. Returns the session if it existed."""
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.commit(Transaction(session_id, ends=True))
        return session

    def commit(self, transaction: Transaction) -> Result:
        """Applies a transaction to the service's tree, and notifies all servers."""
        result, changes = transaction.apply(self.tree)
        for server in self.servers.values():
            server.committed(transaction, changes)
        return result

    def _watch_the_time(self) -> None:
        if self._timer is None and self.sessions:
            self._timer = self.loop.call_later(self.tick_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        is_up = any(server.is_up for server in self.servers.values())
        for session in list(self.sessions.values()):
            if not is_up:
                session.heard_at_ms = now_ms  # an ensemble that is back gives each session its whole timeout again
            elif now_ms - session.heard_at_ms > session.timeout_ms:
                self.expire(session.session_id)
        self._watch_the_time()

    def stop(self) -> None:
        """Ends all connections and the timer. Sessions and znodes remain."""
        for server in self.servers.values():
            server.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _keep(count: int, operation: Operation) -> bool:
    return False


class _Pipe(asyncio.Transport):
    """One end of a connection in memory. The other end receives the written bytes in a later iteration of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.protocol: asyncio.Protocol
        self.peer: _Pipe
        self._is_open = True

    def write(self, data: Any) -> None:
        if self._is_open:
            self._loop.call_soon(self.peer._receive, bytes(data))

    def _receive(self, data: bytes) -> None:
        if self._is_open:
            self.protocol.data_received(data)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.call_soon(self.protocol.connection_lost, None)
            self._loop.call_soon(self.peer._ended)

    abort = close

    def is_closing(self) -> bool:
        return not self._is_open

    def _ended(self) -> None:
        if self._is_open:
            self._is_open = False
            self.protocol.connection_lost(ConnectionResetError("Connection reset by peer"))
