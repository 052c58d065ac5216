"""PartitionChangeRecords handled together in runs (records for consecutive rows of the image), compared with the same
records one at a time. The test covers the decision, writing, reading, splitting and replay."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.record.batch import Batches
from kafkacore.config import BrokerConfig
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.controller.quorum.leaders import LeaderChanges
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partition_records import ChangeRun, Record, parted, record_count
from kafkacore.metadata.partitions import CHUNK_ROWS
from kafkacore.metadata.records import MetadataError, RecordWriter, decode_batch, decode_record
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.metadata.snapshot import records_of
from kafkacore.protocol.features import metadata_version
from kafkacore.protocol.messages import (
    FeatureLevelRecord,
    Message,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import control

NOW = 1_700_000_000_000
TOPICS, PARTITIONS = 3, 6
LEVEL = 30
IDS = st.lists(st.integers(1, 3), max_size=3, unique=True)
CONFIG = BrokerConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "log.dirs": "/nowhere",
    }
)


def uuid(number: int) -> Uuid:
    return Uuid((1000 + number).to_bytes(16, "big"))


@st.composite
def changes(draw: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"leader": draw(st.integers(-2, 3))}
    for field in ("isr", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr"):
        if draw(st.integers(0, 2)) == 0:
            told[field] = draw(IDS)
    if draw(st.integers(0, 5)) == 0:
        told["replicas"] = draw(IDS)
    return told


# Records for consecutive partitions and for scattered ones. Some of them have the same values.
GROUPS = st.lists(
    st.tuples(
        st.integers(0, TOPICS - 1),
        st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=PARTITIONS),
        changes(),
        st.booleans(),
    ),
    max_size=6,
)


def one_by_one(groups: Iterable[tuple[int, list[int], dict[str, Any], bool]]) -> list[Message]:
    made: list[Message] = []
    for topic, partitions, told, other_between in groups:
        made += [PartitionChangeRecord(topic_id=uuid(topic), partition_id=index, **told) for index in partitions]
        if other_between:
            made.append(NoOpRecord())
    return made


def expanded(records: Iterable[Record]) -> list[Any]:
    writer = RecordWriter(metadata_version(LEVEL))
    made: list[Any] = []
    for record in records:
        if not isinstance(record, ChangeRun):
            made.append(record)
            continue
        for partition in record.partitions:
            one = decode_record(writer.encode(record.record))
            one.partition_id = partition
            made.append(one)
    return made


def read(records: list[Message]) -> list[Record]:
    writer = RecordWriter(metadata_version(LEVEL))
    data = control.data_batch([writer.encode(record) for record in records], 40, 3, NOW)
    assert data is not None
    [batch] = Batches(data)
    return decode_batch(batch)


def image(rows: list[dict[str, Any]] | None = None) -> MetadataImage:
    """Returns an image with topics of the given numbers of partitions. All partitions of a topic have the same values,
    except those in `rows`."""
    edit = Edit(EMPTY_IMAGE)
    edit.replay(FeatureLevelRecord(name="metadata.version", feature_level=LEVEL))
    for topic in range(TOPICS):
        edit.replay(TopicRecord(name=f"t{topic}", topic_id=uuid(topic)))
        for index in range(PARTITIONS):
            values: dict[str, Any] = {"replicas": [1, 2], "isr": [1, 2], "leader": 1}
            if rows:
                values |= rows[(topic * PARTITIONS + index) % len(rows)]
            values["directories"] = [uuid(50 + each) for each in values["replicas"]]
            edit.replay(PartitionRecord(topic_id=uuid(topic), partition_id=index, **values))
    return edit.freeze(100, 1, 1)


@given(GROUPS)
@settings(max_examples=60)
def test_runs_are_read_and_written_like_single_records(groups: Any) -> None:
    records = one_by_one(groups) or [NoOpRecord()]
    runs = read(records)
    assert expanded(runs) == records
    assert record_count(runs) == len(records)
    writer = RecordWriter(metadata_version(LEVEL))
    twin = control.data_batch([writer.encode(record) for record in records], 40, 3, NOW)
    assert control.data_batch(writer.encode_all(runs), 40, 3, NOW) == twin


@given(GROUPS)
@settings(max_examples=60)
def test_runs_are_replayed_like_single_records(groups: Any) -> None:
    records = one_by_one(groups)
    base = image()
    mine, twin = Edit(base), Edit(base)
    mine.replay_batch(read([*records, NoOpRecord()]), 40)
    twin.replay_batch(records, 40)
    roots = [edit.freeze(200, 1, 1) for edit in (mine, twin)]
    assert list(records_of(roots[0])) == list(records_of(roots[1]))
    assert mine.delta.partition_rows == twin.delta.partition_rows
    assert list(records_of(base)) == list(records_of(image())), "the replay must not change the root that it began with"


# Every row gets the values in USUAL. A few rows also get some of the values in SELDOM.
USUAL = st.fixed_dictionaries(
    {"replicas": st.sampled_from([[1], [1, 2], [2, 1, 3]]), "leader": st.sampled_from([-1, 1, 2])},
    optional={"isr": IDS},
)
SELDOM = st.fixed_dictionaries(
    {},
    optional={
        "leader": st.sampled_from([-1, 1]),
        "eligible_leader_replicas": IDS,
        "last_known_elr": st.sampled_from([[1], [2]]),
        "removing_replicas": IDS,
        "leader_recovery_state": st.integers(0, 1),
    },
)
BROKERS = st.sampled_from([(-1, -1, -1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1), (2, -1, -1), (-1, 3, -1)])


@given(USUAL, st.lists(SELDOM, min_size=1, max_size=4), BROKERS, st.booleans(), st.integers(1, 5))
@settings(max_examples=150)
def test_decision_for_many_partitions_equals_the_decisions_for_each(
    usual: Any, seldom: Any, brokers: Any, elr: bool, repeated: int
) -> None:
    removed, added, unclean = brokers
    root = image([usual | row for row in seldom for _ in range(repeated)])
    features = {**root.features, **({"eligible.leader.replicas.version": 1} if elr else {})}
    live = {each: registration(each, fenced=each == added) for each in (1, 2, 3)}
    root = root._replace(features=features, brokers=live)
    names = {"removed": removed, "added": added, "unclean": unclean}
    told = {name: {broker} for name, broker in names.items() if broker >= 0}
    decide = LeaderChanges(root, Settings("c", CONFIG, Random(1)), **told)
    every = range(TOPICS * PARTITIONS)
    twin = [record for row in every for record in decide.records([row])]
    assert not any(isinstance(record, ChangeRun) for record in twin)
    assert expanded(decide.records(every)) == twin


def registration(broker_id: int, fenced: bool) -> BrokerRegistration:
    return BrokerRegistration(broker_id, 1, uuid(7), (), {}, None, fenced, False, (uuid(50 + broker_id),))


@given(GROUPS, st.integers(1, 7))
@settings(max_examples=60)
def test_parts_of_a_run_are_complete_and_within_the_limit(groups: Any, most: int) -> None:
    records = read([*one_by_one(groups), NoOpRecord()])
    parts = list(parted(records, most))
    assert [each for part in parts for each in expanded(part)] == expanded(records)
    assert all(0 < record_count(part) <= most for part in parts)
    assert len(parts) == -(-record_count(records) // most), "only the last part may be smaller"


def run(partitions: list[int], **told: Any) -> ChangeRun:
    return ChangeRun(PartitionChangeRecord(topic_id=uuid(0), **told), array("i", partitions))


@pytest.mark.parametrize("partitions", [[0, 1, PARTITIONS], [3, -1], [5, 5, 2**31 - 1]])
def test_run_is_refused_when_a_partition_does_not_exist(partitions: list[int]) -> None:
    with pytest.raises(MetadataError, match="about a partition that does not exist"):
        Edit(image()).replay(run(partitions, leader=2))


def test_run_is_refused_when_it_spans_a_missing_partition() -> None:
    edit = Edit(image())
    edit.replay(PartitionRecord(topic_id=uuid(0), partition_id=PARTITIONS + 1, replicas=[1], isr=[1], leader=1))
    with pytest.raises(MetadataError, match="about a partition that does not exist"):
        edit.replay(run([PARTITIONS - 1, PARTITIONS, PARTITIONS + 1], leader=2))


def test_run_is_refused_when_its_topic_does_not_exist() -> None:
    edit = Edit(image())
    record = PartitionChangeRecord(topic_id=uuid(TOPICS), leader=1)
    with pytest.raises(MetadataError, match="about a topic that does not exist"):
        edit.replay(ChangeRun(record, array("i", [0, 1])))


def test_largest_epoch_has_no_successor() -> None:
    root = image([{"leader_epoch": 2**31 - 1}])
    with pytest.raises(MetadataError, match="no epoch after its last"):
        Edit(root).replay(run([0, 1, 2], leader=2))


def test_broken_record_in_a_run_is_refused() -> None:
    writer = RecordWriter(metadata_version(LEVEL))
    values = [writer.encode(PartitionChangeRecord(topic_id=uuid(0), partition_id=index))[:-1] for index in range(3)]
    data = control.data_batch(values, 40, 3, NOW)
    assert data is not None
    [batch] = Batches(data)
    with pytest.raises(MetadataError, match="at offset 40 cannot be read: PartitionChangeRecord"):
        decode_batch(batch)


def test_run_continues_in_the_next_chunk() -> None:
    edit = Edit(EMPTY_IMAGE)
    edit.replay(FeatureLevelRecord(name="metadata.version", feature_level=LEVEL))
    edit.replay(TopicRecord(name="t0", topic_id=uuid(0)))
    for index in range(CHUNK_ROWS + 3):
        edit.replay(PartitionRecord(topic_id=uuid(0), partition_id=index, replicas=[1], isr=[1], leader=1))
    base = edit.freeze(1, 1, 1)
    edit = Edit(base)
    edit.replay(run(list(range(1, CHUNK_ROWS + 2)), leader=-1))
    root = edit.freeze(2, 1, 1)
    leaders = [root.partition_at(row).leader for row in range(CHUNK_ROWS + 3)]
    assert leaders == [1, *[-1] * (CHUNK_ROWS + 1), 1]
    assert {base.partition_at(row).leader for row in range(CHUNK_ROWS + 3)} == {1}
