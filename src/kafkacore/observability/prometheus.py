"""Exposes the metrics of a registry to Prometheus over HTTP, at `metrics.port`.

Names follow the JMX exporter's published examples for Kafka, so dashboards made for Apache Kafka work. For example,
`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` becomes `kafka_server_brokertopicmetrics_bytesin_total`.
Importing prometheus-client takes longer than starting a node. So the first scrape imports it, outside the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkacore.network.listeners import Listener, listen
from kafkacore.observability.catalogue import metrics, prometheus_name
from kafkacore.observability.metrics import Buckets, Kind, MetricRegistry, Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MAX_REQUEST_BYTES: Final = 8 << 10
REQUEST_TIMEOUT_S: Final = 5.0
BACKLOG: Final = 50


def families(samples: Iterable[Sample]) -> Iterator[Metric]:
    """Groups the samples with the same name into one family, in which their tags are labels. Without the groups, the
    metrics of several listeners would make a family occur twice, and a strict parser would refuse the page."""
    grouped: dict[tuple[str, tuple[str, ...]], list[Sample]] = {}
    for sample in samples:
        labels = tuple(key.replace("-", "_") for key, _ in sample.tags)
        grouped.setdefault((prometheus_name(sample), labels), []).append(sample)
    by_name: dict[str, Metric] = {}
    for (name, labels), group in grouped.items():
        made = _family(name, labels, group)
        if name in by_name:
            by_name[name].samples.extend(made.samples)
        else:
            by_name[name] = made
    yield from by_name.values()


def _family(name: str, labels: tuple[str, ...], group: list[Sample]) -> Metric:
    """Returns a family of samples that have the same labels."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily  # noqa: PLC0415 - loads an HTTP server

    first = group[0]
    known = metrics().get((first.type, first.name))
    text = first._replace(tags=()).mbean + ("" if known is None else f" [{known.unit}] {known.help}")
    if first.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for sample in group:
            assert isinstance(sample.value, Buckets)
            histogram.add_metric([tag for _, tag in sample.tags], _cumulative(sample.value), sample.value.total)
        return histogram
    simple = (
        CounterMetricFamily(name, text, labels=labels)
        if first.kind is Kind.COUNTER
        else GaugeMetricFamily(name, text, labels=labels)
    )
    for sample in group:
        assert not isinstance(sample.value, Buckets)
        simple.add_metric([tag for _, tag in sample.tags], sample.value)
    return simple


def _cumulative(value: Buckets) -> list[tuple[str, float]]:
    rows: list[tuple[str, float]] = []
    seen = 0
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
        seen += count
        rows.append(("+Inf" if bound == float("inf") else f"{bound:g}", seen))
    return rows


def expose(registry: MetricRegistry) -> bytes:
    """Returns the text of one scrape."""
    from prometheus_client import generate_latest  # noqa: PLC0415 - loads an HTTP server

    class Collected:
        def collect(self) -> Iterator[Metric]:
            return families(registry.collect())

    return generate_latest(Collected())


class MetricsServer:
    """Answers GET /metrics. Any other request gets 404. Disconnects clients whose request is slow or too large."""

    def __init__(self, registry: MetricRegistry) -> None:
        self._registry = registry
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The bound port. Raises RuntimeError before `start`."""
        if self._server is None:
            raise RuntimeError("the metrics server has not been started")
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, host: str | None, port: int) -> None:
        """Starts to listen. Listens on all addresses of the machine if `host` is None. Raises ListenError if the port
        is in use."""
        opened = listen(Listener("http", host, port, "metrics.port"), BACKLOG)
        self._server = await asyncio.start_server(self._serve, sock=opened, limit=MAX_REQUEST_BYTES)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        finally:
            writer.close()

    async def _answer(self, request_line: bytes) -> bytes:
        method, _, rest = request_line.partition(b" ")
        if method != b"GET" or rest.split(b" ")[0].split(b"?")[0] not in (b"/metrics", b"/"):
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        body = await asyncio.get_running_loop().run_in_executor(None, expose, self._registry)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\n"
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
