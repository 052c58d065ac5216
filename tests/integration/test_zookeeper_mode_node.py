"""A `Node` in ZooKeeper mode, in this process and on a real ZooKeeper. The tests use it as any program does that runs a
node.
"""

import contextlib
import urllib.request

import pytest
from kazoo.client import KazooClient

from kafkacore.config import BrokerConfig
from kafkacore.observability.catalogue import metrics, prometheus_name, sample
from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.node import Node, NodeFailed
from kafkacore.testing.groups import Groups
from processes import wait_until
from two_directories import Client
from zookeepers import ZooKeeperServer, need_zookeeper

LIMIT_S = 60


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    need_zookeeper()
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@contextlib.contextmanager
def running(zookeeper, path, *broker_ids, **settings):
    """Runs nodes of one cluster, each with the log directories `a` and `b`. The first node is the controller."""
    nodes, faults = [], []
    try:
        for broker_id in broker_ids:
            place = path / str(broker_id)
            node = Node(BrokerConfig({
                "zookeeper.connect": f"{zookeeper.connect}/{path.name}",
                "broker.id": str(broker_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": f"{place}/a,{place}/b",
                "metrics.port": "-1",
                "offsets.topic.replication.factor": "1",
            } | {key.replace("_", "."): value for key, value in settings.items()}))  # fmt: skip
            node.on_fault = faults.append
            nodes.append(node)
            node.start()
            wait_until(lambda: knows(nodes[0], len(nodes)), LIMIT_S, "the controller knows every broker")
        yield nodes
        assert not faults
    finally:
        for node in reversed(nodes):
            node.stop()


def knows(node, count):
    return len(node.broker.context.image.brokers) == count


@pytest.mark.parametrize("protocol", ["3.9", "2.7"])
def test_node_creates_topics_when_it_is_the_controller_and_when_another_node_is(zookeeper, tmp_path, protocol):
    with running(zookeeper, tmp_path, 1, 2, inter_broker_protocol_version=protocol) as nodes:
        wait_until(lambda: knows(nodes[1], 2), LIMIT_S, "the second broker knows both")
        for node in nodes:
            name = f"of-{node.config.node_id}"
            told = node.create_topics([(name, 2), ("not/valid", 1)], {"retention.ms": "1000"})
            assert [each[:2] for each in told] == [
                (name, ErrorCode.NONE), ("not/valid", ErrorCode.INVALID_TOPIC_EXCEPTION)
            ]  # fmt: skip
            image = node.broker.context.image
            assert all(image.partition(image.topic(name), index).leader in {1, 2} for index in (0, 1))
            [(_, error, _)] = node.create_topics([(name, 1)])
            assert error == ErrorCode.TOPIC_ALREADY_EXISTS


def test_node_in_one_process_shows_its_addresses_and_parts(zookeeper, tmp_path):
    with running(zookeeper, tmp_path, 1) as [node]:
        assert node.addresses == {"PLAINTEXT": node.bootstrap}
        assert (node.controller, node.controller_server, node.replica, node.fault) == (None, None, None, None)
        assert node.catch_up(LIMIT_S) == []
        assert dict(Groups(node)) == {}


def test_metrics_page_shows_every_metric_of_zookeeper_mode_when_the_controller_has_a_broker(zookeeper, tmp_path):
    expected = {
        prometheus_name(sample(each.type, each.name, 0))
        for each in metrics().values()
        if each.help.startswith("in ZooKeeper mode")
    }

    def missing(node):
        with urllib.request.urlopen(node.metrics_address, timeout=LIMIT_S) as page:
            lines = page.read().decode().splitlines()
        return {each for each in expected if not any(line.startswith(each) for line in lines)}

    with running(zookeeper, tmp_path, 1, metrics_port="0") as [node]:
        wait_until(lambda: not missing(node), LIMIT_S, "every metric", lambda: f"missing: {missing(node)}")


@pytest.mark.parametrize("at", [0, 1], ids=["controller", "other"])
def test_replica_moves_to_another_log_directory_when_no_controller_needs_to_know(zookeeper, tmp_path, at):
    with running(zookeeper, tmp_path, 1, 2) as nodes:
        node = nodes[at]
        own, client = node.config.node_id, Client(node.bootstrap)
        client.describe_version = 4
        node.create_topics([("moves", 4)])
        image = node.broker.context.image
        index = next(each for each in range(4) if image.partition(image.topic("moves"), each).leader == own)
        wait_until(lambda: client.produce("moves", index, b"value") == ErrorCode.NONE, LIMIT_S, "the leader serves")
        [place] = [each for each in "ab" if (index, False) in client.shown(each, "moves")]
        target = "b" if place == "a" else "a"
        assert client.alter("moves", index, str(tmp_path / str(own) / target)) == ErrorCode.NONE
        wait_until(lambda: (index, False) in client.shown(target, "moves"), LIMIT_S, "the replica has moved")
        assert client.fetch("moves", index) == (ErrorCode.NONE, [b"value"])


def test_start_error_names_acls_when_the_cluster_has_some(zookeeper, tmp_path):
    operator = KazooClient(zookeeper.connect)
    operator.start()
    operator.create(f"/{tmp_path.name}/kafka-acl/Topic/secret", b"{}", makepath=True)
    operator.stop()
    with pytest.raises(NodeFailed, match="ACLs"), running(zookeeper, tmp_path, 1):
        pass
