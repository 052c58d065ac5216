"""Configurations that change while the node runs. A change takes effect immediately, and survives a restart and a
kill."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.network.client import Disconnected, NodeClient
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.node import Node
from kafkacore.storage.log_manager import LogManager
from kafkacore.tools.dev import configuration, prepare
from processes import wait_until

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE = 0, 1
TIMEOUT_S = 20


@contextmanager
def started(path: Path, *overrides: str) -> Iterator[Node]:
    config = configuration(str(path), 0, list(overrides))
    prepare(config)
    with Node(config) as node:
        yield node


def ask(node: Node, request: Any, version: int | None = None) -> Any:
    assert node.bootstrap is not None
    host, _, port = node.bootstrap.rpartition(":")

    async def dialogue() -> Any:
        client = NodeClient(host, int(port), "test")
        try:
            return await client.request(request, version)
        finally:
            await client.close()

    return asyncio.run(dialogue())


def alter(node: Node, kind: int, name: str, **changes: str | None) -> int:
    made = m.IncrementalAlterConfigsRequest
    configs = [
        made.AlterableConfig(name=key.replace("_", "."), config_operation=SET if value else DELETE, value=value)
        for key, value in changes.items()
    ]
    resource = made.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (answer,) = ask(node, made(resources=[resource])).responses
    error: int = answer.error_code
    return error


def described(node: Node, kind: int, name: str, key: str) -> str | None:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    (result,) = ask(node, m.DescribeConfigsRequest(resources=[resource])).results
    return next((entry.value for entry in result.configs), None)


def produce(node: Node, size: int = 10, topic: str = "t", timestamp_ms: int | None = None) -> Any:
    builder = RecordBatchBuilder()
    builder.append(int(time.time() * 1000) if timestamp_ms is None else timestamp_ms, None, bytes(size))
    part = m.ProduceRequest.PartitionProduceData(index=0, records=builder.build())
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    answer = ask(node, m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 12)
    return answer.responses[0].partition_responses[0]


def last_batch(node: Node) -> Any:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=[part])
    wanted = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])
    (answer,) = ask(node, wanted, 12).responses[0].partitions
    return list(Batches(answer.records))[-1]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with started(tmp_path, "log.retention.check.interval.ms=100", "log.initial.task.delay.ms=10") as made:
        made.create_topics([("t", 1)])
        yield made


def segments(path: Path) -> list[str]:
    return sorted(each.name for each in path.glob("t-0/*.log"))


def test_largest_message_changes_for_a_topic_and_for_its_broker(node: Node) -> None:
    assert produce(node, 2000).error_code == 0
    for kind, name, key in ((BROKER, "", "message.max.bytes"), (BROKER, "1", "message.max.bytes")):
        assert alter(node, kind, name, **{key: "1000"}) == 0
        wait_until(lambda: produce(node, 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE)
        assert produce(node, 500).error_code == 0
        assert alter(node, kind, name, **{key: None}) == 0
        wait_until(lambda: produce(node, 2000).error_code == 0)
    assert alter(node, TOPIC, "t", max_message_bytes="1000") == 0
    assert alter(node, BROKER, "1", message_max_bytes="3000") == 0
    wait_until(lambda: produce(node, 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE)


def test_segments_roll_and_are_deleted_by_the_new_settings(node: Node, tmp_path: Path) -> None:
    assert alter(node, BROKER, "", log_segment_bytes="1048576") == 0
    wait_until(lambda: described(node, TOPIC, "t", "segment.bytes") == "1048576")
    for _ in range(4):
        assert produce(node, 600_000).error_code == 0
    assert len(segments(tmp_path)) == 4
    assert alter(node, TOPIC, "t", retention_bytes="1", file_delete_delay_ms="0") == 0
    wait_until(lambda: segments(tmp_path) == ["00000000000000000003.log"])


def test_old_records_are_deleted_when_retention_changes(node: Node, tmp_path: Path) -> None:
    assert produce(node, timestamp_ms=int(time.time() * 1000) - 3_600_000).error_code == 0
    assert segments(tmp_path) == ["00000000000000000000.log"]
    assert alter(node, TOPIC, "t", retention_ms="60000", file_delete_delay_ms="0") == 0
    wait_until(lambda: segments(tmp_path) == ["00000000000000000001.log"])


def test_timestamp_type_and_codec_change_for_a_topic(node: Node) -> None:
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    assert produce(node, 5000, timestamp_ms=hour_ago_ms).log_append_time_ms == -1
    assert last_batch(node).codec_name in (None, "none")
    assert alter(node, TOPIC, "t", message_timestamp_type="LogAppendTime", compression_type="lz4") == 0
    wait_until(lambda: produce(node, 5000, timestamp_ms=hour_ago_ms).log_append_time_ms > hour_ago_ms)
    assert last_batch(node).codec_name == "lz4"
    assert alter(node, TOPIC, "t", message_timestamp_type=None, message_timestamp_before_max_ms="1000") == 0
    wait_until(lambda: produce(node, timestamp_ms=hour_ago_ms).error_code == ErrorCode.INVALID_TIMESTAMP)


def connect(node: Node) -> socket.socket | None:
    """Returns a new connection, or None if the broker closes it."""
    assert node.bootstrap is not None
    host, _, port = node.bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    connection.settimeout(0.2)
    try:
        assert connection.recv(1) == b""
    except TimeoutError:
        return connection
    connection.close()
    return None


def refused(node: Node) -> bool:
    connection = connect(node)
    if connection is not None:
        connection.close()
    return connection is None


def place(node: Node) -> socket.socket:
    """Returns a new connection that stays open. Tries again if the broker refuses it, because the broker may still
    count a closed connection for a moment."""
    kept: socket.socket = wait_until(lambda: connect(node))
    return kept


def test_connection_limit_takes_effect_at_once(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        assert not refused(node)
        assert alter(node, BROKER, "", max_connections_per_ip_overrides="127.0.0.1:1") == 0
        # The limit must leave room for one connection, because a client must connect to remove the limit.
        broker = node._broker
        assert broker is not None
        with place(node):
            wait_until(lambda: refused(node))
        wait_until(lambda: not refused(node))

        def taken_back() -> bool:
            try:
                return alter(node, BROKER, "", max_connections_per_ip_overrides=None) == 0
            except Disconnected:
                return False  # the broker still counts the previous connection

        wait_until(taken_back)
        with place(node):
            wait_until(lambda: not refused(node))
        assert alter(node, BROKER, "1", max_connection_creation_rate="1000", max_connections="500") == 0
        wait_until(lambda: broker.plane.limits.max_connection_creation_rate == 1000)
        assert broker.plane.limits.max_connections == 500
        assert not refused(node)


def test_limit_of_one_listener_takes_effect_at_once(tmp_path: Path) -> None:
    with started(tmp_path) as node:
        broker = node._broker
        assert broker is not None
        name = broker.config.data_plane_listeners[0].listener.lower()
        host, _, port = str(node.bootstrap).rpartition(":")

        def served() -> bool:
            with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
                connection.settimeout(0.2)
                connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
                try:
                    return connection.recv(1) != b""
                except TimeoutError:
                    return False

        assert alter(node, BROKER, "", **{f"listener_name_{name}_max_connections": "2"}) == 0
        assert alter(node, BROKER, "1", **{f"listener_name_{name}_max_connection_creation_rate": "900"}) == 0
        wait_until(lambda: broker.plane.limits.own(name.upper()) == (2, 900))
        with socket.create_connection((host, int(port)), TIMEOUT_S):
            wait_until(served)
            with socket.create_connection((host, int(port)), TIMEOUT_S):
                wait_until(lambda: broker.plane.native.counters()["connections"] == 2)
                assert not served()
            wait_until(served)
        assert alter(node, BROKER, "", **{f"listener_name_{name}_max_connections": None}) == 0
        wait_until(lambda: broker.plane.limits.own(name.upper()) == (0x7FFFFFFF, 900))


def test_number_of_io_threads_changes_at_run_time(node: Node) -> None:
    broker = node._broker
    assert broker is not None

    def at_once() -> int:
        count = broker.context.blocking.threads
        begun, go = threading.Semaphore(0), threading.Event()
        work = [broker.context.blocking.submit(lambda: (begun.release(), go.wait(TIMEOUT_S))) for _ in range(count + 1)]
        for _ in range(count):
            assert begun.acquire(timeout=TIMEOUT_S)
        assert not begun.acquire(blocking=False)
        go.set()
        for each in work:
            each.result(TIMEOUT_S)
        return count

    for threads in (16, 8, 4):
        assert alter(node, BROKER, "1", num_io_threads=str(threads)) == 0
        wait_until(lambda wanted=threads: broker.context.blocking.threads == wanted)
        assert at_once() == threads


def test_logs_are_loaded_by_the_last_configured_number_of_threads(tmp_path: Path, monkeypatch: Any) -> None:
    with started(tmp_path) as node:
        assert alter(node, BROKER, "1", num_recovery_threads_per_data_dir="4") == 0
    used, load = [], LogManager.load

    def noted(self: LogManager, *arguments: Any) -> None:
        used.append(self.recovery_threads)
        load(self, *arguments)

    monkeypatch.setattr(LogManager, "load", noted)
    with started(tmp_path):
        assert used == [4]


def test_request_log_has_every_hot_request_when_it_is_turned_on(node: Node, caplog: Any) -> None:
    name = "kafka.request.logger"
    before = logging.getLogger(name).level
    try:
        assert produce(node).error_code == 0
        assert not [each for each in caplog.messages if "PRODUCE" in each]
        assert alter(node, LOGGER, "1", **{name: "DEBUG"}) == 0
        assert produce(node).error_code == 0
        assert [each for each in caplog.messages if "PRODUCE" in each]
        assert alter(node, LOGGER, "1", **{name: None}) == 0
    finally:
        logging.getLogger(name).setLevel(before)


def test_invalid_stored_setting_is_ignored_and_the_node_serves(node: Node) -> None:
    """The controller accepts any valid value without asking the broker. The broker can still refuse to apply it."""
    broker = node._broker
    assert broker is not None
    made = m.IncrementalAlterConfigsRequest
    host, _, port = str(node.controller).rpartition(":")

    async def tell(**values: str) -> Any:
        configs = [
            made.AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=value)
            for key, value in values.items()
        ]
        request = made(resources=[made.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)])
        client = NodeClient(host, int(port), "test")
        try:
            return await client.request(request)
        finally:
            await client.close()

    (answer,) = asyncio.run(tell(log_segment_bytes="nonsense", message_max_bytes="1000")).responses
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    (answer,) = asyncio.run(tell(log_dirs="/nowhere", listeners="X://:1", message_max_bytes="1000")).responses
    assert answer.error_code == 0
    wait_until(lambda: produce(node, 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE)
    assert dict(broker.context.config.dynamic_broker) == {"message.max.bytes": "1000"}
    assert str(broker.context.config.log_dirs[0]) != "/nowhere"


def everything(bootstrap: str) -> Any:
    """Returns all settings that librdkafka describes, of every kind."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [ConfigResource(ResourceType.TOPIC, "kept"), ConfigResource(ResourceType.BROKER, "1")]
    told = admin.describe_configs(wanted, request_timeout=TIMEOUT_S)
    return {
        (resource.name, entry.name): (entry.value, entry.source)
        for resource, future in told.items()
        for entry in future.result(TIMEOUT_S).values()
        if entry.source in (1, 2, 3)
    }


def test_settings_survive_an_orderly_stop_and_a_kill(start_node: Any) -> None:
    node = start_node()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(TIMEOUT_S)

    def change(kind: Any, name: str, **changes: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)

    change(ResourceType.TOPIC, "kept", retention_ms="77000", cleanup_policy="compact")
    change(ResourceType.BROKER, "1", message_max_bytes="5000", log_retention_bytes="9000")
    told = everything(node.bootstrap)
    assert told["kept", "retention.ms"] == ("77000", 1)
    assert told["1", "message.max.bytes"] == ("5000", 2)
    node.stop()
    node.start()
    assert everything(node.bootstrap) == told
    change(ResourceType.TOPIC, "kept", retention_ms="78000")
    told["kept", "retention.ms"] = ("78000", 1)
    node.kill()
    node.start()
    assert everything(node.bootstrap) == told
    with pytest.raises(KafkaException, match=r"retention\.ms"):
        change(ResourceType.TOPIC, "kept", retention_ms="soon")
