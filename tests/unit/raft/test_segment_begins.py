"""A new segment of the metadata log is created while its replica continues to work. No reader sees a record before it
is in a file."""

from __future__ import annotations

from typing import Any

from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import messages
from kafkacore.raft.control import data_batch
from kafkacore.raft.core import Answer
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.voters import Voter, VoterSet
from raft_replica import CLUSTER, OTHER, Replica, naming


class SlowToBegin(Replica):
    """A replica whose disk is instant, except that it creates a segment only when the test calls `begin`."""

    asked: tuple[Any, ...] = ()

    def settle(self) -> None:
        self.asked = (*self.asked, *self.raft.take_work())
        super().settle()

    def begin(self) -> None:
        asked, self.asked = self.asked, ()
        assert asked, "the replica has not requested a segment"
        for each in asked:
            self.raft.done(each.number, each.effect.perform(self.log), self.now)
        self.settle()

    def fill_segment(self) -> None:
        self.log.segment_appends = 0

    def append(self, *values: bytes) -> None:
        for value in values:
            self.raft.append([value])
        self.settle()


def full_leader(*node_ids: int) -> SlowToBegin:
    replica = SlowToBegin(*node_ids)
    replica.lead()
    replica.append(b"first")
    if len(node_ids) > 1:
        replica.fetch_of(2, replica.log.end_offset, replica.raft.epoch)
    assert replica.raft.high_watermark == replica.log.end_offset
    replica.fill_segment()
    return replica


def room(replica: SlowToBegin) -> None:
    replica.log.segment_appends = 1 << 62


def test_leader_keeps_batches_from_its_followers_while_a_segment_begins() -> None:
    replica = full_leader(1, 2, 3)
    end, epoch = replica.log.end_offset, replica.raft.epoch
    replica.append(b"a", b"b")
    assert (replica.log.end_offset, replica.raft.end_offset) == (end, end + 2)
    for node in (2, 3):
        error, partition = replica.fetch_of(node, end, epoch)
        assert (error, bytes(partition.records), partition.high_watermark) == (ErrorCode.NONE, b"", end)
    assert replica.raft.next_tick_ms > replica.now, "the replica must not ask for a tick while it waits for a segment"
    room(replica)
    replica.begin()
    assert replica.log.end_offset == end + 2
    assert bytes(replica.fetch_of(2, end, epoch)[1].records) == replica.log.read(end, 1 << 20) != b""
    replica.fetch_of(2, end + 2, epoch)
    assert replica.raft.high_watermark == end + 2


def test_leader_asks_for_one_segment_when_many_batches_wait() -> None:
    replica = full_leader(1, 2, 3)
    replica.append(b"a")
    replica.append(b"b")
    assert len(replica.asked) == 1
    replica.begin()
    assert len(replica.asked) == 1, "the next segment is full immediately, so the replica must request another one"
    room(replica)
    replica.begin()
    assert replica.log.end_offset == replica.raft.end_offset


def test_batches_that_wait_for_a_segment_are_dropped_when_the_leadership_ends() -> None:
    replica = full_leader(1, 2, 3)
    end = replica.log.end_offset
    replica.append(b"a")
    assert replica.ask(naming("BeginQuorumEpoch", replica.raft.epoch + 1)) == ErrorCode.NONE
    room(replica)
    replica.begin()
    assert (replica.log.end_offset, replica.raft.end_offset) == (end, end)


def test_voters_that_wait_for_a_segment_commit_nothing_and_are_undone_when_the_leadership_ends() -> None:
    replica = full_leader(1, 2)
    leader = replica.raft
    end, before = replica.log.end_offset, leader.voters.latest
    replica.append(b"a")  # the voters of the old voter set must agree to this record
    role: Any = leader.role
    alone = VoterSet([Voter(leader.me, (("CONTROLLER", "n1", 9093),))])
    leader.membership._append_voters(role, alone, None)
    assert leader.voters.latest == alone
    leader.replication.advance_high_watermark()
    assert leader.high_watermark == end
    leader.replica.become_unattached(leader.epoch + 1)
    assert leader.voters.latest == before


def test_new_leader_begins_its_epoch_when_its_segment_has_begun() -> None:
    replica = SlowToBegin(1, 2, 3)
    replica.fill_segment()
    replica.lead()
    assert replica.log.end_offset == 0
    replica.fetch_of(2, 0, 0)
    assert replica.raft.high_watermark == 0
    room(replica)
    replica.begin()
    assert (replica.log.end_offset, replica.log.last_epoch) == (1, replica.raft.epoch)


def test_follower_handles_no_message_before_the_leaders_records_are_in_its_log() -> None:
    replica = SlowToBegin(1, 2, 3)
    replica.follow(3, b"a")
    replica.fill_segment()
    replica.answer(records=data_batch([b"b"], 1, 3, 0), high_watermark=2)
    assert (replica.log.end_offset, replica.raft.high_watermark) == (1, 0)
    replica.raft.take_outputs()
    replica.raft.request("vote", naming("Vote", 9), replica.now)
    replica.raft.tick(replica.now + 100_000)  # the disk is slow, and the follower's fetch timeout has expired
    replica.settle()
    assert (replica.raft.take_outputs(), replica.raft.epoch) == ([], 3)
    room(replica)
    replica.begin()
    assert (replica.log.end_offset, replica.raft.high_watermark) == (2, 2)
    [vote] = [each for each in replica.raft.take_outputs() if isinstance(each, Answer)]
    assert messages.answered(vote.response)[0] == ErrorCode.NONE
    assert replica.raft.epoch == 9


def test_leader_answers_requests_while_a_segment_begins() -> None:
    replica = full_leader(1, 2, 3)
    replica.append(b"a")
    fetch = messages.fetch(CLUSTER, OTHER, replica.raft.epoch - 1, OffsetAndEpoch(0, 0), -1)
    assert replica.ask(fetch) == ErrorCode.FENCED_LEADER_EPOCH
