"""Hot requests, which native code can serve, on a plane (the network layer). The plane answers a request at once, lets
it wait, or passes it to Python. On each connection, the answers always come in order.
"""

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from kafkacore._fast.plane import connection, probe
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.plane.load_client import Load
from kafkacore._fast.wait import memory
from kafkacore.network.limits import PlaneLimits
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.runtime.process import DATA, Runtime

PRODUCE, FETCH, METADATA = 0, 1, 3
RANGES = [(PRODUCE, 0, 8), (FETCH, 0, 8), (METADATA, 0, 8)]


def handler(context: RequestContext, body: memoryview) -> bytes:
    """Answers in the same format as the native handler of the tests, but with -1 as the number of the effect."""
    return struct.pack(">ihi", context.correlation_id, 0, -1) + bytes(body)


def frame(body: bytes, correlation_id: int = 0, key: int = PRODUCE, client: bytes = b"me") -> bytes:
    inside = struct.pack(">hhih", key, 3, correlation_id, len(client)) + client + body
    return struct.pack(">i", len(inside)) + inside


def parked(ms: int) -> bytes:
    return b"P" + struct.pack(">i", ms)


def blocked(ms: int) -> bytes:
    return b"B" + struct.pack(">i", ms)


@pytest.fixture
def plane() -> Iterator[Plane]:
    before = connection.live(), memory.live(), probe.live()
    runtime = Runtime(data_processors=1, spin_us=20)
    made = Plane(
        DATA,
        [Listener("PLAINTEXT", "127.0.0.1", 0)],
        handler,
        RANGES,
        runtime=runtime,
        limits=PlaneLimits(answers_depth=8),
        hot=[(PRODUCE, probe.api()), (FETCH, probe.api())],
    )
    yield made
    made.loop.run(made.stop(), 10)
    runtime.close()
    assert (connection.live(), memory.live(), probe.live()) == before


class Peer:
    def __init__(self, plane: Plane) -> None:
        port = plane.open()["PLAINTEXT"][1]
        plane.loop.run(plane.start())
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.stream = self.socket.makefile("rb")

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def answer(self) -> tuple[int, int, int, bytes]:
        """Receives one answer. Returns the correlation id, the error, the number of the effect, and the body."""
        size = struct.unpack(">i", self.stream.read(4))[0]
        data = self.stream.read(size)
        return *struct.unpack_from(">ihi", data), data[10:]

    def answers(self, count: int) -> list[tuple[int, int, int, bytes]]:
        return [self.answer() for _ in range(count)]


def test_processor_serves_a_hot_request(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(*(frame(b"S%d" % i, i) for i in range(100)))
    answers = peer.answers(100)
    assert [(a[0], a[3]) for a in answers] == [(i, b"S%d" % i) for i in range(100)]
    effects = [a[2] for a in answers]
    assert effects == list(range(effects[0], effects[0] + 100))


def test_produces_are_served_while_earlier_ones_are_parked(plane: Plane) -> None:
    """Five requests are parked for 300 ms each at the same time, so together they need 300 ms. Their effects and their
    answers stay in order."""
    peer = Peer(plane)
    started = time.monotonic()
    peer.send(*(frame(parked(300), i) for i in range(5)), frame(b"S", 5))
    answers = peer.answers(6)
    assert 0.25 < time.monotonic() - started < 1.4
    assert [a[0] for a in answers] == list(range(6))
    assert [a[2] for a in answers] == sorted(a[2] for a in answers)


def test_other_requests_wait_until_earlier_ones_are_answered(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(frame(parked(100), 0), frame(b"S", 1, FETCH), frame(parked(100), 2))
    peer.send(frame(b"x", 3, METADATA), frame(b"S", 4))
    started = time.monotonic()
    assert [a[0] for a in peer.answers(5)] == [0, 1, 2, 3, 4]
    assert time.monotonic() - started > 0.15


def test_blocked_produce_stalls_only_its_connection(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(frame(blocked(200), 0), frame(b"S", 1))
    other = Load("127.0.0.1", peer.port)
    assert other.run([frame(b"S")], count=100).requests == 100
    other.close()
    first, second = peer.answers(2)
    assert (first[0], second[0]) == (0, 1)
    # The first request's effect happened late. The effect of the next request still came after it.
    assert second[2] == first[2] + 1


def test_punted_request_keeps_its_place_in_the_order(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(frame(parked(50), 0), frame(b"U-punted", 1), frame(b"S", 2))
    answers = peer.answers(3)
    assert [a[0] for a in answers] == [0, 1, 2]
    assert answers[1][2:] == (-1, b"U-punted")


def test_answers_are_the_same_when_the_gate_punts_everything(plane: Plane) -> None:
    peer = Peer(plane)
    plane.native.publish_gate(GatePolicy("punt"))
    peer.send(*(frame(b"S%d" % i, i) for i in range(50)))
    assert [(a[0], a[2], a[3]) for a in peer.answers(50)] == [(i, -1, b"S%d" % i) for i in range(50)]


def test_gate_answers_an_error_mutes_and_delays(plane: Plane) -> None:
    peer = Peer(plane)
    plane.native.publish_gate(
        GatePolicy(
            rules=[
                {"action": "error", "error": 7, "times": 1, "mute_ms": 400},
                {"action": "serve", "delay_ms": 400, "times": 1},
            ]
        )
    )
    started = time.monotonic()
    peer.send(frame(b"S", 0), frame(b"S", 1), frame(b"S", 2))
    assert peer.answer()[:2] == (0, 7)
    assert time.monotonic() - started < 0.39
    assert [a[:2] for a in peer.answers(2)] == [(1, 0), (2, 0)]
    assert time.monotonic() - started > 0.79


def test_gate_closes_a_connection(plane: Plane) -> None:
    peer = Peer(plane)
    plane.native.publish_gate(GatePolicy(rules=[{"action": "close", "client_id": "me"}]))
    peer.send(frame(b"S"))
    assert peer.stream.read(1) == b""


def test_produce_without_acks_gets_no_answer(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(*(frame(b"N", i) for i in range(50)), frame(b"S", 50))
    assert peer.answer()[0] == 50


def test_malformed_hot_request_closes_its_connection(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(frame(b"S", 0), frame(b"C", 1))
    assert peer.stream.read(1) in (b"", b"\0")
    assert plane.native.counters()["malformed_frames"] == 1


def test_connection_awaits_at_most_answers_depth_answers(plane: Plane) -> None:
    """The processor parks twenty requests for 100 ms each. At most eight may be parked at a time, so this takes three
    rounds."""
    peer = Peer(plane)
    started = time.monotonic()
    peer.send(*(frame(parked(100), i) for i in range(20)))
    assert [a[0] for a in peer.answers(20)] == list(range(20))
    assert 0.28 < time.monotonic() - started < 1.9


def test_parked_requests_are_freed_when_the_peer_closes(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(frame(parked(600_000), 0), frame(parked(600_000), 1), frame(blocked(600_000), 2))
    deadline = time.monotonic() + 10
    while probe.live() < 3:
        assert time.monotonic() < deadline
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.stream.close()
    peer.socket.close()
    while probe.live() or connection.live()["connections"]:
        assert time.monotonic() < deadline


def test_processor_counts_the_stages_of_requests(plane: Plane) -> None:
    peer = Peer(plane)
    peer.send(frame(parked(20), 0), frame(b"x", 1, METADATA))
    peer.answers(2)
    deadline = time.monotonic() + 10
    # A processor counts a request after it has sent the answer, so the peer may receive the answer earlier.
    while METADATA not in (stages := plane.processors[0].stages(plane.native)):
        assert time.monotonic() < deadline
    assert stages[PRODUCE]["requests"] == stages[METADATA]["requests"] == 1
    remote_count, remote_us, buckets = stages[PRODUCE]["stages"][2]
    assert remote_count == sum(buckets) == 1
    assert remote_us > 10_000
    assert stages[METADATA]["response_bytes"] == 4 + 10 + 1


def test_processor_serves_many_connections_at_once(plane: Plane) -> None:
    peer = Peer(plane)
    load = Load("127.0.0.1", peer.port, connections=100, depth=5)
    result = load.run([frame(b"S" * 10), frame(parked(1)), frame(b"U"), frame(b"x", key=METADATA)], count=5000)
    assert (result.requests, result.broken) == (5000, 0)
    load.close()
