"""Replaces the server's sockets and processor threads: frames from the simulated network go directly to the
handlers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kafkacore.network.limits import PlaneLimits
from kafkacore.network.plane import Plane
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ProtocolError
from kafkacore.simulation.loop import SimulatedLoop
from kafkacore.simulation.network import Address, End, SimulatedNetwork

_PREFIX_BYTES: Final = 4
_DRAIN_LOOK_S: Final = 0.01


class SimulatedPlane(Plane):
    """Passes every request to the Python handlers. The native hot path serves no request."""

    def __init__(self, *arguments: Any, network: SimulatedNetwork, host: str, **named: Any) -> None:
        super().__init__(*arguments, **named | {"cached_apis": ()})
        self._network = network
        self._host = host
        self._addresses: list[Address] = []
        self._connections: dict[_Connection, None] = {}
        self._serves = False

    @property
    def _own_loop(self) -> SimulatedLoop:
        loop = self.loop.loop
        assert isinstance(loop, SimulatedLoop)
        return loop

    def open(self) -> dict[str, tuple[str, int]]:
        bound = {}
        for listener in self._listeners:
            name = listener.name

            def accept(end: End, name: str = name) -> asyncio.Protocol:
                return _Connection(self, end, name)

            address = self._network.listen(self._own_loop, (listener.host or self._host, listener.port), accept)
            self._addresses.append(address)
            bound[name] = address
        return bound

    async def start(self) -> None:
        """Begins to serve requests. Requests that arrived earlier were queued, as in the backlog of a socket."""
        self._serves = True
        for connection in self._connections:
            connection.go_on()

    async def stop(self, drain_ms: float = 0.0) -> None:
        for address in self._addresses:
            self._network.unlisten(address)
        self._addresses.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain_ms / 1000
        while any(each.is_busy for each in self._connections) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_LOOK_S)
        self._serves = False
        for connection in tuple(self._connections):
            connection.close()
        for each in tuple(self._going):
            each.cancel()

    def set_limits(self, limits: PlaneLimits) -> None:
        self.limits = limits

    @property
    def serves(self) -> bool:
        return self._serves

    def joined(self, connection: _Connection) -> None:
        self._connections[connection] = None

    def left(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)

    def begin(self, request: SimulatedRequest) -> None:
        self._start(request)  # type: ignore[arg-type]


class SimulatedRequest(bytes):
    """A request frame, with those methods of `InboundRequest` that `Plane` calls."""

    connection: _Connection
    answered: bool
    api_key: int
    header_size: int
    peer: str
    _head: tuple[int, int, int, str | None, str, str]

    @classmethod
    def of(cls, frame: bytes, connection: _Connection, listener: str) -> SimulatedRequest:
        """Parses a frame. Raises ProtocolError for a frame without a valid header."""
        header = apis.decode_request_header(frame)
        made = cls(frame)
        made.connection, made.answered = connection, False
        made.api_key, made.header_size = header.api_key, header.size
        made.peer = connection.peer
        made._head = header.api_key, header.api_version, header.correlation_id, header.client_id, listener, "127.0.0.1"
        return made

    def head(self, listeners: object) -> tuple[int, int, int, str | None, str, str]:
        return self._head

    def answer(self, parts: bytes | Sequence[bytes], *, torn_bytes: int = -1) -> None:
        frame = bytes(parts) if isinstance(parts, bytes | bytearray | memoryview) else b"".join(parts)
        whole = len(frame).to_bytes(_PREFIX_BYTES, "big") + frame
        self.answered = True
        if torn_bytes >= 0:
            self.connection.answer(whole[:torn_bytes])
            self.connection.close()
        else:
            self.connection.answer(whole)

    def answer_nothing(self) -> None:
        self.answered = True
        self.connection.answer(b"")

    def close(self) -> None:
        self.answered = True
        self.connection.close()

    def let_go(self) -> None:
        """Does nothing: Python keeps the frame as long as it is in use."""

    def local_done(self) -> None:
        """Does nothing, because a simulation does not measure the local time of requests."""


class _Connection(asyncio.Protocol):
    """Splits the byte stream of a connection into frames, and gives the handlers one request at a time."""

    def __init__(self, plane: SimulatedPlane, end: End, listener: str) -> None:
        self.peer = f"{end.there[0]}:{end.there[1]}"
        self._plane, self._end, self._listener = plane, end, listener
        self._received = bytearray()
        self._waiting: deque[bytes] = deque()
        self.is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plane.joined(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._waiting.clear()
        self._plane.left(self)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _PREFIX_BYTES:
            size = int.from_bytes(received[:_PREFIX_BYTES], "big", signed=True)
            if size < 0 or size > self._plane.limits.socket_request_max_bytes:
                self.close()
                return
            if len(received) < _PREFIX_BYTES + size:
                break
            self._waiting.append(bytes(received[_PREFIX_BYTES : _PREFIX_BYTES + size]))
            del received[: _PREFIX_BYTES + size]
        self.go_on()

    def go_on(self) -> None:
        while self._waiting and not self.is_busy and self._plane.serves:
            self.is_busy = True
            try:
                request = SimulatedRequest.of(self._waiting.popleft(), self, self._listener)
            except ProtocolError:
                self.close()
                return
            self._plane.begin(request)

    def answer(self, frame: bytes) -> None:
        self._end.write(frame)
        self.is_busy = False
        if self._waiting:
            self._end.loop.call_soon(self.go_on)

    def close(self) -> None:
        self._waiting.clear()
        self.is_busy = False
        self._end.close()
