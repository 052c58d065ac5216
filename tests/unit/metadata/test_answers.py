"""Metadata responses that are built from columns. They equal responses that are built partition by partition, and are
never older than the current image."""

from __future__ import annotations

from weakref import WeakSet

from kafkacore.metadata.answers import PartitionAnswers, WholeAnswers
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partitions import CHUNK_ROWS
from kafkacore.protocol.messages import (
    BrokerRegistrationChangeRecord,
    MetadataResponse,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def replay(image: MetadataImage, *records: object) -> MetadataImage:
    edit = Edit(image)
    edit.replay_batch(records, image.offset + 1)
    return edit.freeze(image.offset + len(records), 1, 0)


def broker(broker_id: int, fenced: bool = False) -> RegisterBrokerRecord:
    endpoint = RegisterBrokerRecord.BrokerEndpoint(name="P", host="h", port=9000 + broker_id)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=broker_id,
        fenced=fenced,
        end_points=[endpoint],
        log_dirs=[uuid(500 + broker_id)],
    )


def topic(number: int, count: int, replicas: list[int]) -> list[object]:
    partitions = [
        PartitionRecord(
            partition_id=index, topic_id=uuid(number), replicas=replicas, isr=replicas[:2], leader=replicas[0],
            leader_epoch=index, partition_epoch=0, directories=[uuid(500 + each) for each in replicas],
        )
        for index in range(count)
    ]  # fmt: skip
    return [TopicRecord(name=f"t{number}", topic_id=uuid(number)), *partitions]


def cluster() -> MetadataImage:
    brokers = [broker(each) for each in (1, 2, 3)]
    return replay(EMPTY_IMAGE, *brokers, *topic(1, 5, [1, 2, 3]), *topic(2, 3, [2]), *topic(3, 1, [3, 1]))


def told(partitions: object, version: int) -> list[object]:
    response = MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t", partitions=partitions)])
    return MetadataResponse.decode(response.encode(version), version).topics[0].partitions


def test_partitions_are_encoded_right_in_every_version() -> None:
    image = cluster()
    for version in range(1, MetadataResponse.VERSIONS[1] + 1):
        answers = PartitionAnswers("P", version)
        for each in image.topics():
            rows = [image.partition_at(row) for row in each.partition_rows]
            expected = [
                MetadataResponse.MetadataResponsePartition(
                    partition_index=row.partition, leader_id=row.leader, leader_epoch=row.leader_epoch,
                    replica_nodes=list(row.replicas), isr_nodes=list(row.isr),
                )
                for row in rows
            ]  # fmt: skip
            assert told(answers.partitions(image, each), version) == told(expected, version)


def test_answer_is_cached_until_its_content_changes() -> None:
    image, answers = cluster(), PartitionAnswers("P", 13)
    first = answers.partitions(image, image.topic("t1"))
    later = replay(image, NoOpRecord())
    assert answers.partitions(later, later.topic("t1")) is first
    changed = replay(later, PartitionChangeRecord(partition_id=1, topic_id=uuid(1), leader=2))
    again = answers.partitions(changed, changed.topic("t1"))
    assert [each.leader_id for each in told(again, 13)] == [1, 2, 1, 1, 1]
    grown = replay(changed, *topic(1, 6, [1, 2, 3])[-1:])
    assert len(told(answers.partitions(grown, grown.topic("t1")), 13)) == 6
    remade = replay(grown, RemoveTopicRecord(topic_id=uuid(1)), *topic(9, 5, [3]))
    assert [each.leader_id for each in told(answers.partitions(remade, remade.topic("t9")), 13)] == [3] * 5


def test_unreachable_replicas_are_left_to_the_caller() -> None:
    image = cluster()
    fenced = replay(image, BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, fenced=1))
    lost = replay(image, BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=3, log_dirs=[uuid(77)]))
    leaderless = replay(image, PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=-1))
    for other in (fenced, lost, leaderless):
        assert PartitionAnswers("P", 13).partitions(other, other.topic("t1")) is None
    assert PartitionAnswers("OTHER", 13).partitions(image, image.topic("t1")) is None
    assert PartitionAnswers("P", 0).partitions(image, image.topic("t1")) is None


def test_topic_over_several_chunks_is_encoded_whole() -> None:
    image = replay(EMPTY_IMAGE, broker(1), *topic(1, 2 * CHUNK_ROWS + 5, [1]))
    partitions = told(PartitionAnswers("P", 13).partitions(image, image.topic("t1")), 13)
    assert [each.partition_index for each in partitions] == list(range(2 * CHUNK_ROWS + 5))


def test_answers_for_all_topics_last_as_long_as_their_chunks() -> None:
    answers, image = WholeAnswers(), cluster()
    answers.put(("P", 13), image, b"all")
    assert answers.get(("P", 13), replay(image, NoOpRecord())) == b"all"
    assert answers.get(("P", 12), image) is None
    changed = replay(image, PartitionChangeRecord(partition_id=0, topic_id=uuid(3), leader=1))
    assert answers.get(("P", 13), changed) is None
    assert answers.get(("P", 13), replay(image, broker(4))) is None
    assert answers.get(("P", 13), replay(image, TopicRecord(name="new", topic_id=uuid(40)))) is None


def test_answers_keep_no_old_chunk_when_topics_are_created_and_asked_one_after_another() -> None:
    one, whole, image = PartitionAnswers("P", 13), WholeAnswers(), replay(EMPTY_IMAGE, broker(1))
    seen = WeakSet()
    for number in range(1, 31):
        image = replay(image, *topic(number, 1, [1]))
        assert one.partitions(image, image.topic(f"t{number}")) is not None
        whole.put(("P", number), image, b"all")
        seen.update(image.partition_chunks)
    assert list(seen) == list(image.partition_chunks)
    assert whole.get(("P", 30), image) == b"all"
