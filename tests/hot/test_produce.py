"""Produce on the hot path, from the socket to the segment and back."""

import gc
import time

import pytest

from kafkacore._fast.hot import produce
from kafkacore._fast.plane import inbound
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.protocol import messages as m

INVALID_RECORD, CORRUPT_MESSAGE = 87, 2
NOW_MS = 1_700_000_000_000  # the timestamp of the batches in requests


def parts(answer):
    return answer.responses[0].partition_responses


def only(answer):
    return parts(answer)[0]


def test_large_requests_are_stored_whole_whatever_their_alignment(data_plane, client, batch):
    """Every batch is stored whole, whether it is aligned or not, and whatever the connection has sent before."""
    sent = [batch(1, size) for size in (20_001, 70_013, 5, 300_007, 1, 1_000_003, 20_002)]
    for one in sent:
        assert only(client.produce(data_plane.produce_request(one))).error_code == 0
    read = data_plane.partitions[0].read(0, 1 << 24).records
    assert [len(each.data) for each in Batches(read)] == [len(one) for one in sent]
    assert [record.value for each in Batches(read) for record in each] == [
        record.value for one in sent for each in Batches(one) for record in each
    ]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_appends_and_acknowledges_a_batch_in_every_version(data_plane, client, batch, version):
    first = only(client.produce(data_plane.produce_request(batch(3), version=version), version))
    second = only(client.produce(data_plane.produce_request(batch(2), version=version), version))
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 3)
    assert data_plane.partitions[0].end_offset == 5


def test_produce_reports_log_append_time_when_the_append_waited_for_a_segment(open_plane, batch):
    plane = open_plane(log_append_time=True, segment_bytes=500)
    client = plane.client()
    # The first Produce waits until its log is open, and a later one waits for each roll. After the wait, the processor
    # validates the request again.
    answers = [only(client.produce(plane.produce_request(batch(2)))) for _ in range(6)]
    assert [each.error_code for each in answers] == [0] * 6
    assert all(each.log_append_time_ms > NOW_MS for each in answers)
    assert len(plane.partitions[0].segments()) > 2


def test_produce_answers_each_partition_by_itself(data_plane, client, batch):
    good, broken = batch(2), bytearray(batch(2))
    broken[-1] ^= 0xFF
    answers = parts(client.produce(data_plane.produce_request(good, bytes(broken), good)))
    assert [part.error_code for part in answers] == [0, CORRUPT_MESSAGE, 0]
    assert [part.index for part in answers] == [0, 1, 2]
    assert data_plane.partitions[1].end_offset == 0


def test_produce_reports_unknown_partitions_and_topic_ids(data_plane, client, batch):
    assert only(client.produce(data_plane.produce_request(batch(), partition=9))).error_code == 3
    unknown = data_plane.produce_request(batch(), version=13)
    unknown.topic_data[0].topic_id = type(unknown.topic_data[0].topic_id)(bytes(15) + b"\x07")
    assert only(client.produce(unknown, 13)).error_code == 100


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_produce_appends_nothing_when_acks_is_invalid(data_plane, client, batch, acks):
    assert only(client.produce(data_plane.produce_request(batch(), acks=acks))).error_code == 21
    assert data_plane.partitions[0].end_offset == 0


def test_produce_without_acks_closes_the_connection_on_an_error(data_plane, client, batch):
    client.send(data_plane.produce_request(batch(), acks=0), 12)
    assert only(client.produce(data_plane.produce_request(batch()))).base_offset == 1
    client.send(data_plane.produce_request(batch()[:-1], acks=0), 12)
    assert client.is_closed()


def test_request_behind_one_that_closes_the_connection_is_not_served(data_plane, client, batch):
    client.produce(data_plane.produce_request(batch()))  # the log is open now, so that appends do not wait
    unknown, good = data_plane.produce_request(batch(), partition=99, acks=0), data_plane.produce_request(batch())
    client.send_together([unknown, good], 12)
    assert client.is_closed()
    assert data_plane.partitions[0].end_offset == 1


def test_pipelined_requests_are_answered_in_order(data_plane, client, batch):
    sent = [client.send(data_plane.produce_request(batch(i % 3 + 1)), 12) for i in range(200)]
    answers = [client.receive(m.ProduceResponse, 12) for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    offsets = [only(answer).base_offset for _, answer in answers]
    assert offsets == sorted(offsets)
    assert data_plane.partitions[0].end_offset == sum(i % 3 + 1 for i in range(200))


def test_produce_answers_a_retry_with_its_first_offset(data_plane, client, batch):
    request = data_plane.produce_request(batch(2, producer_id=7, producer_epoch=0, base_sequence=0))
    assert [only(client.produce(request)).base_offset for _ in range(3)] == [0, 0, 0]
    gap = data_plane.produce_request(batch(1, producer_id=7, producer_epoch=0, base_sequence=9))
    assert only(client.produce(gap)).error_code == 45
    assert data_plane.partitions[0].end_offset == 2


def test_acknowledgement_waits_for_the_sync_when_flush_messages_is_one(open_plane, batch):
    plane = open_plane(flush_messages=1)
    client = plane.client()
    answers = parts(client.produce(plane.produce_request(batch(), batch(), batch())))
    assert [part.error_code for part in answers] == [0, 0, 0]
    assert [partition.synced_offset for partition in plane.partitions] == [1, 1, 1]


def test_acks_all_times_out_while_a_follower_in_the_isr_lags(data_plane, client, batch):
    data_plane.partitions[0].become_leader(1, 1, 1, followers=[(2, True)])
    assert only(client.produce(data_plane.produce_request(batch(), timeout_ms=50))).error_code == 7
    assert only(client.produce(data_plane.produce_request(batch(), acks=1))).error_code == 0
    assert data_plane.partitions[0].high_watermark == 0


def test_parked_produce_reports_not_leader_when_the_leader_moves(data_plane, client, batch):
    partition = data_plane.partitions[0]
    partition.become_leader(1, 1, 1, followers=[(2, True)])
    client.send(data_plane.produce_request(batch(), timeout_ms=60_000), 12)
    while partition.end_offset == 0:
        pass
    partition.become_follower(2, 2, 2)
    assert only(client.receive(m.ProduceResponse, 12)[1]).error_code == 6


def test_produce_names_the_leader_and_its_endpoint(data_plane, client, batch):
    data_plane.hot.publish_endpoints(
        data_plane.plane, [(0, 1, "one", 9092, None), (1, 2, "2", 1, None), (0, 2, "two", 9093, "r")]
    )
    data_plane.partitions[0].become_follower(2, 5, 1)
    answer = client.produce(data_plane.produce_request(batch()))
    assert (only(answer).error_code, only(answer).current_leader.leader_id) == (6, 2)
    assert only(answer).current_leader.leader_epoch == 5
    assert [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints] == [
        (2, "two", 9093, "r")
    ]


def test_parked_produce_is_freed_when_its_connection_closes(data_plane, client, batch):
    data_plane.partitions[0].become_leader(1, 1, 1, followers=[(2, True)])
    client.send(data_plane.produce_request(batch(), timeout_ms=60_000), 12)
    while data_plane.partitions[0].end_offset == 0:
        pass
    client.close()
    while produce.live():
        pass
    assert only(data_plane.client().produce(data_plane.produce_request(batch(), acks=1))).base_offset == 1


def test_malformed_produce_closes_only_its_connection(data_plane, client, batch):
    other = data_plane.client()
    request = bytearray(b"\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x04test\x00" + b"\xff" * 40)
    client.send_frame(bytes(request))
    assert client.is_closed()
    assert only(other.produce(data_plane.produce_request(batch()))).error_code == 0
    assert len(data_plane.plane.take_notices()) == 1


def test_gate_answers_an_error_before_produce_appends(data_plane, client, batch):
    data_plane.plane.publish_gate(GatePolicy(rules=[{"api_key": 0, "action": "error", "error": 19, "times": 1}]))
    assert only(client.produce(data_plane.produce_request(batch()))).error_code == 19
    assert only(client.produce(data_plane.produce_request(batch()))).base_offset == 0


def test_punted_request_waits_on_the_ring_untouched(data_plane, client, batch):
    data_plane.plane.publish_gate(GatePolicy("punt"))
    sent = batch()
    client.send(data_plane.produce_request(sent), 12)
    requests = []
    while not requests:
        requests = inbound.pop(data_plane.plane)
    assert sent in bytes(requests[0])
    requests[0].close()
    assert data_plane.partitions[0].end_offset == 0


def test_handler_gets_a_transactional_produce(data_plane, client, batch):
    request = data_plane.produce_request(batch())
    request.transactional_id = "tx"
    client.send(request, 12)
    requests = []
    while not requests:
        requests = inbound.pop(data_plane.plane)
    requests[0].close()
    assert client.is_closed()


# --- bounds of one request ---


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"


def test_produce_appends_only_the_last_batch_when_a_partition_is_named_twice(data_plane, client, batch):
    """Apache Kafka collects the batches of a request in a map, and answers once for each partition."""
    request = data_plane.produce_request(batch(1), batch(2), batch(3))
    request.topic_data.append(data_plane.produce_request(batch(5), batch(6)).topic_data[0])
    request.topic_data[0].partition_data.append(request.topic_data[0].partition_data[2])
    answer = client.produce(request)
    assert [[part.index for part in topic.partition_responses] for topic in answer.responses] == [[0, 1, 2]]
    assert [partition.end_offset for partition in data_plane.partitions] == [5, 6, 3]


def bomb(inflated_bytes):
    builder = RecordBatchBuilder(codec="zstd", limit_bytes=16 << 20)
    builder.append(timestamp=NOW_MS, key=b"k", value=bytes(inflated_bytes))
    return bytes(builder.build())


def test_produce_gives_up_its_turn_when_its_batches_inflate_to_many_bytes(open_plane, batch):
    """The 100 small batches of this Produce inflate to 800 MB. Meanwhile the processor must serve another connection,
    and must handle the request in short steps."""
    count = 100
    plane = open_plane(partitions=count)
    attacker, other = plane.client(), plane.client()
    attacker.produce(plane.produce_request(*[batch()] * count))
    other.fetch(plane.fetch_request({0: 0}))
    request = plane.produce_request(*[bomb((8 << 20) - 1000)] * count)
    turns = plane.processor.turns
    attacker.send(request, 12)
    other.fetch(plane.fetch_request({0: 1}))
    appended = sum(partition.end_offset > 1 for partition in plane.partitions)
    assert appended < count // 2
    answer = attacker.receive(m.ProduceResponse, 12)[1]
    assert [part.error_code for part in parts(answer)] == [0] * count
    assert [partition.end_offset for partition in plane.partitions] == [2] * count
    # In one pass of its loop, a processor continues the request at most twice: once when it serves the connection, and
    # once because the request woke it.
    assert (plane.processor.turns - turns) // 2 >= count // 2


def test_parked_produce_releases_its_frame(data_plane, client, batch):
    data_plane.partitions[0].become_leader(1, 1, 1, followers=[(2, True)])
    client.send(data_plane.produce_request(batch(1, 900_000), timeout_ms=60_000), 12)
    until(lambda: data_plane.partitions[0].end_offset == 1)
    until(lambda: 0 < data_plane.plane.counters()["memory_used_bytes"] < 16_000)
    client.close()
    until(lambda: data_plane.plane.counters()["memory_used_bytes"] == 0)


def test_endpoint_tables_are_freed_when_no_processor_can_read_them(data_plane, client, batch):
    def tables():
        return sum(type(each).__name__ == "EndpointTable" for each in gc.get_objects())

    before = tables()
    for number in range(50):
        data_plane.hot.publish_endpoints(data_plane.plane, [(0, 1, f"host-{number}", 9092, None)])
        client.produce(data_plane.produce_request(batch()))
    until(lambda: data_plane.plane.collect() == 0)
    assert tables() - before <= 1
