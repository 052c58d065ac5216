"""Reassignments add replicas, wait until these are in sync, and remove the old ones. They can be cancelled, and never
remove the last in-sync replica (KIP-455)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore.controller.quorum import reassignments
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from partition_leaders import Caller, alter, asked, create


async def reassign(
    harness: Any, replicas: list[int] | None, *, name: str = "t", partition: int = 0, **values: Any
) -> str:
    made = AlterPartitionReassignmentsRequest
    each = made.ReassignablePartition(partition_index=partition, replicas=replicas)
    request = made(topics=[made.ReassignableTopic(name=name, partitions=[each])], timeout_ms=1000, **values)
    response = await harness.controller.alter_partition_reassignments(Caller(1), request)
    (result,) = response.responses[0].partitions
    return ErrorCode(result.error_code).name


async def under_way(harness: Any) -> list[tuple[list[int], list[int], list[int]]]:
    request = ListPartitionReassignmentsRequest(topics=None)
    response = await harness.controller.list_partition_reassignments(Caller(0), request)
    return [
        (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


async def three_of_five(harness: Any) -> None:
    await harness.brokers(1, 2, 3, 4, 5)
    await create(harness, "t", [1, 2, 3])


def test_new_replicas_join_and_the_old_ones_leave_when_all_are_in_sync(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        assert await reassign(harness, [1, 4, 5]) == "NONE"
        row = harness.partition("t", 0)
        assert (row.replicas, row.adding, row.removing, row.isr) == ((1, 4, 5, 2, 3), (4, 5), (2, 3), (1, 2, 3))
        assert await under_way(harness) == [([1, 4, 5, 2, 3], [4, 5], [2, 3])]
        await alter(harness, asked(harness, [1, 2, 3, 4]))
        assert harness.partition("t", 0).adding == (4, 5)
        await alter(harness, asked(harness, [1, 2, 3, 4, 5]))
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((1, 4, 5), (1, 4, 5), (), ())
        assert row.leader_epoch == 1 and await under_way(harness) == []

    run(story)


def test_last_replica_in_sync_stays_until_a_new_one_is_in_sync(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1])
        assert await reassign(harness, [2]) == "NONE"
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.leader) == ((2, 1), (1,), 1)
        await harness.heartbeat(2, want_fence=True)
        assert harness.partition("t", 0).replicas == (2, 1)
        await harness.heartbeat(2)
        (result,) = await alter(harness, asked(harness, [1, 2]))
        assert ErrorCode(result.error_code).name == "NEW_LEADER_ELECTED"
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.leader, row.leader_epoch) == ((2,), (2,), 2, 1)

    run(story)


def test_cancelled_reassignment_returns_to_the_old_replicas(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        await reassign(harness, [1, 4, 5])
        await alter(harness, asked(harness, [1, 2, 3, 4]))
        assert await reassign(harness, None) == "NONE"
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((1, 2, 3), (1, 2, 3), (), ())
        assert row.leader_epoch == 1  # the new leader epoch fences the replica that was being added
        assert await reassign(harness, None) == "NO_REASSIGNMENT_IN_PROGRESS"

    run(story)


@pytest.mark.parametrize(("allowed", "told"), [("false", "INVALID_REPLICA_ASSIGNMENT"), ("true", "NONE")])
def test_cancel_that_leaves_nobody_in_sync_needs_unclean_elections(run, allowed, told) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3, 4)
        await create(harness, "t", [1, 2], unclean_leader_election_enable=allowed)
        await reassign(harness, [3, 4])
        await alter(harness, asked(harness, [1, 2, 3]))
        await harness.heartbeat(1, want_fence=True)
        await harness.heartbeat(2, want_fence=True)
        assert harness.partition("t", 0).isr == (3,)
        await harness.heartbeat(1)
        assert await reassign(harness, None) == told
        row = harness.partition("t", 0)
        assert (row.leader, row.isr) == ((1, (1,)) if told == "NONE" else (3, (3,)))

    run(story)


def test_reassignment_takes_the_place_of_one_in_progress(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        await reassign(harness, [1, 2, 4])
        assert await reassign(harness, [1, 2, 5]) == "NONE"
        row = harness.partition("t", 0)
        assert set(row.replicas) == {1, 2, 5, 3, 4} and 5 in row.adding and {3, 4} == set(row.removing)
        await alter(harness, asked(harness, [1, 2, 3, 5]))
        assert harness.partition("t", 0).replicas == (1, 2, 5)

    run(story)


def test_second_reassignment_need_not_wait_for_a_replica_that_only_the_first_one_wants(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        await reassign(harness, [1, 4, 5])
        assert await reassign(harness, [1, 2, 4]) == "NONE"
        assert await under_way(harness) == [([1, 2, 4, 3, 5], [4, 5], [3, 5])]
        await alter(harness, asked(harness, [1, 2, 3, 4]))
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((1, 2, 4), (1, 2, 4), (), ())

    run(story)


def test_reassignment_to_the_old_replicas_ends_the_one_in_progress(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        await reassign(harness, [1, 2, 4])
        assert await reassign(harness, [1, 2, 3]) == "NONE"
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((1, 2, 3), (1, 2, 3), (), ())

    run(story)


def test_replica_that_the_first_reassignment_removes_stays_when_the_second_one_wants_it(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        await reassign(harness, [1, 2, 4])
        assert await reassign(harness, [1, 2, 3, 4]) == "NONE"
        assert await under_way(harness) == [([1, 2, 3, 4], [4], [])]
        await alter(harness, asked(harness, [1, 2, 3, 4]))
        row = harness.partition("t", 0)
        assert (row.replicas, row.adding, row.removing) == ((1, 2, 3, 4), (), ())

    run(story)


def test_cancelling_the_second_reassignment_restores_the_replicas_from_before_the_first(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        await reassign(harness, [1, 2, 4])
        await reassign(harness, [1, 2, 5])
        assert await reassign(harness, None) == "NONE"
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((1, 2, 3), (1, 2, 3), (), ())

    run(story)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replicas": []}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"replicas": [1, 1, 2]}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"replicas": [1, 2, 9]}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"replicas": [1, 2, -1]}, "INVALID_REPLICA_ASSIGNMENT"),
        ({"replicas": [1, 2, 4], "name": "absent"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"replicas": [1, 2, 4], "partition": 7}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"replicas": None}, "NO_REASSIGNMENT_IN_PROGRESS"),
        ({"replicas": [1, 2], "allow_replication_factor_change": False}, "INVALID_REPLICATION_FACTOR"),
        ({"replicas": [1, 2, 3, 4], "allow_replication_factor_change": False}, "INVALID_REPLICATION_FACTOR"),
    ],
)
def test_impossible_reassignment_is_refused_and_changes_nothing(run, values, told) -> None:
    async def story(harness):
        await three_of_five(harness)
        end = harness.log.end_offset
        assert await reassign(harness, **values) == told
        assert harness.log.end_offset == end and harness.partition("t", 0).replicas == (1, 2, 3)

    run(story)


def test_replication_factor_changes_when_the_request_allows_it(run) -> None:
    async def story(harness):
        await three_of_five(harness)
        assert await reassign(harness, [2, 1]) == "NONE"
        assert harness.partition("t", 0).replicas == (2, 1)
        assert await reassign(harness, [2, 1, 5]) == "NONE"
        assert await reassign(harness, [2, 1, 4], allow_replication_factor_change=False) == "NONE"

    run(story)


def test_reassignment_ends_when_a_leader_fails_and_the_new_replicas_are_in_sync(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "t", [1, 2])
        await reassign(harness, [3, 2])
        await alter(harness, asked(harness, [1, 2]))
        await harness.heartbeat(1, want_fence=True)
        row = harness.partition("t", 0)
        # The reassignment continues even if the replica that it removes fails.
        assert (row.leader, row.isr, row.adding) == (2, (2,), (3,))
        await alter(harness, asked(harness, [2, 3]), leader=2)
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((3, 2), (2, 3), (), ())

    run(story)


@pytest.mark.parametrize("allowed", ["false", "true"])
def test_cancel_keeps_the_eligible_replicas_when_nobody_is_in_sync(run, allowed) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3, 4)
        await create(harness, "t", [1, 2, 3], min_insync_replicas="2", unclean_leader_election_enable=allowed)
        await alter(harness, asked(harness, [1, 2]))
        await reassign(harness, [3, 2, 4])
        await harness.heartbeat(1, want_fence=True)
        await harness.heartbeat(4, want_fence=True)
        await harness.heartbeat(3, want_fence=True)
        await harness.heartbeat(2, want_fence=True)
        assert await reassign(harness, None) == "NONE"
        row = harness.partition("t", 0)
        assert (set(row.replicas), row.adding, row.removing) == ({1, 2, 3}, (), ())
        assert (row.leader, row.isr, row.elr) == (-1, (), (1, 2))
        await harness.heartbeat(1)
        assert (harness.partition("t", 0).leader, harness.partition("t", 0).recovery_state) == (1, 0)

    run(story)


def test_cancel_elects_an_eligible_replica_when_only_a_new_replica_is_in_sync(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3, 4)
        await create(harness, "t", [1, 2], min_insync_replicas="2")
        await reassign(harness, [3, 4])
        await alter(harness, asked(harness, [1, 2, 3]))
        await harness.heartbeat(1, want_fence=True)
        await harness.heartbeat(2, want_fence=True)
        assert (harness.partition("t", 0).isr, harness.partition("t", 0).elr) == ((3,), (2,))
        await harness.heartbeat(2)
        assert await reassign(harness, None) == "NONE"
        row = harness.partition("t", 0)
        assert (row.replicas, row.leader, row.isr, row.recovery_state) == ((1, 2), 2, (2,), 0)

    run(story)


@pytest.mark.parametrize("single", [512, 0])
def test_partition_counts_once_when_a_request_repeats_it(run, monkeypatch, single: int) -> None:
    monkeypatch.setattr(reassignments, "MAX_SINGLE_DECISIONS", single)

    async def story(harness):
        await three_of_five(harness)
        made = AlterPartitionReassignmentsRequest
        asked_for = [
            made.ReassignablePartition(partition_index=0, replicas=replicas) for replicas in ([1, 2, 3, 4], None, [1])
        ]
        request = made(topics=[made.ReassignableTopic(name="t", partitions=asked_for)], timeout_ms=1000)
        response = await harness.controller.alter_partition_reassignments(Caller(1), request)
        told = [ErrorCode(each.error_code).name for each in response.responses[0].partitions]
        assert told == ["NONE", "INVALID_REQUEST", "INVALID_REQUEST"]
        row = harness.partition("t", 0)
        assert (row.replicas, row.adding, row.removing) == ((1, 2, 3, 4), (4,), ())

    run(story)
