"""The settings in ZooKeeper that the controller of a node in ZooKeeper mode uses."""

from types import SimpleNamespace

import pytest

from kafkacore.config import BrokerConfig
from kafkacore.controller.zookeeper.protocols.preferred_election import UncleanElectionsAllowed
from kafkacore.metadata.image import BROKER, TOPIC
from kafkacore.server.zookeeper.channel import CONTROL
from kafkacore.server.zookeeper.controller import LocalController
from kafkacore.zookeeper.operations import OPEN_ACL

KEY = "unclean.leader.election.enable"
ZOOKEEPER = {"zookeeper.connect": "z:2181", "broker.id": "1", "listeners": "PLAINTEXT://h:9092"}


class Node:
    """A LocalController of broker 1, and the elections that it has queued."""

    def __init__(self, **settings):
        session = SimpleNamespace(client=None, acl=lambda path: OPEN_ACL)
        self.local = LocalController(BrokerConfig(ZOOKEEPER | settings), None, session, {CONTROL: None})
        self.elections = []
        self.local.controller.is_active = True
        self.local.controller.put = self.note

    def note(self, event):
        assert isinstance(event, UncleanElectionsAllowed)
        self.elections += event.topics

    def change(self, kind, name, value):
        self.local.configs_changed({(kind, name): {} if value is None else {KEY: value}})

    @property
    def is_allowed(self):
        return self.local.controller.settings.unclean_leader_election_enable


@pytest.mark.parametrize("name", ["", "1"])
def test_default_of_the_controller_follows_when_a_setting_of_brokers_changes(name):
    node = Node()
    node.change(BROKER, name, "true")
    assert (node.is_allowed, node.elections) == (True, [None])
    node.change(BROKER, name, "true")
    assert node.elections == [None], "nothing has changed, so no election is necessary"
    node.change(BROKER, name, None)
    assert (node.is_allowed, node.elections) == (False, [None])


def test_default_of_the_controller_stays_when_the_setting_is_of_another_broker_or_unusable():
    node = Node()
    node.change(BROKER, "2", "true")
    node.change(BROKER, "", "perhaps")
    assert (node.is_allowed, node.elections) == (False, [])


def test_setting_of_this_broker_counts_when_the_default_says_the_opposite():
    node = Node(**{KEY: "true"})
    assert node.is_allowed
    node.change(BROKER, "1", "false")
    node.change(BROKER, "", "true")
    assert (node.is_allowed, node.elections) == (False, [])
    node.change(BROKER, "1", None)
    assert (node.is_allowed, node.elections) == (True, [None])


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_elections_are_held_for_a_topic_when_its_own_setting_becomes_true(value):
    node = Node()
    node.change(TOPIC, "t", value)
    node.change(TOPIC, "u", "false")
    assert (node.is_allowed, node.elections) == (False, ["t"])


def test_elections_are_not_queued_when_another_broker_is_the_controller():
    """A node reads its settings before its controller starts. An event from before the controller's start would seem to
    wait since the clock's zero."""
    node = Node()
    node.local.controller.is_active = False
    node.change(TOPIC, "t", "true")
    node.change(BROKER, "", "true")
    assert (node.is_allowed, node.elections) == (True, [])
