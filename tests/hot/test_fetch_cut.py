"""A log is truncated while a processor (a native thread that serves connections) is sending records from it."""

import socket

import pytest

from kafkacore.protocol import messages as m

VERSION = 17
BATCHES, BATCH_BYTES = 40, 500_000
BUFFER_BYTES = 64 << 10


@pytest.fixture
def plane(open_plane, batch):
    """Returns a plane whose log is far larger than the buffers of sockets."""
    plane = open_plane()
    for _ in range(BATCHES):
        plane.partitions[0].append(batch(1, BATCH_BYTES), acks=1)
    return plane


def begin_fetch(plane):
    """Returns a client that has received the first bytes of a large answer. Apart from these, the plane has sent only
    as much as fits into the buffers of the sockets."""
    client = plane.client()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    client.send(plane.fetch_request({0: 0}, VERSION, partition_max_bytes=50 << 20), VERSION)
    size = int.from_bytes(client.read(4), "big")
    assert size > BATCHES * BATCH_BYTES
    return client, size


def test_answer_is_never_complete_when_its_records_were_truncated(plane, batch):
    client, size = begin_fetch(plane)
    plane.partitions[0].truncate_to(2)
    for _ in range(BATCHES):
        plane.partitions[0].append(batch(1, BATCH_BYTES), acks=1)
    with pytest.raises(ConnectionError):
        client.read(size)


def test_answer_is_never_complete_when_its_log_began_anew(plane):
    client, size = begin_fetch(plane)
    plane.partitions[0].truncate_fully(7)
    with pytest.raises(ConnectionError):
        client.read(size)


def test_answer_is_complete_when_records_are_appended_or_deleted_meanwhile(plane, batch):
    client, size = begin_fetch(plane)
    plane.partitions[0].append(batch(1), acks=1)
    plane.partitions[0].drop_below(3)
    frame = client.read(size)
    answer = m.FetchResponse.decode(frame[5:], VERSION)
    assert len(answer.responses[0].partitions[0].records) > BATCHES * BATCH_BYTES


def test_fetch_after_a_truncation_has_the_new_records(plane, batch):
    begin_fetch(plane)
    plane.partitions[0].truncate_to(2)
    fresh = batch(1)
    plane.partitions[0].append(fresh, acks=1)
    answer = plane.client().fetch(plane.fetch_request({0: 2}, VERSION), VERSION)
    assert bytes(answer.responses[0].partitions[0].records)[61:] == fresh[61:]
