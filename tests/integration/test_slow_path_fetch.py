"""A Fetch that the Python handler loop serves waits like one that native processors serve. A partition that does not
exist does not end the wait."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asking import ask
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FetchRequest, ProduceRequest
from kafkacore.protocol.uuid import Uuid
from lone_broker import Started

LONG_MS = 60_000
SHORT_MS = 300
NAMES, IDS = 12, 13  # a version that identifies topics by name, and one that uses ids


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made = Started(tmp_path)
    try:
        made.create("t", 1)
        made.broker.plane.native.publish_gate(GatePolicy("punt"))
        yield made
    finally:
        made.stop()


def fetch(started: Started, names: list[str], wait_ms: int, version: int = NAMES, offset: int = 0) -> Any:
    """Fetches by topic name. Returns, by topic, the error and the number of bytes in the answer."""
    known = {name: started.broker.context.image.topic(name) for name in names}
    ids = {name: Uuid(name.encode().ljust(16)) if topic is None else topic.topic_id for name, topic in known.items()}
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic=name, topic_id=ids[name], partitions=[partition]) for name in names]
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, replica_id=-1, topics=topics
    )
    answer = ask(started.bootstrap, request, version)
    by_id = {topic_id: name for name, topic_id in ids.items()}
    return {
        topic.topic or by_id[topic.topic_id]: (topic.partitions[0].error_code, len(topic.partitions[0].records or b""))
        for topic in answer.responses
    }


def produce(started: Started) -> None:
    builder = RecordBatchBuilder()
    builder.append(int(time.time() * 1000), None, b"value")
    part = ProduceRequest.PartitionProduceData(index=0, records=builder.build())
    data = ProduceRequest.TopicProduceData(name="t", partition_data=[part])
    answer = ask(started.bootstrap, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), NAMES)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize(
    ("version", "error"), [(NAMES, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (IDS, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_fetch_waits_for_a_known_partition_when_another_is_unknown(
    started: Started, version: int, error: ErrorCode
) -> None:
    began = time.monotonic()
    assert fetch(started, ["t", "absent"], SHORT_MS, version) == {"t": (0, 0), "absent": (error, 0)}
    assert time.monotonic() - began >= SHORT_MS / 1000 * 0.9


def test_fetch_with_an_unknown_partition_ends_when_the_known_one_has_records(started: Started) -> None:
    answers: list[Any] = []
    fetching = threading.Thread(target=lambda: answers.append(fetch(started, ["absent", "t"], 15_000)))
    fetching.start()
    produce(started)
    fetching.join(20)
    error, size = answers[0]["t"]
    assert error == 0
    assert size > 0


def test_fetch_of_unknown_partitions_alone_is_answered_at_once(started: Started) -> None:
    # The broker must answer before the end of the wait, because the test's client gives up long before.
    assert fetch(started, ["absent"], LONG_MS) == {"absent": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}


def test_fetch_is_answered_at_once_when_a_known_partition_fails(started: Started) -> None:
    assert fetch(started, ["t"], LONG_MS, offset=99) == {"t": (ErrorCode.OFFSET_OUT_OF_RANGE, 0)}


def fetch_t(
    started: Started, *offsets: int, version: int = NAMES, **fields: int
) -> list[tuple[int, int, int, list[int]]]:
    """Sends a Fetch that contains partition 0 of "t" once for each offset. Returns the partitions in the answer: index,
    error, high watermark, and the offsets of the batches."""
    parts = [FetchRequest.FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1 << 20) for at in offsets]
    topic_id = started.broker.context.image.topic("t").topic_id
    topics = [FetchRequest.FetchTopic(topic="t", topic_id=topic_id, partitions=[part]) for part in parts]
    limits = {"max_wait_ms": LONG_MS, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    answer = ask(started.bootstrap, FetchRequest(session_epoch=-1, replica_id=-1, topics=topics, **limits), version)
    found = [part for topic in answer.responses for part in topic.partitions]
    return [
        (each.partition_index, each.error_code, each.high_watermark, [one.base_offset for one in Batches(each.records)])
        for each in found
    ]


def test_fetch_is_answered_at_once_when_min_bytes_exceed_max_bytes(started: Started) -> None:
    produce(started)
    assert fetch_t(started, 0, min_bytes=1 << 20, max_bytes=50) == [(0, 0, 1, [0])]


@pytest.mark.parametrize("level", [2, 3, -1])
def test_fetch_reads_no_uncommitted_records_when_its_isolation_level_is_unknown(started: Started, level: int) -> None:
    handle = started.broker.replicas.by_name("t", 0)
    assert handle is not None
    handle.become_leader(1, 1, handle.partition_epoch + 1, followers=[(2, True)])
    builder = RecordBatchBuilder()
    builder.append(1000, None, b"value")
    assert handle.append(builder.build()).error == 0
    assert (handle.high_watermark, handle.end_offset) == (0, 1)
    assert fetch_t(started, 0, isolation_level=level, max_wait_ms=0) == [(0, 0, 0, [])]
    handle.become_follower(2, 2, handle.partition_epoch + 1)
    # In this version, only the leader answers clients.
    answer = fetch_t(started, 0, isolation_level=level, max_wait_ms=0, version=10)
    assert answer == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, [])]


def test_fetch_is_answered_at_once_when_it_reads_an_older_segment(started: Started) -> None:
    """Apache Kafka's DelayedFetch, case F: a consumer whose offset is in an older segment does not wait."""
    handle = started.broker.context.replicas.by_name("t", 0)
    assert handle is not None
    handle.configure(LogSettings(segment_bytes=100))
    for _ in range(4):
        produce(started)
    assert len(handle.segments()) > 1
    assert fetch_t(started, 0, min_bytes=1 << 20)[0][:3] == (0, 0, 4)


@pytest.mark.parametrize("version", [NAMES, IDS])
def test_fetch_answers_a_partition_once_when_it_is_named_twice(started: Started, version: int) -> None:
    for _ in range(3):
        produce(started)
    assert fetch_t(started, 0, 2, version=version) == [(0, 0, 3, [2])]


@pytest.mark.parametrize(
    ("version", "error"),
    [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER), (5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)],
)
def test_fetch_reports_an_offline_directory_in_the_words_of_its_version(
    started: Started, version: int, error: ErrorCode
) -> None:
    """Clients that use version 5 or older treat KAFKA_STORAGE_ERROR as a fatal error (KIP-112)."""
    produce(started)
    handle = started.broker.context.replicas.by_name("t", 0)
    assert handle is not None
    handle.directory.fail(errno.EIO)
    [(_, found, _, records)] = fetch_t(started, 0, version=version)
    assert (found, records) == (error, [])
