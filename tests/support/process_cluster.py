"""Clusters of real processes: controllers and brokers that each have a directory and an address, and that start and
stop independently.

`ProcessCluster(path).start()` formats three controllers as dynamic voters, and three brokers. All of them are our
nodes, unless the caller chooses other kinds. A `Load` creates topics and writes records in the background. In the end
it reads all acknowledged records.
"""

import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from asking import ask
from kafkacore.protocol.messages import CreateTopicsRequest, DescribeClusterRequest, DescribeQuorumRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.ports import free_ports
from processes import wait_until
from quorums import METADATA, OURS, Member, members_seen
from record_checks import first_difference

LIMIT_S = 60
TOPIC_EACH_S = 0.3
TOPIC_ALREADY_EXISTS = 36
# Election timeouts and sessions are short, so that a test waits only seconds for an election or the end of a session.
# They are not shorter, because six processes and their load share two cores.
TIMEOUTS = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}


class Process(Member):
    """A node in a process of its own, and its address."""

    def __init__(self, directory, node_id, kind, settings, address, network=None, jvm=None):
        super().__init__(directory, node_id, kind, settings, network, jvm)
        self.address = address

    def start(self, address=None):
        super().start(address or self.address)


def answered(address, request, version):
    """Returns the response of the node at this address, or None if the node does not respond."""
    try:
        return ask(address, request, version)
    except OSError:
        return None


class ProcessCluster:
    """By default, our controllers 1, 2, 3 and our brokers 101, 102, 103. `controllers`, `brokers` and `combined` (nodes
    with both roles) map other ids to kinds. With `network`, each node runs on a separate host. `tools` formats the
    directories of other kinds. `settings` has further settings for every node. `jvm` replaces the JVM options for a
    quick start.

    `addresses` maps each node id to the address for clients: the listener of a broker, or the only listener of a
    controller.
    """

    def __init__(
        self, path, network=None, controllers=None, brokers=None, tools=None, settings=None, combined=None, jvm=None
    ):
        path, self.tools, self._format_options = Path(path), tools, []
        controllers = combined or controllers or dict.fromkeys((1, 2, 3), OURS)
        brokers = dict.fromkeys((101, 102, 103), OURS) if brokers is None else brokers
        brokers = combined or brokers
        host = (lambda node_id: "127.0.0.1") if network is None else network.host
        ports = iter(free_ports(len(controllers) + len(brokers)))
        voters = {node_id: f"{host(node_id)}:{next(ports)}" for node_id in controllers}
        self.addresses = voters | {node_id: f"{host(node_id)}:{next(ports)}" for node_id in brokers}
        self.voters = voters
        shared = {
            "controller.quorum.bootstrap.servers": ",".join(voters.values()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            **TIMEOUTS,
            **(settings or {}),
        }

        def process(node_id, kind):
            listeners = {}
            if node_id in brokers or node_id not in voters:
                listeners["broker"] = f"PLAINTEXT://{self.addresses[node_id]}"
            if node_id in voters:
                listeners["controller"] = f"CONTROLLER://{voters[node_id]}"
            own = {"process.roles": ",".join(listeners), "listeners": ",".join(listeners.values())}
            if kind == OURS:
                own["metrics.port"] = "-1"
            namespace = network.add(node_id) if network is not None else None
            address = self.addresses[node_id]
            return Process(path / str(node_id), node_id, kind, own | shared, address, namespace, jvm)

        members = {node_id: process(node_id, kind) for node_id, kind in (controllers | brokers).items()}
        self.controllers = {node_id: members[node_id] for node_id in controllers}
        self.brokers = {node_id: members[node_id] for node_id in brokers}
        self.bootstrap = ",".join(self.addresses[node_id] for node_id in brokers)
        self._host, self._process = host, process

    def add_broker(self, node_id, kind):
        """Formats and starts one more broker."""
        self.addresses[node_id] = f"{self._host(node_id)}:{free_ports(1)[0]}"
        self.brokers[node_id] = self._process(node_id, kind)
        self.brokers[node_id].format(self.tools, *self._format_options, "--no-initial-controllers")
        self.brokers[node_id].start()

    def live_bootstrap(self):
        return ",".join(self.addresses[node_id] for node_id, member in self.brokers.items() if member.alive())

    def start(self, release=None):
        """Formats the directories for the features of `release` ("3.9"), by default for the features of each kind. Then
        starts all nodes."""
        options = self._format_options = ["--release-version", release] if release else []
        initial = ",".join(
            f"{node_id}@{address}:{Uuid(bytes([node_id]) * 16)}" for node_id, address in self.voters.items()
        )
        for node_id, member in self.members.items():
            votes = ["--initial-controllers", initial] if node_id in self.voters else ["--no-initial-controllers"]
            member.format(self.tools, *options, *votes)
            member.launch()
        for member in self.members.values():
            member.wait_ready(member.address)
        self.leader()
        self.wait_unfenced()
        return self

    def close(self):
        for member in self.members.values():
            if member.child is not None:
                member.kill()

    @property
    def members(self):
        return self.controllers | self.brokers

    def ask(self, node_id, request, version):
        """Returns the response of one node, or None if the node does not respond."""
        return answered(self.addresses[node_id], request, version)

    def wait(self, condition, what):
        """Waits at most LIMIT_S for the condition. If the time runs out, the error shows the state of every node."""
        return wait_until(condition, LIMIT_S, what, self.seen)

    def seen(self):
        brokers = "\n".join(member.seen() for member in self.brokers.values())
        return f"{members_seen(self.controllers, self.quorum)}\n{brokers}"

    def quorum(self, node_id):
        """Returns the metadata partition as one controller describes it, or None if this controller is not active."""
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequest.TopicData(
                    topic_name=METADATA, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
                )
            ]
        )
        answer = answered(self.voters[node_id], request, 2)
        if answer is None or answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        return answer.topics[0].partitions[0]

    def leader(self, among=None):
        """Waits until a controller says that it is the active one, and returns its node id. Asks only the controllers
        in `among`, if given."""

        def found():
            for node_id in among or self.controllers:
                alive = self.controllers[node_id].alive()
                if alive and (answer := self.quorum(node_id)) and answer.leader_id == node_id:
                    return node_id
            return None

        return self.wait(found, "an active controller")

    def follower(self):
        leader = self.leader()
        return next(node_id for node_id in self.controllers if node_id != leader)

    def unfenced(self, node_id):
        """Returns the unfenced brokers, as one broker shows them to clients."""
        answer = self.ask(node_id, DescribeClusterRequest(), 1)
        return {each.broker_id for each in answer.brokers} if answer else set()

    def wait_unfenced(self):
        """Waits until every broker shows all brokers to clients. A tool may ask any of them."""
        everyone = set(self.brokers)
        self.wait(lambda: all(self.unfenced(each) == everyone for each in self.brokers), "all brokers unfenced")

    def wait_gone(self, node_id):
        """Waits until no live broker shows this broker to clients."""
        live = [each for each, member in self.brokers.items() if member.alive()]
        self.wait(
            lambda: all(node_id not in (self.unfenced(each) or {node_id}) for each in live), f"no broker {node_id}"
        )

    def wait_equal(self):
        """Waits until every controller has all records below the current high watermark. Returns that high
        watermark."""
        end = self.quorum(self.leader()).high_watermark

        def caught_up():
            answer = self.quorum(self.leader())
            return answer and all(voter.log_end_offset >= end for voter in answer.current_voters)

        self.wait(caught_up, f"every controller at offset {end}")
        return end

    def assert_logs_agree(self, end):
        """Checks that all nodes have the same bytes for each metadata batch below `end`. A node may lack a batch."""
        seen = {}
        for node_id, member in self.members.items():
            for offset, data in member.metadata_batches().items():
                if offset < end:
                    other, expected = seen.setdefault(offset, (node_id, data))
                    assert data == expected, f"offset {offset} differs between {other} and {node_id}"
        assert len(seen) > 3, "the nodes have too few batches in common"


class Load:
    """Creates topics and writes with an idempotent producer on a thread, while a test causes faults: `with
    Load(cluster) as load`."""

    PARTITIONS = 3

    def __init__(self, cluster):
        self.cluster = cluster
        self.topics = []
        self.acknowledged = {}  # by (topic, partition): the values, in the order of their acknowledgement
        self.lost = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        self.wait_progress()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def count(self):
        return sum(map(len, self.acknowledged.values()))

    def wait_progress(self):
        """Waits until one more topic exists, and brokers have acknowledged more records since the call."""
        topics, records = len(self.topics), self.count()
        wait_until(
            lambda: len(self.topics) > topics and self.count() > records + 10, LIMIT_S, "new topics and new records"
        )

    def _run(self):
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": LIMIT_S * 1000,
                "topic.metadata.refresh.interval.ms": 1000,
                "socket.timeout.ms": 3000,
                "log_level": 0,
            }
        )
        written, next_topic = 0, time.monotonic()
        while not self._ends.is_set():
            if time.monotonic() >= next_topic:
                self._create(f"topic-{len(self.topics)}")
                next_topic = time.monotonic() + TOPIC_EACH_S
            for topic in self.topics[-4:]:
                partition = written % self.PARTITIONS
                producer.produce(topic, b"%d" % written, partition=partition, on_delivery=self._delivered)
                written += 1
            producer.poll(0.005)
        assert producer.flush(LIMIT_S) == 0, "the producer still has records that were neither acknowledged nor refused"

    def _delivered(self, error, message):
        if error is not None:
            self.lost.append(error)
        else:
            self.acknowledged.setdefault((message.topic(), message.partition()), []).append(message.value())

    def _create(self, name):
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=self.PARTITIONS, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        for node_id in self.cluster.brokers:
            answer = self.cluster.ask(node_id, request, 5)
            if answer is not None and answer.topics[0].error_code in (0, TOPIC_ALREADY_EXISTS):
                self.topics.append(name)
                return

    def assert_nothing_lost(self):
        """Checks that a consumer reads every acknowledged record once, in the order in which its partition received the
        records."""
        assert not self.lost, self.lost[0]
        found = read_to_end(self.cluster.bootstrap, list(self.acknowledged))
        differing = [
            f"{each}: {first_difference(found[each], expected)}; {len(set(expected) - set(found[each]))} are lost, and "
            f"{len(found[each]) - len(set(found[each]))} are repeated"
            for each, expected in self.acknowledged.items()
            if found[each] != expected
        ]
        assert not differing, "\n".join(differing)


def read_to_end(bootstrap, partitions):
    """Returns the values of each `(topic, partition)` in order, up to the end that the partition has at the call."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found, open_ones = {each: [] for each in partitions}, set(partitions)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in partitions])
        while open_ones:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"no message, and the end not reached of {open_ones}"
            where = message.topic(), message.partition()
            if message.error() is None:
                found[where].append(message.value())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                open_ones.discard(where)
    finally:
        consumer.close()
    return found
