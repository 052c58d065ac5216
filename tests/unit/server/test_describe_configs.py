"""DescribeConfigs for brokers, topics, groups and loggers."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kafkacore.config import BrokerConfig
from kafkacore.metadata.image import CLIENT_METRICS, GROUP
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DescribeConfigsRequest
from kafkacore.runtime.slices import finish_now
from kafkacore.server.handlers import describe_configs

CONFIG = BrokerConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:1",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "log.retention.hours": "1",
        "ssl.keystore.password": "secret",
    }
)
TOPICS: Mapping[str, Mapping[str, str]] = {"plain": {}, "set": {"max.message.bytes": "1000"}}
STORED = {
    (GROUP, "g"): {"consumer.session.timeout.ms": "50000"},
    (CLIENT_METRICS, "m"): {"metrics": "org.apache.kafka.consumer."},
}
IMAGE = SimpleNamespace(set_config=lambda kind, name: STORED.get((kind, name), {}))
IN_EFFECT = {"num.network.threads": "2", "log.retention.hours": "7"}
CONTEXT = SimpleNamespace(node_id=1, config=CONFIG, topic_overrides=TOPICS.get, image=IMAGE, values_in_effect=IN_EFFECT)


def describe(kind: int, name: str, keys: list[str] | None = None, version: int = 4, **flags: bool) -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **flags)
    response = finish_now(describe_configs.handle(CONTEXT, RequestContext(32, version, 0, None, "", ""), request))
    response.encode(version)
    return response.results[0]


def test_own_value_of_a_topic_precedes_its_brokers() -> None:
    [entry] = describe(describe_configs.TOPIC, "set", ["max.message.bytes"], include_synonyms=True).configs
    assert (entry.value, entry.config_source, entry.config_type) == ("1000", 1, 3)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("max.message.bytes", "1000", 1),
        ("message.max.bytes", "1048588", 5),
    ]


def test_topic_inherits_from_a_brokers_key_of_another_unit() -> None:
    [entry] = describe(describe_configs.TOPIC, "plain", ["retention.ms"]).configs
    # Kafka looks for the sources of this value only under log.retention.ms, so it reports a value in hours as the
    # default.
    assert (entry.value, entry.config_source, entry.synonyms) == ("3600000", 5, [])


def test_all_keys_of_a_topic_are_described_with_documentation_on_request() -> None:
    shown = {
        entry.name: entry for entry in describe(describe_configs.TOPIC, "plain", include_documentation=True).configs
    }
    assert {"cleanup.policy", "segment.bytes", "retention.bytes"} <= set(shown)
    assert shown["cleanup.policy"].documentation


def test_secret_value_is_hidden() -> None:
    [entry] = describe(describe_configs.BROKER, "1", ["ssl.keystore.password"], include_synonyms=True).configs
    assert entry.is_sensitive and entry.value is None
    assert all(each.value is None for each in entry.synonyms)


def test_every_version_encodes_the_whole_broker() -> None:
    for version in range(1, 5):
        described = describe(describe_configs.BROKER, "1", version=version, include_synonyms=True)
        assert len(described.configs) > 200


def test_invalid_resource_is_refused_alone() -> None:
    assert describe(describe_configs.TOPIC, "absent").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(describe_configs.TOPIC, "a b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert describe(describe_configs.BROKER, "2").error_code == ErrorCode.INVALID_REQUEST
    assert describe(describe_configs.BROKER, "x").error_code == ErrorCode.INVALID_REQUEST
    assert describe(77, "x").error_code == ErrorCode.INVALID_REQUEST
    assert describe(describe_configs.BROKER, "").configs == []


def test_group_inherits_from_its_broker_and_need_not_exist() -> None:
    for name, value, source in (("g", "50000", 8), ("other", "45000", 5)):
        [entry] = describe(GROUP, name, ["consumer.session.timeout.ms"], include_synonyms=True).configs
        assert (entry.value, entry.config_source, entry.config_type) == (value, source, 3)
        assert entry.synonyms[-1].name == "group.consumer.session.timeout.ms"
    [entry] = describe(GROUP, "g", ["share.isolation.level"], include_synonyms=True).configs
    assert (entry.value, [each.name for each in entry.synonyms]) == ("read_uncommitted", ["share.isolation.level"])
    assert describe(GROUP, "").error_code == ErrorCode.INVALID_REQUEST


def test_client_metrics_subscription_is_described() -> None:
    shown = {each.name: (each.value, each.config_source) for each in describe(CLIENT_METRICS, "m").configs}
    assert shown == {"metrics": ("org.apache.kafka.consumer.", 7), "interval.ms": ("300000", 5), "match": ("", 5)}
    assert describe(CLIENT_METRICS, "").error_code == ErrorCode.INVALID_REQUEST


def test_loggers_are_described_with_their_levels() -> None:
    shown = {entry.name: entry.value for entry in describe(describe_configs.BROKER_LOGGER, "1").configs}
    assert shown["root"] in ("WARN", "INFO", "DEBUG", "ERROR", "FATAL")
    # The broker does not show the loggers of other libraries.
    assert "kafkacore.server" in shown and not any(name.startswith("pytest") for name in shown)


def test_key_that_nobody_has_set_is_described_with_the_value_in_effect() -> None:
    (entry,) = describe(4, "1", ["num.network.threads"], include_synonyms=True).configs
    assert (entry.value, entry.config_source) == ("2", 5)
    assert [(each.name, each.value) for each in entry.synonyms] == [("num.network.threads", "2")]
    (entry,) = describe(4, "1", ["log.retention.hours"]).configs
    assert entry.value == "1"
