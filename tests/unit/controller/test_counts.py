"""Counts the elections that happened between two metadata images: clean ones, elections from the ELR, and unclean ones.
Each test runs once with few partitions and once with many."""

import pytest

from kafkacore.controller.quorum import counts
from kafkacore.controller.quorum.counts import Counts
from kafkacore.metadata.edit import next_root
from kafkacore.metadata.image import EMPTY_IMAGE
from kafkacore.protocol.messages import PartitionChangeRecord, RemoveTopicRecord
from metadata_files import feature, partition, topic, uuid


def after(image, *records):
    first = image.offset + 1
    return next_root(image, records, (first, first + len(records) - 1), 1, 0)


def change(number, **fields):
    return PartitionChangeRecord(partition_id=number, topic_id=uuid(20), **fields)


@pytest.fixture
def before():
    partitions = [
        partition(20, 0, replicas=[1, 2, 3], isr=[1, 2]),
        partition(20, 1, replicas=[1, 2, 3], isr=[1], eligible_leader_replicas=[2]),
        partition(20, 2, replicas=[1, 2, 3], isr=[1]),
        partition(20, 3, replicas=[1, 2, 3], isr=[1, 2, 3]),
    ]
    return after(EMPTY_IMAGE, feature(), topic("foo", 20), *partitions)[0]


@pytest.mark.parametrize("few", [0, counts.FEW_ROWS])
def test_elections_are_counted_by_their_kind(before, few, monkeypatch):
    monkeypatch.setattr(counts, "FEW_ROWS", few)
    counted = Counts()
    image, delta = after(
        before,
        change(0, leader=2),
        change(1, leader=2, isr=[2]),
        change(2, leader=3, isr=[3]),
        change(3, leader=-1),
        topic("new", 21),
        partition(21, 0, replicas=[3], isr=[3], leader=3),
    )
    counted.leaders_changed(before, image, delta)
    assert (counted.unclean_elections, counted.elections_from_elr) == (1, 1)


@pytest.mark.parametrize("few", [0, counts.FEW_ROWS])
def test_row_of_another_topic_is_no_election(before, few, monkeypatch):
    monkeypatch.setattr(counts, "FEW_ROWS", few)
    counted = Counts()
    records = [topic("new", 21), *[partition(21, number, replicas=[9], isr=[9], leader=9) for number in range(4)]]
    image, delta = after(before, RemoveTopicRecord(topic_id=uuid(20)), *records)
    counted.leaders_changed(before, image, delta)
    assert (counted.unclean_elections, counted.elections_from_elr) == (0, 0)
