"""Failures of a cluster in ZooKeeper mode: all ZooKeeper servers stop, a broker dies during its controlled shutdown, or
the controller changes many times.
"""

import os
import socket
import struct
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from asking import ask
from kafkacore.config import BrokerConfig
from kafkacore.network.limits import CONTROL_PLANE_QUEUE
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    ListOffsetsRequest,
    MetadataRequest,
)
from kafkacore.runtime.ports import free_ports
from kafkacore.server.node import Node
from processes import wait_until
from quorums import OURS
from wire import receive
from zookeeper_cluster import APACHE, CONTROLLER_LISTENERS, ZooKeeperCluster, consume, produce, values
from zookeepers import ZooKeeperServer, need_zookeeper

# How long all ZooKeeper servers are down. KAFKACORE_OUTAGE_SECONDS=600 makes it ten minutes.
OUTAGE_S = float(os.environ.get("KAFKACORE_OUTAGE_SECONDS", "10"))
VERSION = 3  # the last version of LeaderAndIsr whose header has no tagged fields
# A connection has at most one request in the control plane's queue, so more connections than the 20 places fill it.
CONTROLLERS, REQUESTS = CONTROL_PLANE_QUEUE + 10, 3

pytestmark = pytest.mark.timeout(240 + OUTAGE_S)


def test_brokers_go_on_when_all_of_zookeeper_stops(tmp_path, tools_of_either):
    """The outage lasts longer than a session. No broker exits, clients write and read records, and changes of ISRs
    wait. After the outage, the cluster makes decisions again."""
    need_zookeeper()
    tools = tools_of_either[APACHE]
    with ZooKeeperCluster(tmp_path, dict.fromkeys((1, 2, 3), OURS)) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1")
        tools.run("kafka-topics", *topics, "--create", "--topic", "shrinks", "--replica-assignment", "2:3")
        cluster.wait_isr("t", 1, 1, 2)
        cluster.wait_isr("shrinks", 0, 2, 3)
        produce(cluster, "t", 0, values("before"))
        cluster.zookeeper.kill()
        stopped, written = time.monotonic(), 0
        cluster.brokers[3].kill()
        while time.monotonic() < stopped + OUTAGE_S:
            # An idempotent producer would need a new producer id, and the broker might have to get a block of ids from
            # the controller.
            produce(cluster, "t", 0, values(written), idempotent=False)
            written += 1
            cluster.wait_isr("shrinks", 0, 2, 3)
            time.sleep(0.1)  # limits the load
        assert cluster.live() == [1, 2]
        expected = values("before") + [value for number in range(written) for value in values(number)]
        assert consume(cluster, "t", 0, len(expected)) == expected
        cluster.zookeeper.start()
        cluster.wait_isr("shrinks", 0, 2)
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-topics", *topics, "--create", "--topic", "u", "--replica-assignment", "1:2,2:1")
        cluster.wait_isr("u", 1, 1, 2)
        produce(cluster, "u", 1, values("after"))
        assert consume(cluster, "t", 0, len(expected)) == expected
        assert cluster.brokers[1].batches("t", 0) == cluster.brokers[2].batches("t", 0)


@pytest.mark.parametrize("controller", [APACHE, OURS])
def test_broker_serves_again_when_it_died_in_its_controlled_shutdown(tmp_path, tools_of_either, controller):
    """The controller is paused while the broker requests its controlled shutdown. The controller handles the request
    only after the broker has restarted. So the requests that the controller then sends are meant for the broker's
    former generation."""
    need_zookeeper()
    tools = tools_of_either[APACHE]
    with ZooKeeperCluster(tmp_path, {1: controller, 2: OURS, 3: OURS}) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools.run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "2:3,3:2")
        cluster.wait_isr("t", 0, 2, 3)
        cluster.wait_isr("t", 1, 2, 3)
        produce(cluster, "t", 0, values("before"))
        bounced = cluster.brokers[2]
        cluster.brokers[1].pause()
        try:
            bounced.child.process.terminate()
            cluster.wait(lambda: "requests its controlled shutdown" in bounced.seen(), "broker 2 asks for its shutdown")
            bounced.kill()
            bounced.launch()
        finally:
            cluster.brokers[1].resume()
        bounced.wait_ready()
        cluster.wait_members([1, 2, 3])
        for partition in (0, 1):
            cluster.wait_isr("t", partition, 2, 3)
        produce(cluster, "t", 0, values("after"))
        assert consume(cluster, "t", 0, 2 * len(values(""))) == values("before") + values("after")
        assert bounced.batches("t", 0) == cluster.brokers[3].batches("t", 0)


def test_newest_controller_wins_when_the_requests_of_many_fill_the_control_planes_queue(tmp_path):
    """Each of the controllers has its own connection, and sends all its requests without waiting for answers. The
    handlers of the control plane stand still until no place in the queue is left."""
    need_zookeeper()
    ports = free_ports(2)
    client, control = [f"127.0.0.1:{port}" for port in ports]
    with (
        ZooKeeperServer(tmp_path / "zookeeper") as zookeeper,
        Node(with_control_plane(tmp_path, zookeeper, *ports)) as node,
    ):
        wait_until(lambda: ask(client, MetadataRequest(), 12).controller_id == 1, what="broker 1 to be the controller")
        admin = AdminClient({"bootstrap.servers": client})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        wait_until(lambda: error_of_list_offsets(client, -1) == ErrorCode.NONE, what="broker 1 to lead t-0")
        broker_epoch, controller_epoch = epochs_of(zookeeper)
        plane, may_continue = node.broker.control_plane.plane, threading.Event()
        plane.loop.call(may_continue.wait)
        connections = []
        try:
            for number in range(CONTROLLERS):
                connections.append(connect(control))
                requests = [
                    leader_and_isr(controller_epoch + 1 + number, broker_epoch, 10 * (number + 1) + each)
                    for each in range(REQUESTS)
                ]
                connections[-1].sendall(b"".join(requests))
            wait_until(lambda: queued(plane) == CONTROL_PLANE_QUEUE, what="the queue to be full")
            may_continue.set()
            answers = [[answer_from(connection) for _ in range(REQUESTS)] for connection in connections]
        finally:
            may_continue.set()
            for connection in connections:
                connection.close()
        # The requests of each connection stay in order. After the broker has handled a request of a newer controller,
        # it refuses the requests of older controllers.
        for each in answers:
            errors = [answer.error_code for answer in each]
            assert errors == sorted(errors)
            assert set(errors) <= {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH}
        assert {answer.error_code for answer in answers[-1]} == {ErrorCode.NONE}
        last = 10 * CONTROLLERS + REQUESTS - 1
        assert error_of_list_offsets(client, last) == ErrorCode.NONE
        assert error_of_list_offsets(client, last - 1) == ErrorCode.FENCED_LEADER_EPOCH
        late = leader_and_isr(controller_epoch + CONTROLLERS - 1, broker_epoch, last + 100)
        assert send(control, late).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        former = leader_and_isr(controller_epoch + CONTROLLERS, broker_epoch - 1, last + 100)
        assert send(control, former).error_code == ErrorCode.STALE_BROKER_EPOCH


def with_control_plane(path, zookeeper, client_port, control_port):
    """Returns the configuration of broker 1 with these two ports."""
    return BrokerConfig({
        "broker.id": "1", "zookeeper.connect": f"{zookeeper.connect}/kafka", "log.dirs": str(path / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROL://127.0.0.1:{control_port}",
        "control.plane.listener.name": "CONTROL", "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": CONTROLLER_LISTENERS, "metrics.port": "-1",
    })  # fmt: skip


def queued(plane):
    return plane.native.counters()["request_queue_size"]


def epochs_of(zookeeper):
    """Returns the broker epoch and the controller epoch, which ZooKeeper stores."""
    client = KazooClient(f"{zookeeper.connect}/kafka")
    client.start()
    try:
        return client.exists("/brokers/ids/1").czxid, int(client.get("/controller_epoch")[0])
    finally:
        client.stop()
        client.close()


def leader_and_isr(controller_epoch, broker_epoch, leader_epoch):
    """Returns the frame of a LeaderAndIsr request for t-0."""
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=0, controller_epoch=controller_epoch, leader=1, leader_epoch=leader_epoch, isr=[1],
        partition_epoch=9, replicas=[1],
    )  # fmt: skip
    request = LeaderAndIsrRequest(
        controller_id=7, controller_epoch=controller_epoch, broker_epoch=broker_epoch,
        topic_states=[LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", partition_states=[state])],
    )  # fmt: skip
    encoded = apis.encode_request(VERSION, leader_epoch, "controller", request)
    return struct.pack(">i", len(encoded)) + encoded


def error_of_list_offsets(address, leader_epoch):
    """Returns the error that ListOffsets gives to a client with this leader epoch of t-0."""
    partition = ListOffsetsRequest.ListOffsetsPartition(current_leader_epoch=leader_epoch)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    answer = ask(address, ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    return answer.topics[0].partitions[0].error_code


def answer_from(connection):
    return LeaderAndIsrResponse.decode(receive(connection)[1], VERSION)


def connect(address):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), 20)


def send(address, request):
    with connect(address) as connection:
        connection.sendall(request)
        return answer_from(connection)
