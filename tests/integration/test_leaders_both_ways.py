"""A response can contain the current leader of a partition and the leader's address (KIP-951). Native processors and
Python handlers encode both with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from both_ways import Both
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.messages import (
    FetchRequest,
    FetchResponse,
    PartitionChangeRecord,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from kafkacore.protocol.uuid import Uuid
from processes import wait_until

NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH = 6, 74
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter_broker_listener_name": "INSIDE",
}
OTHERS = [("PLAINTEXT", "two.example", 19092), ("INSIDE", "two.inside", 29092)]


@pytest.fixture(scope="module", params=["PLAINTEXT", "INSIDE"])
def broker(request: Any, tmp_path_factory: Any) -> Iterator[Both]:
    made = Both(tmp_path_factory.mktemp("leaders"), request.param, **LISTENERS)
    made.listener = request.param  # type: ignore[attr-defined]
    try:
        made.started.create("t", 4)
        yield made
    finally:
        made.close()


def commit(broker: Both, *records: Any) -> None:
    async def committed() -> None:
        broker.started.records.commit(*records)

    broker.started.loop.run(committed(), 10)


def id_of(broker: Both) -> Uuid:
    topic = broker.started.broker.context.image.topic("t")
    assert topic is not None
    return topic.topic_id


def handle_of(broker: Both, index: int) -> PartitionHandle:
    handle = broker.started.broker.replicas.by_name("t", index)
    assert handle is not None
    return handle


def move_away(broker: Both, index: int) -> None:
    """Moves the leadership of the partition to another broker."""
    end_points = [RegisterBrokerRecord.BrokerEndpoint(name=name, host=host, port=port) for name, host, port in OTHERS]
    if 2 not in broker.started.broker.context.image.brokers:
        register = RegisterBrokerRecord(broker_id=2, broker_epoch=50, end_points=end_points, rack="r", fenced=True)
        commit(broker, register, UnfenceBrokerRecord(id=2, epoch=50))
    change = PartitionChangeRecord(topic_id=id_of(broker), partition_id=index, replicas=[1, 2], isr=[2], leader=2)
    commit(broker, change)


def fetch(broker: Both, index: int, version: int, epoch: int = -1) -> Any:
    part = FetchRequest.FetchPartition(partition=index, current_leader_epoch=epoch, partition_max_bytes=1000)
    topic = FetchRequest.FetchTopic(partitions=[part])
    if version >= 13:
        topic.topic_id = id_of(broker)
    else:
        topic.topic = "t"
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[topic])
    frame, _ = broker.both(request, version)
    return FetchResponse.decode(frame[5 if version >= 12 else 4 :], version)


def produced(index: int, acks: int = 1) -> ProduceRequest:
    builder = RecordBatchBuilder()
    builder.append(1000, None, b"x")
    parts = ProduceRequest.PartitionProduceData
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[parts(index=index, records=builder.build())])
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[topic])


def told(answer: Any, part: Any) -> tuple[int, int, int, list[tuple[int, str, int, str | None]]]:
    nodes = [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]
    return part.error_code, part.current_leader.leader_id, part.current_leader.leader_epoch, nodes


def elsewhere(broker: Both) -> list[tuple[int, str, int, str | None]]:
    return [(2, host, port, "r") for name, host, port in OTHERS if name == broker.listener]  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_fetch_names_the_leader_for_its_listener_when_the_epoch_is_old(broker: Both, version: int) -> None:
    handle = handle_of(broker, 0)
    commit(broker, PartitionChangeRecord(topic_id=id_of(broker), partition_id=0, leader=1))
    answer = fetch(broker, 0, version, epoch=handle.leader_epoch - 1)
    port = broker.started.broker.bound[broker.listener][1]  # type: ignore[attr-defined]
    here = (1, handle.leader_epoch, [(1, "127.0.0.1", port, "")])
    known = here if version >= 16 else (-1, -1, [])
    assert told(answer, answer.responses[0].partitions[0]) == (FENCED_LEADER_EPOCH, *known)


@pytest.mark.parametrize("version", [12, 16])
def test_fetch_names_the_leader_when_another_broker_leads(broker: Both, version: int) -> None:
    move_away(broker, 1)
    epoch = handle_of(broker, 1).leader_epoch
    answer = fetch(broker, 1, version, epoch - 1)
    known = (2, epoch, elsewhere(broker)) if version >= 16 else (-1, -1, [])
    assert told(answer, answer.responses[0].partitions[0]) == (FENCED_LEADER_EPOCH, *known)


@pytest.mark.parametrize(("version", "error"), [(4, NOT_LEADER_OR_FOLLOWER), (10, NOT_LEADER_OR_FOLLOWER), (11, 0)])
def test_follower_answers_a_fetch_when_the_client_may_read_from_it(broker: Both, version: int, error: int) -> None:
    move_away(broker, 1)
    assert fetch(broker, 1, version).responses[0].partitions[0].error_code == error


@pytest.mark.parametrize("version", [3, 9, 10, 12])
def test_produce_names_the_leader_when_another_broker_leads(broker: Both, version: int) -> None:
    move_away(broker, 1)
    frame, _ = broker.both(produced(1), version)
    answer = ProduceResponse.decode(frame[5 if version >= 9 else 4 :], version)
    epoch = handle_of(broker, 1).leader_epoch
    known = (2, epoch, elsewhere(broker)) if version >= 10 else (-1, -1, [])
    assert told(answer, answer.responses[0].partition_responses[0]) == (NOT_LEADER_OR_FOLLOWER, *known)


@pytest.mark.parametrize(("index", "policy"), [(2, None), (3, GatePolicy("punt"))], ids=["processor", "handler"])
def test_parked_produce_names_the_leader_when_another_broker_takes_over(
    broker: Both, index: int, policy: GatePolicy | None
) -> None:
    broker.gate(policy)
    handle = handle_of(broker, index)
    handle.become_leader(1, handle.leader_epoch, 100, followers=[(2, True)])
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(broker.ask, produced(index, acks=-1), 10)
        wait_until(lambda: handle.end_offset)
        move_away(broker, index)
        handle.become_follower(2, handle.leader_epoch + 1, 101)
        answer = ProduceResponse.decode(asked.result(30)[5:], 10)
    part = answer.responses[0].partition_responses[0]
    error, leader, _, nodes = told(answer, part)
    assert (error, leader, nodes) == (NOT_LEADER_OR_FOLLOWER, 2, elsewhere(broker))
    assert part.base_offset == 0
