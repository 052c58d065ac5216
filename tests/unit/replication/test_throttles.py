"""Which replicas are throttled by the topics' configurations, and the rates from the broker's configuration."""

import pytest

from kafkacore._fast.log.replication_quota import BY_FOLLOWER, BY_LEADER, NO_BOUND
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.dynamic import adopted
from kafkacore.replication.throttles import NOTHING, Quotas, throttled

BROKER = BrokerConfig(
    {
        "node.id": "1",
        "process.roles": "broker,controller",
        "log.dirs": "/nowhere",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
    }
)
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"


def bits(overrides, index, node_id=1):
    return throttled(TopicConfig(BROKER, overrides), node_id).bits(index)


def test_topic_without_throttles_marks_nothing():
    assert throttled(TopicConfig(BROKER, {}), 1) is NOTHING
    assert NOTHING.bits(0) == 0


@pytest.mark.parametrize(
    ("replicas", "throttles"),
    [
        ("*", {0, 1, 2}),
        ("0:1", {0}),
        ("0:1,2:1", {0, 2}),
        ("0:2,1:1,2:11", {1}),
        ("0:2", set()),
        (" 0:1 , 1:1", {0, 1}),
        ("", set()),
    ],
)
def test_replicas_of_this_broker_are_throttled(replicas, throttles):
    assert {index for index in range(3) if bits({LEADERS: replicas}, index) == BY_LEADER} == throttles
    assert {index for index in range(3) if bits({FOLLOWERS: replicas}, index) == BY_FOLLOWER} == throttles
    both = {LEADERS: "*", FOLLOWERS: replicas}
    assert {index for index in range(3) if bits(both, index) == BY_LEADER | BY_FOLLOWER} == throttles


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_rate_follows_the_configuration_of_the_broker(side):
    quotas, other = Quotas(BROKER, Environment()), {"leader": "follower", "follower": "leader"}[side]
    quota, key = getattr(quotas, side), f"{side}.replication.throttled.rate"
    assert quota.bytes_per_second == NO_BOUND
    quotas.take(adopted(BROKER, {}, {key: "1000"}))
    assert quota.bytes_per_second == 1000
    quotas.take(adopted(BROKER, {key: "5"}, {}))
    assert (quota.bytes_per_second, getattr(quotas, other).bytes_per_second) == (5, NO_BOUND)
