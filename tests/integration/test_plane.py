"""A plane (the network layer) with real sockets: its answers, their order, its limits, and how it treats bad input."""

import asyncio
import contextlib
import errno
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kafkacore._fast.base.debug_checks import DEBUG
from kafkacore._fast.plane import connection as native_connection
from kafkacore._fast.plane import inbound as native_inbound
from kafkacore._fast.plane import plane as native_plane
from kafkacore._fast.wait import memory as native_memory
from kafkacore._fast.world.environment import Environment
from kafkacore.network.limits import PlaneLimits
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import BEGIN_S, Plane
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ProtocolError
from kafkacore.runtime.process import CONTROL, DATA, Runtime

ECHO = 3  # the API key of Metadata, whose request header is version 1 up to request version 8
RANGES = [(ECHO, 0, 8), (18, 0, 4)]
LIMIT_SECONDS = 10


def echo(context: RequestContext, body: memoryview) -> bytes:
    return struct.pack(">i", context.correlation_id) + bytes(body)


def frame(
    body: bytes = b"", correlation_id: int = 1, key: int = ECHO, version: int = 1, client: bytes = b"me"
) -> bytes:
    inside = struct.pack(">hhih", key, version, correlation_id, len(client)) + client + body
    return struct.pack(">i", len(inside)) + inside


def until(condition: Callable[[], bool]) -> None:
    """Waits until another thread has made `condition` true."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        threading.Event().wait(0.002)


class Peer:
    """A test's client connection to the plane."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=LIMIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> tuple[int, bytes]:
        """Receives one answer. Returns the correlation id and the bytes after it."""
        size = struct.unpack(">i", self._exactly(4))[0]
        data = self._exactly(size)
        return struct.unpack_from(">i", data)[0], data[4:]

    def ask(self, body: bytes, correlation_id: int = 1) -> bytes:
        self.send(frame(body, correlation_id))
        answered, data = self.answer()
        assert answered == correlation_id
        return data

    def is_closed(self) -> bool:
        """Waits until the plane ends the connection. Returns False if data arrives instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


class Serving:
    """A plane that listens on a free port."""

    def __init__(self, plane: Plane, port: int) -> None:
        self.plane = plane
        self.port = port
        self.peers: list[Peer] = []

    def peer(self) -> Peer:
        made = Peer(self.port)
        self.peers.append(made)
        return made

    def counter(self, name: str) -> int:
        return self.plane.native.counters()[name]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    made = Runtime(data_processors=2, spin_us=0)
    yield made
    made.close()


@pytest.fixture
def serve(runtime: Runtime) -> Iterator[Callable[..., Serving]]:
    """Returns a function that makes planes. When the test ends, the fixture stops the planes, and checks that they left
    no native objects behind."""
    before = native_connection.live(), native_memory.live(), native_inbound.live()
    made: list[Serving] = []

    def start(answer: Any = echo, kind: str = DATA, host: str = "127.0.0.1", **limits: Any) -> Serving:
        plane = Plane(
            kind, [Listener("PLAINTEXT", host, 0)], answer, RANGES, runtime=runtime, limits=PlaneLimits(**limits)
        )
        port = plane.open()["PLAINTEXT"][1]
        plane.loop.run(plane.start())
        made.append(Serving(plane, port))
        return made[-1]

    yield start
    for serving in made:
        serving.plane.loop.run(serving.plane.stop(), LIMIT_SECONDS)
        for peer in serving.peers:
            peer.socket.close()
        assert serving.counter("memory_used_bytes") == 0
        assert serving.counter("response_queue_size") == 0
    assert (native_connection.live(), native_memory.live(), native_inbound.live()) == before


@contextmanager
def does_not_disturb(serving: Serving) -> Iterator[None]:
    """Checks that the plane serves another client before, during and after the body of the `with` statement."""
    other = serving.peer()
    assert other.ask(b"before") == b"before"
    yield
    assert other.ask(b"after") == b"after"


def can_bind(host: str) -> bool:
    with contextlib.suppress(OSError), socket.create_server((host, 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not can_bind("::1"), reason="no IPv6 here"))]
)
def test_handler_gets_the_peer_address(serve: Callable[..., Serving], host: str) -> None:
    def who(context: RequestContext, body: memoryview) -> bytes:
        return struct.pack(">i", context.correlation_id) + context.client_host.encode()

    serving = serve(who, host=host)
    serving.peers.append(Peer(serving.port, host))
    assert serving.peers[0].ask(b"") == host.encode()


def test_plane_answers_a_request(serve: Callable[..., Serving]) -> None:
    assert serve().peer().ask(b"hello", 77) == b"hello"


@pytest.mark.parametrize("size", [0, 1, 100, 16384, 32768, 70000, 1 << 20, 5 << 20])
def test_plane_receives_frames_of_every_size(serve: Callable[..., Serving], size: int) -> None:
    peer = serve().peer()
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    for _ in range(3):
        assert peer.ask(body) == body
    assert peer.ask(b"small again") == b"small again"


def test_plane_answers_a_frame_that_comes_byte_by_byte(serve: Callable[..., Serving]) -> None:
    peer = serve().peer()
    for byte in frame(b"abc", 5):
        peer.send(bytes([byte]))
    assert peer.answer() == (5, b"abc")


def test_plane_answers_pipelined_requests_in_order(serve: Callable[..., Serving]) -> None:
    peer = serve().peer()
    peer.send(b"".join(frame(b"%d" % i, i) for i in range(2000)))
    for i in range(2000):
        assert peer.answer() == (i, b"%d" % i)


def test_connection_has_one_request_with_the_handlers_at_a_time(serve: Callable[..., Serving]) -> None:
    running = 0
    most = 0

    async def slow(context: RequestContext, body: memoryview) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return echo(context, body)

    peer = serve(slow).peer()
    peer.send(b"".join(frame(b"", i) for i in range(50)))
    assert [peer.answer()[0] for _ in range(50)] == list(range(50))
    assert most == 1


def test_other_connections_are_served_while_a_handler_waits(serve: Callable[..., Serving]) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(context: RequestContext, body: memoryview) -> bytes:
        if bytes(body) == b"wait":
            await gate.wait()
        return echo(context, body)

    serving = serve(wait_for_gate)
    waiting, quick = serving.peer(), serving.peer()
    waiting.send(frame(b"wait"))
    assert quick.ask(b"quick") == b"quick"
    serving.plane.loop.call(gate.set)
    assert waiting.answer() == (1, b"wait")


def test_plane_joins_an_answer_of_many_parts(serve: Callable[..., Serving]) -> None:
    def parts(context: RequestContext, body: memoryview) -> Iterator[bytes]:
        yield struct.pack(">i", context.correlation_id)
        for _ in range(100):
            yield b"x" * 1000

    assert serve(parts).peer().ask(b"") == b"x" * 100_000


def test_plane_sends_nothing_when_the_handler_gives_no_answer(serve: Callable[..., Serving]) -> None:
    def sometimes(context: RequestContext, body: memoryview) -> bytes | None:
        return None if bytes(body) == b"quiet" else echo(context, body)

    peer = serve(sometimes).peer()
    peer.send(frame(b"quiet", 1) + frame(b"loud", 2))
    assert peer.answer() == (2, b"loud")


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(1 << 31)),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 9) + struct.pack(">hhi", ECHO, 1, 1) + b"\0",
        struct.pack(">i", 10) + struct.pack(">hhih", ECHO, 1, 1, 500),
        struct.pack(">i", 10) + struct.pack(">hhih", ECHO, 1, 1, -2),
        frame(key=77),
        frame(key=-1),
        frame(key=95),
        frame(key=9999),
        frame(version=9),
        frame(version=-1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_malformed_input_closes_only_its_connection(serve: Callable[..., Serving], bad: bytes) -> None:
    serving = serve()
    with does_not_disturb(serving):
        peer = serving.peer()
        peer.send(bad)
        assert peer.is_closed()
        assert serving.counter("malformed_frames") == 1


def test_connection_is_closed_when_tagged_fields_lie_about_their_size(serve: Callable[..., Serving]) -> None:
    serving = serve()
    for tags in (b"\xff\xff\xff\xff\x0f", b"\x01\x00\xff\xff\xff\xff\x0f", b"\x01\x00\x05abc", b"\x80" * 11):
        peer = serving.peer()
        inside = struct.pack(">hhih", 18, 3, 1, -1) + tags
        peer.send(struct.pack(">i", len(inside)) + inside)
        assert peer.is_closed()


def test_handler_can_close_the_connection(serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture) -> None:
    def refuse(context: RequestContext, body: memoryview) -> bytes:
        raise ProtocolError("no such message")

    serving = serve(refuse)
    with caplog.at_level("INFO", "kafkacore.network"):
        peer = serving.peer()
        peer.send(frame())
        assert peer.is_closed()
    assert [record.message for record in caplog.records if "no such message" in record.message]


def test_connection_is_closed_and_logged_when_a_handler_fails(
    serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(context: RequestContext, body: memoryview) -> bytes:
        raise ZeroDivisionError

    serving = serve(fail)
    peer = serving.peer()
    peer.send(frame())
    assert peer.is_closed()
    assert [record for record in caplog.records if record.exc_info]


def test_plane_serves_others_when_an_answer_cannot_be_sent(serve: Callable[..., Serving]) -> None:
    class TooLong(bytes):
        def __len__(self) -> int:
            return 1 << 40

    serving = serve(lambda context, body: TooLong() if bytes(body) == b"long" else echo(context, body))
    refused, other = serving.peer(), serving.peer()
    refused.send(frame(b"long"))
    assert refused.is_closed()
    assert other.ask(b"short") == b"short"


def test_plane_logs_one_line_for_each_malformed_frame(
    serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture
) -> None:
    serving = serve()
    with caplog.at_level("INFO", "kafkacore.network"):
        for _ in range(5):
            peer = serving.peer()
            peer.send(struct.pack(">i", -5))
            assert peer.is_closed()
        until(lambda: sum("claims -5 bytes" in record.message for record in caplog.records) == 5)


def test_slow_request_keeps_its_connection_while_there_is_memory(serve: Callable[..., Serving]) -> None:
    """As in Apache Kafka, a slow connection may stay open until the idle timer closes it."""
    serving = serve(slow_frame_ms=20)
    slow = [frame(b"slowly", 1), frame(bytes(3 << 20), 2)]
    peers = [serving.peer() for _ in range(3)]
    for peer, sent in zip(peers, (slow[0][:2], slow[0][:10], slow[1][:10]), strict=True):
        peer.send(sent)
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 0.2)  # ten times the interval between the plane's checks
    for peer, rest in zip(peers, (slow[0][2:], slow[0][10:], slow[1][10:]), strict=True):
        peer.send(rest)
    assert [peer.answer()[0] for peer in peers] == [1, 1, 2]


def test_slow_request_loses_its_connection_when_others_wait_for_memory(
    serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture
) -> None:
    serving = serve(slow_frame_ms=50, queued_max_request_bytes=1000, socket_request_max_bytes=1000)
    with caplog.at_level("INFO", "kafkacore.network"):
        slow, other = serving.peer(), serving.peer()
        slow.send(struct.pack(">i", 900) + b"0123456789")
        until(lambda: serving.counter("memory_used_bytes") == 900)
        assert other.ask(bytes(500)) == bytes(500)
        assert slow.is_closed()
        until(lambda: any("while others wait for memory" in record.message for record in caplog.records))


def test_slow_request_keeps_its_connection_when_it_keeps_its_pace(serve: Callable[..., Serving]) -> None:
    serving = serve(slow_frame_ms=100, queued_max_request_bytes=1000, socket_request_max_bytes=1000)
    slow, other = serving.peer(), serving.peer()
    whole = frame(bytes(880), 5)
    slow.send(whole[:10])
    until(lambda: serving.counter("memory_used_bytes") == len(whole) - 4)
    other.send(frame(bytes(500), 6))
    until(lambda: serving.counter("memory_waiting") == 1)
    began = time.monotonic()
    for number in range(1, 5):  # 200 bytes in each 100 ms; the slowest allowed pace is 102 bytes
        until(lambda number=number: time.monotonic() > began + 0.1 * number - 0.07)  # type: ignore[misc]
        slow.send(whole[10 + 200 * (number - 1) : 10 + 200 * number])
    slow.send(whole[810:])
    assert slow.answer() == (5, bytes(880))
    assert other.answer() == (6, bytes(500))


def test_connection_is_closed_and_counted_when_it_is_idle(serve: Callable[..., Serving]) -> None:
    serving = serve(connections_max_idle_ms=60)
    peer = serving.peer()
    assert peer.ask(b"x") == b"x"
    assert peer.is_closed()
    assert serving.counter("expired_connections_killed") == 1


def test_connection_is_closed_when_it_falls_idle_after_it_was_active(serve: Callable[..., Serving]) -> None:
    """When the timer fires, the connection has been active since the timer was set. So the plane must set it again. The
    plane's clock counts whole milliseconds, so the connection may close one millisecond early."""
    serving = serve(connections_max_idle_ms=200)
    peer = serving.peer()
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 0.1)
    assert peer.ask(b"x") == b"x"
    assert peer.is_closed()
    assert time.monotonic() - began >= 0.299
    assert serving.counter("expired_connections_killed") == 1


def test_connection_is_not_idle_while_bytes_of_a_request_come(serve: Callable[..., Serving]) -> None:
    serving = serve(connections_max_idle_ms=300)
    peer = serving.peer()
    whole = frame(b"drop by drop", 7)
    began = time.monotonic()
    for number, byte in enumerate(whole):
        until(lambda number=number: time.monotonic() > began + 0.05 * number)  # type: ignore[misc]
        peer.send(bytes([byte]))
    assert peer.answer() == (7, b"drop by drop")
    assert time.monotonic() - began > 1


def test_connection_is_closed_when_its_peer_reads_no_answers(serve: Callable[..., Serving]) -> None:
    # With a sanitizer, the client needs long to send the request.
    serving = serve(connections_max_idle_ms=2000 if DEBUG else 200)
    peer = serving.peer()
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.send(frame(bytes(8 << 20)))
    until(lambda: serving.counter("expired_connections_killed") == 1)
    until(lambda: serving.counter("connections") == 0)


def test_connection_is_not_idle_while_it_waits_for_its_answer(serve: Callable[..., Serving]) -> None:
    async def slow(context: RequestContext, body: memoryview) -> bytes:
        await asyncio.sleep(0.2)
        return echo(context, body)

    serving = serve(slow, connections_max_idle_ms=50)
    peer = serving.peer()
    assert peer.ask(b"late") == b"late"
    assert peer.is_closed()  # the connection has been idle since then
    assert serving.counter("expired_connections_killed") == 1


def test_half_closed_peer_gets_its_answers(serve: Callable[..., Serving]) -> None:
    peer = serve().peer()
    peer.send(b"".join(frame(b"%d" % i, i) for i in range(100)))
    peer.socket.shutdown(socket.SHUT_WR)
    assert [peer.answer()[0] for _ in range(100)] == list(range(100))
    assert peer.is_closed()


def test_half_closed_connection_is_closed_after_its_time(serve: Callable[..., Serving]) -> None:
    async def never(context: RequestContext, body: memoryview) -> bytes:
        await asyncio.Event().wait()
        return b""

    serving = serve(never, half_closed_ms=50)
    peer = serving.peer()
    peer.send(frame())
    until(lambda: serving.counter("requests_out") == 1)
    peer.socket.shutdown(socket.SHUT_WR)
    assert peer.is_closed()


def test_handler_can_release_the_frame_before_it_answers(serve: Callable[..., Serving]) -> None:
    gate = asyncio.Event()

    def read_and_wait(context: RequestContext, body: memoryview) -> Awaitable[bytes]:
        answer = echo(context, body)
        if answer[4:5] == b"r":
            body.release()

        async def later() -> bytes:
            await gate.wait()
            return answer

        return later()

    serving = serve(read_and_wait)
    released, kept = [serving.peer() for _ in range(5)], serving.peer()
    for peer in released:
        peer.send(frame(b"r" * 1000))
    until(lambda: serving.counter("requests_out") == 5 and serving.counter("memory_used_bytes") == 0)
    released.pop().socket.close()  # the plane keeps no object for a peer that has closed its connection
    kept.send(frame(b"k" * 1000))
    until(lambda: serving.counter("requests_out") == 6)
    assert serving.counter("memory_used_bytes") > 1000
    serving.plane.loop.call(gate.set)
    assert [peer.answer()[1] for peer in (*released, kept)] == [b"r" * 1000] * 4 + [b"k" * 1000]


def test_plane_sends_all_answers_that_come_at_once(serve: Callable[..., Serving]) -> None:
    """The answers are too many for a processor to send in one pass of its loop."""
    gate = asyncio.Event()

    async def wait_for_gate(context: RequestContext, body: memoryview) -> bytes:
        await gate.wait()
        return echo(context, body)

    serving = serve(wait_for_gate)
    peers = [serving.peer() for _ in range(150)]
    for number, peer in enumerate(peers):
        peer.send(frame(b"%d" % number, number))
    until(lambda: serving.counter("requests_out") == len(peers))
    serving.plane.loop.call(gate.set)
    assert [peer.answer() for peer in peers] == [(number, b"%d" % number) for number in range(len(peers))]


def test_connections_are_freed_when_their_peers_reset_them(serve: Callable[..., Serving]) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(context: RequestContext, body: memoryview) -> bytes:
        await gate.wait()
        return echo(context, body)

    serving = serve(wait_for_gate)
    for _ in range(10):
        peer = serving.peer()
        peer.send(frame(b"x" * 1000))
    until(lambda: serving.counter("requests_out") == 10)
    for peer in serving.peers:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
    serving.plane.loop.call(gate.set)
    until(lambda: serving.counter("connections") == 0)


def test_every_frame_comes_through_when_memory_holds_only_one(serve: Callable[..., Serving]) -> None:
    size = 100_000
    serving = serve(queued_max_request_bytes=size + 100, socket_request_max_bytes=size + 100)
    peers = [serving.peer() for _ in range(8)]
    most = 0
    for number, peer in enumerate(peers):
        thread = threading.Thread(target=peer.send, args=(frame(b"%d" % number * size, number),), daemon=True)
        thread.start()
    for number, peer in enumerate(peers):
        most = max(most, serving.counter("memory_used_bytes"))
        assert peer.answer() == (number, b"%d" % number * size)
    assert most <= size + 100


def test_large_frames_come_through_when_they_wait_for_each_other(serve: Callable[..., Serving]) -> None:
    size, limit = 8 << 20, 10 << 20
    serving = serve(queued_max_request_bytes=limit, socket_request_max_bytes=size + 100, answers_bytes=2 * size)
    peers = [serving.peer() for _ in range(4)]
    answers: dict[int, tuple[int, bytes]] = {}
    for peer in peers:
        peer.send(frame(bytes(size))[:4])
    until(lambda: serving.counter("memory_used_bytes") == 4 * (2 << 20))  # the memory for all four frames is reserved

    def ask(number: int) -> None:
        peers[number].send(frame(b"%d" % number * size, number)[4:])
        answers[number] = peers[number].answer()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, serving.counter("memory_used_bytes"))
    assert answers == {number: (number, b"%d" % number * size) for number in range(4)}
    assert most <= limit + size + 100
    until(lambda: serving.counter("memory_used_bytes") == 0)


def test_claims_that_send_nothing_do_not_block_others(serve: Callable[..., Serving]) -> None:
    claim = 25 << 20
    serving = serve(queued_max_request_bytes=2 * claim, socket_request_max_bytes=claim)
    # Uses only a few connections, because a sanitizer needs time to mark the memory that each of them reserves.
    claimers = [serving.peer() for _ in range(20)]
    for claimer in claimers:
        claimer.send(struct.pack(">i", claim) + b"0123456789")
    until(lambda: serving.counter("memory_used_bytes") >= len(claimers) * (2 << 20))
    peer = serving.peer()
    # Each request must be answered within LIMIT_SECONDS. An unfinished frame, however, may hold reserved memory for
    # slow_frame_ms, which is thirty seconds.
    for number in range(20):
        body = bytes([number]) * 1_000_000
        assert peer.ask(body) == body
    assert serving.counter("memory_waiting") == 0


def test_memory_comes_back_when_it_is_granted_to_a_connection_that_closes(serve: Callable[..., Serving]) -> None:
    """When the memory budget grants a request its memory, it sends a message to the processor. Here the client resets
    its connection while this message is on its way."""
    limit = 200_000
    gate = asyncio.Event()

    async def wait_for_gate(context: RequestContext, body: memoryview) -> bytes:
        await gate.wait()
        return echo(context, body)

    serving = serve(wait_for_gate, queued_max_request_bytes=limit, socket_request_max_bytes=limit)
    for _ in range(30):
        serving.plane.loop.call(gate.clear)
        holder = serving.peer()
        holder.send(frame(bytes(limit - 1000)))
        until(lambda: serving.counter("requests_out") == 1)
        waiting = [serving.peer() for _ in range(60)]
        for peer in waiting:
            peer.send(struct.pack(">i", 2000) + b"x")
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: serving.counter("memory_waiting") == 60)
        serving.plane.loop.call(gate.set)
        for peer in waiting:
            peer.socket.close()
        assert holder.answer()[0] == 1
        holder.socket.close()
        until(lambda: serving.counter("connections") == 0)
        serving.peers.clear()
        # The handler loop returns the memory of its frame last.
        until(lambda: serving.counter("memory_used_bytes") == 0)


@contextmanager
def open_files_limited(to: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (to, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


HOLD = """
import socket, sys
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
sys.stdin.read()
"""


def test_acceptor_keeps_descriptors_free_and_goes_on_when_connections_close(
    serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture
) -> None:
    serving = serve()
    taken = len(os.listdir("/proc/self/fd"))
    limit = 4 * taken + 160
    # Some connections wait in the system's backlog, which has room for 50.
    command = [sys.executable, "-c", HOLD, str(serving.port), str(limit - limit // 8 - taken + 20)]
    with open_files_limited(limit), caplog.at_level("INFO", "kafkacore.network"):
        with subprocess.Popen(command, stdin=subprocess.PIPE) as clients:
            until(lambda: bool(caplog.records))
            [line] = [record.message for record in caplog.records]
            assert re.match(r".*: connections hold \d+ file descriptors, and the rest are kept for logs; new", line)
            assert f"The limit is {limit} open files: raise it (ulimit -n)" in line
            free = [os.open("/dev/null", os.O_RDONLY) for _ in range(limit // 8 - 5)]  # logs can still open files
            for descriptor in free:
                os.close(descriptor)
            clients.communicate()
        assert serving.peer().ask(b"served") == b"served"


def test_acceptor_serves_newcomers_when_logs_hold_most_descriptors(
    serve: Callable[..., Serving], caplog: pytest.LogCaptureFixture
) -> None:
    """Each log that is being written keeps a descriptor open, so clients can use up the descriptors. In this test, the
    client ends of the connections and other open files stand in for the logs."""
    serving = serve()
    limit = 640
    logs: list[int] = []

    def wait_for_answer_or_line(peer: Peer) -> None:
        until(lambda: bool(caplog.records or select.select([peer.socket], [], [], 0)[0]))

    with open_files_limited(limit), caplog.at_level("INFO", "kafkacore.network"):
        try:
            while (lowest := os.open("/dev/null", os.O_RDONLY)) < limit - limit // 16:
                logs.append(lowest)
            os.close(lowest)
            while not caplog.records:
                newcomer = serving.peer()
                newcomer.send(frame(b"served"))
                wait_for_answer_or_line(newcomer)
            [line] = [record.message for record in caplog.records]
            assert re.match(r".*: logs and other files hold about \d+ file descriptors, connections only \d+; ", line)
            assert f"new connections wait until some are closed. The limit is {limit} open files: raise it" in line
            assert serving.counter("connections") > 4
            waiting = serving.peer()
            waiting.send(frame(b"served"))
            last = [os.open("/dev/null", os.O_RDONLY) for _ in range(limit // 32 - 5)]  # logs can still open files
            for descriptor in last:
                os.close(descriptor)
        finally:
            for descriptor in logs:
                os.close(descriptor)
        assert waiting.answer()[1] == b"served"


def test_plane_names_the_missing_descriptors_when_there_are_none(serve: Callable[..., Serving]) -> None:
    environment = Environment()
    lowest = os.dup(0)
    os.close(lowest)
    with open_files_limited(lowest), pytest.raises(OSError, match="no ring") as raised:
        native_plane.NativePlane("x", environment, ring_capacity=1, memory_bytes=1 << 30)
    assert raised.value.errno == errno.EMFILE


def test_no_request_is_lost_when_the_ring_is_full(serve: Callable[..., Serving]) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(context: RequestContext, body: memoryview) -> bytes:
        await gate.wait()
        return echo(context, body)

    serving = serve(wait_for_gate, queued_max_requests=1)
    peers = [serving.peer() for _ in range(50)]
    for peer in peers:
        peer.send(b"".join(frame(b"", i) for i in range(20)))
    serving.plane.loop.call(gate.set)
    for peer in peers:
        assert [peer.answer()[0] for _ in range(20)] == list(range(20))


def test_plane_holds_few_answers_when_a_peer_does_not_read(serve: Callable[..., Serving]) -> None:
    serving = serve(answers_bytes=1 << 20)
    body = b"x" * 500_000
    peer = serving.peer()
    sender = threading.Thread(target=lambda: [peer.send(frame(body, i)) for i in range(40)], daemon=True)
    with does_not_disturb(serving):
        sender.start()
        threading.Event().wait(0.1)
        # Apart from the socket buffers, the plane holds only a few answers and frames, not forty.
        assert serving.counter("memory_used_bytes") < 4 << 20
        for i in range(40):
            assert peer.answer() == (i, body)
    sender.join()


def test_connection_is_refused_when_its_address_is_over_the_limit(serve: Callable[..., Serving]) -> None:
    serving = serve(max_connections_per_ip=3)
    for _ in range(3):
        assert serving.peer().ask(b"in") == b"in"
    assert serving.peer().is_closed()
    assert serving.counter("refused_connections") == 1
    serving.peers[0].socket.close()
    until(lambda: serving.counter("connections") == 2)
    assert serving.peer().ask(b"in again") == b"in again"


def test_address_can_have_its_own_limit(serve: Callable[..., Serving]) -> None:
    serving = serve(max_connections_per_ip=1, max_connections_per_ip_overrides=(("127.0.0.1", 2),))
    assert [serving.peer().ask(b"in") for _ in range(2)] == [b"in", b"in"]
    assert serving.peer().is_closed()


@pytest.mark.parametrize("later", [2, 5])
def test_address_keeps_its_limit_when_another_name_of_it_is_removed(serve: Callable[..., Serving], later: int) -> None:
    before, after = (("localhost", 3), ("127.0.0.1", 2)), (("127.0.0.1", later), ("127.0.0.2", 1))
    serving = serve(max_connections_per_ip=1, max_connections_per_ip_overrides=before)
    limits = PlaneLimits(max_connections_per_ip=1, max_connections_per_ip_overrides=after)
    serving.plane.loop.call(serving.plane.set_limits, limits)
    assert serving.peer().ask(b"in") == b"in"

    def enters() -> bool:
        peer = serving.peer()
        with contextlib.suppress(EOFError, OSError):
            return peer.ask(b"in") == b"in"
        peer.socket.close()
        return False

    for _ in range(later - 1):
        until(enters)
    assert not enters()


def test_connection_waits_when_the_plane_is_at_max_connections(serve: Callable[..., Serving]) -> None:
    serving = serve(max_connections=2)
    assert [serving.peer().ask(b"in") for _ in range(2)] == [b"in", b"in"]
    third = serving.peer()
    third.send(frame(b"patient"))
    serving.peers[0].socket.close()
    assert third.answer() == (1, b"patient")


def test_listener_can_have_a_lower_limit_than_the_others(runtime: Runtime) -> None:
    def listening(name: str) -> Listener:
        return Listener(name, "127.0.0.1", 0)

    own = (("SMALL", 1, 0x7FFFFFFF), ("INSIDE", 3, 0x7FFFFFFF))
    limits = PlaneLimits(max_connections=2, of_listeners=own, exempt_listener="INSIDE")
    listeners = [listening("PLAINTEXT"), listening("SMALL"), listening("INSIDE")]
    plane = Plane(DATA, listeners, echo, RANGES, runtime=runtime, limits=limits)
    ports = {name: port for name, (_, port) in plane.open().items()}
    plane.loop.run(plane.start())
    peers: list[Peer] = []

    def come(listener: str) -> Peer:
        peers.append(Peer(ports[listener]))
        return peers[-1]

    try:
        assert come("SMALL").ask(b"in") == b"in"
        second = come("SMALL")
        second.send(frame(b"patient"))
        assert come("PLAINTEXT").ask(b"in") == b"in"
        third = come("PLAINTEXT")
        third.send(frame(b"the plane has two"))
        assert [come("INSIDE").ask(b"in") for _ in range(3)] == [b"in"] * 3
        fourth = come("INSIDE")
        fourth.send(frame(b"three are all it may have"))
        assert plane.native.counters()["connections"] == 5
        more = limits._replace(max_connections=9, of_listeners=(("SMALL", 2, 0x7FFFFFFF), ("INSIDE", 4, 0x7FFFFFFF)))
        plane.loop.call(plane.set_limits, more)
        assert second.answer() == (1, b"patient")
        assert third.answer() == (1, b"the plane has two")
        assert fourth.answer() == (1, b"three are all it may have")
        # A new connection can replace a closed one.
        plane.loop.call(plane.set_limits, limits._replace(max_connections=99))
        last = come("SMALL")
        last.send(frame(b"last"))
        peers[0].socket.close()
        second.socket.close()
        assert last.answer() == (1, b"last")
    finally:
        plane.loop.run(plane.stop(), LIMIT_SECONDS)
        for peer in peers:
            peer.socket.close()


def test_listeners_keep_the_common_rate_and_their_own(runtime: Runtime) -> None:
    listeners = [Listener(name, "127.0.0.1", 0) for name in ("A", "B")]
    for limits, least_s in (
        (PlaneLimits(max_connection_creation_rate=10), 0.3),
        (PlaneLimits(of_listeners=(("A", 99, 5), ("B", 99, 5))), 0.3),
    ):
        plane = Plane(DATA, listeners, echo, RANGES, runtime=runtime, limits=limits)
        ports = [port for _, port in plane.open().values()]
        plane.loop.run(plane.start())
        started = time.monotonic()
        peers = [Peer(ports[number % 2]) for number in range(14)]
        try:
            assert all(peer.ask(b"x") == b"x" for peer in peers)
            assert time.monotonic() - started > least_s
        finally:
            plane.loop.run(plane.stop(), LIMIT_SECONDS)
            for peer in peers:
                peer.socket.close()


@pytest.mark.parametrize(
    ("limit", "option"),
    [("socket_send_buffer_bytes", socket.SO_SNDBUF), ("socket_receive_buffer_bytes", socket.SO_RCVBUF)],
)
def test_connection_has_the_configured_socket_buffers(serve: Callable[..., Serving], limit: str, option: int) -> None:
    serving = serve(**{limit: 20_000})
    peer = serving.peer()
    peer.ask(b"in")
    # Linux doubles the requested buffer size, for its own bookkeeping.
    assert _other_end(peer).getsockopt(socket.SOL_SOCKET, option) == 40_000


def _other_end(peer: Peer) -> socket.socket:
    """Returns the plane's socket of this connection. The plane runs in this process, so the socket does, too."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # this is the descriptor of the directory listing, which is closed by now
            continue
        with suppress(OSError):  # most files are not connected sockets
            if found.getpeername() == peer.socket.getsockname():
                return found
        found.close()
    raise AssertionError("the plane has no connection to this peer")


def test_listener_accepts_no_faster_than_the_rate(serve: Callable[..., Serving]) -> None:
    serving = serve(max_connection_creation_rate=20)
    started = time.monotonic()
    assert all(serving.peer().ask(b"x") == b"x" for _ in range(30))
    assert time.monotonic() - started > 0.4


def test_processor_answers_api_versions_without_a_handler(serve: Callable[..., Serving]) -> None:
    def never(context: RequestContext, body: memoryview) -> bytes:
        raise AssertionError("the request reached the handler")

    serving = serve(never)
    serving.plane.native.publish_api_versions([b"v%d" % version for version in range(5)])
    peer = serving.peer()
    for version in range(3):
        peer.send(frame(key=18, version=version, correlation_id=version))
        assert peer.answer() == (version, b"v%d" % version)
    # Tagged fields of the header, software name and version, tagged fields.
    peer.send(frame(b"\0\x05test\x041.0\0", key=18, version=3))
    assert peer.answer() == (1, b"v3")


def test_api_versions_answers_error_35_when_the_version_is_unknown(serve: Callable[..., Serving]) -> None:
    peer = serve().peer()
    peer.send(frame(b"\xff\xff", key=18, version=99, correlation_id=9))
    assert peer.answer() == (9, struct.pack(">hihhh", 35, 1, 18, 0, 4))


def test_handler_gets_an_invalid_software_name(serve: Callable[..., Serving]) -> None:
    serving = serve(lambda context, body: struct.pack(">i", context.correlation_id) + b"handler")
    serving.plane.native.publish_api_versions([b"native"] * 5)
    peer = serving.peer()
    peer.send(frame(b"\0\x05 bad\x041.0\0", key=18, version=3))
    assert peer.answer() == (1, b"handler")


def test_replaced_values_are_freed_when_no_turn_can_read_them(serve: Callable[..., Serving]) -> None:
    serving = serve()
    peer = serving.peer()
    for i in range(200):
        serving.plane.native.publish_api_versions([b"%d" % i])
        peer.send(frame(key=18, version=0))
        assert peer.answer() == (1, b"%d" % i)
    until(lambda: serving.plane.native.collect() == 0)


def test_draining_sends_pending_answers(serve: Callable[..., Serving]) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(context: RequestContext, body: memoryview) -> bytes:
        await gate.wait()
        return echo(context, body)

    serving = serve(wait_for_gate)
    busy, idle = serving.peer(), serving.peer()
    busy.send(frame(b"last words"))
    until(lambda: serving.counter("requests_out") == 1)
    stopping = serving.plane.loop.submit(serving.plane.stop(drain_ms=5000))
    assert idle.is_closed()
    serving.plane.loop.call(gate.set)
    assert busy.answer() == (1, b"last words")
    assert busy.is_closed()
    stopping.result(LIMIT_SECONDS)


def test_open_names_the_port_when_it_is_in_use(runtime: Runtime, serve: Callable[..., Serving]) -> None:
    port = serve().port
    other = Plane(DATA, [Listener("CLIENTS", "127.0.0.1", port)], echo, RANGES, runtime=runtime)
    with pytest.raises(OSError, match=f"CLIENTS://127.0.0.1:{port}.*another process listens there"):
        other.open()


def test_the_control_plane_has_its_own_threads_and_a_ring_of_twenty(
    runtime: Runtime, serve: Callable[..., Serving]
) -> None:
    serving = serve(kind=CONTROL)
    assert serving.peer().ask(b"leader and isr") == b"leader and isr"
    assert len(runtime.processors(CONTROL)) == 1
    assert not set(runtime.processors(CONTROL)) & set(runtime.processors(DATA))
    assert runtime.loop(CONTROL) is not runtime.loop(DATA)
    assert serving.plane.native.counters()["request_queue_size"] == 0


def test_handler_begins_before_it_is_cancelled_when_the_plane_stops_in_the_same_turn(
    serve: Callable[..., Serving],
) -> None:
    met: list[str] = []
    stopped: list[asyncio.Task[None]] = []

    async def later(context: RequestContext, body: bytes) -> bytes:
        met.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            met.append("ended")
        return b""

    def answer(context: RequestContext, body: memoryview) -> Awaitable[bytes]:
        # The stop runs before the first step of the task that waits for the handler.
        stopped.append(asyncio.get_running_loop().create_task(serving.plane.stop()))
        return later(context, bytes(body))

    serving = serve(answer)
    peer = serving.peer()
    peer.send(frame(b"x"))
    assert peer.is_closed()
    until(lambda: bool(stopped) and stopped[0].done())
    assert met == ["began", "ended"]


# --- urgent requests (KAFKA-4453) ---

URGENT = 18


def test_urgent_request_overtakes_those_that_wait_for_the_handlers(runtime: Runtime) -> None:
    """Many regular requests wait because the first handler blocks the loop. The urgent request arrives last, but is
    handled next."""
    began, go_on, order = threading.Event(), threading.Event(), []

    def answer(context: RequestContext, body: memoryview) -> bytes:
        if context.correlation_id == 0:
            began.set()
            assert go_on.wait(LIMIT_SECONDS)
        order.append(context.correlation_id)
        return struct.pack(">i", context.correlation_id)

    plane = Plane(
        DATA, [Listener("PLAINTEXT", "127.0.0.1", 0)], answer, RANGES, runtime=runtime, limits=PlaneLimits(),
        urgent_apis=(URGENT,),
    )  # fmt: skip
    serving = Serving(plane, plane.open()["PLAINTEXT"][1])
    plane.loop.run(plane.start())
    try:
        count = 60
        peers = [serving.peer() for _ in range(count + 1)]
        peers[0].send(frame(correlation_id=0))
        assert began.wait(LIMIT_SECONDS)
        for number in range(1, count):
            peers[number].send(frame(correlation_id=number))
        until(lambda: serving.counter("request_queue_size") == count - 1)
        peers[count].send(frame(correlation_id=1000, key=URGENT))
        until(lambda: serving.counter("request_queue_size") == count)
        go_on.set()
        for peer in peers:
            peer.answer()
        assert sorted(order) == [*range(count), 1000]
        assert order.index(1000) <= 1, "only the request that was already being handled may come before the urgent one"
    finally:
        go_on.set()
        plane.loop.run(plane.stop(), LIMIT_SECONDS)
        for peer in serving.peers:
            peer.socket.close()


def test_waiting_requests_end_with_their_connections_when_the_plane_stops(runtime: Runtime) -> None:
    began, go_on = threading.Event(), threading.Event()

    def answer(context: RequestContext, body: memoryview) -> bytes:
        began.set()
        assert go_on.wait(LIMIT_SECONDS)
        return struct.pack(">i", context.correlation_id)

    before = native_inbound.live()
    plane = Plane(
        DATA, [Listener("PLAINTEXT", "127.0.0.1", 0)], answer, RANGES, runtime=runtime, limits=PlaneLimits(),
        urgent_apis=(URGENT,),
    )  # fmt: skip
    serving = Serving(plane, plane.open()["PLAINTEXT"][1])
    plane.loop.run(plane.start())
    peers = [serving.peer() for _ in range(40)]
    peers[0].send(frame())
    assert began.wait(LIMIT_SECONDS)
    for peer in peers[1:]:
        peer.send(frame())
    until(lambda: serving.counter("request_queue_size") == len(peers) - 1)
    stopping = threading.Thread(target=lambda: plane.loop.run(plane.stop(), LIMIT_SECONDS))
    stopping.start()
    go_on.set()
    stopping.join(LIMIT_SECONDS)
    assert not stopping.is_alive()
    for peer in peers:
        peer.socket.close()
    assert plane.waiting == 0
    assert native_inbound.live() == before


@pytest.mark.parametrize("urgent", [(), (URGENT,)], ids=["one class", "two classes"])
def test_other_work_of_the_loop_waits_for_few_requests_when_many_are_on_the_ring(
    runtime: Runtime, urgent: tuple[int, ...]
) -> None:
    """The data loop can also have work that is not a request of its own plane, for example requests of the control
    plane (KIP-291)."""
    began, go_on, order, before = threading.Event(), threading.Event(), [], []

    def answer(context: RequestContext, body: memoryview) -> bytes:
        if context.correlation_id == 0:
            began.set()
            assert go_on.wait(LIMIT_SECONDS)
        elif len(order) == 1:
            # This call runs when the loop has taken all other requests from the ring.
            plane.loop.call(lambda: before.extend(order))
        order.append(context.correlation_id)
        time.sleep(2 * BEGIN_S)
        return struct.pack(">i", context.correlation_id)

    plane = Plane(
        DATA, [Listener("PLAINTEXT", "127.0.0.1", 0)], answer, RANGES, runtime=runtime, limits=PlaneLimits(),
        urgent_apis=urgent,
    )  # fmt: skip
    serving = Serving(plane, plane.open()["PLAINTEXT"][1])
    plane.loop.run(plane.start())
    try:
        peers = [serving.peer() for _ in range(30)]
        peers[0].send(frame(correlation_id=0))
        assert began.wait(LIMIT_SECONDS)
        for number, peer in enumerate(peers[1:], 1):
            peer.send(frame(correlation_id=number))
        until(lambda: serving.counter("request_queue_size") == len(peers) - 1)
        go_on.set()
        for peer in peers:
            peer.answer()
        assert len(order) == len(peers)
        assert len(before) <= 4, "the loop must run the other work between requests"
    finally:
        go_on.set()
        plane.loop.run(plane.stop(), LIMIT_SECONDS)
        for peer in serving.peers:
            peer.socket.close()
