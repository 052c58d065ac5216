"""A client writes to a compacted topic. The log shrinks, and consumers still find the last record of every key."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkacore.server.node import Node
from kafkacore.storage.checkpoints import CLEANER_OFFSET, OffsetCheckpoint
from kafkacore.tools.dev import configuration, prepare
from kafkacore.tools.main import main
from processes import wait_until

KEYS, RECORDS, VALUE_BYTES = 40, 12_000, 300
TIMEOUT_S = 60
TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.1"}


@contextmanager
def started(path: Path, *overrides: str) -> Iterator[Node]:
    config = configuration(str(path), 0, ["log.cleaner.backoff.ms=50", *overrides])
    prepare(config)
    with Node(config) as node:
        yield node


def produce(bootstrap: str, first: int, last: int) -> dict[bytes, bytes]:
    """Produces records. Returns the last value of each key."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 100})
    values = {}
    for number in range(first, last):
        key, value = b"key %d" % (number % KEYS), b"%d " % number + b"v" * VALUE_BYTES
        values[key] = value
        producer.produce("orders", key=key, value=value, partition=0)
        producer.poll(0)
        if number % 1000 == 999:
            producer.flush()
    assert producer.flush(TIMEOUT_S) == 0
    return values


def read_up_to(consumer: Consumer, end: int, seen: dict[bytes, bytes]) -> None:
    """Reads up to an offset. The offsets may have gaps, but must increase."""
    last = -1
    while last < end - 1:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"no record after offset {last}, and the end is {end}"
        assert message.error() is None, message.error()
        assert message.offset() > last
        last = message.offset()
        seen[message.key()] = message.value()


def consumer_of(bootstrap: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("orders", 0, 0)])
    return consumer


def write(node: Node) -> dict[bytes, bytes]:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1, config=TOPIC)])["orders"].result(TIMEOUT_S)
    return produce(node.bootstrap, 0, RECORDS)


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[Node, dict[bytes, bytes]]]:
    with started(tmp_path / "node", "metrics.port=0") as node:
        yield node, write(node)


def size_bytes(node: Node) -> int:
    broker = node._broker
    assert broker is not None
    return sum(partition.size_bytes for partition in broker.replicas.hosted() if partition.topic == "orders")


def test_log_shrinks_while_consumers_read(written: tuple[Node, dict[bytes, bytes]], tmp_path: Path) -> None:
    node, values = written
    seen: dict[bytes, bytes] = {}
    slow = consumer_of(node.bootstrap)
    wait_until(lambda: size_bytes(node) < 2 << 20, TIMEOUT_S)
    values |= produce(node.bootstrap, RECORDS, RECORDS * 2)
    read_up_to(slow, RECORDS * 2, seen)
    assert seen == values
    wait_until(lambda: size_bytes(node) < 2 << 20, TIMEOUT_S)
    seen.clear()
    late = consumer_of(node.bootstrap)
    read_up_to(late, RECORDS * 2, seen)
    assert seen == values
    for consumer in (slow, late):
        consumer.close()
    (told,) = OffsetCheckpoint(str(tmp_path / "node"), CLEANER_OFFSET).read().values()
    assert 0 < told < RECORDS * 2


def test_dump_log_finds_a_compacted_directory_sound(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with started(tmp_path / "node") as node:
        write(node)
        wait_until(lambda: size_bytes(node) < 2 << 20, TIMEOUT_S)
    segments = [str(path) for path in (tmp_path / "node" / "orders-0").glob("*.log")]
    assert main(["dump-log", "--deep-iteration", *segments]) == 0
    assert " is followed by " in capfd.readouterr().err, "the log has no gap, so it was not compacted"
    assert main(["dump-log", "--verify", "--deep-iteration", str(tmp_path / "node")]) == 0, capfd.readouterr().err


def test_metrics_have_the_names_of_apache_kafka(written: tuple[Node, dict[bytes, bytes]]) -> None:
    node, _ = written
    wait_until(lambda: size_bytes(node) < 2 << 20, TIMEOUT_S)
    with urllib.request.urlopen(str(node.metrics_address), timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().lower().replace("_", "").splitlines()
    for name in (
        "max-dirty-percent", "cleaner-recopy-percent", "max-clean-time-secs", "max-buffer-utilization-percent",
        "max-compaction-delay-secs", "time-since-last-run-ms", "uncleanable-partitions-count", "uncleanable-bytes",
        "DeadThreadCount",
    ):  # fmt: skip
        assert [line for line in lines if name.lower().replace("-", "") in line and "logcleaner" in line], name
