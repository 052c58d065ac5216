"""Configurations of groups, and of subscriptions to client metrics."""

import pytest

from kafkacore.config import BrokerConfig, ConfigError
from kafkacore.config.client_metrics import ClientMetricsConfig, MatchError
from kafkacore.config.group import GroupConfig
from kafkacore.config.keys import BROKER, GROUP

BROKER_CONFIG = BrokerConfig(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "group.share.delivery.count.limit": "7",
    }
)


def test_keys_of_a_group_inherit_from_keys_of_the_broker():
    assert all(name in BROKER for key in GROUP for name, _ in key.broker_keys)
    assert GroupConfig(BROKER_CONFIG).value("share.delivery.count.limit") == 7
    assert GroupConfig(BROKER_CONFIG, {"share.delivery.count.limit": "3"}).value("share.delivery.count.limit") == 3
    # The defaults are valid for a group.
    GroupConfig.validate(BROKER_CONFIG, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.heartbeat.interval.ms", "4999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.session.timeout.ms", "soon"),
        ("consumer.assignment.interval.ms", "15001"),
        ("streams.num.standby.replicas", "3"),
        ("share.isolation.level", "serializable"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("retention.ms", "1"),
    ],
)
def test_group_refuses_a_wrong_value(name, value):
    with pytest.raises(ConfigError) as error:
        GroupConfig.validate(BROKER_CONFIG, {name: value})
    assert error.value.key == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "60000"),
        ("streams.num.standby.replicas", "2"),
        ("share.auto.offset.reset", "by_duration:P1DT2H3.5S"),
        ("share.auto.offset.reset", "earliest"),
        ("share.renew.acknowledge.enable", "false"),
    ],
)
def test_group_accepts_a_valid_value(name, value):
    assert GroupConfig.validate(BROKER_CONFIG, {name: value}).describe(name).value == value


def test_stored_value_is_ignored_when_it_is_no_longer_allowed():
    assert GroupConfig(BROKER_CONFIG, {"share.isolation.level": "x"}).describe("share.isolation.level").value == (
        "read_uncommitted"
    )
    assert ClientMetricsConfig({"interval.ms": "soon"}).value("interval.ms") == 300_000


def test_session_timeout_must_exceed_the_heartbeat_interval():
    broker = BrokerConfig(dict(BROKER_CONFIG.static) | {"group.consumer.max.heartbeat.interval.ms": "100000"})
    values = {"consumer.heartbeat.interval.ms": "50000", "consumer.session.timeout.ms": "50000"}
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms=50000"):
        GroupConfig.validate(broker, values)


@pytest.mark.parametrize("values", [{"interval.ms": "99"}, {"interval.ms": "3600001"}, {"interval": "1000"}])
def test_subscription_refuses_a_wrong_value(values):
    with pytest.raises(ConfigError) as error:
        ClientMetricsConfig.validate(values)
    assert not isinstance(error.value, MatchError)


@pytest.mark.parametrize(
    "match",
    [
        "client_id", "client=x", "client_id=a=b", "client_id=(", "client_id=a,client_id",
        "client_id=a{99999999999999}", "client_id=[",
    ],
    ids=lambda match: match[:24],
)  # fmt: skip
def test_subscription_refuses_a_wrong_client_pattern(match):
    with pytest.raises(MatchError):
        ClientMetricsConfig.validate({"match": match})


def test_subscription_accepts_valid_values():
    config = ClientMetricsConfig.validate(
        {"match": "client_id=app-.*, client_software_name=librdkafka", "metrics": "*"}
    )
    assert config.value("match") == ("client_id=app-.*", "client_software_name=librdkafka")
    assert config.describe("interval.ms").value == "300000"
