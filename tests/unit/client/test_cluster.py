"""The client's view of a cluster whose brokers learn of changes one after another."""

from types import SimpleNamespace

import pytest

from kafkacore.client import PartitionMissing, TopicMissing
from kafkacore.client import cluster as module
from kafkacore.client.cluster import Cluster
from kafkacore.client.connection import Disconnected
from kafkacore.client.options import Options
from kafkacore.protocol.errors import ErrorCode, KafkaError
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


class Broker:
    """A broker, or the connection to it. `partitions` is the number of partitions of topic t that it knows."""

    is_open = True

    def __init__(self, node_id, partitions):
        self.node_id, self.host, self.port = node_id, "h", node_id
        self.partitions = partitions
        self.asked = 0

    def version(self, api_key, highest):
        return 12

    def ask(self, request, version, deadline):
        self.asked += 1
        return metadata(self.partitions, self.brokers)

    def close(self):
        pass


@pytest.fixture
def connected(monkeypatch):
    """Returns a function that makes a cluster of these brokers. The client knows the address of the first one."""

    def connect(*brokers, reachable=lambda broker: True):
        def connection(host, port, options):
            [found] = [broker for broker in brokers if broker.port == port]
            if not reachable(found):
                raise Disconnected(f"broker {port} cannot be reached")
            return found

        for broker in brokers:
            broker.brokers = brokers
        monkeypatch.setattr(module, "Connection", connection)
        found = Cluster(f"h:{brokers[0].port}", Options({}))
        monkeypatch.setattr(found, "pause", lambda failures, limit: None)
        return found

    return connect


def metadata(count, brokers=()):
    if not count:
        return SimpleNamespace(brokers=brokers, topics=[])
    partitions = [SimpleNamespace(partition_index=number, leader_id=1, leader_epoch=0) for number in range(count)]
    topic = SimpleNamespace(name="t", topic_id=TOPIC_ID, partitions=partitions, is_internal=False, error_code=0)
    return SimpleNamespace(brokers=brokers, topics=[topic])


def test_new_partition_is_found_when_some_brokers_do_not_know_it_yet(cluster):
    cluster.answers = [1, 1, 1, 2]
    assert cluster.partition("t", 1).leader == 1


def test_partition_is_missing_when_no_broker_knows_it(cluster):
    cluster.answers = [1] * 5
    with pytest.raises(PartitionMissing, match="topic t has 1 partitions, so it has no partition 1"):
        cluster.partition("t", 1)


def test_partition_is_found_when_only_the_other_broker_knows_it(connected):
    stale, current = Broker(1, 1), Broker(2, 2)
    assert connected(stale, current).partition("t", 1).leader == 1
    assert (stale.asked, current.asked) == (1, 1)


def test_topic_is_found_when_only_the_last_broker_knows_it(connected):
    brokers = [Broker(1, 0), Broker(2, 0), Broker(3, 0), Broker(4, 1)]
    assert connected(*brokers).topic("t").partitions.keys() == {0}


def test_leader_is_requested_from_another_broker_when_the_leader_that_one_broker_names_fails(connected):
    first, other = Broker(1, 1), Broker(2, 1)
    cluster = connected(first, other)
    cluster.partition("t", 0)
    cluster.forget(["t"])
    cluster.partition("t", 0)
    assert (first.asked, other.asked) == (1, 1)


def test_broker_that_failed_is_tried_after_all_others(connected):
    stale, dead, current = Broker(1, 0), Broker(2, 0), Broker(3, 0)
    tried = []
    cluster = connected(stale, dead, current, reachable=lambda broker: tried.append(broker) or broker is not dead)
    with pytest.raises(TopicMissing):
        cluster.topic("t")
    assert tried == [stale, dead, current]
    assert (stale.asked, current.asked) == (2, 2)


def test_metadata_comes_from_one_broker_when_nothing_is_missing(connected):
    first, other = Broker(1, 1), Broker(2, 1)
    cluster = connected(first, other)
    for _ in range(5):
        cluster.topics(["t"])
    assert (first.asked, other.asked) == (5, 0)


def test_topic_has_an_unknown_server_error_when_a_broker_refuses_it_with_a_newer_code(cluster, monkeypatch):
    refused = metadata(1)
    refused.topics[0].error_code = 9999
    monkeypatch.setattr(cluster, "ask_any", lambda request, limit: refused)
    with pytest.raises(KafkaError, match="topic t: ") as raised:
        cluster.partition("t", 0)
    assert raised.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
