"""Three controllers and three brokers as processes, with SIGKILL, SIGSTOP, rolling restarts and cut links, while a
client creates topics and writes records. No acknowledged record is lost, and the metadata logs agree. After leaders
were killed, stopped and restarted, all replicas of a partition have the same records."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from asking import ask
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ProduceRequest
from namespaces import Namespaces
from process_cluster import Load, ProcessCluster
from replicated import ReplicatedCluster, Writes

pytestmark = pytest.mark.timeout(300)
PARTITIONS = 6
STOPPED = 1  # a partition whose leader is not the broker that the cluster's clients ask first


@pytest.fixture
def cluster(tmp_path):
    cluster = ProcessCluster(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.fixture
def network():
    network = Namespaces()
    try:
        yield network
    finally:
        network.close()


@pytest.fixture
def replicated(tmp_path):
    cluster = ReplicatedCluster(tmp_path)
    try:
        yield cluster.start()
    finally:
        cluster.close()


def assert_whole(cluster, load):
    cluster.wait_unfenced()
    load.assert_nothing_lost()
    cluster.assert_logs_agree(cluster.wait_equal())


def test_cluster_loses_nothing_when_leaders_followers_and_brokers_are_killed(cluster):
    with Load(cluster) as load:
        for victim in (cluster.leader(), cluster.follower(), 101, cluster.leader(), 103):
            member = cluster.members[victim]
            member.kill()
            if victim in cluster.controllers:
                cluster.leader()
                load.wait_progress()
            member.start()
            cluster.wait_unfenced()
            load.wait_progress()
    assert_whole(cluster, load)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_cluster_goes_on_when_a_controller_is_stopped_and_continued(cluster, role):
    with Load(cluster) as load:
        stopped = cluster.leader() if role == "leader" else cluster.follower()
        epoch = cluster.quorum(cluster.leader()).leader_epoch
        others = set(cluster.controllers) - {stopped}
        cluster.controllers[stopped].pause()
        leader = cluster.leader(others)
        load.wait_progress()
        cluster.controllers[stopped].resume()
        load.wait_progress()
        cluster.wait_equal()
        now = cluster.quorum(cluster.leader())
        assert (now.leader_id, now.leader_epoch > epoch) == (leader, role == "leader")
    assert_whole(cluster, load)


def test_broker_returns_when_it_was_stopped_for_longer_than_its_session(cluster):
    with Load(cluster) as load:
        cluster.brokers[103].pause()
        while 103 in cluster.unfenced(101):
            load.wait_progress()
        cluster.brokers[103].resume()
        cluster.wait_unfenced()
        load.wait_progress()
    assert_whole(cluster, load)


def test_every_node_restarts_in_turn_without_loss(cluster):
    with Load(cluster) as load:
        for member in cluster.members.values():
            assert member.stop() == 0
            member.start()
            cluster.wait_unfenced()
            load.wait_progress()
    assert_whole(cluster, load)


def test_majority_goes_on_when_links_of_the_active_controller_are_cut(network, tmp_path):
    cluster = ProcessCluster(tmp_path, network)
    try:
        cluster.start()
        with Load(cluster) as load:
            first = cluster.leader()
            others = set(cluster.controllers) - {first}
            network.cut([first], [*others, *cluster.brokers])
            second = cluster.leader(others)
            load.wait_progress()
            network.heal()
            cluster.wait_equal()
            # The leader no longer reaches the followers, but still receives their messages. So the leader's check of
            # the quorum does not make it resign.
            for follower in set(cluster.controllers) - {second}:
                network.cut_one_way(second, follower)
            third = cluster.leader(set(cluster.controllers) - {second})
            load.wait_progress()
            network.heal()
            cluster.wait_equal()
            assert third != second
        assert_whole(cluster, load)
    finally:
        cluster.close()


def test_replicas_agree_and_lose_nothing_when_leaders_are_killed_stopped_and_restarted(replicated):
    ids = list(replicated.brokers)
    turns = [ids[first:] + ids[:first] for first in range(len(ids))]
    replicated.create("t", [turns[i % len(turns)] for i in range(PARTITIONS)], min_insync_replicas="2")
    which = [("t", partition) for partition in range(PARTITIONS)]
    with Writes(replicated, which[::2]) as some, Writes(replicated, which[1::2]) as others:
        loads = some, others
        kill_leader(replicated, loads)
        stop_leader_past_its_session(replicated, loads)
        for member in replicated.brokers.values():
            assert member.stop() == 0
            wait_taken_over(replicated, loads, member.node_id)
            member.start()
            wait_back(replicated, loads)
    for load in loads:
        replicated.assert_whole(load)


def kill_leader(cluster, loads):
    victim = cluster.state("t").leader
    cluster.brokers[victim].kill()
    wait_taken_over(cluster, loads, victim)
    cluster.brokers[victim].start()
    wait_back(cluster, loads)


def stop_leader_past_its_session(cluster, loads):
    """Stops a leader with SIGSTOP until its broker session has ended. When the process continues, it still believes
    that it leads, and its first request is a Produce. It must not acknowledge this record, and no client may ever read
    the record."""
    cluster.prefer([("t", partition) for partition in range(PARTITIONS)])
    victim = cluster.state("t", STOPPED).leader
    cluster.brokers[victim].pause()
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(append, cluster.addresses[victim], b"late")
        wait_taken_over(cluster, loads, victim)
        assert not answer.done()
        cluster.brokers[victim].resume()
        assert answer.result() is not ErrorCode.NONE
    wait_back(cluster, loads)


def append(address, value):
    """Sends one Produce with acks=all to the partition STOPPED. Returns the error code."""
    builder = RecordBatchBuilder()
    builder.append(1, None, value)
    data = ProduceRequest.PartitionProduceData(index=STOPPED, records=bytes(builder.build()))
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    answer = ask(address, ProduceRequest(acks=-1, timeout_ms=2000, topic_data=topics), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def wait_taken_over(cluster, loads, gone):
    """Waits until every partition has a leader other than `gone`, and accepts records."""
    for partition in range(PARTITIONS):
        cluster.wait_leader("t", partition, *(set(cluster.brokers) - {gone}))
    for load in loads:
        load.wait_progress()


def wait_back(cluster, loads):
    cluster.wait_in_sync("t", count=PARTITIONS)
    for load in loads:
        load.wait_progress()
