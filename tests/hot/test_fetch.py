"""Fetch requests on the hot path (native code without Python): the returned records, waits, fetch sessions and
memory."""

import errno
import os
import select
import socket
import struct
import threading
import time

import pytest

from kafkacore._fast.hot import fetch
from kafkacore._fast.hot.state import publish_table
from kafkacore._fast.log.partition_table import Table
from kafkacore._fast.plane.gate import GatePolicy
from kafkacore._fast.record.batch import Batches
from kafkacore._fast.world.environment import ManualClock
from kafkacore.protocol import apis
from kafkacore.protocol import messages as m
from kafkacore.protocol.uuid import Uuid

NOW_MS = 1_700_000_000_000
WAIT_SECONDS = 60
MOST = 0x7FFFFFFF


def parts(answer):
    return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


def offsets(records):
    return [record.offset for batch in Batches(records) for record in batch]


@pytest.fixture
def filled(data_plane, client, batch):
    """Writes three batches with two records each to each of three partitions."""
    for _ in range(3):
        client.produce(data_plane.produce_request(batch(2), batch(2), batch(2)))
    return client


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_returns_produced_records_in_every_version(data_plane, filled, version):
    answer = filled.fetch(data_plane.fetch_request({0: 0, 1: 2}, version), version)
    found = parts(answer)
    assert offsets(found[0].records) == [0, 1, 2, 3, 4, 5]
    assert offsets(found[1].records) == [2, 3, 4, 5]
    assert [(part.error_code, part.high_watermark) for part in found.values()] == [(0, 6), (0, 6)]


def test_fetch_returns_the_whole_batch_when_the_offset_lies_inside_it(data_plane, filled):
    assert offsets(parts(filled.fetch(data_plane.fetch_request({0: 3})))[0].records) == [2, 3, 4, 5]


def test_fetch_returns_only_the_first_batch_when_it_exceeds_the_limits(data_plane, filled):
    found = parts(filled.fetch(data_plane.fetch_request({0: 0, 1: 0}, partition_max_bytes=10)))
    assert offsets(found[0].records) == [0, 1]
    assert len(found[1].records) <= 10
    found = parts(filled.fetch(data_plane.fetch_request({0: 0, 1: 0}, max_bytes=10)))
    assert offsets(found[0].records) == [0, 1]
    assert offsets(found[1].records) == []


def test_fetch_reports_offset_out_of_range_when_the_offset_is_beyond_the_end(data_plane, filled):
    found = parts(filled.fetch(data_plane.fetch_request({0: 7, 1: 6})))
    assert (found[0].error_code, found[1].error_code, found[1].records) == (1, 0, b"")


def test_fetch_reports_unknown_partitions_and_topic_ids(data_plane, filled):
    assert parts(filled.fetch(data_plane.fetch_request({8: 0})))[8].error_code == 3
    unknown = data_plane.fetch_request({0: 0}, 17)
    unknown.topics[0].topic_id = type(unknown.topics[0].topic_id)(b"\x01" * 16)
    assert parts(filled.fetch(unknown, 17))[0].error_code == 100


def test_parked_fetch_answers_when_a_record_comes(data_plane, client, batch):
    client.produce(data_plane.produce_request(batch()))
    client.send(data_plane.fetch_request({0: 1, 1: 0}, max_wait_ms=60_000), 12)
    data_plane.client().produce(data_plane.produce_request(batch()))
    found = parts(client.receive(m.FetchResponse, 12)[1])
    assert offsets(found[0].records) == [1]


def test_parked_fetch_answers_without_records_when_its_time_is_over(data_plane, filled):
    assert parts(filled.fetch(data_plane.fetch_request({0: 6}, max_wait_ms=20)))[0].records == b""


def test_parked_fetch_keeps_its_deadline_when_the_wall_clock_jumps(open_plane, batch):
    clock = ManualClock(NOW_MS)
    plane = open_plane(clock=clock)
    client, other = plane.client(), plane.client()
    for step_ms in (3_600_000, -7_200_000):
        client.send(plane.fetch_request({0: 0}, max_wait_ms=5_000), 12)
        other.fetch(plane.fetch_request({0: 0}))  # the answer to this Fetch shows that the first Fetch waits
        clock.step_wall_ms(step_ms)
        other.fetch(plane.fetch_request({0: 0}))
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.receive(m.FetchResponse, 12)
        client.socket.settimeout(WAIT_SECONDS)
        clock.advance_ms(5_000)
        plane.processor.look()
        assert parts(client.receive(m.FetchResponse, 12)[1])[0].records == b""


def test_parked_fetch_waits_for_min_bytes_over_several_appends(data_plane, client, batch):
    other = data_plane.client()
    client.send(data_plane.fetch_request({0: 0, 1: 0}, max_wait_ms=60_000, min_bytes=1000), 12)
    for i in range(8):
        other.produce(data_plane.produce_request(batch(1, 200), partition=i % 2))
    found = parts(client.receive(m.FetchResponse, 12)[1])
    assert sum(len(part.records) for part in found.values()) >= 1000


def test_append_wakes_every_fetch_that_waits_for_its_partition(data_plane, client, batch):
    waiting = [data_plane.client() for _ in range(100)]
    for other in waiting:
        other.send(data_plane.fetch_request({0: 0}, max_wait_ms=60_000), 12)
    client.produce(data_plane.produce_request(batch()))
    for other in waiting:
        assert offsets(parts(other.receive(m.FetchResponse, 12)[1])[0].records) == [0]


def test_parked_fetch_reports_an_error_when_its_partition_is_deleted(data_plane, client):
    client.send(data_plane.fetch_request({0: 0}, max_wait_ms=60_000), 12)
    while fetch.live() == 0:
        pass
    data_plane.partitions[0].close(gone=True)
    assert parts(client.receive(m.FetchResponse, 12)[1])[0].error_code in (3, 6)


@pytest.fixture
def frozen(open_plane):
    """Returns a data plane whose clock stands still. So no Fetch times out while it waits."""
    return open_plane(clock=ManualClock(NOW_MS))


def waits(client, plane):
    """Returns whether the client's Fetch is waiting. This is the case if the processor has gone through its whole loop
    once without sending an answer."""
    turns = plane.processor.look()
    while plane.processor.turns < turns:
        pass
    client.socket.settimeout(0.05)
    try:
        client.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return fetch.live() == 1
    finally:
        client.socket.settimeout(WAIT_SECONDS)
    return False


@pytest.mark.parametrize("version", [12, 17])
def test_fetch_waits_for_known_partitions_when_it_also_names_an_unknown_one(frozen, batch, version):
    client = frozen.client()
    request = frozen.fetch_request({0: 0, 8: 0}, version, max_wait_ms=60_000)
    unknown = m.FetchRequest.FetchTopic(topic="gone", partitions=request.topics[0].partitions)
    unknown.topic_id = Uuid(b"\x01" * 16)
    request.topics.append(unknown)
    client.send(request, version)
    assert waits(client, frozen)
    frozen.client().produce(frozen.produce_request(batch()))
    answer = client.receive(m.FetchResponse, version)[1]
    errors = [[(part.partition_index, part.error_code) for part in topic.partitions] for topic in answer.responses]
    unknown_topic = 100 if version >= 13 else 3
    assert errors == [[(0, 0), (8, 3)], [(0, unknown_topic), (8, unknown_topic)]]
    assert offsets(answer.responses[0].partitions[0].records) == [0]


@pytest.mark.parametrize("version", [12, 17])
def test_session_waits_for_known_partitions_when_it_also_holds_an_unknown_one(frozen, batch, version):
    """A Fetch in such a session must wait. Otherwise, a client whose session contains a partition of a deleted topic
    would fetch in a tight loop."""
    client = frozen.client()
    first = client.fetch(frozen.fetch_request({0: 0, 8: 0}, version, session_epoch=0), version)
    client.send(
        frozen.fetch_request({}, version, session_id=first.session_id, session_epoch=1, max_wait_ms=60_000), version
    )
    assert waits(client, frozen)
    frozen.client().produce(frozen.produce_request(batch()))
    found = parts(client.receive(m.FetchResponse, version)[1])
    assert {index: part.error_code for index, part in found.items()} == {0: 0, 8: 3}


def test_fetch_answers_at_once_when_it_names_no_known_partition(frozen):
    answer = frozen.client().fetch(frozen.fetch_request({8: 0, 9: 0}, max_wait_ms=60_000))
    assert [part.error_code for part in parts(answer).values()] == [3, 3]


def test_fetch_answers_at_once_when_a_known_partition_fails(frozen):
    frozen.partitions[1].close()
    answer = frozen.client().fetch(frozen.fetch_request({0: 0, 1: 0, 2: 5}, max_wait_ms=60_000))
    assert [part.error_code for part in parts(answer).values()] == [0, 6, 1]


@pytest.mark.parametrize(("version", "error"), [(4, 6), (5, 6), (6, 56), (12, 56)])
def test_fetch_reports_an_offline_directory_with_the_error_of_its_version(data_plane, filled, version, error):
    """Clients that use version 5 or older treat KAFKA_STORAGE_ERROR as a fatal error (KIP-112)."""
    data_plane.directory.fail(errno.EIO)
    found = parts(filled.fetch(data_plane.fetch_request({0: 0}, version, max_wait_ms=60_000), version))
    assert (found[0].error_code, found[0].records) == (error, b"")


def test_fetch_answers_at_once_when_min_bytes_exceed_max_bytes(frozen, batch):
    client = frozen.client()
    client.produce(frozen.produce_request(batch(2)))
    request = frozen.fetch_request({0: 0}, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=100)
    assert offsets(parts(client.fetch(request))[0].records) == [0, 1]


def test_fetch_answers_at_once_when_it_reads_an_older_segment(open_plane, batch):
    """Apache Kafka's DelayedFetch, case F: if a consumer's offset is in an older segment, its Fetch does not wait for
    min_bytes."""
    plane = open_plane(clock=ManualClock(NOW_MS), segment_bytes=500)
    client = plane.client()
    for _ in range(4):
        client.produce(plane.produce_request(batch(2)))
    assert len(plane.partitions[0].segments()) > 1
    found = parts(client.fetch(plane.fetch_request({0: 0}, max_wait_ms=60_000, min_bytes=1 << 20)))
    assert offsets(found[0].records)[:2] == [0, 1]


def test_parked_fetch_is_freed_when_its_connection_closes(data_plane, client):
    client.send(data_plane.fetch_request({0: 0, 1: 0, 2: 0}, max_wait_ms=60_000), 12)
    while fetch.live() == 0:
        pass
    client.close()
    while fetch.live():
        pass
    assert data_plane.partitions[0].high_watermark == 0


def test_fetch_refuses_a_leader_epoch_that_is_older_or_newer(data_plane, filled):
    data_plane.partitions[0].become_leader(1, 3, 1)
    request = data_plane.fetch_request({0: 0})
    request.topics[0].partitions[0].current_leader_epoch = 2
    assert parts(filled.fetch(request))[0].error_code == 74
    request.topics[0].partitions[0].current_leader_epoch = 4
    assert parts(filled.fetch(request))[0].error_code == 75


def test_fetch_reports_the_diverging_epoch_when_the_last_fetched_epoch_differs(data_plane, filled):
    data_plane.partitions[0].become_leader(1, 3, 1)
    filled.produce(data_plane.produce_request(*[]))
    request = data_plane.fetch_request({0: 8})
    request.topics[0].partitions[0].last_fetched_epoch = 0
    part = parts(filled.fetch(request))[0]
    assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 0, 6)


def test_io_pool_reads_records_from_outside_the_page_cache(data_plane, filled):
    data_plane.partitions[0].flush()
    segment = next((data_plane.path / "t-0").glob("*.log"))
    descriptor = os.open(segment, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    answer = filled.fetch(data_plane.fetch_request({0: 0, 1: 0}))
    assert [offsets(part.records) for part in parts(answer).values()] == [[0, 1, 2, 3, 4, 5]] * 2


# --- sessions (KIP-227) ---


@pytest.fixture(params=[12, 17])
def session(request, data_plane, filled):
    """Returns (version, session id) of a session with all partitions, each fetched at its end."""
    version = request.param
    first = data_plane.fetch_request({0: 6, 1: 6, 2: 6}, version, session_epoch=0)
    answer = filled.fetch(first, version)
    assert answer.session_id > 0
    assert sorted(parts(answer)) == [0, 1, 2]
    return version, answer.session_id


def test_incremental_fetch_names_only_partitions_with_news(data_plane, filled, batch, session):
    version, session_id = session
    empty = data_plane.fetch_request({}, version, session_id=session_id, session_epoch=1)
    assert parts(filled.fetch(empty, version)) == {}
    filled.produce(data_plane.produce_request(batch(), partition=1))
    again = data_plane.fetch_request({}, version, session_id=session_id, session_epoch=2)
    found = parts(filled.fetch(again, version))
    assert list(found) == [1]
    assert offsets(found[1].records) == [6]


def test_session_changes_and_forgets_partitions(data_plane, filled, batch, session):
    version, session_id = session
    change = data_plane.fetch_request({0: 0}, version, session_id=session_id, session_epoch=1)
    gone = m.FetchRequest.ForgottenTopic(partitions=[1, 2])
    data_plane.name(gone, version >= 13, "topic")
    change.forgotten_topics_data = [gone]
    assert list(parts(filled.fetch(change, version))) == [0]
    filled.produce(data_plane.produce_request(batch(), partition=1))
    again = data_plane.fetch_request({0: 6}, version, session_id=session_id, session_epoch=2)
    assert parts(filled.fetch(again, version)) == {}


def test_session_refuses_a_wrong_epoch_and_an_ended_session(data_plane, filled, session):
    version, session_id = session
    wrong = data_plane.fetch_request({}, version, session_id=session_id, session_epoch=5)
    assert filled.fetch(wrong, version).error_code == 71
    filled.fetch(data_plane.fetch_request({0: 6}, version, session_id=session_id, session_epoch=-1), version)
    gone = data_plane.fetch_request({}, version, session_id=session_id, session_epoch=1)
    assert filled.fetch(gone, version).error_code == 70


def test_session_moves_a_partition_that_returned_data_to_the_end(data_plane, filled, session):
    version, session_id = session
    change = data_plane.fetch_request({0: 0, 1: 0, 2: 0}, version, session_id=session_id, session_epoch=1, max_bytes=1)
    assert [index for index, part in parts(filled.fetch(change, version)).items() if part.records] == [0]
    again = data_plane.fetch_request({}, version, session_id=session_id, session_epoch=2, max_bytes=1)
    assert [index for index, part in parts(filled.fetch(again, version)).items() if part.records] == [1]


def test_session_names_an_error_until_it_is_over(data_plane, filled, session):
    version, session_id = session
    data_plane.partitions[2].close()
    for epoch in (1, 2):
        found = parts(
            filled.fetch(data_plane.fetch_request({}, version, session_id=session_id, session_epoch=epoch), version)
        )
        assert [(index, part.error_code) for index, part in found.items()] == [(2, 6)]
    data_plane.partitions[2].become_leader(1, 5, 2)
    found = parts(filled.fetch(data_plane.fetch_request({}, version, session_id=session_id, session_epoch=3), version))
    assert [(index, part.error_code) for index, part in found.items()] == [(2, 0)]


def test_session_reports_a_deleted_topic_as_unknown_partition_when_it_has_seen_the_topic_id(data_plane, client):
    """A session remembers which topic had an id, even after the topic is deleted
    (FetchSession.maybeResolveUnknownName). Requests without this session cannot know it."""
    session_id = client.fetch(data_plane.fetch_request({0: 0}, 17, session_epoch=0), 17).session_id
    publish_table(data_plane.plane, Table())
    fresh = data_plane.fetch_request({0: 0}, 17, session_epoch=0)
    answer = client.fetch(fresh, 17)
    assert parts(answer)[0].error_code == 100
    for epoch in (1, 2):
        again = data_plane.fetch_request({}, 17, session_id=session_id, session_epoch=epoch)
        assert parts(client.fetch(again, 17))[0].error_code == 3
    again = data_plane.fetch_request({}, 17, session_id=answer.session_id, session_epoch=1)
    assert parts(client.fetch(again, 17))[0].error_code == 100


def test_session_names_partitions_again_when_an_ordered_error_is_over(data_plane, filled, session):
    """The answer contains the partition because its error has ended, although its high watermark has not changed
    (FetchSession)."""
    version, session_id = session
    data_plane.plane.publish_gate(GatePolicy(rules=[{"action": "error", "api_key": 1, "error": 6, "times": 1}]))
    errors = []
    for epoch in (1, 2, 3):
        request = data_plane.fetch_request({}, version, session_id=session_id, session_epoch=epoch)
        errors.append([part.error_code for part in parts(filled.fetch(request, version)).values()])
    assert errors == [[6, 6, 6], [0, 0, 0], []]


def test_session_ends_when_it_outgrows_the_memory_of_an_answer(data_plane, client):
    first = client.fetch(data_plane.fetch_request({0: 0}, 11, session_epoch=0), 11)
    partitions = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, 1) for index in range(500_000))
    client.send_frame(
        struct.pack(">hhihiiiibiiih1si", 1, 11, 7, -1, -1, 0, 0, 1 << 20, 0, first.session_id, 1, 1, 1, b"t", 500_000)
        + partitions
        + struct.pack(">ih", 0, 0)
    )
    assert client.is_closed()
    again = data_plane.fetch_request({}, 11, session_id=first.session_id, session_epoch=2)
    assert data_plane.client().fetch(again, 11).error_code == 70
    assert len(data_plane.sessions) == 0


def test_fetch_keeps_its_deadline_when_its_partitions_get_records_all_the_time(open_plane, batch):
    """Some partitions get records during every read of all partitions, but fewer bytes than the Fetch asks for. The
    processor must also serve other connections."""
    plane = open_plane(partitions=30_000)
    client, other = plane.client(), plane.client()
    busy, ended = plane.partitions[:1000], threading.Event()

    def write():
        at = 0
        while not ended.wait(0.0005):
            at += 1
            busy[at % len(busy)].append(batch(), acks=1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: all(partition.end_offset for partition in busy[:10]))
        ends = {index: partition.end_offset for index, partition in enumerate(plane.partitions)}
        request = plane.fetch_request(ends, max_wait_ms=2000, min_bytes=MOST, max_bytes=MOST, partition_max_bytes=0)
        client.send(request, 12)
        other.fetch(plane.fetch_request({29_999: 0}))
        assert not any_is_answered([client]), "the processor must serve others before the Fetch ends"
        found = parts(client.receive(m.FetchResponse, 12)[1])
    finally:
        ended.set()
        writer.join()
    assert found.keys() == ends.keys()
    assert sum(bool(part.records) for part in found.values()) == 1, "only the first batch may exceed the limit"


# --- memory ---


def dense_fetch(count, max_wait_ms):
    """Returns a Fetch in version 11 for partition 0 and for `count` partitions that do not exist."""
    partitions = b"".join(struct.pack(">iiqqi", index, -1, 0, -1, 1) for index in (0, *range(1000, 1000 + count)))
    return (
        struct.pack(">hhih", 1, 11, 7, -1)
        + struct.pack(">iiiibiiih1si", -1, max_wait_ms, 1, 1 << 20, 0, 0, -1, 1, 1, b"t", count + 1)
        + partitions
        + struct.pack(">ih", 0, 0)
    )


def until(condition):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"


def any_is_answered(clients):
    return bool(select.select([client.socket for client in clients], [], [], 0)[0])


def test_parked_fetch_releases_the_frame_that_its_client_has_padded(data_plane):
    request = data_plane.fetch_request({0: 0}, max_wait_ms=60_000)
    clients = [data_plane.client() for _ in range(100)]
    for client in clients:
        client.send_frame(apis.encode_request(12, 1, "x" * 32_000, request))
    until(lambda: fetch.live() == 100)

    def frames_are_released() -> bool:
        counters = data_plane.plane.counters()
        return counters["memory_used_bytes"] == counters["memory_parked_bytes"]

    until(frames_are_released)
    assert 0 < data_plane.plane.counters()["memory_parked_bytes"] < 100 * 8000


def test_small_fetch_waits_when_large_ones_fill_the_share_of_parked_requests(data_plane, batch):
    """One client sends large Fetches. All other consumers must still be able to wait for records. Otherwise they would
    fetch without a pause."""
    counters = data_plane.plane.counters
    large, count = [], 30_000
    # Each request is smaller than the one before, until less than 64 KiB of the client's memory share is left.
    while count >= 100:
        before = counters()["memory_parked_bytes"]
        large.append(data_plane.client())
        large[-1].send_frame(dense_fetch(count, 60_000))
        until(lambda before=before: counters()["memory_parked_bytes"] > before or any_is_answered(large[-1:]))
        if counters()["memory_parked_bytes"] == before:
            count //= 2
    parked = fetch.live()
    small = [data_plane.client() for _ in range(20)]
    for client in small:
        client.send(data_plane.fetch_request({1: 0}, max_wait_ms=60_000), 12)
    until(lambda: fetch.live() == parked + len(small) or any_is_answered(small))
    data_plane.client().produce(data_plane.produce_request(batch(), partition=1))
    assert [offsets(parts(each.receive(m.FetchResponse, 12)[1])[1].records) for each in small] == [[0]] * len(small)


def test_fetch_answers_at_once_when_parked_requests_fill_their_share_of_memory(data_plane, batch):
    counters = data_plane.plane.counters
    most, count = 64 << 20, 30_000
    clients = []
    while counters()["memory_parked_bytes"] < most - (30 << 20) and len(clients) < 20:
        before = counters()["memory_parked_bytes"]
        clients.append(data_plane.client())
        clients[-1].send_frame(dense_fetch(count, 60_000))
        until(lambda before=before: counters()["memory_parked_bytes"] > before)
        assert counters()["memory_parked_bytes"] - before > 200 * count  # the memory that the waiting requests occupy
    for _ in range(3):  # there is no memory left for these requests to wait, so they are answered immediately
        last = data_plane.client()
        last.send_frame(dense_fetch(count, 60_000))
        clients.append(last)
    answered = clients[-1].receive(m.FetchResponse, 11)[1]
    assert len(parts(answered)) == count + 1
    assert counters()["memory_parked_bytes"] <= most
    assert data_plane.client().produce(data_plane.produce_request(batch())).responses[0].name == "t"
    for client in clients:
        client.close()
    until(lambda: counters()["memory_used_bytes"] == 0 == counters()["memory_parked_bytes"])


@pytest.mark.parametrize("version", [12, 17])
def test_fetch_answers_a_partition_once_when_it_is_named_twice(data_plane, filled, version):
    """Apache Kafka collects the partitions of a request in a map. So if a request contains a partition twice, only the
    last offset counts."""
    request = data_plane.fetch_request({0: 0, 1: 0}, version)
    again = data_plane.fetch_request({0: 4}, version)
    request.topics.append(again.topics[0])
    answer = filled.fetch(request, version)
    found = [(part.partition_index, offsets(part.records)) for topic in answer.responses for part in topic.partitions]
    assert found == [(0, [4, 5]), (1, [0, 1, 2, 3, 4, 5])]


def test_consumers_read_each_record_once_while_producers_write(data_plane, batch):
    """Six connections work at the same time. Each consumer reads every record once, in order."""
    total, seen, errors = 400, {0: [], 1: [], 2: []}, []

    def write(partition):
        client = data_plane.client()
        for _ in range(total):
            client.send(data_plane.produce_request(batch(), partition=partition), 12)
        for _ in range(total):
            client.receive(m.ProduceResponse, 12)

    def follow(partition):
        client = data_plane.client()
        while len(seen[partition]) < total:
            answer = client.fetch(data_plane.fetch_request({partition: len(seen[partition])}, max_wait_ms=5000))
            part = parts(answer)[partition]
            if part.error_code:
                errors.append(part.error_code)
                return
            seen[partition] += offsets(part.records)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3) for run in (write, follow)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert seen == {index: list(range(total)) for index in range(3)}
