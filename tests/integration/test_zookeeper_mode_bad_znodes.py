"""A node in ZooKeeper mode, on a real ZooKeeper whose znodes have torn, foreign or newer content. The node logs the
problem, keeps the state that it had, and goes on.
"""

import contextlib
import json

import pytest
from kazoo.client import KazooClient

from asking import ask
from kafkacore.config import BrokerConfig
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import CreatePartitionsRequest, DescribeConfigsRequest
from kafkacore.server.node import Node, NodeFailed
from processes import wait_until
from two_directories import Client
from zookeepers import ZooKeeperServer, need_zookeeper

LIMIT_S = 60
TOPIC, BROKER = 2, 4  # the types of resources in DescribeConfigs
CHANGES = "/config/changes/config_change_"


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    need_zookeeper()
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class Operator:
    """Writes the znodes of one cluster."""

    def __init__(self, client):
        self.client = client

    def put(self, path, content):
        """Writes a znode, and notifies the brokers if it contains settings."""
        self.client.ensure_path(path)
        self.client.set(path, content)
        if path.startswith("/config/") and not path.startswith("/config/changes"):
            self.notify(json.dumps({"version": 2, "entity_path": path.removeprefix("/config/")}).encode())

    def notify(self, content):
        self.client.create(CHANGES, content, sequence=True)

    def settings(self, path, **values):
        config = {key.replace("_", "."): value for key, value in values.items()}
        self.put(path, json.dumps({"version": 1, "config": config}).encode())


@pytest.fixture
def operator(zookeeper, tmp_path):
    client = KazooClient(zookeeper.connect)
    client.start()
    client.ensure_path(f"/{tmp_path.name}")
    client.chroot = f"/{tmp_path.name}"
    try:
        yield Operator(client)
    finally:
        client.stop()
        client.close()


@contextlib.contextmanager
def running(zookeeper, path):
    config = BrokerConfig({
        "zookeeper.connect": f"{zookeeper.connect}/{path.name}", "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{path}/data", "metrics.port": "-1",
        "offsets.topic.replication.factor": "1", "controlled.shutdown.retry.backoff.ms": "100",
    })  # fmt: skip
    with Node(config) as node:
        yield node
        assert node.fault is None


def described(node, kind, name, key):
    """Returns the value of one setting, as DescribeConfigs shows it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    [result] = ask(node.bootstrap, DescribeConfigsRequest(resources=[resource]), 4).results
    return None if result.error_code else next((each.value for each in result.configs), None)


def serves(node, topic):
    """Checks that the node creates the topic, or has it, and takes records."""
    [(_, error, message)] = node.create_topics([(topic, 1)])
    assert error in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}, message
    client = Client(node.bootstrap)
    wait_until(lambda: client.produce(topic, 0, b"value") == ErrorCode.NONE, LIMIT_S, f"{topic} takes records")
    assert client.fetch(topic, 0)[1][-1] == b"value"


def applied(node, operator, topic):
    """Checks that the node applies a setting that is written now."""
    operator.settings(f"/config/topics/{topic}", retention_ms="4242")
    wait_until(lambda: described(node, TOPIC, topic, "retention.ms") == "4242", LIMIT_S, "the node reads settings")


SETTINGS = {
    "torn": b'{"version":1,"config":{"retention.ms":"1',
    "text": b"retention.ms=1",
    "no strings": b'{"version":1,"config":{"retention.ms":1}}',
    "not a number": b'{"version":1,"config":{"retention.ms":"abc","log.cleaner.threads":"abc"}}',
    "out of range": b'{"version":1,"config":{"segment.bytes":"-7","log.cleaner.threads":"-7"}}',
    "an unknown word": b'{"version":1,"config":{"cleanup.policy":"burn","log.cleanup.policy":"burn"}}',
    "unknown keys": b'{"version":1,"config":{"no.such.key":"1"}}',
    "newer": b'{"version":99,"config":[{"name":"retention.ms","value":"1"}]}',
    "huge": json.dumps({"version": 1, "config": {"no.such.key": "x" * 900_000}}).encode(),
}
UNREADABLE = [SETTINGS[name] for name in ("torn", "text", "no strings", "newer")]
ENTITIES = ["topics/events", "topics/absent", "brokers/1", "brokers/<default>", "brokers/one", "brokers/99999199999",
            "users/alice", "clients/c", "ips/1.2.3.4", "planets/mars"]  # fmt: skip


@pytest.mark.parametrize("content", SETTINGS.values(), ids=SETTINGS)
def test_node_goes_on_when_settings_cannot_be_used(zookeeper, tmp_path, operator, content):
    with running(zookeeper, tmp_path) as node:
        serves(node, "events")
        applied(node, operator, "events")
        for entity in ENTITIES:
            operator.put(f"/config/{entity}", content)
        serves(node, "during")
        applied(node, operator, "during")
        serves(node, "events")
        if content in UNREADABLE:
            assert described(node, TOPIC, "events", "retention.ms") == "4242", "the settings stay as they were"
    with running(zookeeper, tmp_path) as node:  # the node reads the settings when it starts
        serves(node, "events")
        serves(node, "after")
        applied(node, operator, "after")


NOTES = {
    "empty": b"",
    "torn": b'{"version":2,"entity_path":"top',
    "list": b"[]",
    "newer": b'{"version":3,"entity_paths":["topics/events"]}',
    "parent": b'{"version":2,"entity_path":"topics/.."}',
    "no name": b'{"version":2,"entity_path":"topics/"}',
    "no entity": b'{"version":2,"entity_path":""}',
    "control characters": b'{"version":2,"entity_path":"topics/\\u0000\\ud83d\\ude00"}',
    "no text": b'{"version":2,"entity_path":"topics/%ff"}',
    "no broker": b'{"version":2,"entity_path":"brokers/one"}',
    "huge": json.dumps({"version": 2, "entity_path": "topics/" + "x" * 900_000}).encode(),
}


def test_node_goes_on_when_notifications_of_settings_say_nothing(zookeeper, tmp_path, operator):
    with running(zookeeper, tmp_path) as node:
        serves(node, "events")
        for content in NOTES.values():
            operator.notify(content)
        operator.put("/config/changes/by-hand", b"?")
        applied(node, operator, "events")
    with running(zookeeper, tmp_path) as node:
        applied(node, operator, "events")


TOPICS = {
    "high": {"2147483647": [1]},
    "gaps": {"3": [1], "199999": [1]},
    "nobody": {"0": []},
    "twice": {"0": [1, 1]},
    "unknown": {"0": [77]},
    "empty": {},
    "x" * 250: {"0": [1]},
    "with space": {"0": [1]},
}


def test_node_goes_on_when_topics_have_odd_names_and_partitions(zookeeper, tmp_path, operator):
    with running(zookeeper, tmp_path) as node:
        serves(node, "events")
        for name, partitions in TOPICS.items():
            operator.put(f"/brokers/topics/{name}", json.dumps({"version": 1, "partitions": partitions}).encode())
        serves(node, "during")
        client = Client(node.bootstrap)
        wait_until(lambda: client.produce("gaps", 199_999) == ErrorCode.NONE, LIMIT_S, "the last partition is served")
    with running(zookeeper, tmp_path) as node:
        serves(node, "after")


def test_partitions_are_refused_and_nothing_changes_when_the_znode_of_their_topic_is_torn(
    zookeeper, tmp_path, operator, caplog
):
    with running(zookeeper, tmp_path) as node:
        serves(node, "events")
        path, torn = "/brokers/topics/events", b'{"version":3,"partitions":{"0":[1'
        operator.put(path, torn)
        asked = CreatePartitionsRequest.CreatePartitionsTopic(name="events", count=3, assignments=None)
        [result] = ask(node.bootstrap, CreatePartitionsRequest(topics=[asked], timeout_ms=1_000), 3).results
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert path in result.error_message
        assert operator.client.get(path)[0] == torn
        assert not [each for each in caplog.records if each.exc_info]
        serves(node, "events")


@pytest.mark.parametrize("content", [b"", b'{"version":"1"', b'{"version":"1","id":7}', b"[]"])
def test_start_is_refused_with_the_path_when_the_clusters_id_cannot_be_read(zookeeper, tmp_path, operator, content):
    operator.client.create("/cluster/id", content, makepath=True)
    with pytest.raises(NodeFailed, match="/cluster/id"), running(zookeeper, tmp_path):
        pass
    assert operator.client.get("/cluster/id")[0] == content
