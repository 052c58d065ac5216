"""Two rolling restarts give a cluster a listener for its controller (KIP-291). The cluster has brokers of both
implementations.

The first rolling restart adds the new endpoint to each broker as an ordinary listener. The second one names this
listener in control.plane.listener.name.
"""

import urllib.request

import pytest

from asking import ask
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.runtime.ports import free_ports
from quorums import OURS
from zookeeper_cluster import APACHE, CONTROLLER_LISTENERS, Load, ZooKeeperCluster, consume
from zookeepers import need_zookeeper

pytestmark = pytest.mark.timeout(400)


def restart_with(cluster, node_id, lines):
    cluster.restart_with(node_id, lines)
    cluster.wait_isr("t", 0, *cluster.brokers)


def roll(cluster, controller, lines_of):
    """Restarts every broker with new lines in its configuration. Restarts the controller last, so that the role moves
    only once."""
    cluster.wait(lambda: cluster.controller() == controller, f"broker {controller} is the controller")
    for node_id in sorted(cluster.brokers, key=lambda node_id: node_id == controller):
        restart_with(cluster, node_id, lines_of(node_id))


def metric(port, name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    lines = [line for line in text.splitlines() if name.lower() in line.lower() and not line.startswith("#")]
    assert lines, f"no metric {name}"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.mark.parametrize("controller", [1, 2], ids=["Apache Kafka controls", "ours controls"])
def test_two_rolling_rounds_give_a_mixed_cluster_its_control_plane(tmp_path, tools_of_either, controller):
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, {1: APACHE, 2: OURS}, first=controller) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        [port] = free_ports(1)
        tools_of_either[APACHE].run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1:2")
        cluster.wait_isr("t", 0, 1, 2)

        def with_listener(node_id):
            listeners = f"PLAINTEXT://{cluster.addresses[node_id]},CONTROL://{cluster.control_addresses[node_id]}"
            lines = {
                "listeners": listeners,
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": CONTROLLER_LISTENERS,
            }
            return lines | ({"metrics.port": port} if node_id == 2 else {})

        with Load(cluster, "t") as load:
            roll(cluster, controller, with_listener)
            for node_id in cluster.brokers:
                assert ask(cluster.control_addresses[node_id], MetadataRequest(), 9).brokers, "a new ordinary listener"
            # The first rolling restart has moved the controller to the other broker, and the second one moves it back.
            other = next(node_id for node_id in cluster.brokers if node_id != controller)
            roll(cluster, other, lambda _: {"control.plane.listener.name": "CONTROL"})
        cluster.wait(lambda: cluster.controller() == controller, f"broker {controller} is the controller again")
        assert not load.failed
        assert len(load.acknowledged) == load.count
        found = consume(cluster, "t", 0, load.count)
        assert found == [b"%d" % number for number in range(load.count)], "each record must be there once, in order"

        assert metric(port, "ControlPlaneConnectionCount") > 0, "the controller must use the control plane"
        assert metric(port, "ControlPlaneRequestQueueSize") == 0
        assert metric(port, "ActiveControllerCount") == (1 if controller == 2 else 0)
        assert 0 <= metric(port, "ControlPlaneNetworkProcessorAvgIdle") <= 1
        with pytest.raises((OSError, EOFError)):
            ask(cluster.control_addresses[2], MetadataRequest(), 9)
        tools_of_either[APACHE].run("kafka-topics", *topics, "--create", "--topic", "u", "--replica-assignment", "2:1")
        cluster.wait_isr("u", 0, 1, 2)
