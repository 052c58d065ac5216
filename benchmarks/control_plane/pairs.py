"""Two brokers in ZooKeeper mode: the controller, which does no other work, and the broker that receives the load.

With `apart` both brokers have control.plane.listener.name. Each broker has one processor and one handler thread, and 50
places in its request queue, so that few connections fill it.
"""

import contextlib
import re
import socket
import statistics
import struct
import time
from pathlib import Path

import benchmarks.peers  # noqa: F401 - it puts tests/support on the path
from benchmarks.control_plane.load import Load
from benchmarks.peers.requests import produce
from benchmarks.peers.rows import one_record

from asking import ask
from kafkacore.protocol import apis
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    StopReplicaRequest,
)
from processes import ROOT, wait_until
from quorums import OURS
from wire import receive_exactly
from zookeeper_cluster import ZooKeeperCluster

CONTROLLER, LOADED = 1, 2
QUEUE = 50
BELOW, FULL = 40, 100  # two numbers of connections: too few to fill the request queue, and enough to fill it
SERVICE_S = 0.001  # a request of the backlog occupies the handler for this time on an idle machine
CALIBRATING = 15
PARTITIONS = 20
LIMIT_S = 40
BROKER = 4  # the code of the resource type BROKER in DescribeConfigs
CLIENT = "probe"
SETTINGS = {
    "num.network.threads": "1",
    "num.io.threads": "1",
    "queued.max.requests": str(QUEUE),
    "zookeeper.session.timeout.ms": "18000",
    "controlled.shutdown.enable": "true",
    "log.retention.check.interval.ms": "3600000",
}


REQUEST_LOG = "kafka-request.log"
LOG4J = """
log4j.logger.kafka.request.logger=WARN, requests
log4j.additivity.kafka.request.logger=false
log4j.appender.requests=org.apache.log4j.FileAppender
log4j.appender.requests.File={path}
log4j.appender.requests.layout=org.apache.log4j.PatternLayout
log4j.appender.requests.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def with_request_log(member):
    """Gives a broker that has not started yet a request log, which is off. Returns the path of the log."""
    path = member.directory / REQUEST_LOG
    if member.ours:
        with member.properties.open("a") as file:
            file.write(f"sampled.request.log.file={path}\n")
    else:
        member.log4j = member.directory / "log4j.properties"
        member.log4j.write_text((ROOT / "ci/peers/log4j.properties").read_text() + LOG4J.format(path=path))
    return path


def framed(message, version):
    inside = apis.encode_request(version, 1, CLIENT, message)
    return struct.pack(">i", len(inside)) + inside


# The broker epoch is an old one, so the broker refuses the request (KIP-380) and changes nothing. The request reaches
# the same handlers on the same path as any other controller request.
STOP_REPLICA = framed(StopReplicaRequest(controller_id=CONTROLLER, controller_epoch=0, broker_epoch=0), 3)


_CHANGE = IncrementalAlterConfigsRequest.AlterableConfig(name="log.cleaner.threads", config_operation=0, value="1")
_RESOURCE = IncrementalAlterConfigsRequest.AlterConfigsResource(
    resource_type=BROKER, resource_name=str(LOADED), configs=[_CHANGE]
)
VALIDATED = framed(IncrementalAlterConfigsRequest(resources=[_RESOURCE], validate_only=True), 1)


class Link:
    """One connection with one request in flight."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def call(self, frame):
        """Returns the answer, beginning with its correlation id."""
        self.socket.sendall(frame)
        return receive_exactly(self.socket, struct.unpack(">i", receive_exactly(self.socket, 4))[0])


def latencies_ms(address, frame, count, limit_s, pause_s=0.002):
    """Sends up to `count` requests, one after the other, and returns their latencies. Stops early when the time is up,
    but sends at least one request."""
    found, until = [], time.perf_counter() + limit_s
    with Link(address) as link:
        while len(found) < count and (not found or time.perf_counter() < until):
            began = time.perf_counter()
            link.call(frame)
            found.append((time.perf_counter() - began) * 1e3)
            time.sleep(pause_s)
    return found


class Pair:
    """A controller and a loaded broker of one kind (OURS or APACHE). `with Pair(...)` starts both brokers. It also
    creates a topic of 20 partitions, all led by the loaded broker."""

    def __init__(self, path, kind, *, apart):
        self.kind, self.apart = kind, apart
        both = (CONTROLLER, LOADED)
        self.cluster = ZooKeeperCluster(path, dict.fromkeys(both, kind), SETTINGS, control=both if apart else ())
        self.request_log = with_request_log(self.cluster.brokers[LOADED])
        self.control_address = (self.cluster.control_addresses if apart else self.cluster.addresses)[LOADED]
        self.backlog_frame = self.logged_frame = b""
        self.topics = 0

    @property
    def name(self):
        return f"{'kafkacore' if self.kind == OURS else 'Apache Kafka 3.9'}, {'apart' if self.apart else 'shared'}"

    @property
    def addresses(self):
        return self.cluster.addresses

    def __enter__(self):
        self.cluster.__enter__()
        try:
            self.topic = self.create([[LOADED, CONTROLLER]] * PARTITIONS)
            self._warm_up()
            self._calibrate()
        except BaseException:
            self.cluster.close()
            raise
        return self

    def __exit__(self, *_):
        self.cluster.close()

    def _warm_up(self):
        """Writes a record to each partition, so that no measured request opens a log."""
        address = self.addresses[LOADED]
        with Link(address) as link:
            for index in range(PARTITIONS):
                link.call(produce(self.topic, index, one_record()))

    # --- the backlog ---

    def _describe(self, size):
        """Returns a DescribeConfigs request, which goes through the handlers in both implementations. For our broker,
        the request asks for `size` keys. Apache Kafka computes all entries before it looks at the keys. So for Apache
        Kafka, the request contains the same broker `size` times."""
        resource = DescribeConfigsRequest.DescribeConfigsResource
        keys = self._keys[:size] if self.kind == OURS else None
        asked = resource(resource_type=BROKER, resource_name=str(LOADED), configuration_keys=keys)
        return DescribeConfigsRequest(resources=[asked] * (1 if self.kind == OURS else size))

    def _calibrate(self):
        """Finds the size of a request that takes a handler SERVICE_S."""
        address = self.addresses[LOADED]
        resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=BROKER, resource_name=str(LOADED))
        [every] = ask(address, DescribeConfigsRequest(resources=[resource]), 4).results
        self._keys = [each.name for each in every.configs]
        whole = len(self._keys) if self.kind == OURS else 10
        for _ in range(2):  # the first result does not count, because the JVM is still compiling the code
            took_ms = statistics.median(latencies_ms(address, framed(self._describe(whole), 4), CALIBRATING, 5.0, 0))
        size = min(max(round(whole * SERVICE_S * 1e3 / took_ms), 1), 10 * whole)
        self.backlog_frame = framed(self._describe(size), 4)
        # Apache Kafka's request log contains whole responses, and the response to a DescribeConfigs has half a
        # megabyte. So Apache Kafka's handlers get a request to change a setting, which they only validate. This request
        # is short, but takes them long.
        self.logged_frame = self.backlog_frame if self.kind == OURS else VALIDATED

    def backlog(self, connections=FULL, *, logged=False):
        """Opens connections to the loaded broker. Their requests need a request handler. With `logged`, the requests
        are also suitable for a request log."""
        return Load(self.addresses[LOADED], connections, [self.logged_frame if logged else self.backlog_frame])

    # --- changes, requested from the controller ---

    def _ask(self, request, version):
        return ask(self.addresses[CONTROLLER], request, version)

    def create(self, assignments):
        """Creates a topic and waits until both brokers know it. Returns the topic's name. `assignments` lists the
        replicas of each partition."""
        self.topics += 1
        name, made = f"t{self.topics}", CreateTopicsRequest
        replicas = [
            made.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(assignments)
        ]
        topic = made.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=replicas)
        [result] = self._ask(made(topics=[topic], timeout_ms=LIMIT_S * 1000), 5).topics
        if result.error_code:
            raise RuntimeError(f"CreateTopics: error {result.error_code}, {result.error_message}")
        for index, ids in enumerate(assignments):
            self.cluster.wait_leader(name, index, ids[0])
            self.cluster.wait_isr(name, index, *ids)
        return name

    def delete(self, name):
        [result] = self._ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=LIMIT_S * 1000), 4).responses
        if result.error_code:
            raise RuntimeError(f"DeleteTopics: error {result.error_code}")

    def prepare_leader(self, topic, leader):
        """Makes `leader` the first (preferred) replica of partition 0. The current leader keeps leading until an
        election.
        """
        other = CONTROLLER + LOADED - leader
        made = AlterPartitionReassignmentsRequest
        moved = made.ReassignablePartition(partition_index=0, replicas=[leader, other])
        self._ask(made(topics=[made.ReassignableTopic(name=topic, partitions=[moved])], timeout_ms=LIMIT_S * 1000), 0)
        wait_until(
            lambda: not self._ask(ListPartitionReassignmentsRequest(timeout_ms=LIMIT_S * 1000), 0).topics,
            LIMIT_S, "the new order of the replicas",
        )  # fmt: skip

        def ordered():
            seen = [self.cluster.partition(topic, 0, node_id) for node_id in self.addresses]
            return all(each is not None and each.replica_nodes == [leader, other] for each in seen)

        wait_until(ordered, LIMIT_S, "both brokers know the new order of the replicas")

    def elect(self, topic):
        """Makes the first replica of partition 0 the leader."""
        made = ElectLeadersRequest
        asked = made.TopicPartitions(topic=topic, partitions=[0])
        answer = self._ask(made(election_type=0, topic_partitions=[asked], timeout_ms=LIMIT_S * 1000), 2)
        errors = [each.error_code for told in answer.replica_election_results for each in told.partition_result]
        if answer.error_code or any(errors):
            raise RuntimeError(f"ElectLeaders: error {answer.error_code}, {errors}")

    def settle(self, topic, leader):
        """Waits until this broker leads partition 0 and both replicas are in sync."""
        self.cluster.wait_leader(topic, 0, leader)
        self.cluster.wait_isr(topic, 0, CONTROLLER, LOADED)

    def leader_at(self, node_id, topic):
        found = self.cluster.partition(topic, 0, node_id)
        return None if found is None else found.leader_id

    def records(self, topic, node_id):
        """Returns the numbers in the records that the clients wrote to partition 0. Such a record contains `<123>`."""
        found = set()
        for path in Path(self.cluster.brokers[node_id].data).glob(f"{topic}-0/*.log"):
            found.update(int(number) for number in re.findall(rb"<(\d+)>", path.read_bytes()))
        return found

    @contextlib.contextmanager
    def zookeeper(self):
        """Returns a ZooKeeper client whose paths start at the chroot of the cluster."""
        from kazoo.client import KazooClient

        client = KazooClient(f"{self.cluster.zookeeper.connect}/kafka", timeout=30)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()
