"""The code outside the configuration package reads exactly the keys that the tables of keys mark as honoured."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.keys import BROKER, TOPIC
from kafkacore.network.limits import limits_from
from kafkacore.storage.log_settings import FIELDS
from processes import ROOT

SOURCE = ROOT / "src" / "kafkacore"
# In raft/, `config` is the configuration of the Raft core, not of the broker.
ELSEWHERE = ("config", "raft")
ATTRIBUTE = re.compile(r"config\.(?:broker\.)?(\w+)")
STANDS_FOR_NODE_ID = "broker.id"
KEPT = {
    "noted",
    "static",
    "dynamic_default",
    "dynamic_broker",
    "node_defaults",
    "zookeeper_mode",
    "keys",
    "inherited",
    "_values",
}
SOUND = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


class NotedBroker(BrokerConfig):
    """A broker configuration that records the keys behind each attribute that the code reads."""

    def __init__(self) -> None:
        self.__dict__["noted"] = set()
        super().__init__(SOUND)
        # The checks of relations between keys have already read these attributes, so the configuration has cached their
        # values.
        for attribute in self.__dict__.keys() - KEPT:
            del self.__dict__[attribute]
        self.noted.clear()

    noted: set[str]

    def value(self, name: str) -> Any:
        self.noted.add(name)
        return super().value(name)

    def get(self, name: str) -> str | None:
        self.noted.add(name)
        return super().get(name)


class NotedTopic(TopicConfig):
    def __init__(self, **overrides: str) -> None:
        super().__init__(NotedBroker(), {name.replace("_", "."): value for name, value in overrides.items()})
        self.__dict__["noted"] = set()

    noted: set[str]

    def value(self, name: str) -> Any:
        self.noted.add(name)
        return super().value(name)


def attributes_read() -> set[str]:
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in ELSEWHERE:
            found.update(ATTRIBUTE.findall(path.read_text()))
    return found


@pytest.fixture(scope="module")
def read() -> tuple[set[str], set[str]]:
    """Returns the broker keys and topic keys that the code reads. It reads them through attributes, some of which
    combine several keys, and through the tables of keys that reach native code."""
    broker = NotedBroker()
    limits_from(broker)
    broker_keys, topic_keys = broker.noted & set(BROKER.names()), set()
    for codec in ("gzip", "lz4", "zstd"):  # each of these codecs has its own key for the compression level
        topic = NotedTopic(compression_type=codec)
        for field in FIELDS.values():
            field.value(topic)
        topic_keys |= topic.noted
        broker_keys |= topic.broker.noted
    for attribute in attributes_read():
        broker, topic = NotedBroker(), NotedTopic()
        if hasattr(broker, attribute):
            broker_keys |= broker.noted & set(BROKER.names())
        if hasattr(topic, attribute):
            topic_keys |= topic.noted
            broker_keys |= topic.broker.noted
    return broker_keys, topic_keys


def test_every_honoured_key_is_read(read: tuple[set[str], set[str]]) -> None:
    broker_keys, topic_keys = read
    assert {key.name for key in BROKER if key.honoured} - broker_keys == {STANDS_FOR_NODE_ID}
    assert {key.name for key in TOPIC if key.honoured} - topic_keys == set()


def test_every_key_that_is_read_is_honoured(read: tuple[set[str], set[str]]) -> None:
    broker_keys, topic_keys = read
    assert broker_keys - {key.name for key in BROKER if key.honoured} == set()
    assert topic_keys - {key.name for key in TOPIC if key.honoured} == set()
