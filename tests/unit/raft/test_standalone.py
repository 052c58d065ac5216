"""A quorum whose log contains the voters (KIP-853) begins with the checkpoint of `storage format --standalone`."""

from __future__ import annotations

from random import Random

import pytest

from kafkacore.config.addresses import Address
from kafkacore.protocol.messages import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import control
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.roles import Leader
from kafkacore.raft.snapshots import SnapshotError
from kafkacore.raft.tail_log import TailLog
from kafkacore.storage.bootstrap import InitialVoter, encode_voters_checkpoint
from kafkacore.storage.quorum_state import QuorumState

DIRECTORY = Uuid(b"d" * 16)


def formatted(node_id: int = 1, directory: Uuid = DIRECTORY) -> MemoryLog:
    log = MemoryLog()
    voter = InitialVoter(node_id, directory, Address("h", 9093))
    log.write_snapshot(OffsetAndEpoch(0, 0), 0, encode_voters_checkpoint([voter], "CONTROLLER", 0))
    log.finish_snapshot(OffsetAndEpoch(0, 0))
    return log


def start(log: MemoryLog, state: QuorumState | None = None, port: int = 9093) -> tuple[Raft, QuorumState | None]:
    config = RaftConfig(1, DIRECTORY, "c", endpoints=(("CONTROLLER", "h", port),))
    raft = Raft(config, log, state, Random(1), 0, lambda: 0)
    saved = raft.take_state()
    if saved is not None:
        raft.persisted(saved[0], 0)
    sync = raft.take_sync()
    if sync is not None:
        raft.durable(sync, 0)
    return raft, saved[1] if saved else None


def names(log: MemoryLog, start_offset: int) -> list[str]:
    return [record.NAME for _, record in control.control_records(log.read(start_offset, 1 << 20))]


def test_first_leader_writes_the_voters_to_the_log() -> None:
    log = formatted()
    raft, state = start(log)
    assert raft.is_leader and raft.voters.kraft_version == 1
    assert names(log, 0) == [LeaderChangeMessage.NAME, KRaftVersionRecord.NAME, VotersRecord.NAME]
    assert state == QuorumState(leader_id=-1, leader_epoch=1, voted_id=1, voted_directory_id=DIRECTORY)
    assert raft.high_watermark == 3
    end = log.end_offset
    again, _ = start(log, state)
    assert again.is_leader and again.epoch == 2
    assert names(log, end) == [LeaderChangeMessage.NAME]


def test_leader_writes_its_new_endpoints_to_the_log() -> None:
    log = formatted()
    _, state = start(log)
    end = log.end_offset
    raft, _ = start(log, state, port=7777)
    assert names(log, end) == [LeaderChangeMessage.NAME, KRaftVersionRecord.NAME, VotersRecord.NAME]
    voter = raft.voters.latest.get(1)
    assert voter is not None and voter.endpoint("CONTROLLER") == ("h", 7777)
    assert raft.leader_endpoint == ("h", 7777)


def test_observer_without_an_id_finds_the_leader_and_is_not_counted() -> None:
    leader, _ = start(formatted())
    config = RaftConfig(-1, Uuid(bytes(16)), "c", bootstrap=(("h", 9093),), can_vote=False)
    log = TailLog()
    observer = Raft(config, log, None, Random(1), 0, lambda: 0)
    for token in range(8):
        state = observer.take_state()
        if state is not None:
            observer.persisted(state[0], 0)
        for sent in observer.take_outputs():
            assert isinstance(sent, Send)
            leader.request(token, sent.request, 0)
            leader.tick(leader.next_tick_ms)
            for answer in leader.take_outputs():
                assert isinstance(answer, Answer)
                observer.response(sent.correlation, answer.response, 0)
        sync = observer.take_sync()
        if sync is not None:
            observer.durable(sync, 0)
    assert (observer.leader_id, observer.high_watermark, log.end_offset) == (1, 3, 3)
    assert isinstance(leader.role, Leader) and not leader.role.observers
    log.trim(2)
    assert (log.start_offset, log.last_epoch) == (2, 1)


def test_observer_asks_again_when_a_late_response_arrives_as_its_back_off_ends() -> None:
    config = RaftConfig(-1, Uuid(bytes(16)), "c", bootstrap=(("h", 9093),), can_vote=False)
    observer = Raft(config, TailLog(), None, Random(1), 0, lambda: 0)
    saved = observer.take_state()
    if saved is not None:
        observer.persisted(saved[0], 0)
    [sent] = observer.take_outputs()
    assert isinstance(sent, Send)
    observer.response(sent.correlation, None, 10)
    assert observer.next_tick_ms == 10 + config.retry_backoff_ms
    observer.response(sent.correlation, None, 50)  # the observer has given up this request already
    assert observer.next_tick_ms <= 50
    observer.tick(50)
    [again] = observer.take_outputs()
    assert isinstance(again, Send)


def test_replica_with_another_directory_id_does_not_vote() -> None:
    raft, _ = start(formatted(directory=Uuid(b"e" * 16)))
    assert not raft.is_voter and not raft.is_leader
    assert f"has {Uuid(b'e' * 16)}, so it only follows" in raft.voters.latest.why_not(raft.me)


def test_controller_without_voters_waits_to_be_added() -> None:
    raft, _ = start(MemoryLog())
    assert not raft.is_voter and not raft.is_leader
    assert "not among the voters (none)" in raft.voters.latest.why_not(raft.me)


def test_truncation_undoes_changes_of_voters() -> None:
    raft, _ = start(formatted())
    assert raft.voters.in_log
    assert raft.voters.below(1).latest == raft.voters.latest and not raft.voters.below(1).in_log


@pytest.mark.parametrize(("length", "problem"), [(0, "is empty"), (80, "is cut off at byte 0")])
def test_damaged_first_checkpoint_matters_only_until_the_log_has_the_voters(length: int, problem: str) -> None:
    log = formatted()
    whole = log.read_snapshot(OffsetAndEpoch(0, 0), 0, 1 << 20)
    log.write_snapshot(OffsetAndEpoch(0, 0), 0, whole[:length])
    log.finish_snapshot(OffsetAndEpoch(0, 0))
    with pytest.raises(SnapshotError, match=problem):
        start(log)
    log.write_snapshot(OffsetAndEpoch(0, 0), 0, whole)
    log.finish_snapshot(OffsetAndEpoch(0, 0))
    _, state = start(log)
    log.write_snapshot(OffsetAndEpoch(0, 0), 0, whole[:length])
    log.finish_snapshot(OffsetAndEpoch(0, 0))
    again, _ = start(log, state)
    assert again.is_leader and again.voters.kraft_version == 1
