"""A plane's metrics: queues, idleness, connections, and the time of requests by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafkacore._fast.processor import NativeProcessor
from kafkacore.network.plane import Plane
from kafkacore.observability.metrics import Buckets, Kind, Sample
from kafkacore.protocol import apis
from kafkacore.runtime.process import CONTROL, CONTROLLER, DATA
from kafkacore.runtime.clock import Clock
from kafkacore.runtime.loops import LoopThread

# KIP-291 gives the control plane's twins a prefix; a controller's listener has none in Kafka, where it is another process.
PREFIXES: Final = {DATA: "", CONTROL: "ControlPlane", CONTROLLER: "Controller"}
# In the order of the native stages; that of throttling is Kafka's ThrottleTimeMs.
STAGES: Final = ("RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs", "ThrottleTimeMs", "ResponseQueueTimeMs", "ResponseSendTimeMs")
TOTAL: Final = "TotalTimeMs"
_NETWORK: Final = "kafka.network"
_SERVER: Final = "kafka.server"


class PlaneMetrics:
    """A source for a MetricRegistry. Percentages are since the last look, as a scraper wants them."""

    def __init__(
        self, plane: Plane, processors: Sequence[NativeProcessor], handlers: LoopThread, clock: Clock
    ) -> None:
        self._plane = plane
        self._processors = processors
        self._handlers = handlers
        self._clock = clock
        self._prefix = PREFIXES[plane.kind]
        self._seen_ns = clock.monotonic_ns()
        self._idle_ns = self._idle()

    def __call__(self) -> Iterator[Sample]:
        prefix, counters = self._prefix, self._plane.native.counters()
        for group, type_, name, kind, key in (
            (_NETWORK, "RequestChannel", "RequestQueueSize", Kind.GAUGE, "request_queue_size"),
            (_NETWORK, "RequestChannel", "ResponseQueueSize", Kind.GAUGE, "response_queue_size"),
            (_NETWORK, "SocketServer", "ExpiredConnectionsKilledCount", Kind.COUNTER, "expired_connections_killed"),
            (_NETWORK, "SocketServer", "ConnectionCount", Kind.GAUGE, "connections"),
            (_NETWORK, "SocketServer", "RefusedConnectionsCount", Kind.COUNTER, "refused_connections"),
            (_NETWORK, "SocketServer", "MalformedFramesCount", Kind.COUNTER, "malformed_frames"),
            (_NETWORK, "SocketServer", "MemoryPoolUsed", Kind.GAUGE, "memory_used_bytes"),
        ):
            yield Sample(group, type_, prefix + name, kind, counters[key])
        yield Sample(_NETWORK, "SocketServer", f"{prefix}NetworkProcessorAvgIdlePercent", Kind.GAUGE, self._idle_share())
        idle = self._handlers.idle_share()
        yield Sample(_SERVER, "KafkaRequestHandlerPool", f"{prefix}RequestHandlerAvgIdlePercent", Kind.GAUGE, idle)
        yield from self._requests()

    def _idle(self) -> int:
        return sum(processor.idle_ns for processor in self._processors)

    def _idle_share(self) -> float:
        now_ns, idle_ns = self._clock.monotonic_ns(), self._idle()
        past_ns = max(now_ns - self._seen_ns, 1) * max(len(self._processors), 1)
        share = (idle_ns - self._idle_ns) / past_ns
        self._seen_ns, self._idle_ns = now_ns, idle_ns
        return min(max(share, 0.0), 1.0)

    def _requests(self) -> Iterator[Sample]:
        merged: dict[int, dict[str, Any]] = {}
        for processor in self._processors:
            for key, found in processor.stages(self._plane.native).items():
                merged[key] = found if key not in merged else _added(merged[key], found)
        for key, found in merged.items():
            known = apis.apis().get(key)
            tags = (("request", known.message if known is not None else str(key)),)
            if self._prefix:
                tags += (("listener", self._prefix),)
            yield Sample(_NETWORK, "RequestMetrics", "RequestsPerSec", Kind.COUNTER, found["requests"], tags)
            yield Sample(_NETWORK, "RequestMetrics", "RequestBytes", Kind.COUNTER, found["request_bytes"], tags)
            yield Sample(_NETWORK, "RequestMetrics", "ResponseBytes", Kind.COUNTER, found["response_bytes"], tags)
            for name, stage in zip((*STAGES, TOTAL), (*found["stages"], found["total"]), strict=True):
                if stage[0]:
                    yield Sample(_NETWORK, "RequestMetrics", name, Kind.HISTOGRAM, _buckets(stage), tags)


Stage = tuple[int, int, list[int]]


def _buckets(stage: Stage) -> Buckets:
    """Native buckets are powers of two of microseconds; bucket `n` counts what is below `2**n`."""
    _, sum_us, counts = stage
    used = max((number for number, count in enumerate(counts) if count), default=0) + 1
    return Buckets([(1 << number) / 1000 for number in range(used)], [*counts[:used], sum(counts[used:])], sum_us / 1000)


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    def both(a: Stage, b: Stage) -> Stage:
        return a[0] + b[0], a[1] + b[1], [x + y for x, y in zip(a[2], b[2], strict=True)]

    return {
        "requests": one["requests"] + other["requests"],
        "request_bytes": one["request_bytes"] + other["request_bytes"],
        "response_bytes": one["response_bytes"] + other["response_bytes"],
        "stages": [both(a, b) for a, b in zip(one["stages"], other["stages"], strict=True)],
        "total": both(one["total"], other["total"]),
    }
