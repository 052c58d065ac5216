"""Segments with messages of magic 0 and 1, which brokers before Kafka 0.11 left. Fetch returns the messages as they are
stored.

Apache Kafka 4 has no down-conversion, so it passes messages from the file to the socket unchanged (KIP-724). Apache
Kafka 3.9 also passes them unchanged from Fetch version 4 on.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

import old_messages
from asking import ask
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, ListOffsetsRequest, ProduceRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.node import Node
from kafkacore.storage import partition_metadata
from kafkacore.tools import dev

pytestmark = pytest.mark.timeout(60)
TOPIC = "old"
OLD = old_messages.segment()
# Before this offset there are three codecs of magic 0 that every client reads, with three messages each.
MAGIC_1_FROM = 9
END = 21
LATER = old_messages.NOW + 1000
FETCH = apis.api(FetchRequest.API_KEY)
LIST_OFFSETS = apis.api(ListOffsetsRequest.API_KEY)


class Served(NamedTuple):
    node: Node
    topic_id: Uuid

    @property
    def address(self) -> str:
        assert self.node.bootstrap is not None
        return self.node.bootstrap

    def gate(self, policy: GatePolicy | None) -> None:
        plane: Any = self.node._broker.plane  # type: ignore[union-attr]
        plane.native.publish_gate(policy)

    def both(self, request: Any, version: int) -> Any:
        """Returns a native processor's answer. Asserts that the Python handler gives the same answer."""
        answers = []
        for policy in (None, GatePolicy("punt")):
            self.gate(policy)
            answers.append(ask(self.address, request, version))
        self.gate(None)
        assert answers[0] == answers[1]
        return answers[0]

    def fetch(self, version: int, offset: int, max_bytes: int = 1 << 20) -> bytes:
        asked = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        topic = FetchRequest.FetchTopic(partitions=[asked])
        if version >= 13:
            topic.topic_id = self.topic_id
        else:
            topic.topic = TOPIC
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
        [partition] = self.both(request, version).responses[0].partitions
        assert partition.error_code == 0
        return bytes(partition.records)

    def look_up(self, version: int, timestamp: int) -> tuple[int, int]:
        """Returns the offset and the timestamp."""
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[asked])]
        )
        [found] = self.both(request, version).topics[0].partitions
        assert found.error_code == 0
        return found.offset, found.timestamp


def new_batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(LATER, b"new", b"of today")
    return bytes(builder.build())


def produce(address: str, data: bytes) -> int:
    parts = ProduceRequest.PartitionProduceData(index=0, records=data)
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[parts])]
    )
    return int(ask(address, request, 9).responses[0].partition_responses[0].error_code)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("old")
    config = dev.configuration(str(directory), 0, [])
    dev.prepare(config)
    node = Node(config)
    with node:
        [(_, error, message)] = node.create_topics([(TOPIC, 1)])
        assert not error, message
        topic = node._broker.context.image.topic(TOPIC)  # type: ignore[union-attr]
        assert topic is not None
    # A log without indexes, such as many upgrades over the years leave behind. The node rebuilds the indexes.
    log = directory / f"{TOPIC}-0"
    shutil.rmtree(log, ignore_errors=True)
    log.mkdir()
    (log / f"{0:020}.log").write_bytes(OLD)
    partition_metadata.write(str(log), topic.topic_id)
    with node:
        made = Served(node, topic.topic_id)
        assert produce(made.address, new_batch()) == 0
        yield made


@pytest.mark.parametrize("version", [4, 12, 13, FETCH.highest])
def test_fetch_returns_the_stored_messages(served: Served, version: int) -> None:
    whole = served.fetch(version, 0)
    assert whole[: len(OLD)] == OLD
    assert struct.unpack(">q", whole[len(OLD) : len(OLD) + 8]) == (END,)
    assert served.fetch(version, END) == whole[len(OLD) :]
    # A fetch inside a compressed set returns the whole set, whose wrapper has the offset of the last message.
    for offset in (12, 13, 14):
        [wrapper] = struct.unpack(">q", served.fetch(version, offset)[:8])
        assert wrapper == 14
    # The answer contains at least one entry, however small the limit is.
    [size] = struct.unpack(">i", OLD[8:12])
    assert served.fetch(version, 0, max_bytes=1)[: 12 + size] == OLD[: 12 + size]


def test_fetch_refuses_versions_that_need_down_conversion(served: Served) -> None:
    assert FETCH.lowest == 4
    with pytest.raises((ConnectionError, AssertionError)):
        asked = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
        ask(served.address, FetchRequest(topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[asked])]), 3)


@pytest.mark.parametrize("version", [LIST_OFFSETS.lowest, LIST_OFFSETS.highest])
def test_list_offsets_finds_messages_by_their_time(served: Served, version: int) -> None:
    now = old_messages.NOW
    # Messages of magic 0 have no timestamp.
    assert served.look_up(version, 1) == (MAGIC_1_FROM, now)
    assert served.look_up(version, now + 1) == (MAGIC_1_FROM + 1, now + 1)
    assert served.look_up(version, now + 2) == (MAGIC_1_FROM + 2, now + 2)
    assert served.look_up(version, now + 3) == (END, LATER)
    assert served.look_up(version, LATER + 1) == (-1, -1)
    assert (served.look_up(version, -2)[0], served.look_up(version, -1)[0]) == (0, END + 1)


def test_produce_refuses_old_messages(served: Served) -> None:
    refused = produce(served.address, old_messages.entries(0, 1, "none"))
    assert refused in (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.CORRUPT_MESSAGE)
    assert served.look_up(LIST_OFFSETS.highest, -1)[0] == END + 1


def expected() -> list[tuple[int, bytes | None, bytes | None]]:
    one_set = [(b"key", b""), (None, b"v\xff"), (b"key", None)]
    found: list[tuple[int, bytes | None, bytes | None]] = [(at, *one_set[at % 3]) for at in range(END)]
    return [*found, (END, b"new", b"of today")]


def test_aiokafka_reads_old_messages_one_by_one(served: Served) -> None:
    # aiokafka cannot read an answer with messages of different magic.
    async def read() -> list[tuple[int, bytes | None, bytes | None]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=served.address, max_partition_fetch_bytes=1)
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(TOPIC, 0)])
            consumer.seek(AioTopicPartition(TOPIC, 0), 0)
            found = [await consumer.getone() for _ in range(END + 1)]
        finally:
            await consumer.stop()
        return [(each.offset, each.key, each.value) for each in found]

    assert asyncio.run(asyncio.wait_for(read(), 30)) == expected()


def test_librdkafka_reads_old_messages(served: Served) -> None:
    consumer = Consumer({"bootstrap.servers": served.address, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while len(found) <= END:
        message = consumer.poll(20)
        assert message is not None and message.error() is None, message
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    assert found == expected()
