"""Links between the nodes of a cluster in one process. Each direction of a link can be cut and healed.

A cut link behaves like an unplugged cable. Bytes wait, as in TCP's buffers, and arrive when the link is healed. A new
connection attempt also waits, until its timeout.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

_LOOK_S: Final = 0.01  # the interval at which a connection attempt checks the link

Address = tuple[str, int]


class NativeConnection(Protocol):
    """A connection that processor threads use. Its methods can be called on any thread."""

    def hold(self, *, reads: bool, writes: bool) -> None: ...
    def disconnect(self) -> None: ...


class Links:
    """The links between nodes, by node id. Any thread can cut and heal links. A connection belongs to its loop."""

    def __init__(self, addresses: dict[Address, int]) -> None:
        """`addresses` maps the host and port of each listener to its node id."""
        self._addresses = addresses
        self._cut: set[tuple[int, int]] = set()
        self._dead: set[tuple[int, int]] = set()  # links of nodes that are about to be killed
        self._open: set[_LinkedTransport] = set()
        self._native: dict[object, tuple[int, int, NativeConnection]] = {}
        self._mutex = threading.Lock()

    def cut(self, source: int, target: int) -> None:
        """Cuts the link from `source` to `target`. The other direction still works."""
        with self._mutex:
            self._cut.add((source, target))
        self._tell()

    def isolate(self, node_id: int) -> None:
        """Cuts every link of a node, in both directions."""
        with self._mutex:
            for other in set(self._addresses.values()) - {node_id}:
                self._dead |= {(node_id, other), (other, node_id)}
        self._tell()

    def mend(self) -> None:
        """Restores every link."""
        with self._mutex:
            self._cut.clear()
        self._tell()

    def passes(self, source: int, target: int) -> bool:
        with self._mutex:
            return (source, target) not in self._cut | self._dead

    def reset(self, node_id: int) -> None:
        """Ends the isolation of a killed node, and closes its connections, as an operating system does for a killed
        process."""
        with self._mutex:
            self._dead = {link for link in self._dead if node_id not in link}
        for each in self._all():
            if node_id in (each.source, each.target):
                each.on_loop(each.abort)
        with self._mutex:
            broken = [each for *ends, each in self._native.values() if node_id in ends]
        for connection in broken:
            connection.disconnect()
        self._tell_native()

    async def connect(self, source: int, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Any:
        """Connects the node `source`, as `loop.create_connection` does. Waits while the link is cut in either
        direction."""
        loop = asyncio.get_running_loop()
        target = self._addresses.get((host, port))
        if target is None:
            return await loop.create_connection(factory, host, port)
        while not (self.passes(source, target) and self.passes(target, source)):  # noqa: ASYNC110 - set by threads
            await asyncio.sleep(_LOOK_S)
        return await loop.create_connection(lambda: _LinkedProtocol(self, source, target, factory()), host, port)

    def watch(self, source: int, address: Address, connection: NativeConnection) -> Callable[[], None]:
        """Stops reads and writes of a native connection whenever its link is cut. The returned function ends this."""
        key = object()
        target = self._addresses.get(address)
        if target is None:
            return lambda: None
        with self._mutex:
            self._native[key] = source, target, connection
        self._tell_native()
        return lambda: self._unwatch(key)

    def _unwatch(self, key: object) -> None:
        with self._mutex:
            self._native.pop(key, None)

    def _tell_native(self) -> None:
        with self._mutex:
            connections = list(self._native.values())
        for source, target, connection in connections:
            connection.hold(reads=not self.passes(target, source), writes=not self.passes(source, target))

    def _tell(self) -> None:
        for each in self._all():
            each.on_loop(each.look)
        self._tell_native()

    def _all(self) -> Iterable[_LinkedTransport]:
        with self._mutex:
            return list(self._open)

    def joined(self, transport: _LinkedTransport) -> None:
        with self._mutex:
            self._open.add(transport)

    def left(self, transport: _LinkedTransport) -> None:
        with self._mutex:
            self._open.discard(transport)


class _LinkedProtocol(asyncio.Protocol):
    """Connects a transport with the protocol that uses it, and holds back data while the link is cut."""

    def __init__(self, links: Links, source: int, target: int, inner: asyncio.Protocol) -> None:
        self._links, self._source, self._target, self._inner = links, source, target, inner
        self._transport: _LinkedTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast("asyncio.Transport", transport)
        self._transport = _LinkedTransport(self._links, self._source, self._target, stream)
        self._links.joined(self._transport)
        self._inner.connection_made(self._transport)
        self._transport.look()

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._links.left(self._transport)
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _LinkedTransport(asyncio.Transport):
    """A transport that buffers written bytes while its link is cut, and reads nothing meanwhile."""

    def __init__(self, links: Links, source: int, target: int, real: asyncio.Transport) -> None:
        super().__init__()
        self.source, self.target = source, target
        self._links, self._real = links, real
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()

    def on_loop(self, call: Callable[[], None]) -> None:
        """Schedules the call on the connection's loop."""
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            self._links.left(self)  # the loop has ended, and so has the connection

    def look(self) -> None:
        """Adapts the connection to a change of the link."""
        if self._real.is_closing():
            return
        if self._links.passes(self.target, self.source):
            self._real.resume_reading()
        else:
            self._real.pause_reading()
        self._flush()

    def _flush(self) -> None:
        if self._held and self._links.passes(self.source, self.target):
            held, self._held = bytes(self._held), bytearray()
            self._real.write(held)

    def write(self, data: Any) -> None:
        self._held += data
        self._flush()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for each in list_of_data:
            self._held += each
        self._flush()

    def close(self) -> None:
        self._real.close()

    def abort(self) -> None:
        self._real.abort()

    def is_closing(self) -> bool:
        return self._real.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._real.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._real.get_write_buffer_size() + len(self._held)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._real.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._real.pause_reading()

    def resume_reading(self) -> None:
        if self._links.passes(self.target, self.source):
            self._real.resume_reading()
