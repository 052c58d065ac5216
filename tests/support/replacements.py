"""Replaces the brokers of a running cluster by brokers of the other kind, while a producer writes and a group reads.
Uses the commands of docs/migration.md.

`by_directory` starts the other program in the log directory of each broker. `by_reassignment` starts new brokers, moves
all partitions to them, and unregisters the old brokers. Both leave a cluster in which all brokers have the same kind.
"""

import json
import subprocess
import threading

from confluent_kafka import Consumer, TopicPartition

from brokers import APACHE
from process_cluster import LIMIT_S
from processes import ROOT, wait_until
from record_checks import first_difference

NEW_IDS = 10  # the id of a new broker, minus the id of the broker that it replaces
THROTTLE = 50_000_000  # bytes per second, far more than a test moves


class Operator:
    """Runs the commands of Apache Kafka's tools, or of ours if `ours`."""

    def __init__(self, cluster, tools, *, ours):
        self.cluster, self.tools, self.ours = cluster, tools, ours

    def type(self, tool, *arguments):
        """Runs `kafka-TOOL.sh` or `kafkacore TOOL`, which must succeed. Returns the lines of the output."""
        asked = ["--bootstrap-server", self.cluster.live_bootstrap(), *arguments]
        if not self.ours:
            return self.tools.run(f"kafka-{tool}", *subcommand_first(tool, asked)).lines
        return run_ours(tool, *subcommand_first(tool, asked))

    def wait_replicated(self):
        """Waits until kafka-topics.sh lists no under-replicated partition. kafkacore has no such tool."""
        command = ("kafka-topics", "--bootstrap-server", self.cluster.live_bootstrap(), "--describe")

        def replicated():
            found = self.tools.attempt(*command, "--under-replicated-partitions")
            return found.exit == 0 and not found.lines

        self.cluster.wait(replicated, "the replication of all partitions")

    def prefer(self):
        """Elects the preferred leaders, and waits until brokers report them. The command itself ends when the
        controller has decided, which is a little earlier."""
        self.type("leader-election", "--election-type", "preferred", "--all-topic-partitions")

        def lead():
            states = self.cluster.partitions().values()
            return states and all(state.leader == state.replicas[0] for state in states)

        self.cluster.wait(lead, "preferred leaders")


def subcommand_first(tool, arguments):
    """Puts the subcommand before the options, because kafka-cluster.sh requires this for `unregister`."""
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
    """Stops the brokers one after another. In place of each, starts a broker of `kind` with the same id and
    directory."""
    for member in cluster.brokers.values():
        operator.wait_replicated()
        assert member.stop() in (0, 143), member.seen()  # 143: SIGTERM has stopped a Java process in order
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
    """Starts new brokers, moves all partitions to them, and removes the old brokers."""
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

    cluster.wait(done, "the end of the reassignment")
    operator.wait_replicated()
    operator.prefer()
    for node_id in old:
        cluster.brokers[node_id].stop()
    for node_id in old:
        cluster.brokers.pop(node_id)
        cluster.wait_gone(node_id)
        operator.type("cluster", "unregister", "--id", node_id)
    writes.wait_progress()


class GroupReads:
    """A member of a group that reads topics and commits on a thread: `with GroupReads(cluster, "readers", ["t"]) as
    reads`. After a rebalance the member can read uncommitted records a second time. `values` contains each record only
    once."""

    def __init__(self, cluster, group, topics):
        self.cluster, self.group, self.values = cluster, group, {}
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
        """Waits until the group has read what the leaders serve, in order, and nothing else. `assert_whole` compares
        the leaders' records with the acknowledged ones."""
        expected = {
            each: self.cluster.read(self.cluster.state(*each).leader, *each, at_least=len(values))
            for each, values in writes.acknowledged.items()
            if values
        }

        def seen():
            differ = next(each for each in expected if self.values.get(each) != expected[each])
            difference = first_difference(self.values.get(differ, []), expected[differ])
            return f"{differ}: {difference}\n{self.cluster.seen()}"

        wait_until(lambda: self.values == expected, LIMIT_S, "every record read by the group", seen)

    def wait_committed(self):
        """Waits until the group has committed all that it has read. After an election, librdkafka checks its position.
        It may then go back to the position that it had when the check began, and read and commit the next records
        again."""
        expected = {each: len(values) for each, values in self.values.items()}
        partitions = [TopicPartition(*each) for each in expected]
        consumer = Consumer(
            {"bootstrap.servers": self.cluster.live_bootstrap(), "group.id": self.group, "log_level": 0}
        )

        def committed():
            found = consumer.committed(partitions, LIMIT_S)
            return {(each.topic, each.partition): each.offset for each in found}

        try:
            wait_until(lambda: committed() == expected, LIMIT_S, f"{expected} committed", lambda: str(committed()))
        finally:
            consumer.close()


def release_of(name):
    """Returns the feature release of a kind, for example "4.3" for "apache-4.3"."""
    return ".".join(APACHE[name].split(".")[:2])
