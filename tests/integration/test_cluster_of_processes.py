"""Three controllers and three brokers as processes, through SIGKILL, SIGSTOP, rolling restarts and cut links, while a
client creates topics and writes records. Nothing acknowledged is lost, and the metadata logs agree."""

import pytest

from namespaces import Namespaces
from process_cluster import Load, ProcessCluster

pytestmark = pytest.mark.timeout(300)


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
        while 103 in cluster.unfenced():
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
            # Its followers no longer hear the leader, but it hears them: the check of the quorum does not end its term.
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
