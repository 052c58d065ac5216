"""One server of a simulated ZooKeeper ensemble, with its connections and watches. `SimulatedZooKeeper` is the service
that all servers share.

A server that lags has its own tree, which follows the service's tree. As in ZooKeeper, clients of this server read from
its own tree. The server answers a client's write when its own tree contains the write. It answers `Sync` when its tree
has caught up with the service.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkacore.simulation import zookeeper_wire as wire
from kafkacore.simulation.zookeeper_tree import Identity, Tree
from kafkacore.zookeeper import jute
from kafkacore.zookeeper.operations import (
    Code,
    Create,
    Delete,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Operation,
    Result,
    SetAcl,
    SetData,
    Sync,
    WatchEvent,
)

if TYPE_CHECKING:
    from kafkacore.simulation.zookeeper import SimulatedSession, SimulatedZooKeeper

Write = Create | Delete | SetData | SetAcl | Multi
MAX_REQUEST_BYTES: Final = 0xFFFFF  # jute.maxbuffer of the server


class Transaction(NamedTuple):
    """A change of a server's tree. A transaction without an operation creates a session, or ends the session in
    `ends`."""

    session_id: int
    operation: Write | None = None
    identities: Iterable[Identity] = ()
    now_ms: int = 0
    ends: bool = False

    def apply(self, tree: Tree) -> tuple[Result, list[WatchEvent]]:
        if self.operation is not None:
            return tree.write(self.operation, self.session_id, self.identities, self.now_ms)
        if self.ends:
            return Result(Code.OK), tree.end_session(self.session_id)
        tree.zxid += 1
        return Result(Code.OK), []


class Server:
    """One server. It refuses connections while `is_up` is False."""

    def __init__(self, service: SimulatedZooKeeper) -> None:
        self.service = service
        self.is_up = True
        self.lag_s = 0.0
        self.connections: dict[Connection, None] = {}
        self._own_tree: Tree | None = None  # only while this server lags
        self._behind: deque[Transaction] = deque()
        self._waiting: list[tuple[int, Callable[[], None]]] = []  # zxids, and the callbacks that wait for them
        self._watches: dict[str, dict[str, dict[Connection, None]]] = {"data": {}, "children": {}}

    @property
    def tree(self) -> Tree:
        return self.service.tree if self._own_tree is None else self._own_tree

    def accept(self, transport: Any) -> Connection:
        """Accepts a connection. `SimulatedNetwork.listen` calls this with the server's end of the new connection."""
        connection = Connection(self)
        self.connections[connection] = None
        return connection

    def stop(self) -> None:
        self.is_up = False
        self.cut_connections()

    def start(self) -> None:
        self.is_up = True

    def cut_connections(self) -> None:
        for connection in list(self.connections):
            connection.cut()

    # --- transactions ---

    def lag(self, seconds: float) -> None:
        """Makes each transaction reach this server `seconds` late from now on. 0 lets the server catch up."""
        self.lag_s = seconds
        if seconds and self._own_tree is None:
            self._own_tree = copy.deepcopy(self.service.tree)
        if not seconds:
            while self._behind:
                self._catch_up()
            self._own_tree = None

    def committed(self, transaction: Transaction, changes: list[WatchEvent]) -> None:
        if self._own_tree is None:
            self._tell(changes)
            return
        self._behind.append(transaction)
        self.service.loop.call_later(self.lag_s, self._catch_up)

    def _catch_up(self) -> None:
        if not self._behind or self._own_tree is None:
            return
        _, changes = self._behind.popleft().apply(self._own_tree)
        self._tell(changes)
        ready = [each for each in self._waiting if each[0] <= self._own_tree.zxid]
        self._waiting = [each for each in self._waiting if each[0] > self._own_tree.zxid]
        for _, callback in ready:
            callback()

    def when_seen(self, zxid: int, callback: Callable[[], None]) -> None:
        """Calls back when this server has received the transaction `zxid`."""
        self._waiting.append((zxid, callback))

    # --- watches ---

    def watch(self, kind: str, path: str, connection: Connection) -> None:
        self._watches[kind].setdefault(path, {})[connection] = None

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        for kind in self._watches.values():
            for path in [path for path, holders in kind.items() if connection in holders]:
                del kind[path][connection]

    def _tell(self, changes: Iterable[WatchEvent]) -> None:
        """Fires the watches for these changes, each watch once. If a client watches both the data and the children of a
        deleted znode, it gets only one event."""
        for event in changes:
            fired: dict[Connection, None] = {}
            if event.type is not EventType.CHILDREN_CHANGED:
                fired |= self._watches["data"].pop(event.path, {})
            if event.type in {EventType.CHILDREN_CHANGED, EventType.DELETED}:
                fired |= self._watches["children"].pop(event.path, {})
            for connection in fired:
                connection.send(wire.encode_event(event))


class Connection(asyncio.Protocol):
    """The connection of one client, on the server's side."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._service = server.service
        self._session: SimulatedSession | None = None
        self._is_waiting = False  # whether a request waits for a transaction; later requests wait behind it
        self._identities: dict[Identity, None] = {}
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not self._server.is_up:
            self.cut()

    def connection_lost(self, error: Exception | None) -> None:
        self._forget()

    def cut(self) -> None:
        transport, self._transport = self._transport, None
        self._forget()
        if transport is not None:
            transport.abort()

    def _forget(self) -> None:
        self._transport = None
        self._server.forget(self)
        if self._session is not None and self._session.connection is self:
            self._session.connection = None

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._read_frames()

    def _read_frames(self) -> None:
        while self._transport is not None and not self._is_waiting and len(self._buffer) >= 4:
            (length,) = jute.LENGTH.unpack_from(self._buffer)
            if not 0 <= length <= MAX_REQUEST_BYTES:
                self.cut()
                return
            if len(self._buffer) < 4 + length:
                return
            frame = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            try:
                self._read(frame)
            except jute.MalformedFrameError:
                self.cut()

    def _read(self, frame: bytes) -> None:
        service = self._service
        if self._session is None:
            self._greet(wire.decode_hello(frame))
            return
        xid, request = wire.decode_request(frame)
        if self._session.session_id not in service.sessions:
            self.cut()
            return
        self._session.heard_at_ms = service.now_ms()
        match request:
            case wire.Ping():
                self._answer(jute.PING_XID, None, Result(Code.OK))
            case Sync():
                answer = Result(Code.OK, request.path)
                self._when_seen(service.tree.zxid, lambda: self._answer(xid, request, answer))
            case wire.Auth():
                self._authenticate(request)
            case wire.SetWatches():
                self._set_watches(request)
            case wire.Close():
                service.end_session(self._session.session_id)
                self._answer_and_close(wire.encode_answer(xid, self._server.tree.zxid, None, Result(Code.OK)))
            case Create() | Delete() | SetData() | SetAcl() | Multi():
                self._write(xid, request)
            case _:
                self._query(xid, request)

    def _greet(self, hello: wire.Hello) -> None:
        service = self._service
        if hello.last_zxid > self._server.tree.zxid:
            self.cut()  # the client has seen transactions that have not reached this server
            return
        if hello.session_id:
            session = service.sessions.get(hello.session_id)
            if session is None or session.password != hello.password:
                self._answer_and_close(wire.encode_connected(0, 0, jute.NO_PASSWORD))
                return
            if session.connection is not None:
                session.connection.cut()
        else:
            session = service.open_session(hello.timeout_ms)
        session.connection = self
        session.heard_at_ms = service.now_ms()
        self._session = session
        welcome = wire.encode_connected(session.timeout_ms, session.session_id, session.password)
        self._when_seen(session.opened_zxid, lambda: self.send(welcome))

    def _authenticate(self, request: wire.Auth) -> None:
        if request.scheme != "digest" or b":" not in request.identity:
            refused = Result(Code.AUTH_FAILED)
            self._answer_and_close(wire.encode_answer(jute.AUTH_XID, self._server.tree.zxid, None, refused))
            return
        self._identities["digest", wire.digest_identity(request.identity)] = None
        self._answer(jute.AUTH_XID, None, Result(Code.OK))

    def _set_watches(self, request: wire.SetWatches) -> None:
        nodes = self._server.tree.nodes
        events = []
        for path in request.data:
            node = nodes.get(path)
            if node is None:
                events.append(WatchEvent(EventType.DELETED, path))
            elif node.mzxid > request.last_zxid:
                events.append(WatchEvent(EventType.DATA_CHANGED, path))
            else:
                self._server.watch("data", path, self)
        for path in request.creation:
            if path in nodes:
                events.append(WatchEvent(EventType.CREATED, path))
            else:
                self._server.watch("data", path, self)
        for path in request.children:
            node = nodes.get(path)
            if node is None:
                events.append(WatchEvent(EventType.DELETED, path))
            elif node.pzxid > request.last_zxid:
                events.append(WatchEvent(EventType.CHILDREN_CHANGED, path))
            else:
                self._server.watch("children", path, self)
        for event in events:
            self.send(wire.encode_event(event))
        self._answer(jute.SET_WATCHES_XID, None, Result(Code.OK))

    def _write(self, xid: int, write: Write) -> None:
        service, session = self._service, self._session
        assert session is not None
        service.writes += 1
        if service.lose_before(service.writes, write):
            self.cut()
            return
        now_ms = int(service.now_ms())
        result = service.commit(Transaction(session.session_id, write, tuple(self._identities), now_ms))
        if service.lose_after(service.writes, write):
            self.cut()
            return
        self._when_seen(service.tree.zxid, lambda: self._answer(xid, write, result))

    def _when_seen(self, zxid: int, answer: Callable[[], None]) -> None:
        """Sends the answer once this server has received the transaction. Until then the server reads no other request
        from this connection."""
        if self._server.tree.zxid >= zxid:
            answer()
            return
        self._is_waiting = True

        def go_on() -> None:
            self._is_waiting = False
            answer()
            self._read_frames()

        self._server.when_seen(zxid, go_on)

    def _query(self, xid: int, query: Operation) -> None:
        result = self._server.tree.read(query, self._identities)
        if isinstance(query, GetData | Exists | GetChildren) and query.watch:
            if isinstance(query, GetChildren):
                if result.is_ok:
                    self._server.watch("children", query.path, self)
            elif result.is_ok or (isinstance(query, Exists) and result.code is Code.NO_NODE):
                self._server.watch("data", query.path, self)
        self._answer(xid, query, result)

    def _answer(self, xid: int, operation: Operation | None, result: Result) -> None:
        self.send(wire.encode_answer(xid, self._server.tree.zxid, operation, result))

    def _answer_and_close(self, answer: bytes) -> None:
        transport = self._transport
        self.send(answer)
        self._forget()
        if transport is not None:
            transport.close()
