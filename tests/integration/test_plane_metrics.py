"""The metrics of a plane (the network layer) have Kafka's names, and count what has happened."""

import asyncio
import socket
import struct
import time

import pytest

from kafkacore.network.deferred_answer import DeferredAnswer
from kafkacore.network.listeners import Listener
from kafkacore.network.metrics import Histogram, Measure, PlaneMetrics
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.runtime.process import CONTROL, CONTROLLER, DATA, Runtime

CLUSTER = 60


def answer(context: RequestContext, body: memoryview) -> bytes:
    return struct.pack(">i", context.correlation_id)


@pytest.mark.parametrize(("kind", "prefix"), [(DATA, ""), (CONTROLLER, ""), (CONTROL, "ControlPlane")])
def test_metrics_have_kafka_s_names_and_count_requests(kind: str, prefix: str) -> None:
    runtime = Runtime(data_processors=2, spin_us=0)
    plane = Plane(kind, [Listener("L", "127.0.0.1", 0)], answer, [(CLUSTER, 0, 0)], runtime=runtime)
    port = plane.open()["L"][1]
    plane.loop.run(plane.start())
    metrics = PlaneMetrics(plane)
    request = struct.pack(">ihhih", 12, CLUSTER, 0, 5, -1) + b"\0\0"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port), 10) as peer:
            peer.sendall(request)
            assert peer.recv(8, socket.MSG_WAITALL) == struct.pack(">ii", 4, 5)
            peer.sendall(request)
            peer.recv(8, socket.MSG_WAITALL)
    found = {(m.type, m.name): m for m in metrics() if "request" not in dict(m.tags)}
    for type_, name in (
        ("RequestChannel", "RequestQueueSize"),
        ("RequestChannel", "ResponseQueueSize"),
        ("SocketServer", "NetworkProcessorAvgIdlePercent"),
        ("KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent"),
        ("SocketServer", "ExpiredConnectionsKilledCount"),
    ):
        value = found[type_, prefix + name].value
        assert isinstance(value, int | float)
        assert value >= 0
        assert dict(found[type_, prefix + name].tags) == ({"listener": "controller"} if kind == CONTROLLER else {})
    deadline = time.monotonic() + 10
    requests: dict[str, Measure] = {}
    # A processor counts a request after it has sent the answer, so the peer may receive the answer earlier.
    while not requests or requests["RequestsPerSec"].value != 6:
        assert time.monotonic() < deadline
        requests = {m.name: m for m in metrics() if dict(m.tags).get("request") == "DescribeCluster"}
    assert requests["ResponseBytes"].value == 6 * 8
    for name in ("RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs"):
        assert isinstance(requests[name].value, Histogram)
    total = requests["TotalTimeMs"].value
    assert isinstance(total, Histogram)
    assert sum(total.counts) == 6
    assert len(total.counts) == len(total.bounds) + 1
    plane.loop.run(plane.stop(), 10)
    runtime.close()


def test_wait_of_a_parked_request_counts_as_remote_time() -> None:
    wait_ms = 20

    def parked(context: RequestContext, body: memoryview) -> DeferredAnswer[bytes]:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        loop.call_later(wait_ms / 1000, told.set_result, None)
        return DeferredAnswer(told, lambda _: answer(context, body))

    runtime = Runtime(data_processors=1, spin_us=0)
    plane = Plane(DATA, [Listener("L", "127.0.0.1", 0)], parked, [(CLUSTER, 0, 0)], runtime=runtime)
    port = plane.open()["L"][1]
    plane.loop.run(plane.start())
    with socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(struct.pack(">ihhih", 12, CLUSTER, 0, 5, -1) + b"\0\0")
        assert peer.recv(8, socket.MSG_WAITALL) == struct.pack(">ii", 4, 5)
    deadline = time.monotonic() + 10
    found: dict[str, Measure] = {}
    while not found:  # the request is counted after its answer is sent
        assert time.monotonic() < deadline
        found = {m.name: m for m in PlaneMetrics(plane)() if "request" in dict(m.tags)}
    remote = found["RemoteTimeMs"].value
    assert isinstance(remote, Histogram)
    assert remote.total >= wait_ms / 2
    plane.loop.run(plane.stop(), 10)
    runtime.close()
