"""A peer can send any integer. A replica refuses impossible values before it writes anything, and continues to work."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafkacore._fast.record.batch import ControlRecordType, RecordBatchBuilder
from kafkacore.config.addresses import Address
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AddRaftVoterRequest,
    FetchRequest,
    FetchResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VotersRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.answer_checks import ImpossibleAnswerError
from kafkacore.raft.control import control_batch, data_batch
from kafkacore.raft.core import Answer, Send
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.roles import Follower, Leader, Prospective
from kafkacore.storage.bootstrap import InitialVoter, encode_voters_checkpoint
from kafkacore.storage.quorum_state import LAST_EPOCH, QuorumState
from raft_replica import CLUSTER, OTHER, Replica, diverging, naming


@pytest.mark.parametrize("api", ["Vote", "PreVote", "BeginQuorumEpoch", "EndQuorumEpoch"])
@pytest.mark.parametrize("node_ids", [(1,), (1, 2, 3)])
def test_request_with_an_epoch_that_has_no_successor_is_refused_before_it_is_written(
    api: str, node_ids: tuple[int, ...]
) -> None:
    replica = Replica(*node_ids)
    epoch, role = replica.raft.epoch, replica.raft.role
    written = list(replica.states)
    assert replica.ask(naming(api, LAST_EPOCH)) == ErrorCode.INVALID_REQUEST
    assert (replica.raft.epoch, replica.raft.role) == (epoch, role)
    assert replica.states == written


@pytest.mark.parametrize("api", ["Vote", "BeginQuorumEpoch", "EndQuorumEpoch"])
def test_voter_takes_the_last_epoch_that_has_a_successor(api: str) -> None:
    replica = Replica(1, 2, 3)
    assert replica.ask(naming(api, LAST_EPOCH - 1)) == ErrorCode.NONE
    assert replica.raft.epoch == LAST_EPOCH - 1
    assert replica.states[-1].leader_epoch == LAST_EPOCH - 1


def test_only_voter_keeps_epochs_for_its_own_elections() -> None:
    """No other node can lead this quorum, so no other node may exhaust its epochs."""
    replica = Replica(1)
    assert replica.ask(naming("Vote", LAST_EPOCH - 1)) == ErrorCode.INVALID_REQUEST
    assert replica.raft.is_leader and replica.raft.epoch == 1
    assert replica.ask(naming("Vote", 1000)) == ErrorCode.NONE
    replica.now = replica.raft.next_tick_ms
    replica.raft.tick(replica.now)
    replica.settle()
    assert replica.raft.is_leader and replica.raft.epoch == 1001


def test_voter_does_not_stand_for_election_when_no_epoch_is_left(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(1, 2, 3, state=QuorumState(leader_epoch=LAST_EPOCH - 1))
    for _ in range(20):
        replica.now = max(replica.now + 1, replica.raft.next_tick_ms)
        replica.raft.tick(replica.now)
        for output in replica.raft.take_outputs():
            if isinstance(output, Send) and isinstance(output.request, VoteRequest):
                response = messages.answer(output.request, (-1, LAST_EPOCH - 1), None, error_code=0, vote_granted=True)
                replica.raft.response(output.correlation, response, replica.now)
        replica.settle()
    assert replica.raft.epoch == LAST_EPOCH - 1
    assert all(state.leader_epoch < LAST_EPOCH for state in replica.states)
    assert f"no leader can be elected after epoch {LAST_EPOCH - 1}" in caplog.text


@pytest.mark.parametrize("kind", [FetchRequest, VoteRequest])
@pytest.mark.parametrize("leader", [(2, LAST_EPOCH), (-1, LAST_EPOCH), (-5, 7), (2, -3)])
def test_answer_that_names_an_impossible_leader_changes_nothing(
    kind: Any, leader: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(1, 2, 3)
    if kind is FetchRequest:
        replica.follow(5)
        send = replica.next_send()
    else:
        replica.now = replica.raft.next_tick_ms
        replica.raft.tick(replica.now)
        while not isinstance(replica.raft.role, Prospective):
            replica.now = replica.raft.next_tick_ms
            replica.raft.tick(replica.now)
        send = replica.next_send()
    assert isinstance(send.request, kind)
    epoch, written = replica.raft.epoch, list(replica.states)
    values = {"vote_granted": True} if kind is VoteRequest else {"records": b"", "high_watermark": 0}
    replica.raft.response(
        send.correlation, messages.answer(send.request, leader, None, error_code=0, **values), replica.now
    )
    replica.settle()
    assert replica.raft.epoch == epoch
    assert replica.states == written
    [line] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "is impossible" in line.getMessage()
    assert f"n{send.to.node_id}:9093" in line.getMessage()


@pytest.mark.parametrize("leader", [(2, LAST_EPOCH), (-1, LAST_EPOCH), (-5, 7)])
def test_answer_to_a_voter_update_that_names_an_impossible_leader_changes_nothing(
    leader: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(1, 2, 3)
    replica.follow(5, b"a")
    send = replica.next_send()
    epoch, written = replica.raft.epoch, list(replica.states)
    correlation = replica.raft.replica.requests.begin(send.to, UpdateRaftVoterRequest(), replica.now)
    caplog.clear()
    named = UpdateRaftVoterResponse.CurrentLeader(leader_id=leader[0], leader_epoch=leader[1], host="n2", port=9093)
    replica.raft.response(correlation, UpdateRaftVoterResponse(current_leader=named), replica.now)
    replica.settle()
    assert replica.raft.epoch == epoch
    assert replica.states == written
    [line] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "is impossible" in line.getMessage()


def snapshot(end_offset: int, epoch: int) -> dict[str, Any]:
    return {"records": b"", "snapshot_id": FetchResponse.SnapshotId(end_offset=end_offset, epoch=epoch)}


@pytest.mark.parametrize(
    "values",
    [
        diverging(-1, 2),
        diverging(3, 3),  # this is the end of the follower's own log, so nothing diverges
        diverging(0, 9),  # the epoch is later than the one in the request
        snapshot(-1, 3),
        snapshot(10, -1),
        snapshot(10, 9),  # the epoch is in the future
        snapshot(3, 3),  # this log has all records of the snapshot
        snapshot(1, 4),  # the snapshot ends below the high watermark
        snapshot((1 << 63) - 1, 4),  # the offset leaves no room for records
    ],
    ids=repr,
)
def test_fetch_answer_that_cannot_be_true_changes_nothing(
    values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(1, 2, 3)
    replica.follow(3, b"a", b"b", b"c")
    replica.raft.replica.become_follower(4, 2, ("n2", 9093))
    before = replica.log.read(0, 1 << 20)
    replica.answer(**values, high_watermark=3)
    role = replica.raft.role
    assert isinstance(role, Follower) and role.download is None
    assert (replica.log.read(0, 1 << 20), replica.raft.high_watermark) == (before, 2)
    [line] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "is impossible" in line.getMessage()
    assert replica.raft.replica.requests.is_left_alone(2, replica.now)
    # The replica repeats the request, and accepts a correct answer.
    replica.answer(records=data_batch([b"d"], 3, 4, 0), high_watermark=4)
    assert (replica.log.end_offset, replica.raft.high_watermark) == (4, 4)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),  # the checksum does not match
        lambda data: data_batch([b"x"], 7, 3, 0),  # a gap
        lambda data: data_batch([b"x"], 0, 3, 0),  # the offset is already used
        lambda data: data_batch([b"x"], 1, 4, 0),  # an epoch in the future
        lambda data: data_batch([b"x"], 1, 2, 0),  # an epoch that has ended
        lambda data: data_batch([b"x"], 1, -1, 0),
        lambda data: RecordBatchBuilder(base_offset=1, partition_leader_epoch=3, control=True).build(),
        lambda data: b"\0" * 70,
        lambda data: data[:16] + b"\x01" + data[17:],  # a batch of magic 1
    ],
    ids=["checksum", "gap", "again", "later epoch", "earlier epoch", "no epoch", "no offsets", "zeros", "magic"],
)
def test_follower_throws_records_away_when_they_are_damaged_or_do_not_follow(
    damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    replica = Replica(1, 2, 3)
    replica.follow(3, b"a")
    good = data_batch([b"b"], 1, 3, 0)
    assert good is not None
    replica.answer(records=damage(good), high_watermark=2)
    assert (replica.log.end_offset, replica.raft.high_watermark) == (1, 0)
    [line] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "is impossible" in line.getMessage()
    replica.answer(records=good, high_watermark=2)
    assert (replica.log.end_offset, replica.raft.high_watermark) == (2, 2)


def test_epoch_without_a_successor_is_never_entered_whatever_names_it() -> None:
    """The answer to UpdateRaftVoter also contains a leader and its epoch."""
    replica = Replica(1, 2, 3)
    replica.follow(3, b"a")
    for leader_id in (-1, 2, 3):
        with pytest.raises(ImpossibleAnswerError):
            replica.raft.replica.hear(LAST_EPOCH, leader_id)
    assert (replica.raft.epoch, replica.raft.leader_id) == (3, 2)


def test_follower_refuses_a_set_without_voters(caplog: pytest.LogCaptureFixture) -> None:
    replica = Replica(1, 2, 3)
    replica.follow(3, b"a")
    replica.answer(records=control_batch([VotersRecord(version=0)], 1, 3, 0), high_watermark=2)
    assert replica.log.end_offset == 1 and len(replica.raft.voters.latest) == 3
    assert "is impossible, and is ignored: an empty set of voters at offset 1" in caplog.text


def test_follower_refuses_a_control_record_that_it_cannot_read(caplog: pytest.LogCaptureFixture) -> None:
    """The checksum is correct. Only the content shows that the record is not a voter set."""
    replica = Replica(1, 2, 3)
    replica.follow(3, b"a")
    builder = RecordBatchBuilder(base_offset=1, partition_leader_epoch=3, control=True)
    builder.append(0, b"\0\0" + int(ControlRecordType.KRAFT_VOTERS).to_bytes(2, "big"), b"\0\0\xff\xff\xff\xff")
    replica.answer(records=builder.build(), high_watermark=2)
    assert replica.log.end_offset == 1
    assert "is impossible" in caplog.text
    replica.answer(records=data_batch([b"b"], 1, 3, 0), high_watermark=2)
    assert replica.log.end_offset == 2


@pytest.mark.parametrize("max_bytes", [-(1 << 31), -1, 0, (1 << 31) - 1])
def test_leader_bounds_the_bytes_of_one_answer_whatever_is_asked(max_bytes: int) -> None:
    replica = Replica(1)
    asked: list[int] = []
    read = replica.log.read
    replica.log.read = lambda offset, most: asked.append(most) or read(offset, most)  # type: ignore[func-returns-value]
    request = messages.fetch(CLUSTER, OTHER, replica.raft.epoch, OffsetAndEpoch(0, 0), -1, max_bytes)
    assert replica.ask(request) == ErrorCode.NONE
    [most] = asked
    assert 1 <= most <= messages.MAX_ANSWER_BYTES


def test_fetch_of_another_topic_id_is_an_invalid_request() -> None:
    """This is the behaviour of Apache Kafka: requests for the metadata log never fail with INCONSISTENT_TOPIC_ID, and
    Vote contains no topic id."""
    replica = Replica(1, 2, 3)
    replica.lead()
    request = messages.fetch(CLUSTER, OTHER, replica.raft.epoch, OffsetAndEpoch(0, 0), -1)
    request.topics[0].topic, request.topics[0].topic_id = "", Uuid(b"another topic id")
    assert replica.ask(request) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("request_class", [UpdateRaftVoterRequest, AddRaftVoterRequest])
def test_leader_writes_nothing_when_the_record_of_the_voters_would_be_too_large(request_class: Any) -> None:
    log = MemoryLog()
    mine = Uuid(b"d" * 16)
    at_start = OffsetAndEpoch(0, 0)
    log.write_snapshot(
        at_start, 0, encode_voters_checkpoint([InitialVoter(1, mine, Address("n1", 9093))], "CONTROLLER", 0)
    )
    log.finish_snapshot(at_start)
    replica = Replica(log=log)
    end, voters = log.end_offset, replica.raft.voters.latest
    updates = request_class is UpdateRaftVoterRequest
    key = (1, mine) if updates else (2, Uuid(b"e" * 16))
    assert voters_answer(replica, request_class, *key, names=40) == ErrorCode.INVALID_REQUEST
    assert (log.end_offset, replica.raft.voters.latest) == (end, voters)
    # The next change is handled as usual.
    assert voters_answer(replica, UpdateRaftVoterRequest, 1, mine, names=2) == ErrorCode.NONE
    assert log.end_offset == end + 1
    [changed] = replica.raft.voters.latest.voters()
    assert len(changed.endpoints) == 3


def test_leader_keeps_no_endpoints_when_the_record_of_static_voters_would_be_too_large() -> None:
    replica = Replica(1)
    role = replica.raft.role
    assert isinstance(role, Leader)
    mine = Uuid(b"d" * 16)
    assert voters_answer(replica, UpdateRaftVoterRequest, 1, mine, names=40) == ErrorCode.INVALID_REQUEST
    assert not role.introduced
    assert voters_answer(replica, UpdateRaftVoterRequest, 1, mine, names=2) == ErrorCode.NONE
    assert list(role.introduced) == [1]


def test_voters_stay_static_when_their_record_would_be_too_large() -> None:
    endpoints = (("CONTROLLER", "n1", 9093), *((f"L{number}" * 10_000, "n1", 9093) for number in range(40)))
    replica = Replica(1, endpoints=endpoints)
    assert "so many endpoints" in str(replica.raft.why_not_dynamic())


def test_control_batch_is_not_built_when_a_record_does_not_fit() -> None:
    endpoints = [VotersRecord.Endpoint(name="n" * 30_000, host="h", port=1)] * 300
    record = VotersRecord(version=0, voters=[VotersRecord.Voter(voter_id=1, endpoints=endpoints)])
    with pytest.raises(ValueError, match="would be larger than"):
        control_batch([record], 0, 1, 0)


def voters_answer(replica: Replica, request_class: Any, voter_id: int, directory_id: Uuid, names: int) -> int:
    """Sends a request that gives a voter the usual listener and `names` more, each with a name of 30 kB. Returns the
    error code of the answer."""
    listener = request_class.Listener
    listeners = [listener(name=f"{number:030000}", host="n", port=9093) for number in range(names)]
    request = request_class(
        cluster_id=CLUSTER,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[listener(name="CONTROLLER", host="n", port=9093), *listeners],
    )
    if request_class is UpdateRaftVoterRequest:
        request.current_leader_epoch = replica.raft.epoch
        request.kraft_version_feature = UpdateRaftVoterRequest.KRaftVersionFeature(max_supported_version=1)
    replica.raft.take_outputs()
    replica.raft.request("update", request, replica.now)
    replica.settle()
    [answer] = [each for each in replica.raft.take_outputs() if isinstance(each, Answer)]
    error: int = answer.response.error_code
    return error
