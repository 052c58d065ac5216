"""The columnar image compared with a dictionary of dictionaries. The same records must give the same metadata.

The test compares old images again after later changes, because a published image must never change.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.partitions import rows_led_by, rows_with_isr, rows_with_replica
from kafkacore.metadata.records import MetadataError
from kafkacore.metadata.snapshot import image_of, records_of
from kafkacore.protocol.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid

TOPICS = 5
BROKERS = 4


def uuid(number: int) -> Uuid:
    return Uuid((1000 + number).to_bytes(16, "big"))


class Twin:
    """The metadata image as a dictionary of dictionaries."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, dict[str, Any]] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.before: tuple[Any, Any] | None = None

    def replay(self, record: Any) -> None:
        getattr(self, record.NAME)(record)

    def TopicRecord(self, record: Any) -> None:
        assert record.topic_id not in self.topics
        self.topics[record.topic_id] = {"name": record.name, "partitions": {}}

    def RemoveTopicRecord(self, record: Any) -> None:
        self.configs.pop(self.topics.pop(record.topic_id)["name"], None)

    def PartitionRecord(self, record: Any) -> None:
        self.topics[record.topic_id]["partitions"][record.partition_id] = {
            "replicas": tuple(record.replicas), "isr": tuple(record.isr), "leader": record.leader, "leader_epoch": 0,
            "partition_epoch": 0, "directories": tuple(record.directories), "adding": tuple(record.adding_replicas),
        }  # fmt: skip

    def PartitionChangeRecord(self, record: Any) -> None:
        state = self.topics[record.topic_id]["partitions"][record.partition_id]
        state["partition_epoch"] += 1
        if record.isr is not None:
            state["isr"] = tuple(record.isr)
        if record.leader != -2:
            state["leader"] = record.leader
            state["leader_epoch"] += 1

    def ConfigRecord(self, record: Any) -> None:
        values = self.configs.setdefault(record.resource_name, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[record.resource_name]

    def BeginTransactionRecord(self, record: Any) -> None:
        self.before = copy.deepcopy((self.topics, self.configs))

    def EndTransactionRecord(self, record: Any) -> None:
        self.before = None

    def AbortTransactionRecord(self, record: Any) -> None:
        (self.topics, self.configs), self.before = self.before, None

    def view(self) -> Any:
        return copy.deepcopy((self.topics, self.configs))


def view(image: MetadataImage) -> Any:
    topics = {}
    for topic in image.topics():
        partitions = {}
        for index, row in enumerate(topic.partition_rows):
            if row >= 0:
                state = image.partition_at(row)
                assert state.partition == index and image.topic_at(state.topic_row) is topic
                partitions[index] = {
                    "replicas": state.replicas, "isr": state.isr, "leader": state.leader,
                    "leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch,
                    "directories": state.directories, "adding": state.adding,
                }  # fmt: skip
        topics[topic.topic_id] = {"name": topic.name, "partitions": partitions}
    return topics, {name: dict(values) for (_, name), values in image.configs.items()}


def check_scans(image: MetadataImage) -> None:
    rows = {row: image.partition_at(row) for topic in image.topics() for row in topic.partition_rows if row >= 0}
    assert len(rows) == image.partition_count
    for broker in range(-1, BROKERS):
        led = {row for row, state in rows.items() if state.leader == broker}
        assert set(rows_led_by(image.partition_chunks, broker)) == led
        if broker >= 0:
            in_sync = {row for row, state in rows.items() if broker in state.isr}
            assert set(rows_with_isr(image.partition_chunks, broker)) == in_sync
            replicas = {row for row, state in rows.items() if broker in state.replicas}
            assert set(rows_with_replica(image.partition_chunks, broker)) == replicas


ids = st.integers(0, TOPICS - 1)
brokers = st.lists(st.integers(0, BROKERS - 1), min_size=1, max_size=3, unique=True)
steps = st.one_of(
    st.tuples(st.just("topic"), ids),
    st.tuples(st.just("remove"), ids),
    st.tuples(st.just("partition"), ids, st.integers(0, 6), brokers, st.booleans()),
    st.tuples(st.just("partitions"), ids, st.integers(1, 5), brokers),
    st.tuples(st.just("change"), ids, st.integers(0, 6), brokers, st.booleans()),
    st.tuples(st.just("config"), ids, st.sampled_from(["a", "b"]), st.sampled_from(["1", None])),
    st.tuples(st.sampled_from(["begin", "end", "abort", "freeze"])),
)


def records_for(twin: Twin, step: tuple[Any, ...]) -> list[Any]:
    """Returns the records of `step`, or an empty list if the current state does not allow the step."""
    kind, *values = step
    topic_id = uuid(values[0]) if values else None
    topic = twin.topics.get(topic_id)
    if kind in ("begin", "end", "abort"):
        made = {"begin": BeginTransactionRecord, "end": EndTransactionRecord, "abort": AbortTransactionRecord}[kind]
        return [made()] if (twin.before is None) == (kind == "begin") else []
    if kind == "topic":
        return [] if topic else [TopicRecord(name=f"t{values[0]}", topic_id=topic_id)]
    if kind == "freeze" or topic is None:
        return []
    if kind == "remove":
        return [RemoveTopicRecord(topic_id=topic_id)]
    if kind == "config":
        return [ConfigRecord(resource_type=2, resource_name=topic["name"], name=values[1], value=values[2])]
    if kind == "partition":
        return [partition(topic_id, values[1], values[2], [9] if values[3] else [])]
    if kind == "partitions":
        first = max(topic["partitions"], default=-1) + 1
        return [partition(topic_id, index, values[2], []) for index in range(first, first + values[1])]
    if values[1] not in topic["partitions"]:
        return []
    change = PartitionChangeRecord(topic_id=topic_id, partition_id=values[1], isr=values[2])
    if values[3]:
        change.leader = values[2][0]
    return [change]


def partition(topic_id: Uuid, index: int, replicas: list[int], adding: list[int]) -> Any:
    return PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=0,
        partition_epoch=0, directories=[uuid(100 + each) for each in replicas], adding_replicas=adding,
    )  # fmt: skip


@settings(max_examples=150)
@given(st.lists(steps, max_size=60))
# This ISR has more members than a row of the image can hold.
@example([("topic", 0), ("partitions", 0, 2, [0]), ("change", 0, 0, [0, 1], False)])
def test_columns_agree_with_a_dictionary(story: list[tuple[Any, ...]]) -> None:
    twin, image, edit = Twin(), EMPTY_IMAGE, Edit(EMPTY_IMAGE)
    published = []
    offset = 0
    for step in story:
        records = records_for(twin, step)
        for record in records:
            twin.replay(record)
        edit.replay_batch(records, offset)
        offset += len(records)
        if step[0] == "freeze":
            image = edit.freeze(offset - 1, 1, 0)
            published.append((image, twin.view()))
            edit = Edit(image)
    published.append((edit.freeze(offset - 1, 1, 0), twin.view()))
    for root, expected in published:
        assert view(root) == expected
        check_scans(root)
    last, expected = published[-1]
    last = last._replace(features={"metadata.version": 30})
    assert view(image_of(records_of(last), last.offset, 1, 0)) == expected


def test_partition_of_a_deleted_topic_is_refused() -> None:
    edit = Edit(EMPTY_IMAGE)
    edit.replay(TopicRecord(name="t0", topic_id=uuid(0)), 0)
    edit.replay(RemoveTopicRecord(topic_id=uuid(0)), 1)
    with pytest.raises(MetadataError):
        edit.replay(partition(uuid(0), 0, [1], []), 2)
