"""AlterPartition: which ISRs the controller accepts from leaders, and which ones it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import AlterPartitionReassignmentsRequest
from kafkacore.protocol.uuid import Uuid
from partition_leaders import Caller, alter, asked, create

RECOVERING = 1


async def refusal(harness, part: Any, **values: Any) -> str:
    before = harness.log.end_offset
    (result,) = await alter(harness, part, **values)
    assert harness.log.end_offset == before
    return ErrorCode(result.error_code).name


async def three(harness) -> None:
    await harness.brokers(1, 2, 3)
    await create(harness, "t", [1, 2, 3])


@pytest.mark.parametrize("version", [2, 3])
def test_isr_shrinks_and_grows_when_the_leader_asks(run, version) -> None:
    async def story(harness):
        await three(harness)
        (result,) = await alter(harness, asked(harness, [1, 3]), version=version)
        row = harness.partition("t", 0)
        assert (row.isr, row.leader, row.leader_epoch, row.partition_epoch) == ((1, 3), 1, 0, 1)
        told = (result.error_code, result.isr, result.leader_id, result.leader_epoch, result.partition_epoch)
        assert told == (0, [1, 3], 1, 0, 1)
        (result,) = await alter(harness, asked(harness, [1, 3, 2]), version=version)
        assert harness.partition("t", 0).isr == (1, 3, 2) and result.partition_epoch == 2

    run(story)


def test_isr_that_is_the_same_already_makes_no_record(run) -> None:
    async def story(harness):
        await three(harness)
        before = harness.log.end_offset
        (result,) = await alter(harness, asked(harness, [1, 2, 3]))
        assert (result.error_code, result.isr, result.partition_epoch) == (0, [1, 2, 3], 0)
        assert harness.log.end_offset == before

    run(story)


def test_request_is_refused_when_its_broker_epoch_is_not_the_registered_one(run) -> None:
    async def story(harness):
        await three(harness)
        for epoch in (harness.epochs[1] - 1, harness.epochs[1] + 1, -1):
            with pytest.raises(KafkaError) as refused:
                await alter(harness, asked(harness, [1]), broker_epoch=epoch)
            assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert harness.partition("t", 0).isr == (1, 2, 3)

    run(story)


def test_partition_is_refused_when_it_or_its_epochs_are_not_the_controllers(run) -> None:
    async def story(harness):
        await three(harness)
        await alter(harness, asked(harness, [1, 2]))  # raises the partition epoch to 1
        assert await refusal(harness, asked(harness, [1]), topic_id=Uuid(b"?" * 16)) == "UNKNOWN_TOPIC_ID"
        assert await refusal(harness, asked(harness, [1]), topic_id=Uuid(bytes(16))) == "UNKNOWN_TOPIC_ID"
        assert await refusal(harness, asked(harness, [1], partition=7)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await refusal(harness, asked(harness, [1], partition=-1)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await refusal(harness, asked(harness, [1], leader_epoch=1)) == "NOT_CONTROLLER"
        assert await refusal(harness, asked(harness, [1], partition_epoch=2)) == "NOT_CONTROLLER"
        assert await refusal(harness, asked(harness, [1], leader_epoch=-1)) == "FENCED_LEADER_EPOCH"
        assert await refusal(harness, asked(harness, [1], partition_epoch=0)) == "INVALID_UPDATE_VERSION"
        assert await refusal(harness, asked(harness, [1, 2]), leader=2) == "INVALID_REQUEST"

    run(story)


def test_isr_is_refused_when_it_is_no_set_of_replicas_with_the_leader(run) -> None:
    async def story(harness):
        await three(harness)
        await harness.brokers(4)
        for isr in ([], [2, 3], [1, 1], [1, 4], [1, 9]):
            assert await refusal(harness, asked(harness, isr)) == "INVALID_REQUEST"
        assert await refusal(harness, asked(harness, [1], leader_recovery_state=2)) == "INVALID_REQUEST"
        assert await refusal(harness, asked(harness, [1], leader_recovery_state=RECOVERING)) == "INVALID_REQUEST"

    run(story)


@pytest.mark.parametrize("version", [2, 3])
def test_replica_is_ineligible_when_it_is_fenced_or_leaving_or_unregistered(run, version) -> None:
    async def story(harness):
        await three(harness)
        await create(harness, "leads", [3])  # broker 3 leads a partition, so its controlled shutdown takes a while
        await alter(harness, asked(harness, [1]))
        await harness.heartbeat(2, want_fence=True)
        assert await refusal(harness, asked(harness, [1, 2]), version=version) == "INELIGIBLE_REPLICA"
        await harness.heartbeat(2)
        leaves = await harness.leaving(3)
        assert harness.controller.image.brokers[3].in_controlled_shutdown
        assert await refusal(harness, asked(harness, [1, 3]), version=version) == "INELIGIBLE_REPLICA"
        (result,) = await alter(harness, asked(harness, [1, 2]), version=version)
        assert result.error_code == 0
        leaves.cancel()

    run(story)


def test_replica_is_ineligible_when_it_was_restarted_since_the_leader_saw_it(run) -> None:
    async def story(harness):
        await three(harness)
        await alter(harness, asked(harness, [1, 3]))
        seen = harness.epochs[2]
        await harness.heartbeat(2, want_fence=True)
        await harness.register(2, incarnation=2)
        await harness.heartbeat(2)
        for epoch in (seen, harness.epochs[2] + 1):
            assert await refusal(harness, asked(harness, [1, 3, 2], epochs={2: epoch})) == "INELIGIBLE_REPLICA"
        # An older leader sends no broker epoch.
        (result,) = await alter(harness, asked(harness, [1, 3, 2], epochs={2: -1}))
        assert result.error_code == 0 and harness.partition("t", 0).isr == (1, 3, 2)

    run(story)


def test_each_partition_is_decided_on_its_own_and_once_in_a_request(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "t", [1, 2, 3], [1, 2, 3])
        results = await alter(
            harness, asked(harness, [1]), asked(harness, [9], partition=1), asked(harness, [1, 2]),
            asked(harness, [1, 2], partition=1),
        )  # fmt: skip
        names = [ErrorCode(each.error_code).name for each in results]
        assert names == ["NONE", "INVALID_REQUEST", "INVALID_UPDATE_VERSION", "NONE"]
        assert harness.partition("t", 0).isr == (1,) and harness.partition("t", 1).isr == (1, 2)

    run(story)


async def reassign(harness, replicas: list[int]) -> None:
    made = AlterPartitionReassignmentsRequest
    partition = made.ReassignablePartition(partition_index=0, replicas=replicas)
    request = made(topics=[made.ReassignableTopic(name="t", partitions=[partition])], timeout_ms=1000)
    response = await harness.controller.alter_partition_reassignments(Caller(), request)
    assert response.responses[0].partitions[0].error_code == 0


def test_isr_completes_a_reassignment_when_all_new_replicas_are_in_sync(run) -> None:
    async def story(harness):
        await three(harness)
        await harness.brokers(4)
        await reassign(harness, [1, 2, 4])
        (result,) = await alter(harness, asked(harness, [1, 2, 3, 4]))
        row = harness.partition("t", 0)
        assert (row.replicas, row.isr, row.adding, row.removing) == ((1, 2, 4), (1, 2, 4), (), ())
        assert row.leader_epoch == 1  # the new leader epoch fences the replica that has left the ISR
        assert (result.error_code, result.isr, result.leader_epoch) == (0, [1, 2, 4], 1)

    run(story)


def test_leader_hears_of_the_new_one_when_its_report_completes_its_own_removal(run) -> None:
    async def story(harness):
        await three(harness)
        await harness.brokers(4)
        await reassign(harness, [4, 2, 3])
        (result,) = await alter(harness, asked(harness, [1, 2, 3, 4]))
        row = harness.partition("t", 0)
        assert ErrorCode(result.error_code).name == "NEW_LEADER_ELECTED"
        assert (row.leader, row.replicas, row.isr, row.leader_epoch) == (4, (4, 2, 3), (2, 3, 4), 1)

    run(story)


def test_leader_recovers_alone_before_its_isr_grows_after_an_unclean_election(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2], unclean_leader_election_enable="true")
        await alter(harness, asked(harness, [1]))
        await harness.heartbeat(1, want_fence=True)
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.recovery_state) == (2, (2,), RECOVERING)
        await harness.heartbeat(1)
        both = asked(harness, [2, 1], leader_recovery_state=RECOVERING)
        assert await refusal(harness, both, leader=2) == "INVALID_REQUEST"
        (result,) = await alter(harness, asked(harness, [2]), leader=2)
        assert (result.error_code, result.leader_recovery_state) == (0, 0)
        assert harness.partition("t", 0).recovery_state == 0
        (result,) = await alter(harness, asked(harness, [2, 1]), leader=2)
        assert result.error_code == 0

    run(story)


def test_replicas_become_eligible_when_the_isr_falls_below_its_minimum(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "t", [1, 2, 3], min_insync_replicas="2")
        await alter(harness, asked(harness, [1, 2]))
        assert harness.partition("t", 0).elr == ()
        await alter(harness, asked(harness, [1]))
        assert harness.partition("t", 0).elr == (2,)
        await alter(harness, asked(harness, [1, 3]))
        row = harness.partition("t", 0)
        assert (row.isr, row.elr) == ((1, 3), ())

    run(story)


def test_no_replica_becomes_eligible_when_the_metadata_version_is_from_3_9(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "t", [1, 2, 3], min_insync_replicas="2")
        await alter(harness, asked(harness, [1]))
        row = harness.partition("t", 0)
        assert (row.isr, row.elr) == ((1,), ())

    run(story, level=21)
