"""The columnar image of the metadata: replay, copy on write, reuse of rows, transactions and snapshots."""

from __future__ import annotations

import random

import pytest

from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.metadata.edit import Edit, next_root
from kafkacore.metadata.image import BROKER, EMPTY_IMAGE, TOPIC, MetadataImage
from kafkacore.metadata.partitions import CHUNK_ROWS, rows_led_by, rows_with_elr, rows_with_isr, rows_with_replica
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import MetadataError, RecordWriter, decode_batch, decode_record
from kafkacore.metadata.snapshot import image_of, records_of
from kafkacore.protocol.features import METADATA_VERSIONS, metadata_version
from kafkacore.protocol.messages import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from kafkacore.protocol.uuid import Uuid


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def replay(image: MetadataImage, *records: object) -> MetadataImage:
    edit = Edit(image)
    edit.replay_batch(records, image.offset + 1)
    return edit.freeze(image.offset + len(records), 1, 0)


def partition(topic: int, index: int, replicas: list[int], **values: object) -> PartitionRecord:
    values.setdefault("isr", replicas)
    values.setdefault("leader", replicas[0])
    return PartitionRecord(
        partition_id=index,
        topic_id=uuid(topic),
        replicas=replicas,
        leader_epoch=0,
        partition_epoch=0,
        directories=[uuid(1000 + each) for each in replicas],
        **values,
    )


FEATURES = FeatureLevelRecord(name="metadata.version", feature_level=30)


def test_root_stays_the_same_while_later_ones_change() -> None:
    first = replay(EMPTY_IMAGE, TopicRecord(name="a", topic_id=uuid(100)), partition(100, 0, [1, 2, 3]))
    second = replay(first, PartitionChangeRecord(partition_id=0, topic_id=uuid(100), isr=[2, 3], leader=2))
    third = replay(second, partition(100, 1, [3]), RemoveTopicRecord(topic_id=uuid(100)))
    assert first.partition(first.topic("a"), 0).isr == (1, 2, 3)
    after = second.partition(second.topic("a"), 0)
    assert (after.isr, after.leader, after.leader_epoch, after.partition_epoch) == ((2, 3), 2, 1, 1)
    assert len(second.topic("a").partition_rows) == 1
    assert third.topic("a") is None and third.topic_by_id(uuid(100)) is None and third.partition_count == 0
    assert second.topic("a") is not None


def test_change_without_a_leader_keeps_the_leader_epoch() -> None:
    image = replay(EMPTY_IMAGE, TopicRecord(name="a", topic_id=uuid(100)), partition(100, 0, [1, 2]))
    image = replay(image, PartitionChangeRecord(partition_id=0, topic_id=uuid(100), isr=[1]))
    row = image.partition(image.topic("a"), 0)
    assert (row.leader_epoch, row.partition_epoch, row.leader) == (0, 1, 1)


def test_rows_of_deleted_partitions_are_used_again() -> None:
    image = EMPTY_IMAGE
    for round_number in range(50):
        image = replay(
            image,
            TopicRecord(name="t", topic_id=uuid(100 + round_number)),
            *[partition(100 + round_number, index, [1]) for index in range(20)],
            RemoveTopicRecord(topic_id=uuid(100 + round_number)),
        )
    assert (image.partition_rows, image.topic_rows, image.partition_count, len(image.topics_by_name)) == (20, 1, 0, 0)
    assert list(rows_led_by(image.partition_chunks, 1)) == []


def test_partitions_are_dropped_one_by_one_and_the_topic_with_the_last() -> None:
    image = replay(EMPTY_IMAGE, TopicRecord(name="t", topic_id=uuid(1)), *[partition(1, i, [1]) for i in range(4)])
    first = Edit(image)
    first.drop_partitions(uuid(1), [3, 1, 1, 9, -1])
    root = first.freeze(9, 1, 0)
    topic = root.topic_by_id(uuid(1))
    assert topic is not None
    assert [root.partition(topic, index) is not None for index in range(4)] == [True, False, True, False]
    assert (root.partition_count, image.partition_count) == (2, 4)
    assert first.delta.partition_rows == {topic.partition_rows[0], topic.partition_rows[2]}
    assert len(first.delta.freed_rows) == 2
    last = Edit(root)
    last.drop_partitions(uuid(1), [0, 2])
    assert last.freeze(10, 1, 0).topic("t") is None
    assert last.delta.topics_deleted == {uuid(1): "t"}
    assert not last.delta.partition_rows


@pytest.mark.parametrize("count", [10, 17 * CHUNK_ROWS])
def test_scans_find_the_same_rows_with_and_without_vectors(count: int) -> None:
    chosen = random.Random(count)
    records = [TopicRecord(name="t", topic_id=uuid(5))]
    for index in range(count):
        replicas = chosen.sample(range(1, 9), chosen.choice((1, 3)))
        elr = replicas[1:] if index % 7 == 0 else []
        isr = replicas[:1] if elr else replicas
        records.append(partition(5, index, replicas, isr=isr, eligible_leader_replicas=elr))
    image = replay(EMPTY_IMAGE, *records)
    rows = [image.partition_at(row) for row in range(image.partition_rows)]
    chunks = image.partition_chunks
    assert list(rows_led_by(chunks, 3)) == [i for i, row in enumerate(rows) if row.leader == 3]
    assert list(rows_with_isr(chunks, 3)) == [i for i, row in enumerate(rows) if 3 in row.isr]
    assert list(rows_with_replica(chunks, 3)) == [i for i, row in enumerate(rows) if 3 in row.replicas]
    assert list(rows_with_elr(chunks, 3)) == [i for i, row in enumerate(rows) if 3 in row.elr]


def test_only_changed_chunks_are_copied() -> None:
    count = 3 * CHUNK_ROWS
    first = replay(EMPTY_IMAGE, TopicRecord(name="t", topic_id=uuid(5)), *[partition(5, i, [1]) for i in range(count)])
    second = replay(first, PartitionChangeRecord(partition_id=CHUNK_ROWS + 1, topic_id=uuid(5), leader=-1))
    same = [a is b for a, b in zip(first.partition_chunks, second.partition_chunks, strict=True)]
    assert same == [True, False, True]


def test_transaction_is_undone_by_its_abort_and_kept_by_its_end() -> None:
    image = replay(EMPTY_IMAGE, TopicRecord(name="a", topic_id=uuid(1)), partition(1, 0, [1]))
    inside = replay(
        image, BeginTransactionRecord(name="x"), partition(1, 1, [1]), TopicRecord(name="b", topic_id=uuid(2))
    )
    assert inside.topic("b") is not None and inside.transaction is not None
    aborted = replay(inside, AbortTransactionRecord(reason="y"))
    assert aborted.topic("b") is None and len(aborted.topic("a").partition_rows) == 1 and aborted.transaction is None
    ended = replay(inside, EndTransactionRecord())
    assert ended.topic("b") is not None and ended.transaction is None
    with pytest.raises(MetadataError, match="none is under way"):
        replay(ended, EndTransactionRecord())


def test_transaction_within_one_edit_leaves_the_root_before_it_alone() -> None:
    image = replay(
        EMPTY_IMAGE,
        TopicRecord(name="a", topic_id=uuid(1)),
        partition(1, 0, [1]),
        BeginTransactionRecord(),
        partition(1, 1, [1]),
        AbortTransactionRecord(),
    )
    assert len(image.topic("a").partition_rows) == 1 and image.partition_count == 1


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(partition_id=0, topic_id=uuid(9)),
        PartitionChangeRecord(partition_id=3, topic_id=uuid(1)),
        RemoveTopicRecord(topic_id=uuid(9)),
        TopicRecord(name="a", topic_id=uuid(2)),
        BrokerRegistrationChangeRecord(broker_id=7, broker_epoch=3),
        FenceBrokerRecord(id=1, epoch=99),
        ClearElrRecord(topic_name="nope"),
        ProducerIdsRecord(broker_id=1, next_producer_id=1000),
    ],
    ids=lambda record: record.NAME,
)
def test_record_that_does_not_fit_is_refused(record: object) -> None:
    image = replay(
        EMPTY_IMAGE,
        TopicRecord(name="a", topic_id=uuid(1)),
        RegisterBrokerRecord(broker_id=1, broker_epoch=5),
        ProducerIdsRecord(broker_id=1, next_producer_id=2000),
    )
    with pytest.raises(MetadataError):
        replay(image, record)


def test_change_after_the_last_leader_epoch_is_refused() -> None:
    last = PartitionRecord(partition_id=0, topic_id=uuid(1), replicas=[2], isr=[2], leader_epoch=(1 << 31) - 1)
    image = replay(EMPTY_IMAGE, TopicRecord(name="a", topic_id=uuid(1)), last)
    with pytest.raises(MetadataError, match="no epoch after its last"):
        replay(image, PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=2))


def everything() -> MetadataImage:
    return replay(
        EMPTY_IMAGE,
        FEATURES,
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        RegisterBrokerRecord(
            broker_id=2, broker_epoch=4, incarnation_id=uuid(77), rack="r", log_dirs=[uuid(1002)],
            end_points=[RegisterBrokerRecord.BrokerEndpoint(name="P", host="h", port=9092, security_protocol=0)],
            features=[RegisterBrokerRecord.BrokerFeature(name="f", min_supported_version=0, max_supported_version=2)],
        ),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=4, fenced=-1),
        RegisterControllerRecord(controller_id=9, incarnation_id=uuid(9)),
        TopicRecord(name="a.b", topic_id=uuid(1)),
        partition(1, 0, [2, 3], isr=[2], eligible_leader_replicas=[3], last_known_elr=[4]),
        partition(1, 1, [3], removing_replicas=[3]),
        ConfigRecord(resource_type=TOPIC, resource_name="a.b", name="retention.ms", value="5"),
        ConfigRecord(resource_type=BROKER, resource_name="", name="x", value="y"),
        ProducerIdsRecord(broker_id=2, broker_epoch=4, next_producer_id=1000),
        AccessControlEntryRecord(id=uuid(50), principal="User:a"),
        AccessControlEntryRecord(id=uuid(51), principal="User:b"),
        RemoveAccessControlEntryRecord(id=uuid(51)),
        UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096),
        ClientQuotaRecord(
            entity=[ClientQuotaRecord.EntityData(entity_type="user", entity_name=None)], key="q", value=1.5),
        DelegationTokenRecord(owner="User:o", token_id="t"),
        NoOpRecord(),
    )  # fmt: skip


def test_feature_record_does_not_set_kraft_version() -> None:
    """Apache Kafka 3.9 wrote kraft.version as a feature record, too (KAFKA-18979)."""
    image = replay(EMPTY_IMAGE, FEATURES, FeatureLevelRecord(name="kraft.version", feature_level=1))
    assert image.features == {"metadata.version": 30}


def test_snapshot_rebuilds_the_same_image() -> None:
    image = everything()
    records = list(records_of(image))
    again = image_of(records, image.offset, 1, 0)
    assert [repr(record) for record in records_of(again)] == [repr(record) for record in records]
    names = [record.NAME for record in records]
    assert names[0] == "FeatureLevelRecord" and records[0].name == "metadata.version"
    kept = {"AccessControlEntryRecord", "UserScramCredentialRecord", "ClientQuotaRecord", "DelegationTokenRecord"}
    assert kept <= set(names) and names.count("AccessControlEntryRecord") == 1
    assert again.partition(again.topic("a.b"), 0) == image.partition(image.topic("a.b"), 0)
    assert again.brokers[2].fenced is False and again.brokers[2].rack == "r"


def test_snapshot_drops_eligible_replicas_while_the_feature_is_off() -> None:
    """The feature is eligible leader replicas (KIP-966)."""
    off = replay(everything(), FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
    assert off.partition(off.topic("a.b"), 0).elr == (3,)
    again = image_of(records_of(off), off.offset, 1, 0)
    row = again.partition(again.topic("a.b"), 0)
    assert (row.elr, row.last_known_elr, row.isr) == ((), (), (2,))


@pytest.mark.parametrize("version", METADATA_VERSIONS, ids=lambda version: version.name)
def test_every_record_is_read_back_from_its_frame(version: object) -> None:
    writer = RecordWriter(metadata_version(version.level))
    image = replay(everything(), FeatureLevelRecord(name="metadata.version", feature_level=version.level))
    for record in records_of(image):
        assert decode_record(writer.encode(record)) == record


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x01",
        b"\x02\x03\x00",
        b"\x01\x7f\x00",
        b"\x80\x80\x80\x80\x80\x01",
        b"\x01\x63\x00abc",
        b"\x01\x02\xff\xff\xff\xff\x0f",
    ],
)
def test_broken_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(MetadataError):
        decode_record(frame)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x01\x63\x00abc", "metadata record type 99 is not known: it was written by a newer release, upgrade"),
        (b"\x01\x02\x09abc", "TopicRecord has no version 9; it has 0 to 0: it was written by a newer release, upgrade"),
        (b"\x01\x03\x09abc", "PartitionRecord has no version 9; it has 0 to 2: it was written by a newer release"),
        (b"\x01\x02\x00abc", "TopicRecord.name: a length that is"),
    ],
)
def test_record_of_a_newer_release_is_refused_with_name_and_offset(value: bytes, message: str) -> None:
    builder = RecordBatchBuilder(base_offset=41)
    builder.append(0, None, value)
    [batch] = Batches(builder.build())
    with pytest.raises(MetadataError) as refused:
        decode_batch(batch)
    assert str(refused.value).startswith(f"the metadata batch at offset 41 cannot be read: {message}")


def test_broker_change_is_written_in_the_lowest_version_that_holds_it() -> None:
    writer = RecordWriter(metadata_version(30))
    change = BrokerRegistrationChangeRecord
    assert writer.encode(change(broker_id=1, fenced=1))[2] == 0
    assert writer.encode(change(broker_id=1, in_controlled_shutdown=1))[2] == 1
    assert writer.encode(change(broker_id=1, log_dirs=[uuid(1000)]))[2] == 2
    assert writer.encode(change(broker_id=1, cordoned_log_dirs=[]))[2] == 3


def test_equal_images_have_equal_snapshots() -> None:
    users = [UserScramCredentialRecord(name=name, mechanism=1, iterations=4096) for name in "abcdefgh"]
    one, other = (replay(EMPTY_IMAGE, FEATURES, *each) for each in (users, reversed(users)))
    assert list(records_of(one)) == list(records_of(other))


@pytest.mark.parametrize("open_transaction", [False, True])
def test_batch_of_no_op_records_changes_only_the_offset(open_transaction: bool) -> None:
    base = everything()
    if open_transaction:
        base = replay(base, BeginTransactionRecord(name="t"), TopicRecord(name="new", topic_id=uuid(70)))
    records = [NoOpRecord(), NoOpRecord()]
    edit = Edit(base)
    edit.replay_batch(records, base.offset + 1)
    root, delta = next_root(base, records, (base.offset + 1, base.offset + 2), 7, 8)
    assert (root.offset, root.epoch, root.timestamp_ms) == (base.offset + 2, 7, 8)
    assert root == edit.freeze(base.offset + 2, 7, 8) and not delta and delta is not None


def test_delta_has_all_changes_and_is_missing_after_an_abort() -> None:
    base = everything()
    root, delta = next_root(base, [NoOpRecord(), TopicRecord(name="t", topic_id=uuid(70))], (90, 91), 7, 8)
    assert root.offset == 91 and root.topic("t") and list(delta.topics_created) == [uuid(70)]
    root, _ = next_root(root, [BeginTransactionRecord(name="x"), RemoveTopicRecord(topic_id=uuid(70))], (92, 93), 7, 8)
    root, delta = next_root(root, [AbortTransactionRecord()], (94, 94), 7, 8)
    assert delta is None and root.topic("t")


def test_topic_made_and_deleted_within_a_transaction_is_in_no_row() -> None:
    publisher, told = MetadataPublisher(), []
    publisher.subscribe(lambda image, delta: told.append((image, delta)))
    publisher.apply([TopicRecord(name="a", topic_id=uuid(1)), partition(1, 0, [1])], 0, 1, 0)
    publisher.apply([BeginTransactionRecord(name="x"), TopicRecord(name="b", topic_id=uuid(2))], 2, 1, 0)
    publisher.apply([partition(2, 0, [1]), partition(2, 1, [1]), partition(1, 1, [1])], 4, 1, 0)
    publisher.apply([RemoveTopicRecord(topic_id=uuid(2)), TopicRecord(name="c", topic_id=uuid(3))], 7, 1, 0)
    publisher.apply([partition(3, 0, [1])], 9, 1, 0)  # reuses a row of the deleted topic
    publisher.apply([EndTransactionRecord()], 10, 1, 0)
    image, delta = told[-1]
    changed = [image.topic(name).partition_rows[index] for name, index in (("a", 1), ("c", 0))]
    assert len(told) == 2 and delta.partition_rows == set(changed)
    assert list(delta.topics_created) == [uuid(3)] and list(delta.topics_deleted) == [uuid(2)]


def test_batch_is_decoded_the_same_alone_and_among_others() -> None:
    writer = RecordWriter(metadata_version(30))
    batches = [
        [NoOpRecord()],
        [TopicRecord(name="t", topic_id=uuid(1)), *(partition(1, index, [1, 2]) for index in range(20))],
        [PartitionChangeRecord(partition_id=index, topic_id=uuid(1), leader=2) for index in range(20)],
        [NoOpRecord(), TopicRecord(name="u", topic_id=uuid(2))],
    ]
    data = []
    for records in batches:
        builder = RecordBatchBuilder()
        for value in writer.encode_all(records):
            builder.append(0, None, value)
        data.append(builder.build())

    def told(encoded: bytes) -> list[list[str]]:
        images = []
        for batch in Batches(encoded):
            edit = Edit(images[-1] if images else replay(EMPTY_IMAGE, FEATURES))
            edit.replay_batch(decode_batch(batch), 0)
            images.append(edit.freeze(0, 0, 0))
        return [[repr(record) for record in records_of(image)] for image in images]

    for many in (1, 500):  # once with few records before and after them, and once with many
        joined = told(data[0] * many + b"".join(data) + data[0] * many)[many:-many]
        assert joined == told(b"".join(data)) and len(joined[-1]) > 20
