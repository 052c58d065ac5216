"""Native processors and Python handlers answer ListOffsets with the same bytes."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from both_ways import Both
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol import apis
from kafkacore.protocol.messages import ListOffsetsRequest, ListOffsetsResponse, ProduceRequest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING = range(-1, -7, -1)
VERSIONS = range(1, 12)
RECORDS = 7


def produced() -> ProduceRequest:
    builder = RecordBatchBuilder()
    for number in range(RECORDS):
        builder.append(1000 + number, None, b"x")
    parts = ProduceRequest.PartitionProduceData
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[parts(index=1, records=bytes(builder.build()))])
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: Any) -> Iterator[Both]:
    made = Both(tmp_path_factory.mktemp("both"))
    try:
        made.started.create("t", 3)
        made.started.create("u")
        made.ask(produced(), 9)
        yield made
    finally:
        made.close()


def asked(*topics: tuple[str, list[tuple[int, int, int]]], replica_id: int = -1, isolation: int = 0) -> Any:
    """Returns the topics of a request, each partition given as (partition, timestamp, leader epoch)."""
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                    )
                    for index, timestamp, epoch in partitions
                ],
            )
            for name, partitions in topics
        ],
    )


def decoded(frame: bytes, version: int) -> list[tuple[int, int, int]]:
    """Returns (error, offset, leader epoch) of each partition in the response."""
    response = ListOffsetsResponse.decode(frame[5 if version >= 6 else 4 :], version)
    return [(each.error_code, each.offset, each.leader_epoch) for topic in response.topics for each in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_processor_answers_ends_and_starts_as_the_handler_does(broker: Both, version: int) -> None:
    since = {LATEST: 1, EARLIEST: 1, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, PENDING: 11}
    for timestamp, replica_id, isolation in itertools.product(since, (-1, -2, 3), (0, 1) if version >= 2 else (0,)):
        topics = ("t", [(2, timestamp, -1), (1, timestamp, -1)]), ("u", [(0, timestamp, -1)])
        frame, served = broker.both(asked(*topics, replica_id=replica_id, isolation=isolation), version)
        assert served == (version >= since[timestamp])
        if timestamp == LATEST:
            assert [each[:2] for each in decoded(frame, version)] == [(0, 0), (0, RECORDS), (0, 0)]


@pytest.mark.parametrize("version", [4, 6, 11])
def test_processor_refuses_a_wrong_leader_epoch_as_the_handler_does(broker: Both, version: int) -> None:
    frame, served = broker.both(asked(("t", [(0, LATEST, 0), (1, LATEST, 9), (2, EARLIEST, -1)])), version)
    assert served
    assert [each[0] for each in decoded(frame, version)] == [0, 75, 0]


def test_handler_gets_the_whole_request_when_memory_cannot_answer_it(broker: Both) -> None:
    for topics in (
        [("t", [(1, 1003, -1)])],
        [("t", [(0, LATEST, -1), (1, MAX_TIMESTAMP, -1)])],
        [("t", [(0, LATEST, -1), (9, LATEST, -1)])],
        [("absent", [(0, LATEST, -1)])],
        [("t", [(1, LATEST, -1), (1, LATEST, -1)])],
        [("t", [(1, LATEST, -1)]), ("t", [(1, EARLIEST, -1)])],
        [("t", [(0, -9, -1)])],
    ):
        _, served = broker.both(asked(*topics), 7)
        assert not served


def test_processor_answers_a_topic_named_twice_and_no_topic(broker: Both) -> None:
    assert broker.both(asked(), 7)[1]
    assert broker.both(asked(("t", [])), 7)[1]
    assert broker.both(asked(("t", [(0, LATEST, -1)]), ("u", [(0, LATEST, -1)]), ("t", [(1, LATEST, -1)])), 7)[1]


def test_connection_is_closed_both_ways_when_a_request_is_cut_off(broker: Both) -> None:
    frame = apis.encode_request(7, 5, "me", asked(("t", [(0, LATEST, -1)])))[:-3]
    for policy in (None, GatePolicy("punt")):
        broker.gate(policy)
        with socket.create_connection(broker.socket.getpeername(), 10) as other:
            other.sendall(struct.pack(">i", len(frame)) + frame)
            assert other.recv(1) == b""


def test_gate_gives_every_partition_its_error(broker: Both) -> None:
    broker.gate(GatePolicy(rules=[{"api_key": 2, "action": "error", "error": 6, "times": 1}]))
    frame = broker.ask(asked(("t", [(0, LATEST, -1), (1, EARLIEST, -1)])), 7)
    assert decoded(frame, 7) == [(6, -1, -1), (6, -1, -1)]


@pytest.mark.parametrize("version", [1, 4, 5, 11])
def test_latest_offset_is_not_available_before_the_high_watermark_has_caught_up(broker: Both, version: int) -> None:
    """The leader answers with an error for a moment, because the previous leader may already have returned a higher
    offset (KIP-207)."""
    broker.started.create(f"behind{version}")
    handle = broker.started.broker.replicas.by_name(f"behind{version}", 0)
    assert handle is not None
    handle.become_leader(1, 1, 1, followers=[(2, True)])
    assert handle.append(bytes(produced().topic_data[0].partition_data[0].records), acks=1).error == 0
    handle.become_leader(1, 2, 2, followers=[(2, True)])
    assert handle.is_behind
    unavailable = 78 if version >= 5 else 5
    name = f"behind{version}"
    for timestamp, expected in {
        LATEST: (unavailable, -1),
        EARLIEST: (0, 0),
        1000: (unavailable, -1),
        9000: (unavailable, -1),
        **({MAX_TIMESTAMP: (unavailable, -1)} if version >= 7 else {}),
        **({EARLIEST_LOCAL: (0, 0)} if version >= 8 else {}),
        **({LATEST_TIERED: (0, -1)} if version >= 9 else {}),
    }.items():
        frame, _ = broker.both(asked((name, [(0, timestamp, -1)])), version)
        assert decoded(frame, version)[0][:2] == expected, timestamp
        frame, _ = broker.both(asked((name, [(0, timestamp, -1)]), replica_id=-2), version)
        assert decoded(frame, version)[0][0] == 0
    handle.become_leader(1, 3, 3)
    assert not handle.is_behind
    frame, _ = broker.both(asked((name, [(0, LATEST, -1)])), version)
    assert decoded(frame, version)[0][:2] == (0, RECORDS)
