"""The time that a decision on a large request takes grows linearly with the size of the request, not quadratically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkacore.controller.common.placement import replicas_problem
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
)
from kafkacore.protocol.uuid import Uuid

COUNT = 3_000
MOST_COMPARISONS = 60 * COUNT  # far more than linear work needs, and about a hundredth of COUNT squared


class CountedId(int):
    """An id that counts its comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return int.__eq__(self, other)  # type: ignore[arg-type]

    def __lt__(self, other: int) -> bool:
        CountedId.comparisons += 1
        return int.__lt__(self, other)

    __hash__ = int.__hash__


class CountedUuid(Uuid):
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedUuid.comparisons += 1
        return bytes.__eq__(self, other)

    __hash__ = Uuid.__hash__


def ids(count: int = COUNT, first: int = 100) -> list[int]:
    return [CountedId(each) for each in range(first + count, first, -1)]


@pytest.fixture(autouse=True)
def few_comparisons() -> Any:
    CountedId.comparisons = CountedUuid.comparisons = 0
    yield
    assert CountedId.comparisons < MOST_COMPARISONS
    assert CountedUuid.comparisons < MOST_COMPARISONS


async def topic(harness: Any) -> None:
    made = CreateTopicsRequest
    asked = made(topics=[made.CreatableTopic(name="a", num_partitions=1, replication_factor=1)], timeout_ms=10_000)
    [result] = (await harness.controller.create_topics(harness.caller(), asked)).topics
    assert result.error_code == 0


def test_topic_with_thousands_of_broker_ids_is_refused_fast(run: Any) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1)
        made = CreateTopicsRequest
        assignment = made.CreatableReplicaAssignment(partition_index=0, broker_ids=ids())
        asked = made.CreatableTopic(name="a", num_partitions=-1, replication_factor=-1, assignments=[assignment])
        response = await harness.controller.create_topics(harness.caller(), made(topics=[asked], timeout_ms=10_000))
        [result] = response.topics
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "broker 101, but no such broker" in result.error_message
        assert harness.controller.image.topic("a") is None

    run(story)


def test_new_partition_with_thousands_of_broker_ids_is_refused_fast(run: Any) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1)
        await topic(harness)
        made = CreatePartitionsRequest
        asked = made.CreatePartitionsTopic(
            name="a", count=2, assignments=[made.CreatePartitionsAssignment(broker_ids=[CountedId(1) for _ in ids()])]
        )
        response = await harness.controller.create_partitions(harness.caller(), made(topics=[asked], timeout_ms=10_000))
        [result] = response.results
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "the broker 1 more than once" in result.error_message

    run(story)


def test_reassignment_to_thousands_of_broker_ids_is_refused_fast(run: Any) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1)
        await topic(harness)
        made = AlterPartitionReassignmentsRequest
        asked = made.ReassignableTopic(
            name="a", partitions=[made.ReassignablePartition(partition_index=0, replicas=ids())]
        )
        response = await harness.controller.alter_partition_reassignments(
            harness.caller(), made(topics=[asked], timeout_ms=10_000)
        )
        [result] = response.responses[0].partitions
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    run(story)


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ([], "empty replica list"),
        ([2, 1], None),
        ([2, 9, 1], "broker 9, but no such"),
        ([3, 3, 1, 1], "the broker 1 more than once"),
        ([9, 3, 3], "the broker 3 more than once"),
        ([0, 3, 3], "broker 0, but no such"),
        ([0, 0], "broker 0, but no such"),
    ],
)
def test_first_problem_in_the_order_of_ids_is_reported(replicas: Sequence[int], problem: str | None) -> None:
    found = replicas_problem(replicas, {1: "a", 2: "b", 3: "c"})
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_broker_with_thousands_of_log_directories_is_served_fast(run: Any) -> None:
    async def story(harness: Any) -> None:
        directories = [CountedUuid((1_000_000 + each).to_bytes(16, "big")) for each in range(COUNT)]
        await harness.register(1, log_dirs=directories)
        for broker_id in range(2, 12):
            await harness.register(broker_id)
        assert not (await harness.heartbeat(1, cordoned_log_dirs=directories[1:])).is_fenced
        await topic(harness)
        await harness.heartbeat(1, cordoned_log_dirs=directories[1:], offline_log_dirs=directories[1:])
        assert len(harness.controller.image.brokers[1].directories) == 1

    run(story)
