"""kafka-python: producers, admin clients, and consumers that assign their partitions themselves and seek."""

import contextlib

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidPartitionsError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from segments import CODECS, partition_batches

FIRST_TIMESTAMP_MS = 1_700_000_000_000


def produce(broker, topic, count, size=100, **settings):
    with contextlib.closing(KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings)) as producer:
        futures = [
            producer.send(
                topic, None if n % 10 == 9 else b"v" * size, key=b"k%d" % n, partition=0,
                timestamp_ms=FIRST_TIMESTAMP_MS + n, headers=[("n", b"%d" % n)],
            )
            for n in range(count)
        ]  # fmt: skip
        return [future.get(30).offset for future in futures]


def consume(broker, topic, count, offset=0, **settings):
    partition, found = TopicPartition(topic, 0), []
    settings = {"auto_offset_reset": "none", "enable_auto_commit": False, "consumer_timeout_ms": 30_000, **settings}
    with contextlib.closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, **settings)) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


@pytest.fixture
def admin(broker):
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_and_keep_their_codec_on_disk(broker, log_dir, topic_name, codec, idempotent):
    kind = None if codec == "none" else codec
    sent = produce(broker, topic_name, 100, compression_type=kind, enable_idempotence=idempotent)
    assert sent == list(range(100))
    for n, record in enumerate(consume(broker, topic_name, 100)):
        assert (record.offset, record.key, record.timestamp) == (n, b"k%d" % n, FIRST_TIMESTAMP_MS + n)
        assert record.value == (None if n % 10 == 9 else b"v" * 100)
        assert list(record.headers) == [("n", b"%d" % n)]
    stored = partition_batches(log_dir, topic_name)
    assert {batch.codec for batch in stored} == {codec}
    assert {batch.producer_id >= 0 for batch in stored} == {idempotent}


def test_broker_refuses_a_record_over_the_topic_limit(broker, topic_name, admin):
    admin.create_topics({topic_name: {"num_partitions": 1, "configs": {"max.message.bytes": "1000"}}})
    with pytest.raises(MessageSizeTooLargeError):
        produce(broker, topic_name, 1, size=2000)


def test_admin_creates_describes_widens_and_deletes_topics(admin, topic_name):
    admin.create_topics(
        {topic_name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "777"}}}
    )
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic_name])
    with pytest.raises(InvalidTopicError):
        admin.create_topics(["a/b"])
    (described,) = admin.describe_topics([topic_name])
    assert [len(described["partitions"]), described["error_code"]] == [2, 0]
    resource = ConfigResource(ConfigResourceType.TOPIC, topic_name)
    shown = admin.describe_configs([resource])["topic"][topic_name]
    assert shown["retention.ms"]["value"] in ("777", 777)
    admin.create_partitions({topic_name: 4})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic_name: 3})
    seen = admin.describe_topic_partitions([topic_name])
    (wide,) = seen["topics"] if isinstance(seen, dict) else seen
    assert [part["partition_index"] for part in wide["partitions"]] == [0, 1, 2, 3]
    admin.delete_topics([topic_name])
    assert topic_name not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic_name])


def test_client_lists_offsets_by_time_and_deletes_records(broker, topic_name, admin):
    partition = TopicPartition(topic_name, 0)
    produce(broker, topic_name, 20)

    def listed(timestamp):
        return admin.list_partition_offsets({partition: timestamp})[partition].offset

    assert [listed(-2), listed(-1), listed(-3), listed(FIRST_TIMESTAMP_MS + 7)] == [0, 20, 19, 7]
    assert admin.delete_records({partition: 6})[partition]["low_watermark"] == 6
    assert listed(-2) == 6
    with pytest.raises(OffsetOutOfRangeError):
        consume(broker, topic_name, 1, offset=2)
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 100})


def test_admin_describes_the_cluster(broker, admin):
    described = admin.describe_cluster()
    (node,) = described["brokers"]
    assert f"{node['host']}:{node['port']}" == broker.bootstrap
    quorum = admin.describe_metadata_quorum()
    assert quorum
    (directories,) = admin.describe_log_dirs()
    assert all(one["error_code"] == 0 for one in directories["log_dirs"])


def test_admin_changes_settings_replicas_and_leaders(broker, admin, topic_name):
    partition = TopicPartition(topic_name, 0)
    admin.create_topics({topic_name: {"num_partitions": 1, "replication_factor": 1}})
    resource = ConfigResource(
        ConfigResourceType.TOPIC,
        topic_name,
        {"retention.ms": ("SET", "88000"), "cleanup.policy": ("APPEND", "compact")},
    )
    admin.alter_configs([resource])
    shown = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic_name)])["topic"][topic_name]
    assert str(shown["retention.ms"]["value"]) == "88000"
    wrong = ConfigResource(ConfigResourceType.TOPIC, topic_name, {"retention.ms": ("SET", "soon")})
    assert "InvalidConfig" in repr(admin.alter_configs([wrong]))
    assert topic_name in repr(admin.list_config_resources(["TOPIC"]))
    assert admin.list_partition_reassignments() == {}
    (refused,) = admin.alter_partition_reassignments({partition: [7]}).values()
    assert "InvalidReplicationAssignment" in repr(refused)
    (nothing,) = admin.alter_partition_reassignments({partition: None}).values()
    assert "NoReassignmentInProgress" in repr(nothing)
    assert admin.elect_leaders(0, {topic_name: [0]}, raise_errors=False)
    produce(broker, topic_name, 3, enable_idempotence=True)
    (state,) = admin.describe_producers([partition]).values()
    assert [each.last_sequence for each in state.active_producers] == [2]
    assert [found for found in admin.list_transactions().values() if found] == []
