"""PartitionRecords stored as columns, compared with the same records as single objects. Both forms must give the same
bytes, batches and metadata image."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.base.errors import UnsupportedVersionError
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partition_records import PartitionRecords, PartitionRun, record_count
from kafkacore.metadata.partitions import CHUNK_ROWS
from kafkacore.metadata.records import MetadataError, RecordWriter, decode_batch, decode_record
from kafkacore.metadata.snapshot import records_of
from kafkacore.protocol.features import metadata_version
from kafkacore.protocol.messages import FeatureLevelRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import control

NOW = 1_700_000_000_000
IDS = st.lists(st.integers(0, 1000), max_size=4, unique=True)
EPOCHS = st.integers(0, 2**31 - 1)


def topic_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


@st.composite
def placed(draw: Any) -> dict[str, Any]:
    replicas = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=5, unique=True))
    return {
        "replicas": replicas,
        "isr": draw(st.lists(st.sampled_from(replicas), max_size=5, unique=True)),
        "directories": [Uuid(draw(st.binary(min_size=16, max_size=16))) for _ in replicas],
        "leader": draw(st.integers(-1, 1000)),
    }


@st.composite
def partition_records(draw: Any) -> dict[str, Any]:
    values = draw(placed()) | {
        "leader_recovery_state": draw(st.integers(0, 1)),
        "leader_epoch": draw(EPOCHS),
        "partition_epoch": draw(EPOCHS),
    }
    if draw(st.booleans()):
        values |= {"removing_replicas": draw(IDS), "adding_replicas": draw(IDS)}
    if draw(st.booleans()):
        values |= {"eligible_leader_replicas": draw(IDS) or None, "last_known_elr": draw(IDS) or None}
    return values


def messages(topics: list[list[dict[str, Any]]]) -> list[Any]:
    """Returns the TopicRecord and the PartitionRecords of each topic, one topic after another."""
    made: list[Any] = []
    for number, partitions in enumerate(topics):
        made.append(TopicRecord(name=f"t{number}", topic_id=topic_id(number)))
        for index, values in enumerate(partitions):
            made.append(PartitionRecord(topic_id=topic_id(number), partition_id=index, **values))
    return made


def with_runs(records: list[Any]) -> list[Any]:
    """Returns the same records, but with the partition records in shared columns."""
    columns = PartitionRecords()
    made: list[Any] = []
    for record in records:
        if record.NAME != "PartitionRecord":
            made.append(record)
            continue
        columns.add_record(record)
        if isinstance(made[-1], PartitionRun) and made[-1].topic_id == record.topic_id:
            made[-1].count += 1
        else:
            made.append(PartitionRun(record.topic_id, columns, len(columns) - 1, 1))
    return made


def image_of(records: list[Any], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    edit = Edit(base)
    edit.replay_batch(records, 7)
    return edit.freeze(7 + record_count(records) - 1, 1, 1)


TOPICS = st.lists(st.lists(partition_records(), max_size=4), min_size=1, max_size=4)


@given(TOPICS)
@settings(max_examples=150)
def test_columns_are_written_like_single_records(topics: list[list[dict[str, Any]]]) -> None:
    records = messages(topics)
    writer = RecordWriter(metadata_version(30))
    one_by_one = [writer.encode(record) for record in records]
    runs = with_runs(records)
    assert record_count(runs) == len(records)
    batch = control.data_batch(writer.encode_all(runs), 40, 3, NOW)
    assert batch == control.data_batch(one_by_one, 40, 3, NOW)
    assert batch is not None
    assert [decode_record(record.value) for each in Batches(batch) for record in each] == records


@given(TOPICS)
@settings(max_examples=100)
def test_columns_are_replayed_like_single_records(topics: list[list[dict[str, Any]]]) -> None:
    records = [FeatureLevelRecord(name="metadata.version", feature_level=30), *messages(topics)]
    mine, twin = image_of(with_runs(records)), image_of(records)
    assert list(records_of(mine)) == list(records_of(twin))
    assert (mine.partition_count, mine.offset) == (twin.partition_count, twin.offset)


@given(placed(), st.integers(0, 5), st.integers(1, 9), placed())
@settings(max_examples=100)
def test_decision_equals_the_decision_from_single_records(
    before: dict[str, Any], first: int, count: int, values: dict[str, Any]
) -> None:
    values["isr"] = values["isr"] or values["replicas"]
    mine, twin = PartitionRecords(), PartitionRecords()
    for columns in (mine, twin):
        columns.add_record(PartitionRecord(topic_id=topic_id(1), **before))
    mine.number(topic_id(2), first, count)
    mine.place(count, tuple(values["replicas"]), tuple(values["isr"]), values["leader"], values["directories"])
    for index in range(first, first + count):
        twin.add_record(
            PartitionRecord(topic_id=topic_id(2), partition_id=index, leader_epoch=0, partition_epoch=0, **values)
        )
    assert mine.encode(2, b"p") == twin.encode(2, b"p")


@given(TOPICS, st.integers(25, 30), st.sampled_from(["none", "lz4"]))
@settings(max_examples=150)
def test_batch_is_read_like_its_records(topics: list[list[dict[str, Any]]], level: int, codec: str) -> None:
    for values in [values for topic in topics for values in topic] if level < 28 else ():
        values.pop("eligible_leader_replicas", None)
        values.pop("last_known_elr", None)
    records = messages(topics)
    writer = RecordWriter(metadata_version(level))
    builder = RecordBatchBuilder(codec=codec)
    for record in records:
        builder.append(NOW, None, writer.encode(record))
    [batch] = Batches(builder.build())
    read = decode_batch(batch)
    assert record_count(read) == len(records)
    assert sum(record.NAME == "PartitionRecord" for record in read) == sum(bool(topic) for topic in topics)
    head = [FeatureLevelRecord(name="metadata.version", feature_level=level)]
    twin = image_of([*head, *(decode_record(record.value) for record in batch)])
    assert list(records_of(image_of([*head, *read]))) == list(records_of(twin))


def test_batch_of_the_widest_records_is_read_and_a_broken_one_refused() -> None:
    writer = RecordWriter(metadata_version(30))
    wide = [
        PartitionRecord(
            topic_id=topic_id(1), partition_id=index, replicas=list(range(count)), isr=[1],
            directories=[topic_id(9)] * count,
        )
        for index, count in enumerate((1, 2, 3, 64, 65, 300))
    ]  # fmt: skip
    for length in range(1, len(wide) + 1):
        builder = RecordBatchBuilder()
        for record in wide[:length]:
            builder.append(NOW, None, writer.encode(record))
        [batch] = Batches(builder.build())
        [run] = decode_batch(batch)
        assert isinstance(run, PartitionRun)
        assert [len(run.columns.row(at, 0).replicas) for at in range(length)] == [1, 2, 3, 64, 65, 300][:length]
    builder = RecordBatchBuilder()
    for value in (writer.encode(wide[0]), writer.encode(wide[1])[:-1]):
        builder.append(NOW, None, value)
    [batch] = Batches(builder.build())
    with pytest.raises(MetadataError, match="at offset 0 cannot be read: PartitionRecord"):
        decode_batch(batch)


@pytest.mark.parametrize("value", [None, b"", b"\x01", b"\x01\x03", b"\x01\x03\xff", b"\x02\x03\x00"])
def test_invalid_record_is_refused(value: bytes | None) -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, None, value)
    [batch] = Batches(builder.build())
    with pytest.raises(MetadataError):
        decode_batch(batch)


def test_run_continues_in_the_next_chunk_and_in_free_rows() -> None:
    alike = {"replicas": [1], "isr": [1], "leader": 1, "directories": [topic_id(77)]}
    base = image_of(with_runs(messages([[alike] * 3, [alike] * (CHUNK_ROWS - 5)])))
    longer = with_runs(messages([[], [], [alike] * (CHUNK_ROWS + 9)])[2:])
    image = image_of(longer, base)
    topic = image.topic("t2")
    assert topic is not None
    assert list(topic.partition_rows) == list(range(CHUNK_ROWS - 2, 2 * CHUNK_ROWS + 7))
    assert [image.partition_at(row).partition for row in topic.partition_rows] == list(range(CHUNK_ROWS + 9))
    freed = image_of([RemoveTopicRecord(topic_id=topic_id(0))], image)
    again = image_of(with_runs(messages([[], [], [], [alike] * 5])[3:]), freed)
    topic = again.topic("t3")
    assert topic is not None
    assert sorted(topic.partition_rows) == [0, 1, 2, 2 * CHUNK_ROWS + 7, 2 * CHUNK_ROWS + 8]
    assert [again.partition_at(row).partition for row in topic.partition_rows] == [0, 1, 2, 3, 4]


def test_run_is_refused_when_its_topic_does_not_exist() -> None:
    columns = PartitionRecords()
    columns.number(topic_id(5), 0, 3)
    columns.place(3, (1,), (1,), 1, [topic_id(77)])
    with pytest.raises(MetadataError, match=r"partition_id=0, 1, 2.* does not exist"):
        image_of([PartitionRun(topic_id(5), columns, 0, 3)])


def test_version_without_directories_refuses_them() -> None:
    columns = PartitionRecords()
    columns.number(topic_id(5), 0, 3)
    columns.place(3, (1,), (1,), 1, [topic_id(77)])
    record = PartitionRecord(topic_id=topic_id(5), replicas=[1], isr=[1], leader=1, directories=[topic_id(77)])
    for encode in (lambda: columns.encode(0, b""), lambda: record.encode(0)):
        with pytest.raises(UnsupportedVersionError, match="directories"):
            encode()


def test_batch_over_its_limit_gives_none_and_rows_must_exist() -> None:
    columns = PartitionRecords()
    columns.number(topic_id(5), 0, 100)
    columns.place(100, (1,), (1,), 1, [topic_id(77)])
    data, ends = columns.encode(2, b"")
    assert control.data_batch([(data, ends, 0, 100)], 0, 1, NOW, 4000) is None
    builder = RecordBatchBuilder()
    for first, last in ((-1, 2), (2, 1), (0, 101)):
        with pytest.raises(ValueError, match="rows"):
            builder.append_rows(NOW, data, ends, first, last)
    with pytest.raises(ValueError, match="outside"):
        builder.append_rows(NOW, data[:-1], ends, 99, 100)
    assert builder.append_rows(NOW, data, ends, 99, 100)
    assert builder.record_count == 1
