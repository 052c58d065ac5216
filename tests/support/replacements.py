"""An operator replaces the brokers of a running cluster by those of the other kind, with the commands of
docs/migration.md, while a producer writes and a group reads.

`by_directory` starts the other program on each broker's own log directory. `by_reassignment` starts new brokers, moves
all partitions to them, and unregisters the old ones. Both leave the cluster with brokers of one kind.
"""

import json
import subprocess
import threading

from confluent_kafka import Consumer, TopicPartition

from brokers import APACHE
from process_cluster import LIMIT_S
from processes import ROOT, wait_until
from replicated import first_difference

NEW_IDS = 10  # the distance between the ids of a broker and of the one that replaces it
THROTTLE = 50_000_000  # bytes per second, far more than a test moves


class Operator:
    """Types commands: Apache Kafka's tools or ours, as `ours` says."""

    def __init__(self, cluster, tools, *, ours):
        self.cluster, self.tools, self.ours = cluster, tools, ours

    def type(self, tool, *arguments):
        """Lines of a command that has to succeed, of `kafka-TOOL.sh` or `kafkacore TOOL`."""
        asked = ["--bootstrap-server", self.cluster.live_bootstrap(), *arguments]
        if not self.ours:
            return self.tools.run(f"kafka-{tool}", *subcommand_first(tool, asked)).lines
        return run_ours(tool, *subcommand_first(tool, asked))

    def wait_replicated(self):
        """kafka-topics.sh, which has no twin of ours, names no partition that lacks a replica in its ISR."""
        command = ("kafka-topics", "--bootstrap-server", self.cluster.live_bootstrap(), "--describe")

        def replicated():
            found = self.tools.attempt(*command, "--under-replicated-partitions")
            return found.exit == 0 and not found.lines

        self.cluster.wait(replicated, "no under-replicated partition")

    def prefer(self):
        """The command ends when the controller has decided; brokers show it a little later."""
        self.type("leader-election", "--election-type", "preferred", "--all-topic-partitions")

        def lead():
            states = self.cluster.partitions().values()
            return states and all(state.leader == state.replicas[0] for state in states)

        self.cluster.wait(lead, "preferred leaders")


def subcommand_first(tool, arguments):
    """kafka-cluster.sh wants `unregister` before its options."""
    if tool != "cluster":
        return arguments
    endpoint, (subcommand, *rest) = arguments[:2], arguments[2:]
    return [subcommand, *endpoint, *rest]


def run_ours(*arguments):
    command = [ROOT / ".venv" / "bin" / "kafkacore", *arguments]
    found = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, f"{arguments}: {found.stdout}\n{found.stderr}"
    return found.stdout.splitlines()


def by_directory(cluster, operator, kind, writes):
    """Each broker in turn stops, and a broker of `kind` goes on with its id and its directory."""
    for member in cluster.brokers.values():
        operator.wait_replicated()
        assert member.stop() in (0, 143), member.seen()  # 143: a Java process that SIGTERM ended in order
        member.kind = kind
        if member.ours:
            found = run_ours("storage", "info", "-c", member.properties)
            assert not [line for line in found if "problem" in line.lower()], found
        member.start()
        cluster.wait_unfenced()
        writes.wait_progress()
    operator.wait_replicated()
    operator.prefer()


def by_reassignment(cluster, operator, kind, writes, path):
    """New brokers start, take all partitions over, and the old ones leave."""
    old = list(cluster.brokers)
    new = [node_id + NEW_IDS for node_id in old]
    for node_id in new:
        cluster.add_broker(node_id, kind)
    cluster.wait_unfenced()
    topics, plan = path / "topics.json", path / "plan.json"
    names = sorted({topic for topic, _ in cluster.partitions()})
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name} for name in names]}))
    ids = ",".join(map(str, new))
    proposed = operator.type(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", ids
    )
    plan.write_text(proposed[proposed.index("Proposed partition reassignment configuration") + 1])
    following = ("--reassignment-json-file", plan)
    operator.type("reassign-partitions", "--execute", *following, "--throttle", THROTTLE)
    writes.wait_progress()

    def done():
        lines = operator.type("reassign-partitions", "--verify", *following)
        return not [line for line in lines if "still in progress" in line]

    cluster.wait(done, "the end of the plan")
    operator.wait_replicated()
    operator.prefer()
    for node_id in old:
        cluster.brokers[node_id].stop()
    for node_id in old:
        cluster.brokers.pop(node_id)
        cluster.wait(lambda gone=node_id: gone not in cluster.unfenced(), f"broker {node_id} gone")
        operator.type("cluster", "unregister", "--id", node_id)
    writes.wait_progress()


class GroupReads:
    """A member of a group reads topics and commits on a thread: `with GroupReads(cluster, "readers", ["t"]) as reads`.
    A rebalance may show it again what it had not committed, so `values` has what it saw for the first time."""

    def __init__(self, cluster, group, topics):
        self.cluster, self.values = cluster, {}
        self._seen = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                "enable.auto.commit": True, "auto.commit.interval.ms": 200, "session.timeout.ms": 10_000,
                "topic.metadata.refresh.interval.ms": 1000, "reconnect.backoff.max.ms": 500, "log_level": 0,
            }
        )  # fmt: skip
        self._consumer.subscribe(topics)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def _run(self):
        while not self._ends.is_set():
            for message in self._consumer.consume(500, 0.1):
                where = message.topic(), message.partition(), message.offset()
                if message.error() is None and where not in self._seen:
                    self._seen.add(where)
                    self.values.setdefault(where[:2], []).append(message.value())
        self._consumer.close()

    def wait_read(self, writes):
        """The group reads each acknowledged record, and no other, in order."""
        expected = {each: values for each, values in writes.acknowledged.items() if values}

        def seen():
            differ = next(each for each in expected if self.values.get(each) != expected[each])
            difference = first_difference(self.values.get(differ, []), expected[differ])
            return f"{differ}: {difference}\n{self.cluster.seen()}"

        wait_until(lambda: self.values == expected, LIMIT_S, "every record read by the group", seen)


def committed(cluster, group, which):
    """The offsets that a group has committed, by (topic, partition)."""
    consumer = Consumer({"bootstrap.servers": cluster.live_bootstrap(), "group.id": group, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(*each) for each in which], LIMIT_S)
        return {(each.topic, each.partition): each.offset for each in found}
    finally:
        consumer.close()


def release_of(name):
    """The feature release of a kind: "4.3" of "apache-4.3"."""
    return ".".join(APACHE[name].split(".")[:2])
