"""A simulated network on which any read or write may transfer only a few bytes or none, or may break the connection.
Answers still arrive whole and in order."""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkacore._fast.plane import connection, probe
from kafkacore._fast.wait import memory
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_network import TroubledNetwork
from kafkacore.network.limits import PlaneLimits
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.runtime.process import DATA, Runtime

PRODUCE, METADATA = 0, 3
LIMIT_SECONDS = 30


def handler(context: RequestContext, body: memoryview) -> bytes:
    return struct.pack(">ihi", context.correlation_id, 0, -1) + bytes(body)


@pytest.fixture
def serve() -> Iterator[Callable[[TroubledNetwork], int]]:
    """Returns a function that starts a plane on the faulty network. The function returns the plane's port."""
    before = connection.live(), memory.live(), probe.live()
    runtime = Runtime(data_processors=1, spin_us=0)
    planes: list[Plane] = []

    def start(network: TroubledNetwork) -> int:
        plane = Plane(
            DATA,
            [Listener("PLAINTEXT", "127.0.0.1", 0)],
            handler,
            [(PRODUCE, 0, 8), (METADATA, 0, 8)],
            runtime=runtime,
            environment=network.install(Environment()),
            limits=PlaneLimits(turn_bytes=3000, answers_bytes=20_000, queued_max_requests=2),
            hot=[(PRODUCE, probe.api())],
        )
        planes.append(plane)
        port = int(plane.open()["PLAINTEXT"][1])
        plane.loop.run(plane.start())
        return port

    yield start
    for plane in planes:
        plane.loop.run(plane.stop(), 10)
        assert plane.native.counters()["memory_used_bytes"] == 0
    runtime.close()
    assert (connection.live(), memory.live(), probe.live()) == before


def dialogue(source: random.Random, count: int) -> list[tuple[bytes, bytes]]:
    """Sends requests. Returns the body of each answer."""
    made = []
    for correlation_id in range(count):
        kind = source.choice([b"S", b"S", b"P\0\0\0\2", b"B\0\0\0\2", b"U", b"x"])
        key = METADATA if kind == b"x" else PRODUCE
        body = kind + source.randbytes(source.choice([0, 3, 100, 5000, 40_000]))
        inside = struct.pack(">hhih", key, 3, correlation_id, -1) + body
        made.append((struct.pack(">i", len(inside)) + inside, body))
    return made


def read_exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def converse(peer: socket.socket, requests: list[tuple[bytes, bytes]]) -> None:
    sender = threading.Thread(target=send_quietly, args=(peer, b"".join(each for each, _ in requests)), daemon=True)
    sender.start()
    try:
        for correlation_id, (_, body) in enumerate(requests):
            size = struct.unpack(">i", read_exactly(peer, 4))[0]
            answer = read_exactly(peer, size)
            assert struct.unpack_from(">i", answer)[0] == correlation_id
            assert answer[10:] == body
    finally:
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)  # ends a sender that is waiting
        sender.join(LIMIT_SECONDS)


def send_quietly(peer: socket.socket, data: bytes) -> None:
    try:
        peer.sendall(data)
    except OSError:
        return  # the sender will report the broken connection


@pytest.mark.parametrize("most_bytes", [1, 2, 7, 1000, 60_000])
@pytest.mark.parametrize("again_share", [0.0, 0.3])
def test_answers_are_whole_when_the_network_stutters(
    serve: Callable[[TroubledNetwork], int], most_bytes: int, again_share: float
) -> None:
    seed = most_bytes * 10 + int(again_share * 10)
    source = random.Random(seed)
    network = TroubledNetwork(seed, most_bytes=most_bytes, again_share=again_share)
    requests = dialogue(source, 200 if most_bytes >= 1000 else 15)
    with socket.create_connection(("127.0.0.1", serve(network)), LIMIT_SECONDS) as peer:
        converse(peer, requests)
    assert (network.troubled > 0) == (again_share > 0)


@pytest.mark.parametrize("seed", range(5))
def test_connections_are_freed_when_the_network_breaks(serve: Callable[[TroubledNetwork], int], seed: int) -> None:
    """All answers that arrive before the connection breaks are correct. The plane then frees everything that belonged
    to the connection: the fixture counts the objects."""
    network = TroubledNetwork(seed, most_bytes=5000, again_share=0.1, break_share=0.01)
    port = serve(network)
    source = random.Random(seed)
    broken = 0
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS) as peer:
            try:
                converse(peer, dialogue(source, 20))
            except (EOFError, ConnectionError):
                broken += 1
    assert broken > 0
