"""On the hot path, native code counts the traffic of each partition. The metrics of a topic are computed from these
counts."""

import pytest

from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore._fast.log.traffic_counts import TrafficCounts, traffic_of
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol import messages as m
from processes import wait_until

NOW_MS = 1_700_000_000_000
MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, INVALID_RECORD, NOT_ENOUGH_REPLICAS = 10, 2, 87, 19


def only(answer):
    return answer.responses[0].partition_responses[0]


def fetch_as_follower(plane, client, offset):
    request = plane.fetch_request({0: offset}, 17)
    request.replica_state = m.FetchRequest.ReplicaState(replica_id=2, replica_epoch=-1)
    return client.fetch(request, 17)


def counted(plane, index=0, **fields):
    """Returns whether the partition has counted exactly these values."""
    assert traffic_of([plane.partitions[index]]) == TrafficCounts(**fields)


def test_accepted_batch_counts_its_records_and_bytes_when_it_is_appended_and_when_it_is_sent_again(data_plane, client):
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(3):
        builder.append(timestamp=NOW_MS, key=None, value=b"v")
    sent = bytes(builder.build())
    assert only(client.produce(data_plane.produce_request(sent))).error_code == 0
    counted(data_plane, produces=1, messages_in=3, bytes_in=len(sent))
    again = only(client.produce(data_plane.produce_request(sent)))
    assert (again.error_code, again.base_offset) == (0, 0)
    counted(data_plane, produces=2, messages_in=6, bytes_in=2 * len(sent))
    assert data_plane.partitions[0].end_offset == 3
    counted(data_plane, 1)


def test_batch_counts_once_when_it_waits_for_its_log_and_for_each_roll(open_plane, batch):
    plane = open_plane(segment_bytes=500)
    client, sent = plane.client(), [batch(2) for _ in range(5)]
    for each in sent:
        assert only(client.produce(plane.produce_request(each))).error_code == 0
    assert len(plane.partitions[0].segments()) > 2
    counted(plane, produces=5, messages_in=10, bytes_in=sum(map(len, sent)))


def test_batch_that_is_too_large_counts_its_bytes_as_rejected_and_not_as_failed(open_plane, batch):
    plane = open_plane(max_message_bytes=500)
    sent = batch(1, 1000)
    assert only(plane.client().produce(plane.produce_request(sent))).error_code == MESSAGE_TOO_LARGE
    counted(plane, produces=1, bytes_rejected=len(sent))


def test_refused_batches_count_by_their_fault(open_plane, batch):
    plane = open_plane(compact_policy=True)
    client = plane.client()

    def refused(data, error):
        assert only(client.produce(plane.produce_request(bytes(data)))).error_code == error

    broken = bytearray(batch(1))
    broken[-1] ^= 0xFF
    refused(broken, CORRUPT_MESSAGE)
    counted(plane, produces=1, bad_checksum=1)
    shifted = bytearray(batch(1))
    shifted[7] = 9
    refused(shifted, INVALID_RECORD)
    counted(plane, produces=2, failed_produces=1, bad_checksum=1, bad_offsets=1)
    keyless = RecordBatchBuilder()
    keyless.append(timestamp=NOW_MS, key=None, value=b"v")
    refused(keyless.build(), INVALID_RECORD)
    counted(plane, produces=3, failed_produces=2, bad_checksum=1, bad_offsets=1, no_key=1)


def test_append_fails_unexpectedly_when_too_few_replicas_are_in_sync(data_plane, client, batch):
    data_plane.partitions[0].become_leader(1, 1, 1, followers=[(2, False)], min_isr=2)
    assert only(client.produce(data_plane.produce_request(batch(1)))).error_code == NOT_ENOUGH_REPLICAS
    counted(data_plane, produces=1, failed_produces=1)


def test_compressing_again_counts_as_a_conversion_of_its_records(open_plane, batch):
    plane = open_plane(compression_type=1)
    sent = batch(4)
    assert only(plane.client().produce(plane.produce_request(sent))).error_code == 0
    counted(plane, produces=1, messages_in=4, bytes_in=len(sent), conversions=4)


def test_fetch_counts_once_and_its_bytes_only_when_they_are_sent(data_plane, client, batch):
    waiting, sent = data_plane.client(), [batch(1), batch(1)]
    waiting.send(data_plane.fetch_request({0: 0}, min_bytes=len(sent[0]) + 1, max_wait_ms=60_000), 12)
    wait_until(lambda: data_plane.hot.purgatories()["Fetch"] == (1, 1), what="the Fetch in the purgatory")
    for each in sent:
        client.produce(data_plane.produce_request(each))
    assert len(waiting.receive(m.FetchResponse, 12)[1].responses[0].partitions[0].records) == sum(map(len, sent))
    size = sum(map(len, sent))
    counted(data_plane, produces=2, messages_in=2, bytes_in=size, fetches=1, bytes_out=size)
    assert data_plane.hot.purgatories() == {"Produce": (0, 0), "Fetch": (0, 0)}


@pytest.mark.parametrize("added", [(), (2,), (3,)])
def test_bytes_to_a_follower_are_replication_and_a_reassignments_when_it_adds_that_follower(open_plane, batch, added):
    plane = open_plane()
    plane.partitions[0].become_leader(1, 1, 1, followers=[(2, True), (3, True)])
    plane.partitions[0].add_replicas(added, 1)
    assert plane.partitions[0].adds_replicas == bool(added)
    client, sent = plane.client(), batch(2)
    client.produce(plane.produce_request(sent, acks=1))
    fetch_as_follower(plane, client, 0)
    came = {"produces": 1, "messages_in": 2, "bytes_in": len(sent), "fetches": 1, "replication_out": len(sent)}
    counted(plane, **came, reassignment_out=len(sent) if added == (2,) else 0)
    plane.partitions[0].add_replicas((), 1)
    fetch_as_follower(plane, client, 0)
    assert not plane.partitions[0].adds_replicas
    assert traffic_of(plane.partitions).reassignment_out == (len(sent) if added == (2,) else 0)


@pytest.mark.parametrize("added", [(), (1, 5), (5,)])
def test_bytes_from_a_leader_are_replication_and_a_reassignments_when_it_adds_this_replica(data_plane, batch, added):
    partition = data_plane.partitions[0]
    assert partition.become_follower(2, 1)
    partition.add_replicas(added, 1)
    sent = batch(2)
    assert partition.append_as_follower(sent, 1).error == 0
    counted(data_plane, replication_in=len(sent), reassignment_in=len(sent) if 1 in added else 0)


def test_requests_leave_the_purgatory_when_they_are_answered_time_out_or_lose_their_connection(open_plane, batch):
    plane = open_plane(leader_quota=ReplicationQuota())
    plane.partitions[0].become_leader(1, 1, 1, followers=[(2, True)])

    def waits(what, *expected):
        wait_until(lambda: plane.hot.purgatories()[what] == expected, what=f"{expected} of {what} in the purgatory")

    late, cut, answered = plane.client(), plane.client(), plane.client()
    late.send(plane.produce_request(batch(1), timeout_ms=1), 12)
    assert only(late.receive(m.ProduceResponse, 12)[1]).error_code == 7
    waits("Produce", 0, 0)
    cut.send(plane.produce_request(batch(1), batch(1), timeout_ms=60_000), 12)
    answered.send(plane.produce_request(batch(1), timeout_ms=60_000), 12)
    waits("Produce", 2, 3)
    cut.close()
    waits("Produce", 1, 1)
    follower = plane.client()
    fetch_as_follower(plane, follower, 3)
    assert only(answered.receive(m.ProduceResponse, 12)[1]).error_code == 0
    waits("Produce", 0, 0)
