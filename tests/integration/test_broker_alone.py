"""A broker with its network layer, partitions and handlers. A growing list of metadata records replaces the controller.

Real clients use the broker, first with the native hot path, and then with Python handlers for every Produce and Fetch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from kafkacore._fast.plane.gate import GatePolicy
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    DescribeLogDirsRequest,
)
from kafkacore.storage.names import INTERNAL_TOPICS
from lone_broker import Started


@pytest.fixture(params=["serve", "punt"])
def started(tmp_path: Path, request: Any) -> Iterator[Started]:
    made = Started(tmp_path)
    made.loop.run(_gate(made, request.param), 5)
    try:
        yield made
    finally:
        made.stop()


async def _gate(started: Started, otherwise: str) -> None:
    started.broker.plane.native.publish_gate(GatePolicy(otherwise))


def create(bootstrap: str, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.create_topics([NewTopic(name, partitions)]).values()
    future.result(10)


def consume(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes | None] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 10)
        assert messages, f"only {len(found)} of {count} records came"
        assert [message.error() for message in messages if message.error()] == []
        found += [message.value() for message in messages]
    consumer.close()
    return found


@pytest.mark.timeout(60)
def test_client_creates_produces_and_consumes(started: Started) -> None:
    create(started.bootstrap, "t", 3)
    producer = Producer({"bootstrap.servers": started.bootstrap, "linger.ms": 5, "acks": "all"})
    failures: list[Any] = []
    for number in range(1000):
        producer.produce(
            "t", b"%d" % number, partition=1, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(20) == 0
    assert failures == []
    assert consume(started.bootstrap, "t", 1000, 1) == [b"%d" % number for number in range(1000)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_only_an_admin_client_writes_to_internal_topics(started: Started, topic: str) -> None:
    started.create(topic)
    for client_id, refused in (("me", True), ("__admin_client", False)):
        producer = Producer({"bootstrap.servers": started.bootstrap, "client.id": client_id})
        errors: list[Any] = []
        producer.produce(topic, b"x", key=b"k", on_delivery=lambda error, _, errors=errors: errors.append(error))
        assert producer.flush(20) == 0
        [error] = errors
        assert (error is not None and error.code()) == (refused and ErrorCode.INVALID_TOPIC_EXCEPTION)


@pytest.mark.timeout(60)
def test_idempotent_producer_gets_its_id(started: Started) -> None:
    create(started.bootstrap, "t")
    producer = Producer({"bootstrap.servers": started.bootstrap, "enable.idempotence": True})
    producer.produce("t", b"x")
    assert producer.flush(20) == 0
    assert consume(started.bootstrap, "t", 1) == [b"x"]


@pytest.mark.timeout(60)
def test_waiting_consumer_gets_the_next_record(started: Started) -> None:
    create(started.bootstrap, "t")
    consumer = Consumer(
        {"bootstrap.servers": started.bootstrap, "group.id": "none", "fetch.wait.max.ms": 30_000, "fetch.min.bytes": 1}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    early = consumer.poll(0.5)
    assert early is None or early.error() is None, early.error()
    producer = Producer({"bootstrap.servers": started.bootstrap, "linger.ms": 0})
    producer.produce("t", b"at last")
    producer.flush(10)
    message = consumer.poll(10)
    assert message is not None and message.value() == b"at last"
    consumer.close()


@pytest.mark.timeout(60)
def test_administrator_sees_offsets_deletion_and_directories(started: Started) -> None:
    create(started.bootstrap, "t")
    producer = Producer({"bootstrap.servers": started.bootstrap})
    for number in range(10):
        producer.produce("t", b"%d" % number, timestamp=1000 + number)
    assert producer.flush(20) == 0
    admin = AdminClient({"bootstrap.servers": started.bootstrap})
    partition = TopicPartition("t", 0)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        [future] = admin.list_offsets({partition: spec}).values()
        told = future.result(10)
        return told.offset, told.timestamp

    assert offset(OffsetSpec.latest()) == (10, -1)
    assert offset(OffsetSpec.max_timestamp()) == (9, 1009)
    assert offset(OffsetSpec.for_timestamp(1004)) == (4, 1004)
    assert offset(OffsetSpec.for_timestamp(2000)) == (-1, -1)
    [deleted] = admin.delete_records([TopicPartition("t", 0, 6)]).values()
    assert deleted.result(10).low_watermark == 6
    assert offset(OffsetSpec.earliest()) == (6, -1)
    [directory] = started.loop.run(_directories(started), 5)
    assert directory.error_code == 0 and directory.total_bytes > 0
    [topic] = directory.topics
    assert topic.name == "t" and topic.partitions[0].partition_size > 0


@pytest.mark.parametrize(("enable", "asked"), [("true", True), ("false", False)])
def test_broker_hands_its_leaderships_over_unless_controlled_shutdown_is_off(
    tmp_path: Path, enable: str, asked: bool
) -> None:
    made = Started(tmp_path, controlled_shutdown_enable=enable)
    made.stop()
    assert (made.records.asked_to_leave > 0) is asked


async def _directories(started: Started) -> Any:
    call = RequestContext(35, 4, 0, None, "PLAINTEXT", "127.0.0.1")
    return (await started.broker.dispatcher.ask(call, DescribeLogDirsRequest(topics=None))).results
