"""Operators change a cluster: its znodes with zookeeper-shell and kafka-configs --zookeeper, and its partitions with
the tools of both implementations."""

import json
import subprocess

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from brokers import java
from processes import ROOT
from quorums import OURS
from zookeeper_cluster import APACHE, COUNT, ZooKeeperCluster, consume, produce, values
from zookeepers import RELEASE, need_zookeeper

SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
LARGE = [b"x" * 900_000] * 5  # records of which a follower fetches one at a time

pytestmark = pytest.mark.timeout(240)


class Shell:
    """An operator's ZooKeeper clients, which work below the chroot of the cluster: zookeeper-shell, and a faster one
    that reads."""

    def __init__(self, cluster):
        self.connect = f"{cluster.zookeeper.connect}/kafka"
        self.client = KazooClient(self.connect)

    def __enter__(self):
        self.client.start()
        return self

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()

    def run(self, *command):
        """Runs one command in zookeeper-shell. It ends its own process, so it cannot run in the process of the other
        tools.
        """
        line = [*java(RELEASE, "64m"), SHELL, "-server", self.connect, *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def create(self, path, content):
        self.run("create", path, json.dumps(content))

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
            shell.run("create", path, '{"version": 1, "partitions": [')
            shell.run("set", path, json.dumps(moves))
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

        ours = next(node_id for node_id, kind in kinds.items() if kind == OURS)

        def controller_moves_after(spoil):
            epoch = shell.get("/controller_epoch")
            spoil()
            cluster.wait(lambda: shell.get("/controller_epoch") > epoch, "a controller was elected")
            cluster.wait(
                lambda: (shell.get("/controller") or {}).get("brokerid") == cluster.controller(), "all brokers know it"
            )
            assert cluster.controller() in kinds

        controller_moves_after(lambda: shell.run("delete", "/controller"))
        # Each broker may win an election. Our controller also moves if an operator writes another id to `/controller`.
        # A controller of Apache Kafka only resigns then. Its znode stays, so no broker is elected.
        while cluster.controller() != ours:
            controller_moves_after(lambda: shell.client.delete("/controller"))
        controller_moves_after(lambda: shell.run("set", "/controller", '{"version":1,"brokerid":7,"timestamp":"1"}'))

        # kafka-configs of 3.9 still writes two kinds of settings directly to ZooKeeper: the settings of brokers that
        # are down, and the SCRAM credentials of users. Our brokers do not serve SCRAM, but such credentials must not
        # make them fail.
        tool = tools_of_either[APACHE]
        where = ["--zookeeper", f"{cluster.zookeeper.connect}/kafka"]
        tool.run("kafka-configs", *where, "--alter", "--entity-type", "users", "--entity-name", "alice",
                 "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")  # fmt: skip
        cluster.brokers[2].stop()
        broker = ["--entity-type", "brokers", "--entity-name", "2"]
        tool.run("kafka-configs", *where, "--alter", *broker, "--add-config", "log.cleaner.threads=2")
        assert "log.cleaner.threads=2" in tool.run("kafka-configs", *where, "--describe", *broker).out
        cluster.brokers[2].start()
        cluster.wait_members(kinds)
        shown = tool.run("kafka-configs", "--bootstrap-server", cluster.addresses[2], "--describe", *broker).out
        assert "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2" in shown

        shell.run("create", "/admin/delete_topics/t")
        cluster.wait(lambda: shell.get("/brokers/topics/t") is None, "the topic is gone")
        cluster.wait(
            lambda: not [path for member in cluster.brokers.values() for path in member.data.glob("t-?")],
            "no broker has a log of the deleted topic",
        )
        assert cluster.live() == sorted(kinds)


class Reassign:
    """The reassignment tool of one implementation. It connects to a broker that is not the controller."""

    def __init__(self, path, tool, address):
        self.file, self.tool, self.address = path / "plan.json", tool, address

    def __call__(self, *arguments):
        server = ["--bootstrap-server", self.address]
        if self.tool is not None:
            return self.tool.run("kafka-reassign-partitions", *server, *arguments).out
        line = [ROOT / ".venv" / "bin" / "kafkacore", "reassign-partitions", *server, *arguments]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def plan(self, action, moves=None, *arguments):
        if moves is not None:
            rows = [{"topic": topic, "partition": index, "replicas": to} for (topic, index), to in moves.items()]
            self.file.write_text(json.dumps({"version": 1, "partitions": rows}))
        return self(f"--{action}", "--reassignment-json-file", self.file, *arguments)


@pytest.mark.parametrize("controller", [1, 2], ids=["Apache Kafka controls", "ours controls"])
def test_partitions_move_and_stay_when_a_reassignment_tool_asks_a_broker(tmp_path, tools_of_either, controller):
    """A plan is executed and verified, and another one is cancelled, with the tool of each implementation. The settings
    for throttles go to ZooKeeper and disappear from it."""
    need_zookeeper()
    with (
        ZooKeeperCluster(tmp_path, {1: APACHE, 2: OURS}, first=controller) as cluster,
        Shell(cluster) as shell,
    ):
        admin = tools_of_either[APACHE]
        other = cluster.addresses[3 - controller]
        for name, tool in (("theirs", admin), ("ours", None)):
            reassign, slow = Reassign(tmp_path, tool, other), f"{name}-slow"
            for topic in (name, slow):
                admin.run("kafka-topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", topic,
                          "--replica-assignment", "1,2")  # fmt: skip
                for index, leader in enumerate((1, 2)):
                    cluster.wait_leader(topic, index, leader)
            produce(cluster, name, 0, values(name))
            moves = {(name, 0): [2], (name, 1): [1, 2]}
            assert "Successfully started" in reassign.plan("execute", moves, "--throttle", "1000000")
            assert throttled(shell, name) == {1, 2, name}
            cluster.wait_isr(name, 0, 2)
            cluster.wait_isr(name, 1, 1, 2)
            cluster.wait(lambda run=reassign: "No partition reassignments found" in run("--list"), "nothing moves")
            told = reassign.plan("verify")
            assert all(f"{name}-{index} is completed." in told for index in (0, 1))
            cluster.wait(lambda topic=name: not throttled(shell, topic), "the throttles are gone")
            assert consume(cluster, name, 0, COUNT) == values(name)

            # With such a throttle, the first records use up the bytes of many seconds.
            produce(cluster, slow, 0, LARGE)
            reassign.plan("execute", {(slow, 0): [2]}, "--throttle", "1")
            assert f"{slow}-0" in reassign("--list")
            assert "Successfully cancelled" in reassign.plan("cancel")
            assert "No partition reassignments found" in reassign("--list")
            cluster.wait_isr(slow, 0, 1)
            assert shell.get(f"/brokers/topics/{slow}")["partitions"]["0"] == [1]
            cluster.wait(lambda topic=slow: not throttled(shell, topic), "the throttles are gone")


def throttled(shell, topic):
    """Returns the brokers and topics whose settings in ZooKeeper contain throttles."""
    found = {1: "/config/brokers/1", 2: "/config/brokers/2", topic: f"/config/topics/{topic}"}
    return {
        key
        for key, path in found.items()
        if any("throttled" in name for name in (shell.get(path) or {}).get("config", {}))
    }
