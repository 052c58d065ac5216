"""The controller makes a large decision in slices of a few milliseconds, so that its event loop can run other tasks in
between. Other decisions wait until the large one is complete."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkacore._fast.base.debug_checks import DEBUG
from kafkacore.controller.quorum.decisions import Decision
from kafkacore.controller.quorum.topics import TopicCreation
from kafkacore.controller.quorum.turns import Turns
from kafkacore.metadata import row_kinds
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import finish_now
from partition_leaders import Caller, create

MANY = 30_000
# Limit in CPU seconds. The requests as a whole take 0.1 to 3 s. Debug builds are slower because they run checks, and
# sanitizers also slow Python down.
LONGEST_STEP_S = 0.4 if DEBUG else 0.03
ATTEMPTS = 5  # on a busy machine some steps take longer, but not in every attempt
BROKER, TOPIC, SET = 4, 2, 0
assert row_kinds  # imported before any timing, because the import loads numpy, which takes 100 ms


def uuid(number: int) -> Uuid:
    return Uuid((1 << 20 | number).to_bytes(16, "big"))


def alter_configs(harness: Any) -> Any:
    """Returns a broker resource with as many unknown keys as a single request may set."""
    made = m.AlterConfigsRequest
    configs = [made.AlterableConfig(name=f"key.{n}", value="v") for n in range(9_999)]
    return "alter_configs", made(resources=[made.AlterConfigsResource(resource_type=BROKER, resource_name="1",
                                                                      configs=configs)])  # fmt: skip


def incremental_alter_configs(harness: Any) -> Any:
    made = m.IncrementalAlterConfigsRequest
    resources = [
        made.AlterConfigsResource(
            resource_type=TOPIC, resource_name=f"absent-{n}",
            configs=[made.AlterableConfig(name="retention.ms", config_operation=SET, value="5")],
        )
        for n in range(MANY)
    ]  # fmt: skip
    return "incremental_alter_configs", made(resources=resources)


def quotas(harness: Any) -> Any:
    made = m.AlterClientQuotasRequest
    entries = [
        made.EntryData(
            entity=[made.EntityData(entity_type="user", entity_name=f"u{n}")],
            ops=[made.OpData(key="producer_byte_rate", value=float(n + 1), remove=False)],
        )
        for n in range(9_999)
    ]
    kinds = [made.EntityData(entity_type=f"kind-{n}", entity_name="x") for n in range(MANY)]
    return "alter_client_quotas", made(entries=[*entries, made.EntryData(entity=kinds)])


def scram(harness: Any) -> Any:
    made = m.AlterUserScramCredentialsRequest
    gone = [made.ScramCredentialDeletion(name=f"u{n}", mechanism=1) for n in range(MANY)]
    new = [
        made.ScramCredentialUpsertion(
            name=f"new{n}", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
        )
        for n in range(2_000)
    ]
    return "alter_user_scram_credentials", made(deletions=gone, upsertions=new)


def delete(harness: Any) -> Any:
    made = m.DeleteTopicsRequest
    topics = [made.DeleteTopicState(name=f"absent-{n}") for n in range(MANY)]
    topics += [made.DeleteTopicState(name=f"t{n}") for n in range(50)]
    return "delete_topics", made(topics=topics, timeout_ms=60_000)


def create_topics(harness: Any) -> Any:
    made = m.CreateTopicsRequest
    topics = [made.CreatableTopic(name="!", num_partitions=1, replication_factor=1) for n in range(5_000)]
    topics += [made.CreatableTopic(name=f"new-{n}", num_partitions=1, replication_factor=1) for n in range(4_000)]
    return "create_topics", made(topics=topics, timeout_ms=60_000)


def create_partitions(harness: Any) -> Any:
    made = m.CreatePartitionsRequest
    topics = [made.CreatePartitionsTopic(name=f"absent-{n}", count=2) for n in range(MANY)]
    return "create_partitions", made(topics=topics, timeout_ms=60_000)


def alter_partition(harness: Any) -> Any:
    made = m.AlterPartitionRequest
    member = made.BrokerState(broker_id=1, broker_epoch=harness.epochs[1])
    partitions = [
        made.PartitionData(partition_index=n % 5_000, new_isr_with_epochs=[member], leader_epoch=0, partition_epoch=0)
        for n in range(MANY)
    ]
    partitions.append(made.PartitionData(partition_index=1, new_isr_with_epochs=[member] * MANY, partition_epoch=1))
    topic = made.TopicData(topic_id=harness.controller.image.topic("wide").topic_id, partitions=partitions)
    return "alter_partition", made(broker_id=1, broker_epoch=harness.epochs[1], topics=[topic])


def assign(harness: Any) -> Any:
    made = m.AssignReplicasToDirsRequest
    partitions = [made.PartitionData(partition_index=n % 5_000) for n in range(MANY)]
    topic = made.TopicData(topic_id=harness.controller.image.topic("wide").topic_id, partitions=partitions)
    directory = made.DirectoryData(id=uuid(5), topics=[topic])
    request = made(broker_id=1, broker_epoch=harness.epochs[1], directories=[directory])
    return "assign_replicas_to_dirs", request


def elect(harness: Any) -> Any:
    made = m.ElectLeadersRequest
    topic = made.TopicPartitions(topic="wide", partitions=[n % 5_000 for n in range(MANY)])
    return "elect_leaders", made(election_type=0, topic_partitions=[topic], timeout_ms=60_000)


def reassign(harness: Any) -> Any:
    made = m.AlterPartitionReassignmentsRequest
    partitions = [
        made.ReassignablePartition(partition_index=n % 5_000, replicas=[2, 1] if n < 5_000 else [9])
        for n in range(MANY)
    ]
    partitions.append(made.ReassignablePartition(partition_index=0, replicas=[1] * MANY))
    return "alter_partition_reassignments", made(
        topics=[made.ReassignableTopic(name="wide", partitions=partitions)], timeout_ms=60_000
    )


def list_reassignments(harness: Any) -> Any:
    made = m.ListPartitionReassignmentsRequest
    topic = made.ListPartitionReassignmentsTopics(name="wide", partition_indexes=[0] * MANY)
    return "list_partition_reassignments", made(topics=[topic])


def features(harness: Any) -> Any:
    made = m.UpdateFeaturesRequest
    updates = [made.FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)] * MANY
    return "update_features", made(feature_updates=updates, timeout_ms=60_000)


REQUESTS: list[Callable[[Any], Any]] = [
    alter_configs, incremental_alter_configs, quotas, scram, delete, create_topics, create_partitions, alter_partition,
    assign, elect, reassign, list_reassignments, features,
]  # fmt: skip


class Stopwatch:
    """A clock that decides when a slice of work ends. It ends each slice at the first opportunity, and measures the CPU
    time of each slice."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.looks = 0
        self._last = time.thread_time()

    def __call__(self) -> float:
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self.looks += 1
        return float(self.looks)  # one second seems to pass between two calls, so every slice is over at once


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def cluster(harness: Any) -> None:
    await harness.brokers(1, 2)
    await create(harness, "wide", *[[1, 2]] * 5_000)
    for number in range(50):
        await create(harness, f"t{number}", [1])


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("asked", REQUESTS, ids=lambda each: each.__name__)
def test_no_step_of_a_large_decision_is_long(run, asked) -> None:
    longest_s: list[float] = []

    async def story(harness):
        await cluster(harness)
        name, request = asked(harness)
        watch = Stopwatch()
        asyncio.get_running_loop().slice_clock = watch
        await getattr(harness.controller, name)(Caller(7 if name == "create_topics" else 3), request)
        assert watch.looks > 50
        longest_s.append(watch.longest_s)

    while len(longest_s) < ATTEMPTS and min(longest_s, default=1.0) >= LONGEST_STEP_S:
        # Runs without a broker, because a broker would replay the committed records on its own loop, and not in slices.
        run(story, with_broker=False)
    assert min(longest_s) < LONGEST_STEP_S


def slow(steps: int, seen: list[str], then: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a decision that takes `steps` slices."""

    def decide() -> Any:
        seen.append("begins")
        for _ in range(steps):
            yield
        seen.append("ends")
        return then()

    return decide


def one_step_slices() -> None:
    asyncio.get_running_loop().slice_clock = Stopwatch()


def test_decision_waits_for_a_longer_one_and_sees_what_that_decided(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        controller, seen = harness.controller, []
        one_step_slices()

        def creates() -> Decision:
            made = m.CreateTopicsRequest
            topics = [made.CreatableTopic(name="a", num_partitions=1, replication_factor=1)]
            creation = TopicCreation(controller._head, harness.settings, harness.new_uuid, controller._descriptions)
            return finish_now(creation.decide(made(topics=topics, timeout_ms=1000)))

        first = asyncio.ensure_future(controller._write(slow(50, seen, creates)))
        await harness.until(lambda: seen == ["begins"])
        second = asyncio.ensure_future(controller._write(creates))
        beat = await harness.heartbeat(1)  # a heartbeat that changes nothing needs no decision, so it does not wait
        assert not beat.is_fenced and seen == ["begins"]
        answers = await asyncio.gather(first, second)
        assert [each.topics[0].error_code for each in answers] == [0, ErrorCode.TOPIC_ALREADY_EXISTS]

    run(story)


def test_heartbeat_that_decides_something_waits_for_a_longer_decision(run) -> None:
    async def story(harness):
        await harness.register(1)
        seen = []
        one_step_slices()
        first = asyncio.ensure_future(harness.controller._write(slow(50, seen, lambda: Decision([], None))))
        await harness.until(lambda: seen)
        assert not (await harness.heartbeat(1)).is_fenced
        assert seen == ["begins", "ends"]
        await first

    run(story)


def test_nobody_is_fenced_while_a_decision_is_made_and_the_next_tick_does_it(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        seen: list[str] = []
        harness.hear_nothing(9_000)
        one_step_slices()
        first = asyncio.ensure_future(harness.controller._write(slow(20, seen, lambda: 1 / 0)))
        await harness.until(lambda: seen)
        harness.controller.tick()
        assert harness.controller.next_tick_ms == 0
        assert not harness.controller._head.brokers[1].fenced
        with pytest.raises(ZeroDivisionError):
            await first
        harness.controller.tick()
        assert harness.controller._head.brokers[1].fenced

    run(story)


def test_long_decision_is_refused_when_the_controller_was_not_active_all_the_time(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        controller, seen = harness.controller, []
        one_step_slices()
        waiting = asyncio.ensure_future(controller._write(slow(20, seen, lambda: Decision([], None))))
        await harness.until(lambda: seen)
        controller.on_following(99)
        with pytest.raises(KafkaError) as refused:
            await waiting
        assert refused.value.code == ErrorCode.NOT_CONTROLLER

    run(story)


def test_those_that_wait_go_on_in_one_turn_and_in_their_order() -> None:
    async def story() -> None:
        turns, order, rounds = Turns(), [], []

        async def decide(name: str, steps: int) -> None:
            async with turns:
                for _ in range(steps):
                    await asyncio.sleep(0)
                order.append(name)
                rounds.append(turn[0])

        turn = [0]

        async def count() -> None:
            while True:
                turn[0] += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        waits = [asyncio.ensure_future(decide("long", 5))]
        await asyncio.sleep(0)
        waits += [asyncio.ensure_future(decide(str(each), 0)) for each in range(20)]
        await asyncio.sleep(0)
        cancelled = waits.pop(7)
        cancelled.cancel()
        await asyncio.gather(*waits)
        counting.cancel()
        assert order == ["long", *[str(each) for each in range(20) if each != 6]]
        assert len(set(rounds[1:])) == 1

    asyncio.run(story())


def test_those_that_wait_do_so_again_when_one_of_them_is_long() -> None:
    async def story() -> None:
        turns, order = Turns(), []

        async def decide(name: str, steps: int) -> None:
            async with turns:
                order.append(name)
                for _ in range(steps):
                    await asyncio.sleep(0)
                order.append(name)

        steps = [3, 0, 4, 0, 0, 2, 0]
        async with asyncio.timeout(20):
            await asyncio.gather(*[decide(str(n), each) for n, each in enumerate(steps)])
        assert order == [str(n) for n in range(len(steps)) for _ in range(2)]

    asyncio.run(story())
