"""A process that runs a node is forked. In the child, the inherited native handles raise errors, and their sockets are
closed."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkacore._fast.base.errors import ForkedNodeError
from kafkacore._fast.plane import inbound
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.runtime.process import CONTROL, DATA, Runtime

METADATA = 3


def echo(context: RequestContext, body: memoryview) -> bytes:
    return struct.pack(">i", context.correlation_id) + bytes(body)


def in_child(check: Callable[[], bool]) -> int:
    """Runs `check` in a forked child. Returns the pid of the child, which exits with code 0 if `check` returned
    true."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    return pid


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.001)


def refuses(act: Callable[[], object]) -> bool:
    try:
        act()
    except ForkedNodeError:
        return True
    return False


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime(data_processors=1, spin_us=0)
    yield made
    made.close()


@pytest.fixture
def plane(runtime: Runtime) -> Iterator[Plane]:
    made = Plane(DATA, [Listener("L", "127.0.0.1", 0)], echo, [(METADATA, 0, 8)], runtime=runtime)
    yield made
    made.loop.run(made.stop(), 10)


def test_native_handles_raise_when_a_forked_child_uses_them(runtime: Runtime, plane: Plane) -> None:
    plane.open()
    plane.loop.run(plane.start())
    acts = [
        lambda: inbound.pop(plane.native),
        plane.native.take_notices,
        lambda: plane.native.set_connection_limits(1, 1),
        lambda: plane.native.publish_gate(None),
        plane.processors[0].sweep,
        lambda: plane.processors[0].serve(plane.native),
        lambda: runtime.processors(CONTROL),
        lambda: runtime.loop(DATA),
    ]
    pid = in_child(lambda: all(refuses(act) for act in acts))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_connection_ends_when_the_node_closes_it_while_a_forked_child_lives(plane: Plane) -> None:
    """The child is still alive. Nevertheless the peer sees that its connection has ended, and the port refuses new
    connections."""
    port = plane.open()["L"][1]
    plane.loop.run(plane.start())
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(struct.pack(">ihhih", 10, METADATA, 1, 1, -1))
        assert len(peer.recv(8, socket.MSG_WAITALL)) == 8
        reader, writer = os.pipe()
        pid = in_child(lambda: os.close(writer) is None and os.read(reader, 1) == b"")
        plane.loop.run(plane.stop(), 10)
        assert peer.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)
    os.close(reader)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_closed_connection_leaves_the_epoll_set_when_a_child_holds_its_descriptor(plane: Plane) -> None:
    """A child that a C library forks inherits all descriptors. The epoll set would report the connection in every turn
    until the last descriptor is closed."""
    port = plane.open()["L"][1]
    plane.loop.run(plane.start())
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(struct.pack(">ihhih", 10, METADATA, 1, 1, -1))
        assert len(peer.recv(8, socket.MSG_WAITALL)) == 8
        inherited = copy_of_other_end(peer)
    try:
        until(lambda: plane.native.counters()["connections"] == 0)
        inode = os.fstat(inherited).st_ino
        assert not [text for text in descriptors_of_process() if f"ino:{inode:x} " in text]
    finally:
        os.close(inherited)


def copy_of_other_end(peer: socket.socket) -> int:
    """Returns a copy of the descriptor at the other end of a connection within this process."""
    for handle in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{handle}").startswith("socket:"):
                with socket.socket(fileno=copied(handle)) as end:
                    if end.getpeername() == peer.getsockname():
                        return end.detach()
    raise AssertionError("no descriptor of this process is the other end")


def copied(handle: int) -> int:
    """Returns a copy of a descriptor, as a child would get one: without a call on the descriptor itself. The node's
    thread may close it at any moment, and ThreadSanitizer would report a call on it as a race with that."""
    here, there = socket.socketpair()
    with here, there:
        socket.send_fds(here, [b"x"], [handle])
        _, handles, _, _ = socket.recv_fds(there, 1, 1)
        return handles[0]


def descriptors_of_process() -> Iterator[str]:
    """Yields what the kernel says about each descriptor. The text of an epoll set lists the files that it watches."""
    for handle in os.listdir("/proc/self/fdinfo"):
        with contextlib.suppress(OSError):
            yield Path("/proc/self/fdinfo", handle).read_text()
