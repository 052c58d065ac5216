"""The configuration of a topic, which overrides the broker's configuration."""

import pytest

from kafkacore.config import BrokerConfig, ConfigError, TopicConfig
from kafkacore.config.keys import TOPIC
from kafkacore.config.sources import Source

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}


def broker(**changes):
    return BrokerConfig(PROPERTIES | {key.replace("_", "."): value for key, value in changes.items()})


def test_topic_without_settings_has_kafkas_defaults():
    config = TopicConfig(broker())
    for key in TOPIC:
        if not key.internal and key.generation != "3.9":
            assert config.describe(key.name).value == key.default
    assert config.segment_size_bytes == config.segment_bytes == 1 << 30
    assert not config.compacted


@pytest.mark.parametrize(
    ("changes", "attribute", "expected"),
    [
        ({"log_retention_ms": "5"}, "retention_ms", 5),
        ({"log_retention_minutes": "2"}, "retention_ms", 120_000),
        ({"log_retention_hours": "2"}, "retention_ms", 7_200_000),
        ({"log_retention_hours": "-1"}, "retention_ms", -1),
        ({"log_roll_hours": "2"}, "segment_ms", 7_200_000),
        ({"log_roll_jitter_ms": "7"}, "segment_jitter_ms", 7),
        ({"log_flush_scheduler_interval_ms": "9"}, "flush_ms", 9),
        ({"log_flush_interval_ms": "8", "log_flush_scheduler_interval_ms": "9"}, "flush_ms", 8),
        ({"log_flush_interval_messages": "3"}, "flush_messages", 3),
        ({"message_max_bytes": "4"}, "max_message_bytes", 4),
        ({"log_index_size_max_bytes": "4096"}, "segment_index_bytes", 4096),
        ({"log_segment_delete_delay_ms": "6"}, "file_delete_delay_ms", 6),
        ({"log_cleaner_min_cleanable_ratio": "0.25"}, "min_cleanable_dirty_ratio", 0.25),
        ({"log_cleanup_policy": "compact"}, "cleanup_policy", ("compact",)),
        ({"compression_type": "zstd"}, "compression_type", "zstd"),
        ({"log_message_timestamp_type": "LogAppendTime"}, "message_timestamp_type", "LogAppendTime"),
        ({"min_insync_replicas": "2"}, "min_insync_replicas", 2),
    ],
)
def test_topic_inherits_a_setting_of_the_broker(changes, attribute, expected):
    assert getattr(TopicConfig(broker(**changes)), attribute) == expected


def test_topic_inherits_a_dynamic_setting_of_the_broker():
    changed = broker().with_dynamic(default={"log.retention.ms": "77"})
    entry = TopicConfig(changed).describe("retention.ms")
    assert (entry.value, entry.source) == ("77", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_setting_of_the_topic_overrides_the_broker():
    config = TopicConfig(broker(log_retention_ms="5"), {"retention.ms": "6"})
    assert config.retention_ms == 6
    entry = config.describe("retention.ms")
    assert entry.source == Source.TOPIC_CONFIG
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("retention.ms", "6", Source.TOPIC_CONFIG),
        ("log.retention.ms", "5", Source.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "168", Source.DEFAULT_CONFIG),
    ]


def test_default_is_described_as_a_default():
    entry = TopicConfig(broker()).describe("min.insync.replicas")
    assert (entry.value, entry.source, entry.read_only) == ("1", Source.DEFAULT_CONFIG, False)
    assert [(synonym.name, synonym.source) for synonym in entry.synonyms] == [
        ("min.insync.replicas", Source.DEFAULT_CONFIG)
    ]
    assert entry.documentation


def test_internal_keys_are_described_only_when_they_are_set():
    assert "internal.segment.bytes" not in TopicConfig(broker()).described_names()
    config = TopicConfig(broker(), {"internal.segment.bytes": "100"})
    assert "internal.segment.bytes" in config.described_names()
    assert config.segment_size_bytes == 100
    assert "message.format.version" not in config.described_names()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"no.such.key": "1"}, "no.such.key=1: unknown topic config name"),
        ({"message.format.version": "3.0"}, "unknown topic config name"),
        ({"retention.ms": None}, "null value is not supported"),
        ({"retention.ms": "-2"}, "retention.ms=-2: must be a long of at least -1"),
        ({"segment.bytes": "1000"}, "segment.bytes=1000: must be an int of at least 1048576"),
        ({"cleanup.policy": "keep"}, "must be a comma-separated list of compact, delete"),
        ({"compression.type": "lzma"}, "must be one of"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "must be at most max.compaction.lag.ms=1"),
        ({"remote.storage.enable": "true"}, "tiered storage is off"),
    ],
)
def test_request_is_refused_when_its_settings_are_wrong(overrides, message):
    with pytest.raises(ConfigError) as error:
        TopicConfig.validate(broker(), overrides)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"cleanup.policy": "compact"}, "must be delete while remote.storage.enable is true"),
        ({"retention.ms": "5", "local.retention.ms": "6"}, "local.retention.ms=6: must be at most retention.ms=5"),
        ({"retention.bytes": "5", "local.retention.bytes": "-1"}, "must be at most retention.bytes=5"),
        ({"remote.log.copy.disable": "true", "retention.ms": "9", "local.retention.ms": "6"}, "must be retention.ms=9"),
    ],
)
def test_tiered_topic_refuses_a_local_retention_above_its_retention(overrides, message):
    tiered = broker(remote_log_storage_system_enable="true")
    with pytest.raises(ConfigError) as error:
        TopicConfig.validate(tiered, {"remote.storage.enable": "true"} | overrides)
    assert message in str(error.value)


def test_valid_request_returns_the_configuration():
    assert TopicConfig.validate(broker(), {"cleanup.policy": "compact,delete"}).compacted


def test_zookeeper_mode_knows_the_keys_of_3_9():
    old = BrokerConfig({"zookeeper.connect": "localhost:2181", "broker.id": "0"})
    config = TopicConfig.validate(old, {"message.format.version": "3.0-IV1", "segment.bytes": "14"})
    assert config.segment_bytes == 14
    assert "message.downconversion.enable" in config.described_names()
