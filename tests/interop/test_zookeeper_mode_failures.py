"""Failures of a cluster in ZooKeeper mode: all ZooKeeper servers stop, a broker dies during its controlled shutdown, or
many controllers follow one another."""

import os
import socket
import struct
import time

import pytest
from kazoo.client import KazooClient

from asking import ask
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import LeaderAndIsrRequest, LeaderAndIsrResponse, ListOffsetsRequest
from quorums import OURS
from wire import receive
from zookeeper_cluster import APACHE, ZooKeeperCluster, consume, produce, values
from zookeepers import need_zookeeper

# How long all ZooKeeper servers are down. KAFKACORE_OUTAGE_SECONDS=600 makes it ten minutes.
OUTAGE_S = float(os.environ.get("KAFKACORE_OUTAGE_SECONDS", "10"))
VERSION = 3  # the last version of LeaderAndIsr whose header has no tagged fields
CONTROLLERS, REQUESTS = 4, 15  # the requests are more than the 20 places in the control plane's queue

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
    """The controller is paused while the broker requests its controlled shutdown. It handles the request only after the
    broker has restarted. So the requests that the controller then sends are meant for the broker's former
    generation."""
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


def test_newest_controller_wins_when_the_requests_of_many_fill_the_control_planes_queue(tmp_path, tools_of_either):
    """Each of the controllers has its own connection, and sends all its requests without waiting for answers."""
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, {1: OURS}, control=[1]) as cluster:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools_of_either[APACHE].run("kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1")
        cluster.wait_leader("t", 0, 1)
        broker_epoch, controller_epoch = epochs_of(cluster)
        connections = []
        try:
            for number in range(CONTROLLERS):
                host, port = cluster.control_addresses[1].split(":")
                connections.append(socket.create_connection((host, int(port)), 20))
                requests = [
                    leader_and_isr(controller_epoch + 1 + number, broker_epoch, 10 * (number + 1) + each)
                    for each in range(REQUESTS)
                ]
                connections[-1].sendall(b"".join(requests))
            answers = [[answer_from(connection) for _ in range(REQUESTS)] for connection in connections]
        finally:
            for connection in connections:
                connection.close()
        # The requests of each connection stay in order. After the broker has handled a request of a newer controller,
        # it refuses those of older ones.
        for each in answers:
            errors = [answer.error_code for answer in each]
            assert errors == sorted(errors)
            assert set(errors) <= {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH}
        assert {answer.error_code for answer in answers[-1]} == {ErrorCode.NONE}
        last = 10 * CONTROLLERS + REQUESTS - 1
        assert error_of_list_offsets(cluster, last) == ErrorCode.NONE
        assert error_of_list_offsets(cluster, last - 1) == ErrorCode.FENCED_LEADER_EPOCH
        late = leader_and_isr(controller_epoch + CONTROLLERS - 1, broker_epoch, last + 100)
        assert send(cluster, late).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        former = leader_and_isr(controller_epoch + CONTROLLERS, broker_epoch - 1, last + 100)
        assert send(cluster, former).error_code == ErrorCode.STALE_BROKER_EPOCH


def epochs_of(cluster):
    """Returns the broker epoch and the controller epoch, which ZooKeeper stores."""
    client = KazooClient(f"{cluster.zookeeper.connect}/kafka")
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


def error_of_list_offsets(cluster, leader_epoch):
    """Returns the error that ListOffsets gives to a client with this leader epoch of t-0."""
    partition = ListOffsetsRequest.ListOffsetsPartition(current_leader_epoch=leader_epoch)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    answer = ask(cluster.addresses[1], ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
    return answer.topics[0].partitions[0].error_code


def answer_from(connection):
    return LeaderAndIsrResponse.decode(receive(connection)[1], VERSION)


def send(cluster, request):
    host, port = cluster.control_addresses[1].split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(request)
        return answer_from(connection)
