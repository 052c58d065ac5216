"""If a Produce request contains a partition more than once, the Python handler loop treats the request as native
processors do."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from asking import ask
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ProduceRequest
from kafkacore.protocol.uuid import Uuid
from lone_broker import Started

NAMES, IDS = 12, 13  # a version that identifies topics by name, and one that uses ids

Data = ProduceRequest.PartitionProduceData


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made = Started(tmp_path)
    try:
        made.create("t", 3)
        made.broker.plane.native.publish_gate(GatePolicy("punt"))
        yield made
    finally:
        made.stop()


def batch(count: int) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(int(time.time() * 1000), None, b"value")
    return bytes(builder.build())


def produce(started: Started, *topics: list[tuple[int, int]], version: int = NAMES) -> list[list[tuple[int, int, int]]]:
    """Sends a Produce request. Each item of `topics` is an entry for "t": partitions, and the number of records for
    each. Returns the answer by topic: the index, error and base offset of each partition."""
    image = started.broker.context.image.topic("t")
    topic_id = image.topic_id if image is not None and version >= IDS else Uuid(bytes(16))
    asked = [
        ProduceRequest.TopicProduceData(
            name="t",
            topic_id=topic_id,
            partition_data=[Data(index=index, records=batch(count)) for index, count in topic],
        )
        for topic in topics
    ]
    answer = ask(started.bootstrap, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=asked), version)
    return [
        [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses]
        for topic in answer.responses
    ]


def handles(started: Started) -> list[PartitionHandle]:
    found = [started.broker.context.replicas.by_name("t", index) for index in range(3)]
    return [each for each in found if each is not None]


@pytest.mark.parametrize("version", [NAMES, IDS])
def test_produce_appends_only_the_last_batch_when_a_partition_is_named_twice(started: Started, version: int) -> None:
    """Apache Kafka collects the batches of a request in a map, and answers once for each partition."""
    answers = produce(started, [(0, 1), (1, 2), (2, 3), (2, 3)], [(0, 5), (1, 6)], version=version)
    assert answers == [[(0, 0, 0), (1, 0, 0), (2, 0, 0)]]
    assert [each.end_offset for each in handles(started)] == [5, 6, 3]


def test_produce_answers_each_name_of_an_unknown_partition(started: Started) -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(started, [(9, 1), (0, 1), (9, 1)]) == [[(9, missing, -1), (0, 0, 0), (9, missing, -1)]]


def test_produce_answers_for_the_other_partitions_when_one_append_raises(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has already appended the batches before the failed one, so the producer must receive their results."""
    context = started.broker.context
    lookup = context.replicas.by_name

    class Full:
        """A stub of partition 1. Its append fails as if the process could open no more files."""

        def __init__(self, handle: PartitionHandle) -> None:
            self.topic, self.index = handle.topic, handle.index

        def append(self, *arguments: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    def find(topic: str, index: int) -> PartitionHandle | Full | None:
        handle = lookup(topic, index)
        return Full(handle) if index == 1 and handle is not None else handle

    monkeypatch.setattr(context.replicas, "by_name", find)
    failed = (1, ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert produce(started, [(0, 1), (1, 1), (2, 1)]) == [[(0, 0, 0), failed, (2, 0, 0)]]
