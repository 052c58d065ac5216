"""Configuration keys whose effect only a complete node shows. The node runs in the process of the test."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.network.client import NodeClient
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message
from kafkacore.runtime.process import DATA, Runtime, default_processors
from kafkacore.server.node import Node
from kafkacore.storage.directory_load import DirectoryLoad
from kafkacore.storage.log_manager import LogManager
from kafkacore.tools.dev import configuration, prepare
from processes import wait_until


@contextmanager
def started(path: Path, *overrides: str) -> Iterator[Node]:
    config = configuration(str(path), 0, list(overrides))
    prepare(config)
    with Node(config) as node:
        yield node


def test_node_has_as_many_processors_as_num_network_threads(tmp_path: Path) -> None:
    asked = default_processors() + 1
    with started(tmp_path, f"num.network.threads={asked}"):
        runtime = Runtime.shared()
        try:
            assert len(runtime.processors(DATA)) == asked
        finally:
            runtime.release()


def test_describe_configs_reports_the_defaults_in_force(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        assert node._broker is not None
        plane = node._broker.plane
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        resource = ConfigResource(ResourceType.BROKER, str(node.config.node_id))
        entries = admin.describe_configs([resource])[resource].result(20)
        for name, in_force in (
            ("num.network.threads", len(plane.processors)),
            ("queued.max.request.bytes", plane.limits.memory_bytes),
            ("socket.send.buffer.bytes", plane.limits.socket_send_buffer_bytes),
            ("socket.receive.buffer.bytes", plane.limits.socket_receive_buffer_bytes),
        ):
            assert entries[name].value == str(in_force), name
            assert entries[name].is_default, name


def test_node_has_as_many_disk_threads_as_configured(tmp_path: Path) -> None:
    with started(tmp_path, "num.io.threads=3") as node:
        broker = node._broker
        assert broker is not None
        blocked, go = threading.Semaphore(0), threading.Event()

        def work() -> None:
            blocked.release()
            go.wait(20)

        futures = [broker.context.blocking.submit(work) for _ in range(4)]
        for _ in range(3):
            assert blocked.acquire(timeout=20)
        assert not blocked.acquire(blocking=False)
        go.set()
        assert [future.result(20) for future in futures] == [None] * 4


def test_node_gives_up_when_its_start_takes_too_long(tmp_path: Path) -> None:
    with (
        pytest.raises(TimeoutError, match=r"server\.max\.startup\.time\.ms=0"),
        started(tmp_path, "server.max.startup.time.ms=0"),
    ):
        pass
    # The failed start has undone everything that it had begun, so the next node can use the directory.
    with started(tmp_path) as node:
        assert node.bootstrap


def test_metadata_log_rolls_at_the_configured_segment_size(tmp_path: Path) -> None:
    with started(tmp_path, "internal.metadata.log.segment.bytes=2000") as node:
        for n in range(20):
            assert node.create_topics([(f"t{n}", 1)]) == [(f"t{n}", 0, "")]
    assert len(list(tmp_path.glob("__cluster_metadata-0/*.log"))) > 2


def ask(address: str | None, request: Message, version: int | None = None) -> Any:
    """Sends one request to a node on a separate connection. Returns the response."""
    assert address is not None
    host, _, port = address.rpartition(":")

    async def dialogue() -> Any:
        client = NodeClient(host, int(port), "test")
        try:
            return await client.request(request, version)
        finally:
            await client.close()

    return asyncio.run(dialogue())


def create(node: Node, name: str, partitions: int = -1) -> Any:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)
    (made,) = ask(node.bootstrap, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
    return made


def produce(node: Node, name: str, value: bytes) -> int:
    builder = RecordBatchBuilder()
    builder.append(int(time.time() * 1000), None, value)
    part = m.ProduceRequest.PartitionProduceData(index=0, records=builder.build())
    topic = m.ProduceRequest.TopicProduceData(name=name, partition_data=[part])
    answer = ask(node.bootstrap, m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 12)
    error: int = answer.responses[0].partition_responses[0].error_code
    return error


def test_topic_gets_the_default_number_of_partitions(tmp_path: Path) -> None:
    with started(tmp_path, "num.partitions=7") as node:
        assert create(node, "t").num_partitions == 7


def test_topic_gets_the_default_replication_factor(tmp_path: Path) -> None:
    with started(tmp_path, "default.replication.factor=2") as node:
        assert create(node, "t").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topic_deletion_is_refused_when_it_is_disabled(tmp_path: Path) -> None:
    with started(tmp_path, "delete.topic.enable=false") as node:
        create(node, "t")
        topic = m.DeleteTopicsRequest.DeleteTopicState(name="t")
        (answer,) = ask(node.bootstrap, m.DeleteTopicsRequest(topics=[topic], timeout_ms=10_000)).responses
        assert answer.error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_metadata_shows_the_rack_of_the_broker(tmp_path: Path) -> None:
    with started(tmp_path, "broker.rack=cellar") as node:
        (broker,) = ask(node.bootstrap, m.MetadataRequest(topics=[])).brokers
        assert broker.rack == "cellar"


def test_fetch_returns_no_more_than_fetch_max_bytes(tmp_path: Path) -> None:
    with started(tmp_path, "fetch.max.bytes=100000") as node:
        create(node, "t", 1)
        for _ in range(4):
            assert produce(node, "t", bytes(60_000)) == 0
        part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        wanted = m.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[m.FetchRequest.FetchTopic(topic="t", partitions=[part])],
        )
        (answer,) = ask(node.bootstrap, wanted, 12).responses[0].partitions
        assert answer.high_watermark == 4 and 60_000 < len(answer.records) <= 100_000


def test_produce_is_refused_when_the_batch_exceeds_message_max_bytes(tmp_path: Path) -> None:
    with started(tmp_path, "message.max.bytes=1000") as node:
        create(node, "t", 1)
        assert produce(node, "t", bytes(500)) == 0
        assert produce(node, "t", bytes(1000)) == ErrorCode.MESSAGE_TOO_LARGE


def test_metrics_are_served_at_the_configured_address(tmp_path: Path) -> None:
    with started(tmp_path, "metrics.port=-1") as node:
        assert node.metrics_address is None
    with started(tmp_path, "metrics.port=0") as node:
        assert node.metrics_address is not None
        with urllib.request.urlopen(node.metrics_address, timeout=20) as page:
            headers = [line for line in page.read().splitlines() if line.startswith(b"# TYPE kafka_")]
        assert headers
        assert len(headers) == len(set(headers)), "a metric name must have one header for all listeners"


def test_metrics_show_the_logs_that_a_start_has_yet_to_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path, "metrics.port=0") as node:
        create(node, "t", 3)
        assert produce(node, "t", b"x") == 0
    seen, work = threading.Event(), DirectoryLoad.work

    def held(self: DirectoryLoad, number: int) -> None:
        assert seen.wait(20)
        work(self, number)

    monkeypatch.setattr(DirectoryLoad, "work", held)
    again = Node(node.config)
    starting = threading.Thread(target=again.start)
    starting.start()
    try:
        address = wait_until(lambda: again.metrics_address, what="a metrics page")
        wanted = f'kafka_log_logmanager_remaininglogstorecover{{dir="{tmp_path}"}} 1'
        wait_until(lambda: wanted in page_of(address), what="the number of logs to recover on the metrics page")
        assert 'remainingsegmentstorecover{dir="' + str(tmp_path) + '",threadNum="0"} 0' in page_of(address)
    finally:
        seen.set()
        starting.join()
    assert "remaining" not in page_of(address)
    assert "kafka_server_kafkaserver_brokerstate" in page_of(address)
    again.stop()


def page_of(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as page:
        return str(page.read(), "utf-8")


def test_start_opens_logs_with_the_configured_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counted(LogManager):
        def __init__(self, *arguments: Any, recovery_threads: int, **named: Any) -> None:
            asked.append(recovery_threads)
            super().__init__(*arguments, recovery_threads=recovery_threads, **named)

    monkeypatch.setattr("kafkacore.server.node.LogManager", Counted)
    with started(tmp_path, "num.recovery.threads.per.data.dir=5"):
        assert asked == [5]
