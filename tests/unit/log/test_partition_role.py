"""A partition on its leader: the followers' positions, the high watermark, proposed ISRs, broker epochs and fencing."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkacore._fast.log import partition_edges
from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.log.partition_handle import PartitionHandle, become_rows
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import Uuid

LAG_MS = 10_000
TOPIC = Uuid(bytes(range(16)))


class Node:
    """A partition of node 1 with replicas on nodes 2 and 3, and a clock that stands still."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.world = Environment(self.clock)
        self.directory = LogDirectory(self.world, str(path))
        self.edges = PartitionEdges(LAG_MS, self.world)
        self.edges.set_brokers([(1, partition_edges.ACTIVE, 11), (2, partition_edges.ACTIVE, 22)])
        self.log = PartitionHandle(self.directory, "orders", 0, TOPIC)
        self.log.report_to(self.edges)

    def lead(self, isr: set[int], epoch: int = 1, partition_epoch: int = 1, min_isr: int = 1) -> None:
        assert self.log.become_leader(1, epoch, partition_epoch, [(each, each in isr) for each in (2, 3)], min_isr)

    def append(self, acks: int = 1, count: int = 1) -> tuple[int, int, int] | None:
        done = self.log.append(batch(count), acks, wait=False)
        assert done.error == 0
        return done.ack

    def must_leave(self, broker_id: int) -> bool:
        return any(each.must_leave for each in self.log.followers() if each.broker_id == broker_id)

    def known(self, broker_id: int) -> tuple[int, bool, bool]:
        [found] = [each for each in self.log.followers() if each.broker_id == broker_id]
        return found.end_offset, found.may_join, found.lags


def batch(count: int = 1) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(timestamp=0, key=None, value=b"v")
    return builder.build()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.log.retire()


def test_high_watermark_advances_when_each_isr_member_has_fetched(node: Node) -> None:
    node.lead({2, 3})
    node.append(count=3)
    assert node.log.followed(2, 3) == 0
    assert node.log.high_watermark == 0
    assert node.log.followed(3, 2) == 0
    assert node.log.high_watermark == 2
    assert node.log.followed(3, 3) == 0
    assert node.log.high_watermark == 3


def test_positions_survive_when_the_isr_changes_within_an_epoch(node: Node) -> None:
    node.lead({2, 3})
    node.append(count=3)
    node.log.followed(2, 3, broker_epoch=22)
    node.lead({2}, partition_epoch=2)
    assert node.log.high_watermark == 3
    assert [each.broker_epoch for each in node.log.followers()] == [22, -1]


def test_positions_are_forgotten_when_the_leader_epoch_rises(node: Node) -> None:
    node.lead({2})
    node.append(count=3)
    node.log.followed(2, 3)
    node.append()
    node.lead({2}, epoch=2, partition_epoch=2)
    assert node.known(2)[0] == -1
    assert node.log.high_watermark == 3


def test_high_watermark_stays_when_the_isr_is_smaller_than_min_isr(node: Node) -> None:
    node.lead(set(), min_isr=2)
    node.append(acks=1)
    assert node.log.high_watermark == 0
    assert node.log.append(batch(), -1).error == ErrorCode.NOT_ENOUGH_REPLICAS
    node.log.commit_isr([1, 2], 1, 2)
    node.log.followed(2, 1)
    assert node.log.high_watermark == 1


def test_min_isr_is_met_when_all_of_too_few_replicas_are_in_sync(node: Node) -> None:
    node.lead({2, 3}, min_isr=5)
    node.append()
    node.log.followed(2, 1)
    node.log.followed(3, 1)
    assert node.log.high_watermark == 1


def test_high_watermark_waits_when_a_caught_up_replica_is_about_to_join(node: Node) -> None:
    node.lead(set())
    node.log.followed(2, 0, broker_epoch=22)
    node.append()
    assert node.log.high_watermark == 0
    node.log.followed(2, 1, broker_epoch=22)
    assert node.log.high_watermark == 1


@pytest.mark.parametrize("state", [partition_edges.FENCED, partition_edges.LEAVING])
def test_high_watermark_waits_for_nobody_when_the_replica_is_not_eligible(node: Node, state: int) -> None:
    node.edges.set_brokers([(2, state, 22)])
    node.lead(set())
    node.log.followed(2, 0, broker_epoch=22)
    node.append()
    assert node.log.high_watermark == 1
    assert not node.edges.take(1)


def test_replica_may_join_when_nobody_tells_the_epoch_of_its_broker(node: Node) -> None:
    """In ZooKeeper mode, a follower sends its broker epoch, but the leader cannot know the correct one."""
    node.edges.set_brokers([(2, partition_edges.ACTIVE, -1)])
    node.lead(set())
    node.append()
    node.log.followed(2, 1, broker_epoch=22)
    assert node.edges.take(1) == [(TOPIC, 0)]


def test_high_watermark_waits_for_the_maximal_isr_when_an_expansion_is_proposed(node: Node) -> None:
    node.lead(set())
    node.append()
    node.log.followed(2, 1, broker_epoch=22)
    assert node.log.propose_isr([1, 2], 1)
    node.clock.advance_ms(LAG_MS + 1)
    node.append()
    assert node.log.high_watermark == 1
    assert not node.log.propose_isr([1, 2], 1), "only one proposal may be pending"
    node.log.withdraw_isr()
    assert node.log.high_watermark == 2, "a lagging replica outside the ISR must not hold back the high watermark"


def test_proposal_ends_when_a_newer_partition_epoch_is_applied(node: Node) -> None:
    node.lead(set())
    assert node.log.propose_isr([1, 2], 1)
    node.lead(set(), partition_epoch=1)
    assert node.log.is_proposing
    node.lead(set(), partition_epoch=2)
    assert not node.log.is_proposing


def test_partition_reports_an_edge_once_when_a_follower_catches_up(node: Node) -> None:
    node.lead(set())
    node.append()
    node.log.followed(2, 0, broker_epoch=22)
    assert node.edges.take(8) == [], "a follower below the high watermark must not be reported"
    node.log.followed(2, 1, broker_epoch=22)
    node.log.followed(2, 1, broker_epoch=22)
    assert len(node.edges) == 1
    assert node.edges.take(8) == [(TOPIC, 0)]
    assert node.edges.take(8) == []


def test_edge_is_reported_when_a_member_fell_behind(node: Node) -> None:
    node.lead({2})
    node.append()
    node.edges.check_lag()
    assert node.edges.take(8) == []
    node.clock.advance_ms(LAG_MS + 1)
    assert node.edges.check_lag() == 1
    assert node.edges.take(8) == [(TOPIC, 0)]
    assert node.known(2) == (-1, False, True)


def test_lagging_replica_does_not_join_again_when_the_high_watermark_waits_for_min_isr(node: Node) -> None:
    """Otherwise the replica would leave and join without end, although it never fetches."""
    node.lead({2}, min_isr=2)
    node.log.followed(2, 0, broker_epoch=22)
    node.append()
    node.clock.advance_ms(LAG_MS + 1)
    node.edges.check_lag()
    assert node.edges.take(8) == [(TOPIC, 0)]
    assert node.log.commit_isr([1], 1, 2)
    assert node.log.high_watermark == 0, "one member is fewer than min.insync.replicas"
    assert node.known(2) == (0, False, True)
    assert node.edges.take(8) == []
    node.lead(set(), partition_epoch=3, min_isr=2)
    assert node.edges.take(8) == []
    node.log.followed(2, 0, broker_epoch=22)
    assert node.known(2) == (0, True, True)
    assert node.edges.take(8) == [(TOPIC, 0)]


@pytest.mark.parametrize("learns", ["from the answer", "from the metadata"])
def test_replica_does_not_join_again_when_it_has_not_fetched_since_it_left_an_idle_partition(
    node: Node, learns: str
) -> None:
    """The controller removes a replica whose log directory has failed. This replica never fetches again, but on an idle
    partition it does not lag either."""
    node.lead({2})
    node.append()
    node.log.followed(2, 1, broker_epoch=22)
    if learns == "from the answer":
        assert node.log.commit_isr([1], 1, 2)
    else:
        node.lead(set(), partition_epoch=2)
    assert node.known(2) == (1, False, False)
    node.edges.check_lag()
    assert node.edges.take(8) == []
    node.log.followed(2, 1, broker_epoch=22)
    assert node.edges.take(8) == [(TOPIC, 0)]


def test_replica_far_behind_stays_in_the_isr_until_the_next_lag_check_when_min_isr_let_it_join(node: Node) -> None:
    """Otherwise the replica would join and leave with each of its fetches, until it has all records."""
    node.lead(set(), min_isr=2)
    for _ in range(3):
        node.append()
    node.log.followed(2, 0, broker_epoch=22)
    assert node.edges.take(8) == [(TOPIC, 0)]
    assert node.log.commit_isr([1, 2], 1, 2)
    assert node.known(2)[2]
    assert node.edges.take(8) == []
    assert not node.must_leave(2)
    node.edges.check_lag()
    assert node.edges.take(8) == [(TOPIC, 0)]
    assert node.must_leave(2)
    node.log.followed(2, 3, broker_epoch=22)
    assert not node.must_leave(2)


def test_follower_counts_as_caught_up_when_it_reaches_the_end_of_its_last_fetch(node: Node) -> None:
    node.lead({2})
    node.append()
    for end in range(1, 5):
        node.log.followed(2, end - 1)
        node.append()
        node.clock.advance_ms(LAG_MS // 2 - 1)
        assert not node.known(2)[2], "a follower does not lag if it has all records of its previous fetch"
    node.clock.advance_ms(LAG_MS)
    assert node.known(2)[2]


def test_fetch_of_an_earlier_life_is_refused_when_the_broker_epoch_is_older(node: Node) -> None:
    node.lead({2})
    assert node.log.followed(2, 0, broker_epoch=21) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.known(2)[0] == -1
    assert node.log.followed(2, 0, broker_epoch=-1) == 0


def test_fetch_is_refused_when_the_broker_has_no_replica(node: Node) -> None:
    node.lead({2})
    assert node.log.followed(9, 0, current_epoch=1) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert node.log.followed(9, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.log.followed(2, 0, current_epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
    assert node.log.followed(2, 0, current_epoch=2) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_position_counts_for_nothing_when_the_follower_lies_about_it(node: Node) -> None:
    node.lead({2})
    node.append()
    assert node.log.followed(2, 99) == 0
    assert (node.log.high_watermark, node.known(2)[0]) == (0, -1)


def test_acknowledgement_ends_when_another_leadership_began(node: Node) -> None:
    node.lead({2})
    ack = node.append(acks=-1)
    assert ack is not None
    assert node.log.acknowledged(*ack) is None
    node.log.become_follower(2, 2, 2)
    assert node.log.acknowledged(*ack) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.lead({2}, epoch=3, partition_epoch=3)
    node.log.followed(2, 1)
    assert node.log.high_watermark == 1
    assert node.log.acknowledged(*ack) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acknowledgement_lives_on_when_only_the_leader_epoch_rises(node: Node) -> None:
    node.lead({2, 3})
    ack = node.append(acks=-1)
    assert ack is not None
    node.log.followed(2, 1)
    node.lead({2}, epoch=2, partition_epoch=2)
    assert node.log.acknowledged(*ack) is None, "a position of the old epoch must not count"
    node.log.followed(2, 1)
    assert node.log.acknowledged(*ack) == 0


def test_acknowledgement_ends_when_the_log_is_truncated(node: Node) -> None:
    node.lead({2})
    node.append()
    ack = node.append(acks=-1)
    assert ack is not None
    node.log.truncate_to(1)
    assert node.log.acknowledged(*ack) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_producer_learns_that_the_isr_shrank_when_the_record_was_appended_before(node: Node) -> None:
    node.lead({2}, min_isr=2)
    ack = node.append(acks=-1)
    assert ack is not None
    node.log.followed(2, 1)
    node.log.commit_isr([1], 1, 2)
    assert node.log.acknowledged(*ack) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_follower_is_refused_when_the_epoch_moved_on(node: Node) -> None:
    node.log.become_follower(2, 5, 1)
    for epoch, error in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert node.log.append_as_follower(batch(), epoch).error == error
        assert node.log.truncate_as_follower(0, epoch) == error
        assert node.log.restart_as_follower(7, epoch) == error
        assert node.log.note_leader(epoch, 0, 0) == error
    assert node.log.append_as_follower(batch(2), 5).error == 0
    node.lead({2}, epoch=5, partition_epoch=2)
    assert node.log.append_as_follower(batch(), 5).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.log.truncate_as_follower(0, 5) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.log.end_offset == 2


def test_follower_takes_the_leaders_high_watermark_and_log_start_when_it_hears_of_them(node: Node) -> None:
    node.log.become_follower(2, 5, 1)
    for _ in range(3):
        data = bytearray(batch())
        data[0:8] = node.log.end_offset.to_bytes(8, "big")
        assert node.log.append_as_follower(data, 5).error == 0
    assert node.log.note_leader(5, 99, 0) == 0
    assert node.log.high_watermark == 3
    assert node.log.note_leader(5, 2, 1) == 0
    assert (node.log.high_watermark, node.log.log_start_offset) == (2, 1)
    assert node.log.truncate_as_follower(2, 5) == 0
    assert node.log.restart_as_follower(40, 5) == 0
    assert (node.log.log_start_offset, node.log.end_offset, node.log.high_watermark) == (40, 40, 40)
    assert node.log.leader_epochs() == []


def test_empty_log_is_truncated_when_its_leader_ends_before_its_start(node: Node) -> None:
    node.log.become_follower(2, 5, 1)
    assert node.log.restart_as_follower(6, 5) == 0
    assert node.log.truncate_as_follower(2, 5) == 0
    assert (node.log.log_start_offset, node.log.end_offset, node.log.high_watermark) == (2, 2, 2)


def test_deletion_is_done_when_all_live_replicas_have_deleted(node: Node) -> None:
    node.edges.set_brokers([(2, partition_edges.ACTIVE, 22), (3, partition_edges.FENCED, 33)])
    node.lead({2})
    node.append(count=1)
    node.append(count=1)
    node.log.followed(2, 2)
    error, low, deleted = node.log.delete_records(1)
    assert (error, low) == (0, 0)
    assert deleted is not None
    assert node.log.acknowledged(*deleted) is None
    node.log.followed(2, 2, log_start_offset=1)
    assert node.log.acknowledged(*deleted) == 0
    assert node.log.low_watermark == 1


def test_rows_give_roles_when_many_change_at_once(node: Node) -> None:
    others = [PartitionHandle(node.directory, "others", index, TOPIC) for index in range(2)]
    columns = {
        "leader": array("i", [1, 2]), "leader_epoch": array("i", [4, 5]), "partition_epoch": array("i", [6, 7]),
        "replicas": array("i", [1, 2, 2, 1]), "isr": array("i", [1, -1, 2, 1]), "recovery": bytearray([1, 0]),
    }  # fmt: skip
    rows, minima = array("i", [1, 0]), array("i", [1, 1])
    assert become_rows(others, 1, rows, minima, 2, **columns) == bytearray([1, 1])
    assert [each.role for each in others] == ["follower", "leader"]
    assert [(each.leader_id, each.leader_epoch, each.partition_epoch) for each in others] == [(2, 5, 7), (1, 4, 6)]
    assert [(each.broker_id, each.in_sync) for each in others[1].followers()] == [(2, False)]
    assert others[1].is_recovering
    columns["partition_epoch"] = array("i", [1, 1])
    assert become_rows(others, 1, rows, minima, 2, **columns) == bytearray([0, 0])
    with pytest.raises(ValueError, match="row 2"):
        become_rows(others, 1, array("i", [0, 2]), minima, 2, **columns)


def test_edge_is_reported_when_a_leader_was_elected_uncleanly(node: Node) -> None:
    node.log.become_leader(1, 1, 1, [(2, False)], recovering=True)
    assert node.edges.take(8) == [(TOPIC, 0)]
    node.log.commit_isr([1], 1, 2)
    assert not node.log.is_recovering
