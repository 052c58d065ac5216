"""Partition changes made by elections and reassignments. If an operation changes nothing, the controller writes no
record."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from kafkacore.controller.common.partition_change import Election, Rules, Target, change
from kafkacore.metadata.partition_records import PartitionRecords
from kafkacore.metadata.partitions import Partition, PartitionChunk
from kafkacore.protocol.uuid import Uuid

TOPIC = Uuid(b"t" * 16)


def directory(broker_id: int) -> Uuid:
    return Uuid((100 + broker_id).to_bytes(16, "big"))


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, **values: Any) -> Partition:
    return Partition(0, 0, replicas, tuple(map(directory, replicas)), isr, leader, 5, 9, **values)


def rules(alive: set[int], min_isr: int = 1, elr: bool = False) -> Rules:
    return Rules(alive.__contains__, directory, min_isr, elr)


def after(row: Partition, target: Target, alive: set[int], **values: Any) -> Partition:
    record = change(row, TOPIC, target, rules(alive, **values))
    if record is None:
        return row
    blank, chunk = PartitionRecords(), PartitionChunk()
    blank.number(TOPIC, row.partition, 1)
    blank.place(1, row.replicas, row.isr, row.leader, row.directories)
    chunk.extend(array("i", [row.topic_row]), blank, 0)
    chunk.put(0, row)
    chunk.change(0, 1, record)
    return chunk.get(0)


def test_no_change_makes_no_record() -> None:
    assert change(partition((1, 2), (1, 2), 1), TOPIC, Target(), rules({1, 2})) is None


def test_first_live_replica_in_sync_leads() -> None:
    row = after(partition((1, 2, 3), (2, 3), 1), Target(), {2, 3})
    assert (row.leader, row.leader_epoch, row.partition_epoch) == (2, 6, 10)


def test_leader_stays_unless_the_preferred_one_is_wanted() -> None:
    row = partition((1, 2), (1, 2), 2)
    assert after(row, Target(), {1, 2}) is row
    assert after(row, Target(election=Election.PREFERRED), {1, 2}).leader == 1
    assert after(row, Target(election=Election.PREFERRED), {2}) is row


@pytest.mark.parametrize(("election", "leader", "isr"), [(Election.ONLINE, -1, (1,)), (Election.UNCLEAN, 2, (2,))])
def test_replica_out_of_sync_leads_only_by_unclean_election(
    election: Election, leader: int, isr: tuple[int, ...]
) -> None:
    row = after(partition((1, 2), (1,), 1), Target(election=election), {2})
    assert (row.leader, row.isr) == (leader, isr)
    assert row.recovery_state == (1 if leader >= 0 else 0)


def test_reassignment_is_complete_when_the_new_replicas_are_in_sync() -> None:
    row = partition((1, 2, 3), (1, 2), 1, adding=(3,), removing=(1,))
    assert after(row, Target(isr=(1, 2)), {1, 2, 3}) is row
    done = after(row, Target(isr=(1, 2, 3)), {1, 2, 3})
    assert (done.replicas, done.isr, done.adding, done.removing) == ((2, 3), (2, 3), (), ())
    assert done.leader == 2 and done.directories == (directory(2), directory(3))


def test_removed_replica_leaves_the_elr_when_fewer_replicas_than_the_minimum_remain() -> None:
    row = partition((1, 2, 3), (1, 2, 3), 1, removing=(1, 2))
    done = after(row, Target(isr=(1, 2, 3)), {1, 2, 3}, min_isr=2, elr=True)
    assert (done.replicas, done.isr, done.elr) == ((3,), (3,), ())
    back = after(done, Target(isr=(), replicas=(1, 3), adding=(1,)), {1}, min_isr=1, elr=True)
    assert back.leader == -1, "broker 1 cannot lead, because its log was deleted"


def test_reassignment_to_fewer_replicas_waits_for_all_of_them() -> None:
    row = partition((0, 1, 2, 3, 4, 5), (0, 1, 5), 0, adding=(5,), removing=(0, 1))
    assert after(row, Target(), {0, 1, 5}) is row
    done = after(row, Target(isr=(0, 1, 2, 3, 4, 5)), {0, 1, 2, 3, 4, 5})
    assert done.replicas == (2, 3, 4, 5) and done.leader == 2


def test_removed_replica_causes_a_new_leader_epoch() -> None:
    row = partition((1, 2, 3), (1, 2, 3), 1)
    changed = after(row, Target(replicas=(1, 2), isr=(1, 2)), {1, 2, 3})
    assert (changed.leader, changed.leader_epoch) == (1, 6)


def test_directory_of_a_replica_is_recorded() -> None:
    row = partition((1, 2), (1, 2), 1)
    moved = after(row, Target(directories={2: directory(77)}), {1, 2})
    assert moved.directories == (directory(1), directory(77)) and moved.leader_epoch == 5


def test_eligible_replicas_are_cleared_when_the_isr_is_large_enough() -> None:
    row = partition((1, 2, 3), (1,), 1, elr=(2,))
    back = after(row, Target(isr=(1, 3)), {1, 2, 3}, min_isr=2, elr=True)
    assert back.elr == () and back.isr == (1, 3)
    off = after(row, Target(), {1, 2, 3}, min_isr=2, elr=False)
    assert off.elr == ()


def test_replica_is_not_eligible_after_an_unclean_shutdown() -> None:
    row = partition((1, 2), (1,), 1, elr=(2,))
    target = Target(isr=(1,), ineligible=frozenset([2]))
    assert after(row, target, {1, 2}, min_isr=2, elr=True).elr == ()


def test_last_known_leader_is_a_replica_that_has_led() -> None:
    leaderless = partition((1, 2), (1,), -1, removing=(2,))
    assert after(leaderless, Target(isr=(1,)), set(), elr=True).last_known_elr == ()
    removed = partition((1, 4), (4,), 4, elr=(1,), adding=(4,))
    assert after(removed, Target(isr=(), replicas=(1,), adding=()), {4}, min_isr=2, elr=True).last_known_elr == ()


def test_order_of_an_elr_is_no_change() -> None:
    row = partition((1, 17, 2), (1,), 1, elr=(17, 2))
    assert after(row, Target(), {1}, min_isr=2, elr=True) is row


def test_last_eligible_replica_is_remembered_when_the_last_leader_is_not_known() -> None:
    row = partition((1, 2), (), -1, elr=(1, 2))
    one = after(row, Target(ineligible=frozenset([1])), set(), min_isr=2, elr=True)
    assert (one.elr, one.last_known_elr) == ((2,), ())
    none = after(one, Target(ineligible=frozenset([2])), set(), min_isr=2, elr=True)
    assert (none.elr, none.last_known_elr) == ((), (2,))


def test_last_known_leader_is_forgotten_when_its_replica_is_removed() -> None:
    row = partition((1, 4), (), -1, last_known_elr=(4,), adding=(4,), elr=(1,))
    assert after(row, Target(replicas=(1,), adding=()), set(), min_isr=2, elr=True).last_known_elr == ()


def test_last_known_leader_is_not_elected_when_its_replica_is_removed() -> None:
    row = partition((1, 4), (), -1, last_known_elr=(4,), adding=(4,))
    assert after(row, Target(replicas=(1,), adding=()), {4}, min_isr=2, elr=True).leader == -1
