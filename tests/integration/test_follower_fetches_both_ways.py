"""Native processors and Python handlers answer followers with the same bytes. Both record the followers' fetch
positions in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from both_ways import Both
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)
from kafkacore.protocol.uuid import Uuid
from processes import wait_until

LONG_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    try:
        made.started.create("t", 1)
        led(made)
        yield made
    finally:
        made.close()


def led(broker: Both) -> PartitionHandle:
    handle = broker.started.broker.replicas.by_name("t", 0)
    assert handle is not None
    handle.become_leader(1, 1, handle.partition_epoch + 1, followers=[(2, True)])
    return handle


def produced(acks: int) -> ProduceRequest:
    builder = RecordBatchBuilder()
    builder.append(1000, None, b"x")
    data = ProduceRequest.PartitionProduceData(index=0, records=builder.build())
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=LONG_MS, topic_data=[topic])


def fetched(broker: Both, offset: int, version: int, broker_id: int = 2, epoch: int = 1, **fields: Any) -> FetchRequest:
    part = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20, **fields
    )
    topic = FetchRequest.FetchTopic(partitions=[part])
    if version >= 13:
        known = broker.started.broker.context.image.topic("t")
        topic.topic_id = known.topic_id if known is not None else Uuid(bytes(16))
    else:
        topic.topic = "t"
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic])
    if version >= 15:
        request.replica_state = FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=-1)
    else:
        request.replica_id = broker_id
    return request


def part_of(frame: bytes, version: int) -> Any:
    return FetchResponse.decode(frame[5 if version >= 12 else 4 :], version).responses[0].partitions[0]


@pytest.mark.parametrize("version", [4, 9, 12, 15, 17])
def test_follower_is_served_alike_when_a_processor_or_a_handler_answers(broker: Both, version: int) -> None:
    handle = led(broker)
    epoch = 1 if version >= 9 else -1
    for _ in range(2):
        broker.ask(produced(1), 9)
    frame, served = broker.both(fetched(broker, 0, version, epoch=epoch), version)
    assert served
    assert len(part_of(frame, version).records) > 0
    assert handle.high_watermark == 0
    frame, _ = broker.both(fetched(broker, 2, version, epoch=epoch), version)
    part = part_of(frame, version)
    assert (part.error_code, part.high_watermark, part.records or b"") == (0, 2, b"")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"broker_id": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_follower_is_refused_alike_when_its_fetch_is_wrong(
    broker: Both, fields: dict[str, int], error: ErrorCode
) -> None:
    handle = led(broker)
    broker.ask(produced(1), 9)
    frame, _ = broker.both(fetched(broker, **{"offset": 1, "version": 15, **fields}), 15)
    assert part_of(frame, 15).error_code == error
    assert handle.high_watermark == 0


@pytest.mark.parametrize("policy", [None, GatePolicy("punt")], ids=["processor", "handler"])
def test_parked_follower_is_answered_when_a_record_is_appended(broker: Both, policy: GatePolicy | None) -> None:
    handle = led(broker)
    broker.gate(policy)
    request = fetched(broker, 0, 17)
    request.max_wait_ms = LONG_MS
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(broker.ask, request, 17)
        wait_until(lambda: handle.followers()[0].end_offset == 0)
        builder = RecordBatchBuilder()
        builder.append(1000, None, b"x")
        handle.append(builder.build())
        assert len(part_of(asked.result(30), 17).records) > 0


@pytest.mark.parametrize("policy", [None, GatePolicy("punt")], ids=["processor", "handler"])
def test_parked_producer_is_answered_when_another_leadership_began(broker: Both, policy: GatePolicy | None) -> None:
    handle = led(broker)
    broker.gate(policy)
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(broker.ask, produced(-1), 9)
        wait_until(lambda: handle.end_offset)
        handle.become_follower(2, 2, handle.partition_epoch + 1)
        handle.become_leader(1, 3, handle.partition_epoch + 1, followers=[(2, True)])
        handle.followed(2, 1)
        answer = ProduceResponse.decode(asked.result(30)[5:], 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- clients that read from the nearest replica (KIP-392) ---


@pytest.fixture
def near_and_far(tmp_path: Path) -> Iterator[Both]:
    """Starts two brokers. Broker 1 is the leader, in rack "here". Broker 2 has a replica, in rack "there"."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    made = Both(tmp_path, replica_selector_class=selector, broker_rack="here")
    try:
        made.started.create("t", 1)
        where = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="two.example", port=19092)
        register = RegisterBrokerRecord(broker_id=2, broker_epoch=50, end_points=[where], rack="there", fenced=True)

        async def commit() -> None:
            made.started.records.commit(register, UnfenceBrokerRecord(id=2, epoch=50))

        made.started.loop.run(commit(), 10)
        handle = led(made)
        made.ask(produced(1), 9)
        handle.followed(2, 1)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("rack", "offset", "preferred"),
    [("there", 0, 2), ("here", 0, -1), ("", 0, -1), ("nowhere", 0, -1), ("there", 1, 2)],
)
def test_client_is_sent_to_a_follower_when_it_is_in_its_rack(
    near_and_far: Both, rack: str, offset: int, preferred: int
) -> None:
    request = fetched(near_and_far, offset, 12, broker_id=-1)
    request.rack_id = rack
    frame, served = near_and_far.both(request, 12)
    part = part_of(frame, 12)
    assert served
    assert (part.error_code, part.preferred_read_replica) == (0, preferred)
    assert bool(part.records) == (preferred < 0 and offset == 0)


def test_client_stays_with_the_leader_when_the_follower_lacks_the_record(near_and_far: Both) -> None:
    near_and_far.ask(produced(1), 9)
    request = fetched(near_and_far, 2, 12, broker_id=-1)
    request.rack_id = "there"
    frame, _ = near_and_far.both(request, 12)
    assert part_of(frame, 12).preferred_read_replica == -1
