"""Clusters in ZooKeeper mode: our brokers and brokers of Apache Kafka 3.9 as processes, on one real ZooKeeper.

    with ZooKeeperCluster(tmp_path, {1: "apache-3.9", 2: OURS}) as cluster:
        cluster.brokers[2].kill()

`first` is the id of the broker that starts first and so becomes the controller. By default it is the first id in the
mapping.
"""

import threading
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from asking import ask
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.runtime.ports import free_ports
from processes import accepts, wait_until
from quorums import OURS, Member
from zookeepers import ZooKeeperEnsemble, ZooKeeperServer

APACHE = "apache-3.9"
COUNT = 200  # the number of records that `values` makes
LIMIT_S = 60
CONTROLLER_LISTENERS = "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT"
# Sessions are short, so that a test waits only seconds for a session to end.
SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.leader.rebalance.enable": "false",
}


class ZooKeeperBroker(Member):
    """A broker in a process of its own, and the address for its clients."""

    def __init__(self, directory, node_id, kind, settings, address, network=None, jvm=None):
        super().__init__(directory, node_id, kind, settings, network, jvm)
        self.address = address

    def start(self):
        super().start(self.address)

    def wait_ready(self, address=None):
        self.child.wait_ready(lambda: accepts(self.address), self.start_limit_s, f"{self.kind} {self.node_id}")


class ZooKeeperCluster:
    """A cluster in ZooKeeper mode. `control` has the ids of the brokers with a control-plane listener (KIP-291).
    `servers` is the number of ZooKeeper servers, and `zookeeper` has their options. `jvm` replaces the JVM options for
    a quick start of Apache Kafka's brokers. With `network` (Namespaces), each broker runs on a separate host.
    `places` among ZooKeeper's options then puts the servers into the network."""

    def __init__(
        self, path, kinds, settings=None, control=(), first=None, servers=1, *, zookeeper=None, jvm=None, network=None
    ):  # fmt: skip
        path, options = Path(path), zookeeper or {}
        where = path / "zookeeper"
        self._jvm, self._network = jvm, network
        self.zookeeper = (
            ZooKeeperServer(where, **options) if servers == 1 else ZooKeeperEnsemble(where, servers, **options)
        )
        ports = iter(free_ports(2 * len(kinds)))
        host = (lambda node_id: "127.0.0.1") if network is None else network.host
        self.addresses = {node_id: f"{host(node_id)}:{next(ports)}" for node_id in kinds}
        self.control_addresses = {node_id: f"{host(node_id)}:{next(ports)}" for node_id in kinds}
        self.brokers = {
            node_id: self._broker(path, node_id, kind, settings or {}, node_id in control)
            for node_id, kind in kinds.items()
        }
        self._first = next(iter(kinds)) if first is None else first

    def _broker(self, path, node_id, kind, settings, has_control):
        listeners = f"PLAINTEXT://{self.addresses[node_id]}"
        own = {"broker.id": node_id, "zookeeper.connect": f"{self.zookeeper.connect}/kafka"}
        if has_control:
            listeners += f",CONTROL://{self.control_addresses[node_id]}"
            own |= {
                "control.plane.listener.name": "CONTROL",
                "inter.broker.listener.name": "PLAINTEXT",
                "listener.security.protocol.map": CONTROLLER_LISTENERS,
            }
        own |= {"listeners": listeners}
        if kind == OURS:
            own["metrics.port"] = "-1"
        settings = own | SETTINGS | settings
        namespace = self._network.add(node_id) if self._network is not None else None
        where = path / str(node_id)
        return ZooKeeperBroker(where, node_id, kind, settings, self.addresses[node_id], namespace, self._jvm)

    @property
    def bootstrap(self):
        return ",".join(self.addresses[node_id] for node_id, member in self.brokers.items() if member.alive())

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        self.brokers[self._first].start()
        self.wait(lambda: self.controller() == self._first, "the first broker is the controller")
        others = [member for node_id, member in self.brokers.items() if node_id != self._first]
        for member in others:
            member.launch()
        for member in others:
            member.wait_ready()
        self.wait_members(self.brokers)
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for member in self.brokers.values():
            if member.child is not None:
                member.kill()
        self.zookeeper.kill()

    def wait(self, condition, what):
        return wait_until(condition, LIMIT_S, what, self.seen)

    def seen(self):
        return "\n".join(member.seen() for member in self.brokers.values())

    def restart_with(self, node_id, lines):
        """Restarts a broker after an orderly stop. `lines` overrides its settings."""
        member = self.brokers[node_id]
        member.stop()
        kept = [line for line in member.properties.read_text().splitlines() if line.partition("=")[0] not in lines]
        member.properties.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in lines.items())]) + "\n")
        member.start()
        self.wait_members(self.brokers)

    # --- the brokers' answers ---

    def metadata(self, node_id, *topics):
        """Returns the Metadata response of one broker, or None if the broker does not answer. Without topics, it asks
        for all topics."""
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics] or None
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        try:
            return ask(self.addresses[node_id], request, 12)
        except OSError:
            return None

    def live(self):
        return [node_id for node_id, member in self.brokers.items() if member.alive()]

    def controller(self):
        """Returns the controller if all live brokers name the same one, else None."""
        named = set()
        for node_id in self.live():
            answer = self.metadata(node_id)
            named.add(None if answer is None else answer.controller_id)
        return named.pop() if len(named) == 1 else None

    def wait_members(self, members):
        """Waits until every live broker knows exactly these brokers."""

        def known():
            answers = [self.metadata(node_id) for node_id in self.live()]
            return all(
                answer is not None and {each.node_id for each in answer.brokers} == set(members) for answer in answers
            )

        self.wait(known, f"all live brokers know {sorted(members)}")

    def partition(self, topic, index, node_id=None):
        """Returns one partition as a live broker shows it, or None if no broker shows it."""
        answer = self.metadata(self.live()[0] if node_id is None else node_id, topic)
        found = answer.topics[0].partitions if answer is not None and not answer.topics[0].error_code else []
        return next((each for each in found if each.partition_index == index), None)

    def wait_leader(self, topic, index, *leaders):
        def leads():
            seen = [self.partition(topic, index, node_id) for node_id in self.live()]
            return all(each is not None and each.leader_id in leaders for each in seen)

        self.wait(leads, f"{topic}-{index} is led by one of {leaders}")

    def wait_isr(self, topic, index, *members):
        def in_sync():
            seen = [self.partition(topic, index, node_id) for node_id in self.live()]
            return all(each is not None and set(each.isr_nodes) == set(members) for each in seen)

        self.wait(in_sync, f"the ISR of {topic}-{index} is {members}")


def produce(cluster, topic, partition, values, bootstrap=None, idempotent=True):
    """Writes with acks=all. Asserts that every record was acknowledged."""
    failed = []
    producer = Producer({
        "bootstrap.servers": bootstrap or cluster.bootstrap, "acks": "all", "enable.idempotence": idempotent,
        "message.timeout.ms": 40_000,
    })  # fmt: skip
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(45) == 0
    assert not failed


def consume(cluster, topic, partition, count):
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-{partition}", "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None, f"the consumer got only {len(found)} of {count} records"
            assert message.error() is None, message.error()
            found.append(message.value())
        return found
    finally:
        consumer.close()


class Load:
    """Writes one record after another with acks=all until the block ends. Asserts that every record was
    acknowledged."""

    def __init__(self, cluster, topic):
        self.cluster, self.topic = cluster, topic
        self.acknowledged, self.failed, self.count = [], [], 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        producer = Producer({
            "bootstrap.servers": ",".join(self.cluster.addresses.values()), "acks": "all", "enable.idempotence": True,
            "message.timeout.ms": 120_000, "linger.ms": 5,
        })  # fmt: skip
        while not self._over.is_set():
            producer.produce(self.topic, b"%d" % self.count, partition=0, on_delivery=self._delivered)
            self.count += 1
            producer.poll(0.02)
        producer.flush(120)

    def _delivered(self, error, message):
        if error:
            self.failed.append(error)
        else:
            self.acknowledged.append(message.value())


def values(name, count=COUNT):
    return [f"{name}-{number}".encode() for number in range(count)]
