"""Metrics of led partitions, counted by the state of their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.protocol.messages import FeatureLevelRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.replica_counts import LedPartition, ReplicaCounts, count, led

TOPIC = Uuid(b"t" * 16)
ME, TWO, THREE, FOUR = 1, 2, 3, 4


def led_of(*rows: Any, min_isr: int = 2, changes: Sequence[Any] = ()) -> list[LedPartition]:
    publisher = MetadataPublisher()
    feature = FeatureLevelRecord(name="metadata.version", feature_level=29)
    publisher.apply([feature, TopicRecord(name="t", topic_id=TOPIC), *rows, *changes], 0, 1, 1)
    return list(led(publisher.image, ME, {"t": min_isr}.__getitem__))


def counted(*rows: Any, min_isr: int = 2, changes: Sequence[Any] = ()) -> ReplicaCounts:
    return count(led_of(*rows, min_isr=min_isr, changes=changes))


def row(index: int, isr: Sequence[int], leader: int = ME, replicas: Sequence[int] = (ME, TWO, THREE)) -> Any:
    return PartitionRecord(
        topic_id=TOPIC, partition_id=index, replicas=list(replicas), isr=list(isr), leader=leader, leader_epoch=0,
        partition_epoch=0, directories=[Uuid(b"d" * 16)] * len(replicas),
    )  # fmt: skip


def test_partitions_are_counted_by_their_isr() -> None:
    counts = counted(row(0, [ME, TWO, THREE]), row(1, [ME, TWO]), row(2, [ME]), row(3, [ME]))
    assert (counts.under_replicated, counts.at_min_isr, counts.under_min_isr) == (3, 1, 2)


def test_partition_of_another_leader_counts_nothing() -> None:
    assert counted(row(0, [TWO], leader=TWO), row(1, [THREE], leader=-1)) == ReplicaCounts()


def test_min_isr_is_limited_when_there_are_fewer_replicas() -> None:
    counts = counted(row(0, [ME], replicas=[ME]), min_isr=3)
    assert (counts.under_replicated, counts.at_min_isr, counts.under_min_isr) == (0, 1, 0)


def test_added_replica_is_not_missed_while_a_reassignment_goes_on() -> None:
    moves = PartitionChangeRecord(
        topic_id=TOPIC, partition_id=0, replicas=[ME, TWO, THREE, FOUR], adding_replicas=[FOUR], removing_replicas=[TWO]
    )
    counts = counted(row(0, [ME, TWO, THREE]), changes=[moves])
    assert (counts.under_replicated, counts.reassigning) == (0, 1)
    shrinks = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[ME, THREE])
    assert counted(row(0, [ME, TWO, THREE]), changes=[moves, shrinks]).under_replicated == 1


def test_each_led_partition_is_described_by_its_replicas() -> None:
    partitions = led_of(row(0, [ME, TWO]), row(1, [TWO], leader=TWO), row(2, [ME]))
    assert partitions == [
        LedPartition("t", 0, replicas=3, in_sync=2, min_isr=2, is_reassigning=False),
        LedPartition("t", 2, replicas=3, in_sync=1, min_isr=2, is_reassigning=False),
    ]
    assert [(each.is_under_replicated, each.is_at_min_isr, each.is_under_min_isr) for each in partitions] == [
        (True, True, False),
        (True, False, True),
    ]
