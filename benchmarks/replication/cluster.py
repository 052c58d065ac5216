"""Three nodes of one kind, each broker and controller, as processes on the loopback interface."""

import itertools
import shutil

from benchmarks.peers import requests
from benchmarks.peers.contestants import SERVER_JVM

from brokers import APACHE, archive
from kafka_tools import KafkaTools
from processes import PEERS, wait_until
from quorums import OURS
from replicated import ReplicatedCluster

NODES = (1, 2, 3)
REPLICAS = len(NODES)
MOST_CREATED = 9000  # partitions of one request: a controller writes at most 10,000 records for it
LIMIT_S = 300  # Apache Kafka needs minutes for thousands of partitions
# Kafka's defaults where the tests have others.
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
NUMBERS = itertools.count()


def kinds():
    """The kinds of nodes that are installed."""
    there = [name for name, release in APACHE.items() if (PEERS / f"kafka-{release}" / ".complete").exists()]
    return [OURS, *(there if shutil.which("java") else [])]


def jvm(kind):
    """A server's options, with the class archive that the tests use: six of them start on two cores."""
    return [*SERVER_JVM, f"-XX:SharedArchiveFile={archive(APACHE[kind])}", "-Xshare:auto", "-Xlog:disable"]


class Nodes(ReplicatedCluster):
    """Started by `Nodes(...)`. The rows of `benchmarks.peers` take it as one broker: its `bootstrap` is the node that
    leads the topics of `fresh_topic`, its CPU time that of all three."""

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

    def fresh_topic(self, partitions=1, leader=NODES[0], replicas=REPLICAS):
        """A new topic that one node leads; all replicas are in sync."""
        name = f"bench-{next(NUMBERS)}"
        self.create(name, [led_by(leader)[:replicas]] * partitions)
        wanted = {name: partitions}
        self.wait(lambda: requests.unserved(self.addresses[leader], wanted) == 0, f"{name} serves")
        return name

    def make(self, topics, partitions):
        """Creates topics with three replicas that the controller places; returns their names."""
        names = [f"many-{next(NUMBERS)}" for _ in range(topics)]
        each = MOST_CREATED // partitions
        for at in range(0, topics, each):
            requests.create(self.bootstrap, names[at : at + each], partitions, REPLICAS)
        return names

    def leaders(self, *names):
        """Node ids by (topic, partition), of the partitions that have a leader."""
        return {which: state.leader for which, state in self.partitions(*names).items() if state.leader >= 0}

    def bring_back(self, node_id, topic, count):
        """Starts a node again, and waits until it leads what it prefers."""
        self.members[node_id].start()
        self.wait_unfenced()
        self.wait_in_sync(topic, count=count)
        self.prefer([(topic, partition) for partition in range(count)])


def led_by(leader):
    """The replicas of a partition that this node prefers to lead."""
    at = NODES.index(leader)
    return [*NODES[at:], *NODES[:at]]


class Tools(dict):
    """Apache Kafka's tools by kind; each starts when it is first used."""

    def __missing__(self, name):
        self[name] = KafkaTools(name)
        return self[name]

    def close(self):
        for tools in self.values():
            tools.close()
