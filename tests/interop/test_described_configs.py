"""For the same properties, our DescribeConfigs and Apache Kafka's give the same description."""

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from brokers import APACHE
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.properties import load

STATIC = {
    "log.retention.minutes": "17",
    "log.roll.hours": "3",
    "compression.type": "lz4",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "message.max.bytes": "2000000",
    "listener.name.plaintext.max.connections": "7",
    "ssl.key.password": "secret",
    "my.own.key": "x",
    "num.partitions": "3",
}
TOPIC = {"retention.ms": "5000", "cleanup.policy": "compact,delete", "min.insync.replicas": "1"}
# With eligible leader replicas, the controller stores min.insync.replicas as a setting for the whole cluster (KIP-966).
DYNAMIC = {"min.insync.replicas": "1"}
# Our defaults, and Kafka's. With Kafka's buffers of 100 KiB a connection is slow.
OWN_DEFAULTS = {"socket.send.buffer.bytes": ("-1", "102400"), "socket.receive.buffer.bytes": ("-1", "102400")}
TIMEOUT_S = 30
# A broker of 3.9 in ZooKeeper mode also lists its KRaft keys. The tests use KRaft mode, where our defaults come from
# 4.3.
RELEASE = "apache-4.3"


@pytest.fixture(scope="module")
def kafka(apache_kafka):
    return apache_kafka(RELEASE, STATIC)


def described(kafka, kind, name):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)


def same(ours, theirs):
    """Converts an entry to a form in which both sides can be compared. confluent-kafka returns synonyms as a
    dictionary, so their order is lost."""
    assert ours.value == theirs.value, ours.name
    assert ours.source == theirs.source, ours.name
    assert ours.read_only == theirs.is_read_only, ours.name
    assert ours.sensitive == theirs.is_sensitive, ours.name
    mine = {(synonym.name, synonym.value, int(synonym.source)) for synonym in ours.synonyms}
    assert mine == {(entry.name, entry.value, entry.source) for entry in theirs.synonyms.values()} or (
        len({synonym.name for synonym in ours.synonyms}) < len(mine)
    ), ours.name


def test_broker_is_described_like_apache_kafka(kafka):
    assert kafka.release == APACHE[RELEASE]
    config = BrokerConfig(load(str(kafka.properties)), dynamic_default=DYNAMIC)
    theirs = described(kafka, ResourceType.BROKER, "1")
    own = {key.name for key in config.keys if key.generation in {"3.9", "own"}}
    assert set(config.described_names()) - own == set(theirs)
    for name, entry in theirs.items():
        if name in OWN_DEFAULTS:
            assert (config.describe(name).value, entry.value) == OWN_DEFAULTS[name]
        else:
            same(config.describe(name), entry)


def test_topic_is_described_like_apache_kafka(kafka):
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("described", 1, 1, config=TOPIC)])["described"].result(TIMEOUT_S)
    config = TopicConfig(BrokerConfig(load(str(kafka.properties)), dynamic_default=DYNAMIC), TOPIC)
    theirs = described(kafka, ResourceType.TOPIC, "described")
    assert set(config.described_names()) == set(theirs)
    for name, entry in theirs.items():
        same(config.describe(name), entry)
