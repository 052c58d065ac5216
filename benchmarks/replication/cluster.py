"""Starts three nodes of one kind, each a broker and a controller, as processes on the loopback interface."""

import itertools
import shutil

from benchmarks.peers import requests
from benchmarks.peers.contestants import SERVER_JVM
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from brokers import APACHE, archive
from kafka_tools import KafkaTools
from processes import PEERS, wait_until
from quorums import OURS
from replicated import ReplicatedCluster

NODES = (1, 2, 3)
REPLICAS = len(NODES)
MOST_CREATED = 9000  # partitions of one request, because a controller writes at most 10,000 records for a request
LIMIT_S = 300  # Apache Kafka needs minutes for thousands of partitions
# Kafka's defaults for keys that the tests set to other values.
DEFAULTS = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.wait.max.ms": "500",
    "log.segment.delete.delay.ms": "1000",
}
RATES = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
THROTTLED = {"leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "*"}
NUMBERS = itertools.count()


def kinds():
    """Returns the kinds of nodes that are installed."""
    there = [name for name, release in APACHE.items() if (PEERS / f"kafka-{release}" / ".complete").exists()]
    return [OURS, *(there if shutil.which("java") else [])]


def jvm(kind):
    """Returns the JVM options of a server. Six servers start on two cores, so they use the class archive of the
    tests, which makes a start faster."""
    return [*SERVER_JVM, f"-XX:SharedArchiveFile={archive(APACHE[kind])}", "-Xshare:auto", "-Xlog:disable"]


class Nodes(ReplicatedCluster):
    """A cluster that `Nodes(...)` starts. The measurements of `benchmarks.peers` treat it as one broker. Its
    `bootstrap` is the node that leads the topics of `fresh_topic`. Its CPU time is the sum for all three nodes."""

    def __init__(self, kind, directory, settings=None, tools=None):
        super().__init__(
            directory,
            combined=dict.fromkeys(NODES, kind),
            settings=DEFAULTS | (settings or {}),
            tools=tools,
            jvm=jvm(kind) if kind in APACHE else None,
        )
        self.name = kind
        for member in self.members.values():
            member.start_limit_s = LIMIT_S
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        self.bootstrap = self.addresses[NODES[0]]

    @property
    def pids(self):
        return [member.child.pid for member in self.members.values() if member.alive()]

    def pid_of(self, node_id):
        return self.members[node_id].child.pid

    def wait(self, condition, what):
        return wait_until(condition, LIMIT_S, what, self.seen)

    def fresh_topic(self, partitions=1, leader=NODES[0], replicas=REPLICAS, **configs):
        """Creates a topic that one node leads. All replicas are in sync."""
        name = f"bench-{next(NUMBERS)}"
        self.create(name, [led_by(leader)[:replicas]] * partitions, **configs)
        wanted = {name: partitions}
        self.wait(lambda: requests.unserved(self.addresses[leader], wanted) == 0, f"{name} serves")
        return name

    def make(self, topics, partitions):
        """Creates topics with three replicas that the controller places. Returns their names."""
        names = [f"many-{next(NUMBERS)}" for _ in range(topics)]
        each = MOST_CREATED // partitions
        for at in range(0, topics, each):
            requests.create(self.bootstrap, names[at : at + each], partitions, REPLICAS)
        return names

    def throttle(self, bytes_per_s):
        """Limits the replication of the topics that have the settings `THROTTLED`, as kafka-reassign-partitions
        --throttle does."""
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        entries = [ConfigEntry(key, str(bytes_per_s), incremental_operation=AlterConfigOpType.SET) for key in RATES]
        for node in NODES:
            change = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=entries)
            client.incremental_alter_configs([change])[change].result(LIMIT_S)

    def leaders(self, *names):
        """Returns node ids by (topic, partition), for the partitions that have a leader."""
        return {which: state.leader for which, state in self.partitions(*names).items() if state.leader >= 0}

    def bring_back(self, node_id, topic, count):
        """Starts a node again. When the node is in sync, makes it the leader of the partitions whose preferred leader
        it is."""
        self.members[node_id].start()
        self.wait_unfenced()
        self.wait_in_sync(topic, count=count)
        self.prefer([(topic, partition) for partition in range(count)])


def led_by(leader):
    """Returns the list of replicas for a partition whose preferred leader is this node."""
    at = NODES.index(leader)
    return [*NODES[at:], *NODES[:at]]


class Tools(dict):
    """Apache Kafka's tools for each kind of cluster. The process of a tool starts when it is first used."""

    def __missing__(self, name):
        self[name] = KafkaTools(name)
        return self[name]

    def close(self):
        for tools in self.values():
            tools.close()
