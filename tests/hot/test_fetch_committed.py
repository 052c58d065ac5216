"""Consumers with read_committed: where their reads end, and which aborted transactions an answer lists (KIP-98)."""

import struct

import pytest

from kafkacore._fast.log.replication_quota import ReplicationQuota
from kafkacore.protocol import apis
from kafkacore.storage import log_loader
from transactions import ABORT, COMMIT, marker, records

READ_COMMITTED = 1
FIRST, SECOND, THIRD = 11, 22, 33


@pytest.fixture
def replicated(open_plane):
    """Returns a plane whose partition 0 has these offsets: 0-1 from FIRST, 2-3 from SECOND, 4 aborts FIRST, 5 commits
    SECOND, 6-7 from FIRST, 8 aborts FIRST, 9-10 from THIRD, whose transaction is open. A second segment begins at
    offset 6."""
    batches = [
        records(0, FIRST), records(2, SECOND), marker(4, FIRST, ABORT), marker(5, SECOND, COMMIT),
        records(6, FIRST, sequence=2), marker(8, FIRST, ABORT), records(9, THIRD),
    ]  # fmt: skip
    plane = open_plane(segment_bytes=sum(map(len, batches[:4])))
    plane.partitions[0].become_follower(2, 0)
    for batch in batches:
        plane.partitions[0].append_replicated(batch, 0)
    plane.partitions[0].become_leader(1, 1)
    assert [segment.base_offset for segment in plane.partitions[0].segments()] == [0, 6]
    return plane


def listed(plane, offset, isolation=READ_COMMITTED, **limits):
    answer = plane.client().fetch(plane.fetch_request({0: offset}, isolation_level=isolation, **limits))
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.last_stable_offset, part.high_watermark) == (0, 9, 11)
    aborted = part.aborted_transactions
    return None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]


def test_read_for_a_follower_ends_quietly_when_its_connection_closes_first(open_plane):
    # The list of aborted transactions makes each read go to the I/O pool. The broken frame closes the connection in the
    # turn in which the read was handed over.
    plane = open_plane(leader_quota=ReplicationQuota(11, 1000, 1000))
    plane.partitions[0].become_follower(2, 0)
    for each in (records(0, FIRST), marker(2, FIRST, ABORT)):
        plane.partitions[0].append_replicated(each, 0)
    plane.partitions[0].become_leader(1, 1, followers=[(2, True)])
    request = plane.fetch_request({0: 0}, isolation_level=READ_COMMITTED)
    request.replica_id = 2
    for _ in range(300):
        client = plane.client()
        asked = apis.encode_request(12, 1, "follower", request)
        client.socket.sendall(struct.pack(">i", len(asked)) + asked + struct.pack(">i", 0))
        assert client.is_closed()
        client.close()
    assert plane.client().fetch(plane.fetch_request({1: 0})).responses[0].partitions[0].error_code == 0


def test_fetch_committed_lists_aborted_transactions_that_overlap_the_answer(replicated):
    assert listed(replicated, 0) == [(FIRST, 0)]  # a read ends at the end of the first segment
    assert listed(replicated, 6) == [(FIRST, 6)]


def test_fetch_committed_leaves_out_transactions_before_and_after_the_answer(replicated):
    assert listed(replicated, 5) == []
    first_batch = len(records(0, FIRST))
    assert listed(replicated, 0, partition_max_bytes=first_batch) == [(FIRST, 0)]
    assert listed(replicated, 5, partition_max_bytes=1) == []


def test_fetch_committed_finds_the_marker_in_a_later_segment(open_plane):
    batches = [records(0, FIRST), records(2, SECOND), marker(4, SECOND, COMMIT), marker(5, FIRST, ABORT)]
    plane = open_plane(segment_bytes=len(batches[0]) + len(batches[1]))
    plane.partitions[0].become_follower(2, 0)
    for batch in batches:
        plane.partitions[0].append_replicated(batch, 0)
    plane.partitions[0].become_leader(1, 1)
    answer = plane.client().fetch(plane.fetch_request({0: 0}, isolation_level=READ_COMMITTED))
    (aborted,) = answer.responses[0].partitions[0].aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (FIRST, 0)


def test_fetch_uncommitted_lists_no_aborted_transactions_and_reads_open_ones(replicated):
    assert listed(replicated, 0, isolation=0) is None
    assert replicated.partitions[0].read(9, isolation=0).records != b""
    assert replicated.partitions[0].read(9, isolation=READ_COMMITTED).records == b""


def test_punted_fetch_lists_the_same_aborted_transactions(replicated):
    for offset in range(10):
        assert replicated.partitions[0].read(offset, isolation=READ_COMMITTED).aborted == listed(replicated, offset)


@pytest.mark.parametrize("clean", [True, False])
def test_fetch_committed_lists_aborted_transactions_after_the_log_is_loaded_again(replicated, open_plane, clean):
    replicated.partitions[0].shut()
    again = reopened(replicated, open_plane(), clean)
    assert listed(again, 0) == [(FIRST, 0)]
    assert listed(again, 6) == [(FIRST, 6)]


def reopened(plane, again, clean=True):
    path = again.path / "t-0"
    path.mkdir()
    for file in (plane.path / "t-0").iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    log_loader.load(again.partitions[0], str(path), clean=clean)
    again.partitions[0].become_leader(1, 2)
    return again


def test_two_transactions_of_one_producer_are_listed_when_their_stable_offsets_are_copied(open_plane):
    """Apache Kafka appends several batches to a log together. If some of them abort transactions, it records the same
    last stable offset for all of these transactions: the one after all of the batches."""
    batches = [
        records(0, FIRST), marker(2, FIRST, ABORT), records(3, FIRST, sequence=2), marker(5, FIRST, ABORT),
        records(6, THIRD),
    ]  # fmt: skip
    plane = open_plane()
    plane.partitions[0].become_follower(2, 0)
    for batch in batches:
        plane.partitions[0].append_replicated(batch, 0)
    plane.partitions[0].shut()
    index = plane.path / "t-0" / f"{0:020}.txnindex"
    index.write_bytes(b"".join(struct.pack(">hqqqq", 0, FIRST, *offsets, 6) for offsets in ((0, 2), (3, 5))))
    again = reopened(plane, open_plane())
    assert again.partitions[0].read(0, isolation=READ_COMMITTED).aborted == [(FIRST, 0), (FIRST, 3)]


@pytest.mark.parametrize("garbage", [b"\xff" * 34, bytes(34)])
def test_damaged_transaction_index_is_rebuilt_from_its_segment(replicated, open_plane, garbage):
    replicated.partitions[0].shut()
    (replicated.path / "t-0" / f"{6:020}.txnindex").write_bytes(garbage)
    again = reopened(replicated, open_plane())
    assert listed(again, 0) == [(FIRST, 0)]
    assert listed(again, 6) == [(FIRST, 6)]
