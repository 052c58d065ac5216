"""CreateTopics, CreatePartitions and DeleteTopics: their results, and their errors, which are the same as Apache
Kafka's.
"""

from __future__ import annotations

import pytest

from controllers import directory_of
from kafkacore._fast.record.batch import Batches
from kafkacore.metadata.records import decode_record
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
)
from kafkacore.protocol.uuid import ZERO

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig


class Caller:
    api_version = 6


def topic(name, partitions=1, factor=1, assignments=None, **configs):
    return Topic(
        name=name,
        num_partitions=-1 if assignments else partitions,
        replication_factor=-1 if assignments else factor,
        assignments=[Assignment(partition_index=i, broker_ids=ids) for i, ids in (assignments or {}).items()],
        configs=[Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def create(harness, *topics, **values):
    values.setdefault("timeout_ms", 10_000)
    return await harness.controller.create_topics(Caller(), CreateTopicsRequest(topics=list(topics), **values))


def test_topic_is_committed_when_it_is_answered(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        response = await create(harness, topic("a", 6, 3, retention_ms="1000"))
        result = response.topics[0]
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 6, 3)
        told = {each.name: each.value for each in result.configs}
        assert told["retention.ms"] == "1000" and told["cleanup.policy"] == "delete"
        image = harness.controller.image
        assert image.topic("a").topic_id == result.topic_id
        rows = [harness.partition("a", index) for index in range(6)]
        assert all(sorted(row.replicas) == [1, 2, 3] and row.isr == row.replicas for row in rows)
        # The brokers alternate as leaders.
        assert sorted(row.leader for row in rows[:3]) == [1, 2, 3] and all(
            row.leader == row.replicas[0] for row in rows
        )
        assert harness.applied.publisher.image.topic("a") is not None
        assert image.topic_overrides("a") == {"retention.ms": "1000"}
        response.encode(7)

    run(story)


def test_placements_by_hand_and_by_the_placer_are_recorded(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        began = harness.log.end_offset
        by_hand = {0: [1], 1: [1], 2: [3], 3: [1]}
        wide = {0: [3, 1, 2], 1: [2, 3, 1]}
        response = await create(
            harness, topic("a", assignments=by_hand), topic("b", 4, 2), topic("a.bad", factor=9),
            topic("c", assignments=wide), topic("d", 2, 1),
        )  # fmt: skip
        assert [each.error_code for each in response.topics] == [0, 0, ErrorCode.INVALID_REPLICATION_FACTOR, 0, 0]
        records = [
            decode_record(record.value) for batch in Batches(harness.log.read(began, 1 << 20)) for record in batch
        ]
        assert [record.NAME for record in records if record.NAME != "PartitionRecord"] == ["TopicRecord"] * 4
        told = {each.name: each.topic_id for each in response.topics}
        partitions = [record for record in records if record.NAME == "PartitionRecord"]
        assert [(each.topic_id, each.partition_id) for each in partitions] == [
            (told[name], index) for name, count in (("a", 4), ("b", 4), ("c", 2), ("d", 2)) for index in range(count)
        ]
        assert [each.replicas for each in partitions[:4]] == list(by_hand.values())
        assert [each.replicas for each in partitions[8:10]] == list(wide.values())
        for record in partitions:
            assert record.isr == record.replicas
            assert (record.leader, record.leader_epoch, record.partition_epoch) == (record.replicas[0], 0, 0)
            assert record.directories == [directory_of(broker) for broker in record.replicas]
        rows = [harness.partition(name, index) for name in "abcd" for index in range({"a": 4, "b": 4}.get(name, 2))]
        assert [list(row.replicas) for row in rows] == [each.replicas for each in partitions]

    run(story)


def test_partition_has_the_directory_of_a_broker_with_one_directory(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        await create(harness, topic("a"))
        assert harness.partition("a", 0).directories == (harness.controller.image.brokers[1].directories[0],)

    run(story)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (topic(""), "INVALID_TOPIC_EXCEPTION", "empty string"),
        (topic("."), "INVALID_TOPIC_EXCEPTION", "not allowed"),
        (topic("x" * 250), "INVALID_TOPIC_EXCEPTION", "249"),
        (topic("a b"), "INVALID_TOPIC_EXCEPTION", "characters"),
        (topic("there"), "TOPIC_ALREADY_EXISTS", "already exists"),
        (topic("with_dot"), "INVALID_TOPIC_EXCEPTION", "collides with existing topic: with.dot"),
        (topic("a", 0), "INVALID_PARTITIONS", "non-positive"),
        (topic("a", -2), "INVALID_PARTITIONS", "non-positive"),
        (topic("a", 1, 0), "INVALID_REPLICATION_FACTOR", "larger than 0"),
        (topic("a", 1, 4), "INVALID_REPLICATION_FACTOR", "cannot be reached because only 3 broker"),
        (topic("a", retention_ms="soon"), "INVALID_CONFIG", "retention.ms"),
        (topic("a", no_such_thing="1"), "INVALID_CONFIG", "no.such.thing"),
        (topic("a", retention_ms=None), "INVALID_CONFIG", "Null value not supported"),
        (topic("a", assignments={0: []}), "INVALID_REPLICA_ASSIGNMENT", "empty replica list"),
        (topic("a", assignments={0: [1], 2: [1]}), "INVALID_REPLICA_ASSIGNMENT", "consecutive 0-based"),
        (topic("a", assignments={0: [1, 1]}), "INVALID_REPLICA_ASSIGNMENT", "more than once"),
        (topic("a", assignments={0: [9]}), "INVALID_REPLICA_ASSIGNMENT", "no such broker"),
        (topic("a", assignments={0: [1, 2], 1: [3]}), "INVALID_REPLICA_ASSIGNMENT", "not consistent"),
        (topic("__cluster_metadata"), "INVALID_REQUEST", "prohibited"),
        (Topic(name="a", num_partitions=2, replication_factor=-1,
               assignments=[Assignment(partition_index=0, broker_ids=[1])]), "INVALID_REQUEST", "numPartitions"),
        (Topic(name="a", num_partitions=-1, replication_factor=2,
               assignments=[Assignment(partition_index=0, broker_ids=[1])]), "INVALID_REQUEST", "replication factor"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_invalid_topic_is_refused_with_its_reason(run, asked, error, words) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, topic("there"), topic("with.dot"))
        before = harness.log.end_offset
        result = (await create(harness, asked)).topics[0]
        assert result.error_code == getattr(ErrorCode, error)
        assert words in result.error_message
        assert harness.log.end_offset == before

    run(story)


def test_invalid_topic_does_not_prevent_the_others(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        response = await create(harness, topic("a"), topic("twice"), topic("b", 0), topic("twice"), topic("c"))
        codes = {each.name: each.error_code for each in response.topics}
        assert codes == {"a": 0, "c": 0, "twice": ErrorCode.INVALID_REQUEST, "b": ErrorCode.INVALID_PARTITIONS}
        assert {each.name for each in harness.controller.image.topics()} == {"a", "c"}

    run(story)


def test_validate_only_creates_nothing(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        before = harness.log.end_offset
        result = (await create(harness, topic("a", 3), validate_only=True)).topics[0]
        assert (result.error_code, result.num_partitions) == (0, 3)
        assert harness.log.end_offset == before and harness.controller.image.topic("a") is None

    run(story)


def test_too_many_partitions_at_once_violate_the_policy(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        with pytest.raises(KafkaError) as refused:
            await create(harness, *[topic(f"t{n}", 10) for n in range(1001)])
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        # 1,000 topics with 10 partitions each need 11,000 records.
        with pytest.raises(KafkaError) as refused:
            await create(harness, *[topic(f"t{n}", 10) for n in range(1000)])
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        assert len(harness.controller.image.topics_by_name) == 0
        response = await create(harness, *[topic(f"t{n}", 10) for n in range(900)])
        assert {each.error_code for each in response.topics} == {0}
        assert harness.controller.image.partition_count == 9000

    run(story)


def test_topic_is_refused_without_a_broker(run) -> None:
    async def story(harness):
        result = (await create(harness, topic("a"))).topics[0]
        assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        await harness.register(1)
        result = (await create(harness, topic("a"))).topics[0]
        assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR and "fenced" in result.error_message

    run(story)


def test_uncommitted_topic_exists_for_the_next_request(run) -> None:
    async def story(harness):
        import asyncio

        await harness.brokers(1)
        both = await asyncio.gather(create(harness, topic("a")), create(harness, topic("a")))
        assert [each.topics[0].error_code for each in both] == [0, ErrorCode.TOPIC_ALREADY_EXISTS]

    run(story)


def test_decisions_of_one_turn_share_a_sync(run) -> None:
    async def story(harness):
        import asyncio

        await harness.brokers(1)
        # Makes each decision take several iterations of the event loop, as on a slow machine.
        asyncio.get_running_loop().slice_clock = lambda: 0.0
        before = harness.log.flushes
        await asyncio.gather(*[create(harness, topic(f"t{n}")) for n in range(50)])
        assert harness.log.flushes - before <= 2
        assert len(harness.controller.image.topics_by_name) == 50

    run(story)


async def grow(harness, name, count, assignments=None, **values):
    made = CreatePartitionsRequest
    listed = None if assignments is None else [made.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    request = made(
        topics=[made.CreatePartitionsTopic(name=name, count=count, assignments=listed)], timeout_ms=1000, **values
    )
    return (await harness.controller.create_partitions(Caller(), request)).results[0]


def test_topic_gets_more_partitions(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, topic("a", 2, 2))
        assert (await grow(harness, "a", 5)).error_code == 0
        assert [len(harness.partition("a", index).replicas) for index in range(5)] == [2] * 5
        assert (await grow(harness, "a", 6, [[2, 1]])).error_code == 0
        assert harness.partition("a", 5).replicas == (2, 1)
        assert (await grow(harness, "a", 9, validate_only=True)).error_code == 0
        assert harness.partition("a", 6) is None

    run(story)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "error"),
    [
        ("nope", 3, None, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("a", 2, None, "INVALID_PARTITIONS"),
        ("a", 1, None, "INVALID_PARTITIONS"),
        ("a", 4, [[1]], "INVALID_REPLICA_ASSIGNMENT"),
        ("a", 3, [[1]], "INVALID_REPLICA_ASSIGNMENT"),
        ("a", 3, [[1, 9]], "INVALID_REPLICA_ASSIGNMENT"),
        ("a", 2_000_000_000, None, "POLICY_VIOLATION"),
    ],
)
def test_invalid_number_of_partitions_is_refused(run, name, count, assignments, error) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, topic("a", 2, 2))
        assert (await grow(harness, name, count, assignments)).error_code == getattr(ErrorCode, error)
        assert len(harness.controller.image.topic("a").partition_rows) == 2

    run(story)


def test_topics_are_deleted_by_name_and_by_id(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        made = await create(harness, topic("a", retention_ms="5"), topic("b"), topic("c"), topic("d"))
        ids = {each.name: each.topic_id for each in made.topics}
        state = DeleteTopicsRequest.DeleteTopicState
        request = DeleteTopicsRequest(
            topics=[
                state(name="a"), state(name=None, topic_id=ids["b"]), state(name="nope"),
                state(name="c"), state(name="c"),
                state(name=None, topic_id=ZERO), state(name="d", topic_id=ids["d"]),
                state(name=None, topic_id=ids["a"][:15] + b"z"),
            ],
            timeout_ms=1000,
        )  # fmt: skip
        response = await harness.controller.delete_topics(Caller(), request)
        codes = sorted((each.name or "", ErrorCode(each.error_code).name) for each in response.responses)
        assert codes == [
            ("", "INVALID_REQUEST"), ("", "UNKNOWN_TOPIC_ID"), ("a", "NONE"), ("b", "NONE"), ("c", "INVALID_REQUEST"),
            ("d", "INVALID_REQUEST"), ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]  # fmt: skip
        image = harness.controller.image
        assert {each.name for each in image.topics()} == {"c", "d"} and not image.topic_overrides("a")
        assert harness.applied.publisher.image.topic("a") is None

    run(story)


def test_topic_deletion_can_be_disabled(run) -> None:
    async def story(harness):
        request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
        with pytest.raises(KafkaError) as refused:
            await harness.controller.delete_topics(Caller(), request)
        assert refused.value.code == ErrorCode.TOPIC_DELETION_DISABLED

    run(story, delete_topic_enable="false")


def test_response_encodes_in_every_version(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        response = await create(harness, topic("a"), topic("a b"))
        for version in range(CreateTopicsResponse.VERSIONS[0], CreateTopicsResponse.VERSIONS[1] + 1):
            again = CreateTopicsResponse.decode(response.encode(version), version)
            assert [each.error_code for each in again.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]

    run(story)


def test_new_partition_gets_as_many_replicas_as_the_reassignment_of_the_first_one_will_leave(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3, 4)
        await create(harness, topic("a", assignments={0: [1, 2]}))
        made = AlterPartitionReassignmentsRequest
        moved = made.ReassignablePartition(partition_index=0, replicas=[3, 4])
        request = made(topics=[made.ReassignableTopic(name="a", partitions=[moved])], timeout_ms=1000)
        await harness.controller.alter_partition_reassignments(Caller(), request)
        assert len(harness.partition("a", 0).replicas) == 4
        assert (await grow(harness, "a", 2)).error_code == 0
        assert len(harness.partition("a", 1).replicas) == 2
        assert (await grow(harness, "a", 3, [[1, 2]])).error_code == 0

    run(story)


def test_topic_is_refused_when_the_same_request_creates_a_topic_with_the_same_metric_name(run) -> None:
    async def story(harness):
        await harness.brokers(1)
        response = await create(harness, topic("a.b", 0), topic("a_b"), topic("a.b.c"), topic("a_b_c"))
        codes = {each.name: ErrorCode(each.error_code).name for each in response.topics}
        assert codes == {
            "a.b": "INVALID_PARTITIONS", "a_b": "NONE", "a.b.c": "NONE", "a_b_c": "INVALID_TOPIC_EXCEPTION"
        }  # fmt: skip

    run(story)
