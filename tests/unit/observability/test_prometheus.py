"""Kafka's metric names in Prometheus's format, and the HTTP server for them."""

import asyncio

from kafkacore.observability.catalogue import prometheus_name
from kafkacore.observability.metrics import Buckets, Kind, MetricRegistry, Sample
from kafkacore.observability.prometheus import MetricsServer, expose


def registry() -> MetricRegistry:
    made = MetricRegistry()
    made.add(
        lambda: (
            Sample("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", Kind.COUNTER, 7, (("topic", "a-b"),)),
            Sample("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", Kind.COUNTER, 8, (("topic", "c"),)),
            Sample(
                "kafka.network",
                "RequestMetrics",
                "TotalTimeMs",
                Kind.HISTOGRAM,
                Buckets([1, 5], [2, 1, 1], 12.5),
                (("request", "Fetch"),),
            ),
        )
    )
    made.add(lambda: (Sample("kafka.network", "RequestChannel", "RequestQueueSize", Kind.GAUGE, 3),))
    made.add(lambda: (queue_of("controller", 4),))
    return made


def queue_of(listener: str, size: int) -> Sample:
    return Sample("kafka.network", "RequestChannel", "RequestQueueSize", Kind.GAUGE, size, (("listener", listener),))


def test_a_sample_keeps_kafkas_name() -> None:
    sample = next(registry().collect())
    assert sample.mbean == "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=a-b"
    assert prometheus_name(sample) == "kafka_server_brokertopicmetrics_bytesin"


def test_exposition_has_counters_gauges_and_cumulative_buckets() -> None:
    text = expose(registry()).decode()
    assert 'kafka_server_brokertopicmetrics_bytesin_total{topic="a-b"} 7.0' in text
    assert 'kafka_server_brokertopicmetrics_bytesin_total{topic="c"} 8.0' in text
    assert "kafka_network_requestchannel_requestqueuesize 3.0" in text
    assert 'kafka_network_requestmetrics_totaltimems_bucket{le="5",request="Fetch"} 3.0' in text
    assert 'kafka_network_requestmetrics_totaltimems_bucket{le="+Inf",request="Fetch"} 4.0' in text
    assert 'kafka_network_requestmetrics_totaltimems_sum{request="Fetch"} 12.5' in text


def test_name_has_one_header_for_all_labels() -> None:
    lines = expose(registry()).decode().splitlines()
    headers = [line for line in lines if line.startswith("# TYPE ")]
    assert len(headers) == len({line.split()[2] for line in headers}) == 3
    name = "kafka_network_requestchannel_requestqueuesize"
    begin = lines.index(
        f"# HELP {name} kafka.network:type=RequestChannel,name=RequestQueueSize "
        "[requests] requests that wait for the handlers"
    )
    assert lines[begin + 1 :][:3] == [f"# TYPE {name} gauge", f"{name} 3.0", f'{name}{{listener="controller"}} 4.0']


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_the_server_answers_a_scrape_and_refuses_the_rest() -> None:
    async def story() -> None:
        server = MetricsServer(registry())
        await server.start("127.0.0.1", 0)
        scraped = await ask(server.port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert scraped.startswith(b"HTTP/1.1 200 OK\r\n") and b"requestqueuesize 3.0" in scraped
        assert (await ask(server.port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
        assert await ask(server.port, b"GET /" + b"x" * 20_000 + b"\r\n\r\n") == b""
        await server.stop()

    asyncio.run(story())
