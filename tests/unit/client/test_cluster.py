"""The client's view of a cluster whose brokers learn of changes one after another."""

from types import SimpleNamespace

import pytest

from kafkacore.client import PartitionMissing
from kafkacore.client.cluster import Cluster
from kafkacore.client.options import Options
from kafkacore.protocol.uuid import Uuid

TOPIC_ID = Uuid.random()


@pytest.fixture
def cluster(monkeypatch):
    """Returns a cluster that gets its metadata from `answers`: the number of partitions of topic t."""
    found = Cluster("h:1", Options({}))
    found.answers = []
    monkeypatch.setattr(found, "ask_any", lambda request, limit: metadata(found.answers.pop(0)))
    monkeypatch.setattr(found, "pause", lambda failures, limit: None)
    return found


def metadata(count):
    partitions = [SimpleNamespace(partition_index=number, leader_id=1, leader_epoch=0) for number in range(count)]
    topic = SimpleNamespace(name="t", topic_id=TOPIC_ID, partitions=partitions, is_internal=False, error_code=0)
    return SimpleNamespace(brokers=[], topics=[topic])


def test_new_partition_is_found_when_some_brokers_do_not_know_it_yet(cluster):
    cluster.answers = [1, 1, 1, 2]
    assert cluster.partition("t", 1).leader == 1


def test_partition_is_missing_when_no_broker_knows_it(cluster):
    cluster.answers = [1] * 5
    with pytest.raises(PartitionMissing, match="topic t has 1 partitions, so it has no partition 1"):
        cluster.partition("t", 1)
