"""Rules of Raft that only matter when something fails."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.control import data_batch
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.replication import RaftFault
from kafkacore.raft.roles import Leader
from kafkacore.raft.voters import ReplicaKey
from kafkacore.storage.quorum_state import QuorumState
from raft_replica import CLUSTER, ME, OTHER, Replica, diverging, naming, snapshot_of

WHOLE = snapshot_of(OffsetAndEpoch(2, 1), b"a", b"b")


def test_leader_commits_records_of_older_epochs_only_with_one_of_its_own() -> None:
    """Section 5.4.2 of the Raft paper: even if a majority has a record of an older epoch, another leader can still
    remove it."""
    replica = Replica(1, 2, 3)
    replica.follow(1, b"a", b"b", b"c")
    raft = replica.raft
    assert raft.high_watermark == 2
    replica.lead()
    assert (raft.epoch, raft.log.end_offset) == (2, 4)  # the LeaderChange record is at offset 3
    for node_id in (2, 3):
        error, answer = replica.fetch_of(node_id, 3, 1)
        assert error == ErrorCode.NONE and answer.high_watermark == -1
        assert raft.high_watermark == 2, "a majority has all three records, but none of the current epoch"
    error, answer = replica.fetch_of(2, 4, 2)
    assert (error, answer.high_watermark, raft.high_watermark) == (ErrorCode.NONE, 4, 4)


def test_leader_commits_records_when_a_majority_has_them() -> None:
    replica = Replica(1, 2, 3, 4, 5)
    replica.lead()
    raft = replica.raft
    replica.fetch_of(2, 1, 1)
    assert raft.high_watermark == 0
    replica.fetch_of(2, 1, 1)  # the second Fetch of the same voter does not count
    assert raft.high_watermark == 0
    replica.fetch_of(7, 1, 1)  # node 7 is not a voter
    assert raft.high_watermark == 0
    replica.fetch_of(3, 1, 1)
    assert raft.high_watermark == 1


@pytest.mark.parametrize("end", [(0, 1), (1, 1)])
def test_follower_stops_rather_than_truncate_what_is_committed(end: tuple[int, int]) -> None:
    replica = Replica(1, 2, 3)
    replica.follow(1, b"a", b"b", b"c")
    before = replica.log.read(0, 1 << 20)
    replica.raft.replica.become_follower(2, 3, ("n3", 9093))
    assert replica.raft.high_watermark == 2
    with pytest.raises(RaftFault, match=f"no record at {end[0]}, but all below 2 is committed"):
        replica.answer(**diverging(*end))
    assert replica.log.read(0, 1 << 20) == before


def test_follower_truncates_down_to_what_is_committed() -> None:
    replica = Replica(1, 2, 3)
    replica.follow(1, b"a", b"b", b"c")
    replica.raft.replica.become_follower(2, 3, ("n3", 9093))
    replica.answer(**diverging(2, 1))
    assert (replica.log.end_offset, replica.raft.high_watermark) == (2, 2)
    replica.answer(records=data_batch([b"x"], 2, 2, 0), high_watermark=3)
    assert (replica.log.end_offset, replica.raft.high_watermark) == (3, 3)


def only_leader_with_a_snapshot(epoch: int) -> tuple[Replica, OffsetAndEpoch]:
    replica = Replica(1)
    while replica.raft.epoch < epoch:
        assert replica.ask(naming("Vote", replica.raft.epoch + 1)) == ErrorCode.NONE
        replica.lead()
    snapshot_id = OffsetAndEpoch(replica.log.end_offset, replica.raft.epoch)
    replica.log.write_snapshot(snapshot_id, 0, WHOLE)
    replica.log.finish_snapshot(snapshot_id)
    return replica, snapshot_id


@pytest.mark.parametrize(
    ("position", "error"),
    [
        (-1, ErrorCode.POSITION_OUT_OF_RANGE),
        (0, ErrorCode.NONE),
        (len(WHOLE) - 1, ErrorCode.NONE),
        (len(WHOLE), ErrorCode.POSITION_OUT_OF_RANGE),
        (len(WHOLE) + 1, ErrorCode.POSITION_OUT_OF_RANGE),
        ((1 << 63) - 1, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_part_of_a_snapshot_begins_inside_it(position: int, error: ErrorCode) -> None:
    replica, snapshot_id = only_leader_with_a_snapshot(1)
    assert replica.ask(messages.fetch_snapshot(CLUSTER, OTHER, 1, snapshot_id, position)) == error


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(-1, 0), (1, 0), (0, 1), (1, -1)],
)
def test_snapshot_with_another_offset_or_epoch_is_not_found(offset: int, epoch: int) -> None:
    replica, snapshot_id = only_leader_with_a_snapshot(1)
    asked = OffsetAndEpoch(snapshot_id.offset + offset, snapshot_id.epoch + epoch)
    assert replica.ask(messages.fetch_snapshot(CLUSTER, OTHER, 1, asked, 0)) == ErrorCode.SNAPSHOT_NOT_FOUND
    assert replica.ask(messages.fetch_snapshot(CLUSTER, OTHER, 1, snapshot_id, 0)) == ErrorCode.NONE


def fetching(epoch: int) -> Any:
    request = messages.fetch(CLUSTER, OTHER, epoch, OffsetAndEpoch(0, 0), -1)
    request.max_wait_ms = 0
    return request


@pytest.mark.parametrize("api", ["Vote", "PreVote", "BeginQuorumEpoch", "EndQuorumEpoch", "Fetch", "FetchSnapshot"])
def test_leader_fences_requests_of_the_epoch_before_its_own(api: str) -> None:
    replica, snapshot_id = only_leader_with_a_snapshot(5)
    raft, written = replica.raft, list(replica.states)
    if api == "Fetch":
        request = fetching(4)
    elif api == "FetchSnapshot":
        request = messages.fetch_snapshot(CLUSTER, OTHER, 4, snapshot_id, 0)
    else:
        request = naming(api, 4)
    assert replica.ask(request) == ErrorCode.FENCED_LEADER_EPOCH
    assert raft.is_leader and raft.epoch == 5 and replica.states == written


@pytest.mark.parametrize("api", ["Fetch", "FetchSnapshot"])
def test_leader_does_not_know_the_epoch_after_its_own(api: str) -> None:
    replica, snapshot_id = only_leader_with_a_snapshot(5)
    request = fetching(6) if api == "Fetch" else messages.fetch_snapshot(CLUSTER, OTHER, 6, snapshot_id, 0)
    assert replica.ask(request) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert replica.raft.is_leader


@pytest.mark.parametrize("api", ["Vote", "PreVote", "BeginQuorumEpoch", "EndQuorumEpoch"])
def test_follower_fences_requests_of_the_epoch_before_its_leaders(api: str) -> None:
    replica = Replica(1, 2, 3)
    replica.follow(5, b"a")
    role = replica.raft.role
    assert replica.ask(naming(api, 4)) == ErrorCode.FENCED_LEADER_EPOCH
    assert (replica.raft.role, replica.raft.epoch, replica.raft.leader_id) == (role, 5, 2)


def test_follower_does_not_follow_the_leader_of_the_epoch_before() -> None:
    replica = Replica(1, 2, 3)
    replica.follow(5, b"a")
    replica.answer(leader=(3, 4), records=b"", high_watermark=1, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    assert (replica.raft.epoch, replica.raft.leader_id, replica.raft.high_watermark) == (5, 2, 0)


def test_replica_without_a_leader_does_not_follow_one_of_the_epoch_before() -> None:
    replica = Replica(1, 2, 3, state=QuorumState(leader_epoch=5))
    replica.answer(leader=(3, 4), records=b"", high_watermark=0, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    assert (replica.raft.epoch, replica.raft.leader_id) == (5, -1)
    replica.answer(leader=(3, 5), records=b"", high_watermark=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (replica.raft.epoch, replica.raft.leader_id) == (5, 3)


def test_vote_is_for_this_voter_only() -> None:
    replica = Replica(1, 2, 3)
    request = naming("Vote", 3)
    request.voter_id = 2
    assert replica.ask(request) == ErrorCode.INVALID_VOTER_KEY
    assert all(state.voted_id == -1 for state in replica.states)


def test_quorum_check_counts_only_the_voter_itself_when_others_fetch_a_snapshot_under_its_id() -> None:
    replica = Replica(1, 2, 3)
    replica.lead()
    snapshot_id = OffsetAndEpoch(replica.log.end_offset, replica.raft.epoch)
    replica.log.write_snapshot(snapshot_id, 0, WHOLE)
    replica.log.finish_snapshot(snapshot_id)
    role = replica.raft.replica.role
    assert isinstance(role, Leader)
    voter, twin = ReplicaKey(2, Uuid(b"v" * 16)), ReplicaKey(2, Uuid(b"t" * 16))
    role.voters[2].key = voter
    deadline_ms = role.check_quorum_deadline_ms
    replica.now += 100
    for other in (twin, ME):
        assert replica.ask(messages.fetch_snapshot(CLUSTER, other, replica.raft.epoch, snapshot_id, 0)) == 0
        assert role.check_quorum_deadline_ms == deadline_ms
    assert replica.ask(messages.fetch_snapshot(CLUSTER, voter, replica.raft.epoch, snapshot_id, 0)) == 0
    assert role.check_quorum_deadline_ms > deadline_ms
