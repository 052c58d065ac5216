"""Idle connections cost almost nothing. They need little memory, and no thread wakes up or spins because of them."""

import gc
import os
import resource
import struct
import threading
from collections.abc import Iterator

import pytest

from kafkacore._fast.plane import acceptor, connection, probe
from kafkacore._fast.plane.load_client import Load
from kafkacore.network.limits import PlaneLimits
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.network.request import RequestContext
from kafkacore.runtime.process import DATA, Runtime

PRODUCE = 0
REQUEST = struct.pack(">ihhih", 12, PRODUCE, 3, 0, -1) + b"SS"
MOST_BYTES = 8192


def handler(context: RequestContext, body: memoryview) -> bytes:
    return struct.pack(">i", context.correlation_id)


@pytest.fixture
def plane() -> Iterator[Plane]:
    runtime = Runtime(data_processors=1)
    made = Plane(
        DATA,
        [Listener("PLAINTEXT", "127.0.0.1", 0)],
        handler,
        [(PRODUCE, 0, 8)],
        runtime=runtime,
        limits=PlaneLimits(socket_listen_backlog_size=1000),
        hot=[(PRODUCE, probe.api())],
    )
    yield made
    made.loop.run(made.stop(), 10)
    runtime.close()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ten_thousand_idle_connections_cost_little(plane: Plane) -> None:
    """The test opens as many connections as the limit of open files allows. Each takes two descriptors in this
    process."""
    gc.collect()  # frees what other tests left behind
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = acceptor.descriptors_for_connections(limit) - len(os.listdir("/proc/self/fd"))
    count = min(10_000, (allowed - 200) // 2)
    port = plane.open()["PLAINTEXT"][1]
    plane.loop.run(plane.start())
    load = Load("127.0.0.1", port, connections=count)
    before = resident_bytes()
    result = load.run([REQUEST], count=count)
    assert (result.requests, result.broken) == (count, 0)
    assert connection.live()["connections"] == count
    assert (resident_bytes() - before) / count < MOST_BYTES
    # The idle connections do not slow down the others, and wake no processor.
    other = Load("127.0.0.1", port)
    assert other.run([REQUEST], count=1000).percentile_ns(0.5) < 20_000_000
    other.close()
    processor = plane.processors[0]
    wakeups = processor.wakeups
    threading.Event().wait(0.5)
    assert processor.wakeups - wakeups < 5
    load.close()


def test_processor_spins_after_work_and_not_when_idle(plane: Plane) -> None:
    port = plane.open()["PLAINTEXT"][1]
    plane.loop.run(plane.start())
    budget = plane.processors[0].spin_budget
    assert budget is not None
    load = Load("127.0.0.1", port)
    load.run([REQUEST], count=2000)
    load.close()
    # A processor may have spun for up to 80 us before its last wait.
    threading.Event().wait(0.05)
    spun_ns, idle_ns = budget.spun_ns, plane.processors[0].idle_ns
    threading.Event().wait(0.3)
    assert budget.spun_ns == spun_ns
    assert plane.processors[0].idle_ns - idle_ns > 250_000_000
