"""Operators change the znodes of a cluster, with kafka-configs --zookeeper and with a plain ZooKeeper client such as
zookeeper-shell."""

import json

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from quorums import OURS
from zookeeper_cluster import APACHE, COUNT, ZooKeeperCluster, consume, produce, values
from zookeepers import need_zookeeper

pytestmark = pytest.mark.timeout(240)


class Shell:
    """An operator's ZooKeeper client, which works below the chroot of the cluster."""

    def __init__(self, cluster):
        self.client = KazooClient(f"{cluster.zookeeper.connect}/kafka")

    def __enter__(self):
        self.client.start()
        return self

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()

    def create(self, path, content):
        self.client.create(path, json.dumps(content).encode())

    def get(self, path):
        """Returns the content of a znode, or None if the znode does not exist."""
        try:
            return json.loads(self.client.get(path)[0])
        except NoNodeError:
            return None


@pytest.mark.parametrize(
    ("kinds", "controller"),
    [({1: APACHE, 2: OURS}, 1), ({1: APACHE, 2: OURS}, 2)],
    ids=["Apache Kafka controls", "ours controls"],
)
def test_cluster_does_what_operators_write_into_znodes(tmp_path, tools_of_either, kinds, controller):
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, kinds, first=controller) as cluster, Shell(cluster) as shell:
        # Creates a topic with a znode in the format of an old tool.
        shell.create("/brokers/topics/t", {"version": 1, "partitions": {"0": [1], "1": [2, 1]}})
        cluster.wait_leader("t", 0, 1)
        cluster.wait_leader("t", 1, 2)
        produce(cluster, "t", 0, values("t"))

        path = "/admin/reassign_partitions"
        moves = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}]}
        if kinds[controller] == OURS:
            # Incomplete JSON changes nothing. The controller reads the znode again when its content changes.
            shell.client.create(path, b'{"version": 1, "partitions": [')
            shell.client.set(path, json.dumps(moves).encode())
        else:
            shell.create(path, moves)
        cluster.wait(lambda: shell.get(path) is None, "the reassignment is complete")
        cluster.wait_isr("t", 0, 1, 2)
        assert shell.get("/brokers/topics/t")["partitions"]["0"] == [2, 1]

        # The preferred leader of partition 0 is broker 2 now.
        cluster.wait_leader("t", 0, 1)
        path = "/admin/preferred_replica_election"
        shell.create(path, {"version": 1, "partitions": [{"topic": "t", "partition": 0}]})
        cluster.wait_leader("t", 0, 2)
        cluster.wait(lambda: shell.get(path) is None, "the order is taken out")
        assert consume(cluster, "t", 0, COUNT) == values("t")

        # The controller moves if an operator deletes `/controller`, and also if an operator writes another id to it.
        for spoil in (
            lambda: shell.client.delete("/controller"),
            lambda: shell.client.set("/controller", b'{"version":1,"brokerid":7,"timestamp":"1"}'),
        ):
            epoch = shell.get("/controller_epoch")
            spoil()
            cluster.wait(lambda old=epoch: shell.get("/controller_epoch") > old, "a controller was elected")
            cluster.wait(
                lambda: (shell.get("/controller") or {}).get("brokerid") == cluster.controller(), "all brokers know it"
            )
            assert cluster.controller() in kinds

        # kafka-configs of 3.9 still writes these settings directly to ZooKeeper. Our brokers do not need them, and must
        # not fail because of them.
        tool = tools_of_either[APACHE]
        where = ["--zookeeper", f"{cluster.zookeeper.connect}/kafka"]
        tool.run("kafka-configs", *where, "--alter", "--entity-type", "users", "--entity-name", "alice",
                 "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")  # fmt: skip
        tool.run("kafka-configs", *where, "--alter", "--entity-type", "brokers", "--entity-name", "9",
                 "--add-config", "log.cleaner.threads=2")  # fmt: skip
        shown = tool.run("kafka-configs", *where, "--describe", "--entity-type", "brokers", "--entity-name", "9").out
        assert "log.cleaner.threads=2" in shown

        shell.client.create("/admin/delete_topics/t")
        cluster.wait(lambda: shell.get("/brokers/topics/t") is None, "the topic is gone")
        cluster.wait(
            lambda: not [path for member in cluster.brokers.values() for path in member.data.glob("t-?")],
            "no broker has a log of the deleted topic",
        )
        assert cluster.live() == sorted(kinds)
