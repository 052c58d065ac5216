"""A node of two log directories in turns with Apache Kafka 4.3: what lies where, moves, and half-done moves."""

import shutil
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import APACHE, ApacheKafka
from kafka_tools import KafkaTools
from processes import PEERS, ROOT, Child, need, wait_until

START_TIMEOUT_S = 30
PARTITIONS = 4
pytestmark = pytest.mark.timeout(180)


class TwoDirectories(ApacheKafka):
    child = None

    def settings(self, overrides):
        return {**super().settings(overrides), "log.dirs": f"{self.directory}/a,{self.directory}/b"}

    def start(self):
        """Not before somebody is asked to."""

    def give_to_apache(self):
        super().start()

    def give_to_us(self):
        self.child = Child([ROOT / ".venv" / "bin" / "kafkacore", "start", self.properties], self.log)
        self.child.wait_ready(self.serves, START_TIMEOUT_S, "kafkacore ready")


@pytest.fixture(scope="module")
def tools():
    need((PEERS / f"kafka-{APACHE['apache-4.3']}" / ".complete").exists(), "make peers: Apache Kafka's jars")
    made = KafkaTools("apache-4.3")
    yield made
    made.close()


@pytest.fixture
def node(tmp_path, tools):
    made = TwoDirectories("apache-4.3", tmp_path)
    yield made
    if made.child is not None:
        made.stop()


def create(node, topic):
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(20)


def produce(node, topic, count):
    """So many records to each partition, all acknowledged."""
    failures = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(
                topic, b"%d" % number, partition=partition,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )  # fmt: skip
    assert (producer.flush(20), failures) == (0, [])


def counts(node, topic):
    """How many records a consumer finds in each partition."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none", "enable.auto.commit": False,
                         "enable.partition.eof": True})  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found, ended = dict.fromkeys(range(PARTITIONS), 0), set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None, f"only {found} came"
        if message.error():
            ended.add(message.partition())
        else:
            found[message.partition()] += 1
    consumer.close()
    return [found[partition] for partition in range(PARTITIONS)]


def described(tools, node):
    """What an administrator sees, but for the sizes of the file systems: partition to directory, size and lag."""
    lines = [line.split("\t") for line in tools.run("java-log-dirs", "describe", node.bootstrap, 1).lines]
    directories = {line[0]: line[2:] for line in lines if line[1] == "-"}
    assert directories == {f"{node.directory}/{name}": ["true", "none"] for name in "ab"}
    assert [line for line in lines if line[-1] == "true"] == []
    return {line[1]: (line[0].rpartition("/")[2], *line[2:4]) for line in lines if line[1] != "-"}


def move(tools, node, topic, partition):
    name = other(in_place(tools, node, f"{topic}-{partition}"))
    tools.run("java-log-dirs", "alter", node.bootstrap, 1, topic, partition, f"{node.directory}/{name}")
    wait_until(lambda: in_place(tools, node, f"{topic}-{partition}") == name)


def in_place(tools, node, partition):
    """Its directory once it is in no other."""
    lines = [line.split("\t") for line in tools.run("java-log-dirs", "describe", node.bootstrap, 1).lines]
    found = [line[0].rpartition("/")[2] for line in lines if line[1] == partition]
    return found[0] if len(found) == 1 else None


def other(name):
    return "b" if name == "a" else "a"


def leave_half_moved(node, partition, name):
    """As a kill during a move leaves it: the future log is there, and behind."""
    source = node.directory / name / partition
    future = node.directory / other(name) / f"{partition}.{uuid.uuid4().hex}-future"
    shutil.copytree(source, future)


def go_on(tools, node, topic, told, half_moved):
    """Everything is as the other one told it, but for what was on its way, and is there now. Then more of it all, and
    another move; what is told in the end."""
    wait_until(lambda: in_place(tools, node, half_moved) == other(told[half_moved][0]))
    found = described(tools, node)
    assert found | {half_moved: None} == told | {half_moved: None}
    produce(node, "theirs", 50)
    create(node, topic)
    produce(node, topic, 50)
    move(tools, node, "theirs", 0)
    return described(tools, node)


def test_a_node_of_two_directories_goes_to_us_and_back_to_apache_kafka(node, tools):
    node.give_to_apache()
    create(node, "theirs")
    produce(node, "theirs", 50)
    move(tools, node, "theirs", 1)
    told = described(tools, node)
    assert sorted({name for name, *_ in told.values()}) == ["a", "b"]
    node.stop()
    leave_half_moved(node, "theirs-2", told["theirs-2"][0])

    node.give_to_us()
    told = go_on(tools, node, "ours", told, "theirs-2")
    assert counts(node, "theirs") == [100] * PARTITIONS
    node.stop()
    leave_half_moved(node, "ours-3", told["ours-3"][0])

    node.give_to_apache()
    told = go_on(tools, node, "theirs-again", told, "ours-3")
    node.kill()

    node.give_to_us()
    assert described(tools, node) == told
    assert counts(node, "theirs") == [150] * PARTITIONS
    assert counts(node, "ours") == counts(node, "theirs-again") == [50] * PARTITIONS
