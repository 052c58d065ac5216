"""Fetches of followers on the hot path: the followers' positions, waits, sessions, and the producers that wait for the
followers."""

import pytest

from kafkacore._fast.log.partition_edges import ACTIVE, PartitionEdges
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode

BY_NAME, BY_ID = 12, 17


def follower_request(plane, offsets, version, broker_id=2, broker_epoch=-1, epoch=1, **fields):
    request = plane.fetch_request(offsets, version, **fields)
    if version >= 15:
        request.replica_state = m.FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
    else:
        request.replica_id = broker_id
    for topic in request.topics:
        for each in topic.partitions:
            each.current_leader_epoch = epoch
    return request


def parts(answer):
    assert answer.error_code == 0
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


@pytest.fixture
def replicated(open_plane):
    plane = open_plane()
    plane.edges = PartitionEdges(30_000, plane.environment)
    plane.edges.set_brokers([(1, ACTIVE, 11), (2, ACTIVE, 22)])
    for partition in plane.partitions:
        partition.report_to(plane.edges)
        partition.become_leader(1, 1, 1, followers=[(2, True)])
    return plane


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_high_watermark_moves_when_a_follower_fetches_from_the_end(replicated, batch, version):
    client = replicated.client()
    client.produce(replicated.produce_request(batch(3), acks=1))
    part = parts(client.fetch(follower_request(replicated, {0: 0}, version), version))[0]
    assert (part.error_code, part.high_watermark, part.log_start_offset) == (0, 0, 0)
    assert len(part.records) > 0, "a follower must be able to read beyond the high watermark"
    part = parts(client.fetch(follower_request(replicated, {0: 3}, version), version))[0]
    assert (part.error_code, part.high_watermark, part.records or b"") == (0, 3, b"")
    assert replicated.partitions[0].high_watermark == 3


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_producer_is_answered_when_its_follower_has_the_record(replicated, batch, version):
    producer, follower = replicated.client(), replicated.client()
    producer.send(replicated.produce_request(batch(2), acks=-1, timeout_ms=60_000), 12)
    read = parts(follower.fetch(follower_request(replicated, {0: 0}, version, max_wait_ms=60_000), version))[0]
    assert len(read.records) > 0
    follower.send(follower_request(replicated, {0: 2}, version, max_wait_ms=60_000), version)
    answer = producer.receive(m.ProduceResponse, 12)[1]
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_fetch_of_a_follower_waits_when_it_has_all_records(replicated, batch):
    producer, follower = replicated.client(), replicated.client()
    follower.send(follower_request(replicated, {0: 0, 1: 0}, BY_ID, max_wait_ms=60_000), BY_ID)
    producer.produce(replicated.produce_request(batch(1), partition=1, acks=1))
    found = parts(follower.receive(m.FetchResponse, BY_ID)[1])
    assert [len(found[index].records or b"") > 0 for index in (0, 1)] == [False, True]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_session_of_a_follower_names_a_partition_when_its_high_watermark_changed(replicated, batch, version):
    client = replicated.client()
    client.produce(replicated.produce_request(batch(2), batch(1), acks=1))
    begun = client.fetch(follower_request(replicated, {0: 2, 1: 0, 2: 0}, version, session_epoch=0), version)
    assert begun.session_id != 0
    found = parts(
        client.fetch(
            follower_request(replicated, {1: 1}, version, session_id=begun.session_id, session_epoch=1), version
        )
    )
    assert {index: part.high_watermark for index, part in found.items()} == {1: 1}
    again = client.fetch(
        follower_request(replicated, {}, version, session_id=begun.session_id, session_epoch=2), version
    )
    assert parts(again) == {}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"broker_id": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"broker_id": 9, "epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"broker_epoch": 21}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_follower_is_refused_when_its_epoch_or_membership_is_wrong(replicated, batch, fields, error):
    client = replicated.client()
    client.produce(replicated.produce_request(batch(1), acks=1))
    part = parts(client.fetch(follower_request(replicated, {0: 1}, BY_ID, **fields), BY_ID))[0]
    assert part.error_code == error
    assert replicated.partitions[0].high_watermark == 0


def test_follower_learns_of_divergence_when_its_last_epoch_ended_earlier(replicated, batch):
    client = replicated.client()
    client.produce(replicated.produce_request(batch(2), acks=1))
    partition = replicated.partitions[0]
    partition.become_leader(1, 5, 2, followers=[(2, True)])
    client.produce(replicated.produce_request(batch(2), acks=1))
    request = follower_request(replicated, {0: 3}, BY_ID, epoch=5)
    request.topics[0].partitions[0].last_fetched_epoch = 1
    part = parts(client.fetch(request, BY_ID))[0]
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (1, 2)
    assert [each.end_offset for each in partition.followers()] == [-1], "a diverging offset must not count"


def test_producer_is_refused_when_the_isr_is_too_small(replicated, batch):
    client = replicated.client()
    replicated.partitions[0].become_leader(1, 1, 2, followers=[(2, False)], min_isr=2)
    answer = client.produce(replicated.produce_request(batch(1), acks=-1))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_client_reads_committed_records_when_it_asks_a_follower(replicated, batch):
    client = replicated.client()
    client.produce(replicated.produce_request(batch(2), acks=1))
    partition = replicated.partitions[0]
    partition.followed(2, 2)
    partition.become_follower(2, 2, 2)
    part = parts(client.fetch(replicated.fetch_request({0: 0}, BY_NAME), BY_NAME))[0]
    assert (part.error_code, part.high_watermark) == (0, 2)
    assert len(part.records) > 0
    old = parts(client.fetch(replicated.fetch_request({0: 0}, 10), 10))[0]
    assert old.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_waiting_client_of_a_follower_is_answered_when_the_high_watermark_moves(replicated, batch):
    client = replicated.client()
    client.produce(replicated.produce_request(batch(2), acks=1))
    partition = replicated.partitions[0]
    partition.become_follower(2, 2, 2)
    client.send(replicated.fetch_request({0: 0}, BY_NAME, max_wait_ms=60_000), BY_NAME)
    assert partition.note_leader(2, 2, 0) == 0
    part = parts(client.receive(m.FetchResponse, BY_NAME)[1])[0]
    assert part.high_watermark == 2
    assert len(part.records) > 0
