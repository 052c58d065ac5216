"""Starts three brokers of one kind in ZooKeeper mode, as processes on the loopback interface, and one ZooKeeper server,
which syncs each transaction to the disk."""

import contextlib
import struct
import threading
import time

from benchmarks.peers.contestants import SERVER_JVM

from brokers import APACHE, archive
from kafkacore.protocol import apis, messages
from processes import wait_until
from quorums import OURS
from wire import call
from zookeeper_cluster import ZooKeeperCluster

CONTROLLER, VICTIM, OTHER = IDS = (1, 2, 3)
LIMIT_S = 300  # Apache Kafka needs minutes for thousands of partitions
PREFERRED = 0
MOST_CREATED = 5000  # the most partitions that one request creates
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.enable": "true",
    "auto.create.topics.enable": "false",
}
ZOOKEEPER_JVM = ("-Xmx512m", "-XX:+UseG1GC")


class Trio(ZooKeeperCluster):
    """`with Trio(path, kind) as trio` starts the cluster. Broker CONTROLLER starts first and is the controller."""

    def __init__(self, path, kind, *, durable=True):
        jvm, zookeeper = None, {"durable": durable, "jvm": ZOOKEEPER_JVM}
        if kind != OURS:
            jvm = [*SERVER_JVM, f"-XX:SharedArchiveFile={archive(APACHE[kind])}", "-Xshare:auto", "-Xlog:disable"]
        super().__init__(path, dict.fromkeys(IDS, kind), SETTINGS, zookeeper=zookeeper, jvm=jvm)
        for member in self.brokers.values():
            member.start_limit_s = LIMIT_S

    def wait(self, condition, what):
        return wait_until(condition, LIMIT_S, what, self.seen)

    def ask(self, node_id, request, version):
        """Returns the response of a broker. Raises OSError if it does not respond."""
        encoded = apis.encode_request(version, 1, "bench", request)
        body = call(self.addresses[node_id], struct.pack(">i", len(encoded)) + encoded, LIMIT_S)
        kind = getattr(messages, type(request).__name__.removesuffix("Request") + "Response")
        return kind.decode(body[len(apis.response_header(request.API_KEY, version, 1)) - 4 :], version)

    # --- topics ---

    def create(self, node_id, topics):
        """Asks one broker to create topics. Returns their error codes."""
        request = messages.CreateTopicsRequest(topics=topics, timeout_ms=LIMIT_S * 1000)
        return [each.error_code for each in self.ask(node_id, request, 5).topics]

    def make(self, names, partitions):
        """Creates topics with three replicas that the controller's broker places."""
        made = messages.CreateTopicsRequest.CreatableTopic
        topics = [made(name=name, num_partitions=partitions, replication_factor=len(IDS)) for name in names]
        checked(self.create(CONTROLLER, topics))

    def make_led(self, name, partitions):
        """Creates a topic whose partitions the victim leads. In the lists of replicas, the other two brokers alternate
        as the second replica, so each of them becomes the next leader of one half of the partitions."""
        orders = ([VICTIM, CONTROLLER, OTHER], [VICTIM, OTHER, CONTROLLER])
        replicas = [orders[index % 2] for index in range(partitions)]
        first, *others = (replicas[at : at + MOST_CREATED] for at in range(0, partitions, MOST_CREATED))
        made = messages.CreateTopicsRequest
        assigned = [made.CreatableReplicaAssignment(partition_index=at, broker_ids=ids) for at, ids in enumerate(first)]
        topic = made.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned)
        checked(self.create(CONTROLLER, [topic]))
        count = len(first)
        for more in others:
            count += len(more)
            self.wait_whole([name])
            self.expand(name, count, more)
        self.wait_whole([name])
        self.wait(lambda: len(self.leaders(name)) == partitions, f"{partitions} partitions of {name}")

    def expand(self, name, count, replicas):
        made = messages.CreatePartitionsRequest
        assigned = [made.CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
        topic = made.CreatePartitionsTopic(name=name, count=count, assignments=assigned)
        request = made(topics=[topic], timeout_ms=LIMIT_S * 1000)
        checked([each.error_code for each in self.ask(CONTROLLER, request, 3).results])

    def partitions(self, *names):
        """Returns the partitions by (topic, number), as the first live broker describes them."""
        answer = self.metadata(self.live()[0], *names)
        found = answer.topics if answer is not None else []
        return {(topic.name, each.partition_index): each for topic in found for each in topic.partitions}

    def leaders(self, *names):
        return {which: each.leader_id for which, each in self.partitions(*names).items() if each.leader_id >= 0}

    def wait_whole(self, names):
        """Waits until all replicas of these topics are in sync."""

        def whole():
            found = self.partitions(*names)
            return found and all(len(each.isr_nodes) == len(each.replica_nodes) for each in found.values())

        self.wait(whole, f"all replicas of {len(names)} topics in sync")

    def elect(self, which=None):
        """Makes the preferred replicas leaders of the partitions in `which`, a list of (topic, partition), or of all
        partitions."""
        asked = None
        if which is not None:
            made, topics = messages.ElectLeadersRequest.TopicPartitions, {}
            for topic, index in which:
                topics.setdefault(topic, made(topic=topic, partitions=[])).partitions.append(index)
            asked = list(topics.values())
        request = messages.ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=asked, timeout_ms=LIMIT_S * 1000
        )
        for node_id in self.live():
            with contextlib.suppress(OSError):
                self.ask(node_id, request, 2)

    def bring_back(self, node_id, topic):
        """Starts a broker again and makes it the leader of the partitions whose first replica it is."""
        self.brokers[node_id].start()
        self.wait_members(IDS)
        self.wait_whole([topic])
        self.elect()
        self.wait(lambda: set(self.leaders(topic).values()) == {node_id}, f"{topic} led by broker {node_id}")

    # --- sessions ---

    @contextlib.contextmanager
    def watched(self, path):
        """Watches a znode. Yields an object whose `wait()` returns the time at which the znode was deleted."""
        from kazoo.client import KazooClient

        client = KazooClient(f"{self.zookeeper.connect}/kafka", timeout=30)
        client.start(timeout=30)
        try:
            yield Deletion(client, path)
        finally:
            client.stop()
            client.close()


class Deletion:
    def __init__(self, client, path):
        self._deleted, self.at = threading.Event(), 0.0
        if client.exists(path, watch=self._fired) is None:
            raise RuntimeError(f"{path} does not exist")

    def _fired(self, event):
        if event.type == "DELETED":
            self.at = time.perf_counter()
            self._deleted.set()

    def wait(self):
        if not self._deleted.wait(LIMIT_S):
            raise RuntimeError("the session did not end")
        return self.at


def checked(errors):
    if any(errors):
        raise RuntimeError(f"CreateTopics: errors {sorted(set(errors))}")
