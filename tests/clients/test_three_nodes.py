"""Kafka's verifiable clients, Streams and Connect, with three nodes and three replicas. The tests kill nodes with
SIGKILL."""

import json
import threading

import pytest
from confluent_kafka import Producer

from brokers import java
from connect_worker import PATIENCE_S, Worker
from processes import Child, wait_until
from replicated import LIMIT_S
from three_nodes import IDS, three_nodes

pytestmark = pytest.mark.timeout(240)
PARTITIONS = 3
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",  # the tests elect preferred leaders themselves
}
WORDS = ["tea", "rice", "salt"]
LINES = [f"line {number}" for number in range(400)]


@pytest.fixture(scope="module")
def cluster(request, tmp_path_factory):
    with three_nodes(request.config, tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, topic_name):
    cluster.create(topic_name, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    return topic_name


def without_leader(cluster, topic, meanwhile):
    """Sends SIGKILL to the leader of partition 0, and calls `meanwhile` with its node id. Then starts the node again,
    which catches up."""
    victim = cluster.state(topic, 0).leader
    member = cluster.brokers[victim]
    member.kill()
    cluster.wait_leader(topic, 0, *(node_id for node_id in IDS if node_id != victim))
    meanwhile(victim)
    member.start()
    cluster.wait_unfenced()
    cluster.wait_in_sync(topic)


def running(tools, tool, directory, *arguments):
    """Runs a tool in a separate process until the end of the block."""
    command = [*java(tools.release, "128m"), tools.main(tool), *arguments]
    return Child(["setpriv", "--pdeathsig", "KILL", "--", *command], directory / f"{tool}.log")


class Verifiable:
    """One of Kafka's verifiable clients in a separate process. It prints a JSON object for each event."""

    def __init__(self, *command):
        self.child = running(*command)

    def events(self, name):
        """Returns all events with this name so far. The output also contains log lines of the client."""
        lines = (line for line in self.child.log.read_text().splitlines() if line.startswith("{") and line[-1] == "}")
        return [event for event in map(json.loads, lines) if event["name"] == name]


def records(events):
    return {(each["partition"], each["offset"]): each["value"] for each in events}


@pytest.mark.parametrize("tools", ["apache-3.9"], indirect=True)
def test_verifiable_consumer_gets_what_the_verifiable_producer_got_acknowledged(cluster, topic, tools, tmp_path):
    server = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    reading = ("--group-id", topic, "--reset-policy", "earliest", "--verbose")
    reader = Verifiable(tools, "kafka-verifiable-consumer", tmp_path, *server, *reading)
    writer = Verifiable(tools, "kafka-verifiable-producer", tmp_path, *server, "--acks", -1, "--throughput", 500)

    def written():
        return records(writer.events("producer_send_success"))

    def more():
        before = len(written())
        wait_until(lambda: len(written()) > before + 500, LIMIT_S, "more acknowledged records", writer.child.tail)

    def under_replicated():
        describe = ("--bootstrap-server", cluster.live_bootstrap(), "--describe", "--topic", topic)
        return tools.run("kafka-topics", *describe, "--under-replicated-partitions").lines

    def meanwhile(victim):
        more()
        lines = [line.split("\t") for line in under_replicated()]
        assert [line[2] for line in lines] == [f"Partition: {partition}" for partition in range(PARTITIONS)]
        for line in lines:
            in_sync = next(field for field in line if field.startswith("Isr: ")).removeprefix("Isr: ")
            assert set(map(int, in_sync.split(","))) == set(IDS) - {victim}

    try:
        more()
        without_leader(cluster, topic, meanwhile)
        assert under_replicated() == []
        more()
        writer.child.terminate()
        acknowledged = written()

        def consumed():
            found = records(reader.events("record_data"))
            return acknowledged.keys() <= found.keys() and found

        found = wait_until(consumed, LIMIT_S, f"{len(acknowledged)} records consumed", reader.child.tail)
        assert {place: found[place] for place in acknowledged} == acknowledged
    finally:
        writer.child.kill()
        reader.child.kill()


def say(cluster, topic, words):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number, word in enumerate(words):
        producer.produce(topic, word, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0


def test_preferred_replica_leads_again_when_kafka_leader_election_asks_for_it(cluster, topic, tools):
    def elect():
        asked = ("--election-type", "preferred", "--topic", topic, "--partition", 0)
        return tools.run("kafka-leader-election", "--bootstrap-server", cluster.bootstrap, *asked).lines

    without_leader(cluster, topic, lambda victim: None)
    assert cluster.state(topic, 0).leader != 1
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in elect()
    cluster.wait_leader(topic, 0, 1)
    assert f"Valid replica already elected for partitions {topic}-0" in elect()


@pytest.mark.parametrize("tools", ["apache-3.9"], indirect=True)
def test_replica_verification_finds_the_same_records_at_every_replica(cluster, topic, tools, tmp_path):
    say(cluster, topic, WORDS * 100)
    asked = ("--broker-list", cluster.bootstrap, "--topics-include", topic, "--report-interval-ms", 100, "--time", -2)
    tool = running(tools, "kafka-replica-verification", tmp_path, *asked)
    try:
        end = "max lag is 0 for partition "
        offset = f"at offset {len(WORDS) * 100 // PARTITIONS} among {PARTITIONS} partitions"
        tool.wait_ready(
            lambda: [line for line in tool.log.read_text().splitlines() if end in line and offset in line],
            LIMIT_S, "a verdict on all records",
        )  # fmt: skip
        lines = tool.log.read_text()
        assert "unmatched checksum" not in lines
        assert "doesn't match" not in lines
    finally:
        tool.kill()


@pytest.mark.parametrize("tools", ["apache-4.3"], indirect=True)
def test_streams_program_counts_everything_when_a_node_is_killed(cluster, topic, tools, tmp_path):
    counts = f"{topic}-counts"
    cluster.create(counts, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    outcomes = []

    def count():
        outcomes.append(
            tools.attempt(
                "streams-word-count", topic, counts, 600,
                f"bootstrap.servers={cluster.bootstrap}", f"application.id={topic}", f"state.dir={tmp_path}",
                "replication.factor=3", "commit.interval.ms=100", "auto.offset.reset=earliest",
                "session.timeout.ms=6000", "heartbeat.interval.ms=1000",
            )
        )  # fmt: skip

    program = threading.Thread(target=count)
    say(cluster, topic, WORDS * 100)
    program.start()
    try:
        wait_until(lambda: outcomes or counted(cluster, counts), LIMIT_S, "first counts", lambda: str(outcomes))
        without_leader(cluster, topic, lambda victim: say(cluster, topic, WORDS * 50))
        say(cluster, topic, WORDS * 50)
    finally:
        program.join()
    [outcome] = outcomes
    assert outcome.exit == 0, outcome
    found = dict(pair.split("=") for pair in outcome.lines[-1].strip("{}").split(", "))
    # The guarantee is at-least-once, so Streams counts uncommitted records again.
    assert found.keys() == set(WORDS)
    assert all(int(count) >= 200 for count in found.values()), found
    internal = [state for (name, _), state in cluster.partitions().items() if name.startswith(f"{topic}-counts-")]
    assert internal
    assert {len(state.replicas) for state in internal} == {3}


def counted(cluster, counts):
    """Returns the counts that the program has written. There are so few words that some partitions have no count."""
    states = cluster.partitions(counts)
    return [value for (_, index), state in states.items() for value in cluster.read(state.leader, counts, index)]


def test_connect_carries_every_line_when_a_node_is_killed(cluster, topic, tmp_path):
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    sink.touch()
    one = topic.replace(".", "-") + "-one"  # lines stay in order in a single partition
    cluster.create(one, [[1, 2, 3]])
    worker = Worker(cluster.bootstrap, topic, tmp_path, replicas=3)

    def carried():
        # The sink may write a line twice, because it delivers at least once.
        return list(dict.fromkeys(sink.read_text().splitlines()))

    def carry(count):
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in LINES[len(source.read_text().splitlines()) : count])
        wait_until(lambda: carried() == LINES[:count], PATIENCE_S, f"{count} lines in the sink's file")

    try:
        source.touch()
        worker.settle("source", **{"connector.class": "FileStreamSource", "file": str(source), "topic": one})
        worker.settle("sink", **{"connector.class": "FileStreamSink", "file": str(sink), "topics": one})
        carry(200)
        without_leader(cluster, one, lambda victim: carry(300))
        carry(400)
    finally:
        worker.child.terminate()
