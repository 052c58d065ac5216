"""Processors (the native threads that serve connections) measure how long each stage of a few requests takes. They
still serve these requests, the samples, without Python.
"""

import itertools
import re
import statistics

import pytest

from kafkacore._fast.plane.processor import NativeProcessor
from processes import wait_until

PRODUCE, FETCH = 0, 1
AGE, API_KEY, VERSION, CORRELATION_ID, CLIENT_ID, LISTENER, RATE, DROPPED, TOTAL, QUEUE = range(10)
SLOTS = 4096
MANY = 1 << 20


def taken(plane, count):
    """Returns the next `count` samples. Waits for them, because a processor stores a sample only after it has sent the
    answer."""
    found = []

    def enough():
        found.extend(plane.plane.take_samples(count - len(found)))
        return len(found) == count

    wait_until(enough)
    return found


def test_no_request_is_sampled_by_default(data_plane, client, batch):
    client.produce(data_plane.produce_request(batch()))
    # This request has an answer, so the processor has finished with the first request. If it wanted a sample of the
    # first one, the sample would exist now.
    client.produce(data_plane.produce_request(batch()))
    assert data_plane.plane.take_samples(MANY) == []


def test_sample_has_the_header_and_the_times_of_its_request(data_plane, client, batch):
    data_plane.plane.sample_requests(1)
    client.produce(data_plane.produce_request(batch()))
    client.fetch(data_plane.fetch_request({0: 0}))
    samples = taken(data_plane, 2)
    assert [each[API_KEY : DROPPED + 1] for each in samples] == [
        (PRODUCE, 12, 1, "test", 0, 1, 0),
        (FETCH, 12, 2, "test", 0, 1, 0),
    ]
    for each in samples:
        assert each[AGE] >= 0
        assert min(each[QUEUE:]) >= 0
        assert each[TOTAL] == sum(each[QUEUE:]) > 0
    assert data_plane.plane.counters()["request_queue_size"] == data_plane.plane.counters()["requests_out"] == 0
    assert data_plane.plane.take_samples(MANY) == []


def test_wait_of_a_parked_fetch_is_remote_time_and_its_client_id_is_kept(data_plane, client, batch):
    wait_ms = 30
    data_plane.plane.sample_requests(1)
    client.fetch(data_plane.fetch_request({0: 0}, max_wait_ms=wait_ms))
    (sample,) = taken(data_plane, 1)
    remote_ns = sample[QUEUE + 2]
    assert remote_ns >= (wait_ms - 2) * 1_000_000
    assert sample[CLIENT_ID] == "test"


@pytest.mark.parametrize(("sent", "shown"), [
    (None, None),
    ("", ""),
    ("x" * 48, "x" * 48),
    ("x" * 49, "x" * 48 + "..."),
    ("x" * 47 + "é", "x" * 47 + "..."),  # cut before the last character, not within its bytes
])  # fmt: skip
def test_client_id_is_cut_when_it_is_long(data_plane, client, sent, shown):
    data_plane.plane.sample_requests(1)
    name = b"\xff\xff" if sent is None else len(sent.encode()).to_bytes(2, "big") + sent.encode()
    body = data_plane.fetch_request({0: 0}).encode(4)
    client.send_frame((FETCH).to_bytes(2, "big") + (4).to_bytes(2, "big") + bytes(4) + name + body)
    assert taken(data_plane, 1)[0][CLIENT_ID] == shown


def test_samples_beyond_the_ring_are_dropped_and_counted(data_plane, client):
    data_plane.plane.sample_requests(1)
    request, extra = data_plane.fetch_request({0: 0}), 5
    for _ in range(SLOTS + extra):
        client.fetch(request)
    wait_until(lambda: data_plane.plane.counters()["samples_dropped"] == extra)
    samples = taken(data_plane, SLOTS)
    assert [each[CORRELATION_ID] for each in samples] == list(range(1, SLOTS + 1))
    assert {each[DROPPED] for each in samples} == {0}
    client.fetch(request)
    (next_one,) = taken(data_plane, 1)
    assert (next_one[CORRELATION_ID], next_one[DROPPED]) == (SLOTS + extra + 1, extra)


def test_sampled_requests_have_random_distances(data_plane, client):
    every, requests = 4, 3000
    data_plane.plane.sample_requests(every)
    request = data_plane.fetch_request({0: 0})
    for _ in range(requests):
        client.fetch(request)
    samples = data_plane.plane.take_samples(MANY)
    assert {each[RATE] for each in samples} == {every}
    ids = [each[CORRELATION_ID] for each in samples]
    gaps = [after - before for before, after in itertools.pairwise(ids)]
    assert set(gaps) == set(range(1, 2 * every))
    assert statistics.mean(gaps) == pytest.approx(every, rel=0.2)  # this allows for more than ten standard errors


def test_every_processor_of_a_plane_gives_its_samples(open_plane):
    plane = open_plane()
    second = NativeProcessor("test-net-2", plane.environment)
    second.serve(plane.plane)
    plane.acceptor.remove(plane.plane, 0)
    # From now on, the acceptor passes connections to both processors.
    plane.acceptor.add(plane.plane, plane.listener.fileno(), 0)
    plane.plane.sample_requests(1)
    try:
        for number in range(4):
            client = plane.client()
            for _ in range(number + 1):
                client.fetch(plane.fetch_request({0: 0}))
        assert plane.processor.connections == second.connections == 2
        assert sorted(each[CORRELATION_ID] for each in taken(plane, 10)) == [1, 1, 1, 1, 2, 2, 2, 3, 3, 4]
    finally:
        second.stop()


def test_request_without_an_answer_is_sampled(data_plane, client, batch):
    data_plane.plane.sample_requests(1)
    client.send(data_plane.produce_request(batch(), acks=0), 12)
    assert taken(data_plane, 1)[0][API_KEY] == PRODUCE


def test_sampled_request_that_loses_its_connection_gives_no_sample(data_plane, batch):
    data_plane.plane.sample_requests(1)
    gone, other = data_plane.client(), data_plane.client()
    gone.send(data_plane.fetch_request({0: 0}, max_wait_ms=60_000), 12)
    wait_until(lambda: data_plane.plane.counters()["memory_parked_bytes"] > 0)
    gone.close()
    wait_until(lambda: data_plane.plane.counters()["connections"] == 1)
    other.produce(data_plane.produce_request(batch()))
    assert [each[API_KEY] for each in taken(data_plane, 1)] == [PRODUCE]


@pytest.mark.parametrize("every", [-1, 1_000_001])
def test_rate_beyond_its_bounds_is_refused(data_plane, every):
    with pytest.raises(ValueError, match=re.escape(f"one request of 1 to 1000000 can be sampled, not {every}")):
        data_plane.plane.sample_requests(every)


def test_samples_that_could_not_be_written_count_as_dropped(data_plane):
    data_plane.plane.drop_samples(7)
    assert data_plane.plane.counters()["samples_dropped"] == 7
