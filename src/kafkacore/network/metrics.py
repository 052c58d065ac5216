"""The metrics of a plane (a group of listeners, see plane.py), under Kafka's names. Each read of a metric reads native
counters."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kafkacore.network.plane import Plane
from kafkacore.protocol import apis
from kafkacore.runtime.process import CONTROL, CONTROLLER
from kafkacore.runtime.sampling import Share

# The stages of a request, in the order in which native code counts them.
STAGES: Final = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
)
_BUCKETS: Final = 40  # the bounds are powers of two, in microseconds
BOUNDS_MS: Final = tuple((1 << power) / 1000 for power in range(_BUCKETS - 1))


class Histogram(NamedTuple):
    """A histogram. `bounds` are the upper bounds. `counts` has one more entry, for higher values. `total` is the sum of
    all values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Measure(NamedTuple):
    """The value of one metric, with the type, the name and the other tags of its MBean."""

    type: str
    name: str
    value: float | Histogram
    tags: tuple[tuple[str, str], ...] = ()


class PlaneMetrics:
    """The metrics of one plane. The names of the control plane's metrics have Kafka's prefix (KIP-291). The metrics of
    a controller have the tag `listener`."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._prefix = "ControlPlane" if plane.kind == CONTROL else ""
        self._tags = (("listener", CONTROLLER),) if plane.kind == CONTROLLER else ()
        self._names = {key: api.name for key, api in apis.apis().items()}
        idle_ns, now_ns = sum(processor.idle_ns for processor in plane.processors), time.monotonic_ns()
        self._network_idle = Share(idle_ns, now_ns, len(plane.processors))
        self._handlers_idle = Share(plane.loop.idle_ns(), now_ns)

    def __call__(self) -> Iterator[Measure]:
        yield from self._gauges()
        for key, measured in sorted(self._requests().items()):
            yield from self._request(self._request_name(key), measured)

    def _gauges(self) -> Iterator[Measure]:
        counters = self._plane.native.counters()
        idle_ns, now_ns = sum(processor.idle_ns for processor in self._plane.processors), time.monotonic_ns()
        handlers_idle = self._handlers_idle.read(self._plane.loop.idle_ns(), now_ns)
        for type_, name, value in (
            ("RequestChannel", "RequestQueueSize", counters["request_queue_size"] + self._plane.waiting),
            ("RequestChannel", "ResponseQueueSize", counters["response_queue_size"]),
            ("SocketServer", "NetworkProcessorAvgIdlePercent", self._network_idle.read(idle_ns, now_ns)),
            ("KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", handlers_idle),
            ("SocketServer", "ExpiredConnectionsKilledCount", counters["expired_connections_killed"]),
            ("SocketServer", "MemoryPoolUsed", counters["memory_used_bytes"]),
            ("SocketServer", "MemoryPoolAvailable", self._plane.limits.memory_bytes - counters["memory_used_bytes"]),
            ("SocketServer", "ConnectionCount", counters["connections"]),
            ("SocketServer", "Refused", counters["refused_connections"]),
            ("SocketServer", "MalformedFrames", counters["malformed_frames"]),
            ("SocketServer", "SampledRequestsDropped", counters["samples_dropped"]),
        ):
            yield Measure(type_, self._prefix + name, value, self._tags)

    def queue_times(self) -> Histogram:
        """Returns the times that requests have waited for the handlers, as one histogram over all APIs."""
        found = [measured["stages"][0] for measured in self._requests().values()]
        return _histogram(functools.reduce(_add_histograms, found, (0, 0, [0] * _BUCKETS)))

    def _requests(self) -> dict[int, Any]:
        """Returns the sums of the processors' figures, by API key."""
        added: dict[int, Any] = {}
        for processor in self._plane.processors:
            for key, measured in processor.stages(self._plane.native).items():
                before = added.get(key)
                added[key] = measured if before is None else _add(before, measured)
        return added

    def _request(self, name: str, measured: Any) -> Iterator[Measure]:
        tags = (("request", name), *self._tags)

        def row(metric: str, value: float | Histogram) -> Measure:
            return Measure("RequestMetrics", metric, value, tags)

        yield row("RequestsPerSec", measured["requests"])
        yield row("RequestBytes", measured["request_bytes"])
        yield row("ResponseBytes", measured["response_bytes"])
        for stage, histogram in zip(STAGES, measured["stages"], strict=True):
            yield row(stage, _histogram(histogram))
        yield row("TotalTimeMs", _histogram(measured["total"]))

    def _request_name(self, key: int) -> str:
        return "".join(word.capitalize() for word in self._names.get(key, str(key)).split("_"))


def _add(one: Any, other: Any) -> Any:
    return {
        "requests": one["requests"] + other["requests"],
        "request_bytes": one["request_bytes"] + other["request_bytes"],
        "response_bytes": one["response_bytes"] + other["response_bytes"],
        "stages": [_add_histograms(a, b) for a, b in zip(one["stages"], other["stages"], strict=True)],
        "total": _add_histograms(one["total"], other["total"]),
    }


def _add_histograms(one: Any, other: Any) -> Any:
    return one[0] + other[0], one[1] + other[1], [a + b for a, b in zip(one[2], other[2], strict=True)]


def _histogram(native: Any) -> Histogram:
    _, sum_us, buckets = native
    return Histogram(BOUNDS_MS, tuple(buckets), sum_us / 1000)
