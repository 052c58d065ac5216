"""A cluster with brokers of Apache Kafka and of kafkacore. Brokers of each kind follow partitions that brokers of the
other kind lead. While an idempotent producer writes, the test kills each broker, runs preferred elections and reassigns
partitions (KIP-101, KIP-497, KIP-455)."""

import pytest

from brokers import APACHE
from process_cluster import read_to_end
from quorums import OURS
from replicated import ReplicatedCluster, Writes

pytestmark = pytest.mark.timeout(180)
PARTITIONS = 3


@pytest.fixture
def replicated(tools_of_either, tmp_path):
    """Returns a function that formats a cluster for the features of a release and starts it: `replicated("apache-4.3",
    brokers={101: OURS, ...})`."""
    started = []

    def start(release, **options):
        cluster = ReplicatedCluster(tmp_path / "cluster", tools=tools_of_either, **options)
        started.append(cluster)
        return cluster.start(".".join(APACHE[release].split(".")[:2]))

    yield start
    for cluster in started:
        cluster.close()


def kill_and_restart(cluster, writes, topic, victim):
    """Kills a broker with SIGKILL, whichever partitions it leads. The other broker takes over. The killed broker
    restarts and becomes in sync again."""
    member = cluster.brokers[victim]
    member.kill()
    others = [node_id for node_id in cluster.brokers if node_id != victim]
    for partition in range(PARTITIONS):
        cluster.wait_leader(topic, partition, *others)
    writes.wait_progress()
    member.start()
    cluster.wait_in_sync(topic, count=PARTITIONS)
    writes.wait_progress()


@pytest.mark.parametrize("release", APACHE)
def test_brokers_of_apache_kafka_replicate_when_our_controllers_decide(replicated, release):
    cluster = replicated(release, brokers=dict.fromkeys((101, 102, 103), release))
    which = [("t", partition) for partition in range(PARTITIONS)]
    cluster.create("t", [[101, 102]] * PARTITIONS)
    with Writes(cluster, which) as writes:
        kill_and_restart(cluster, writes, "t", 101)
        cluster.prefer(which)
        writes.wait_progress()
        kill_and_restart(cluster, writes, "t", 102)
        cluster.move({each: [103, 101] for each in which})
        cluster.prefer(which)
        writes.wait_progress()
    cluster.assert_whole(writes)


@pytest.mark.parametrize("release", APACHE)
def test_brokers_of_both_kinds_follow_each_other_when_each_is_killed(replicated, release):
    cluster = replicated(release, controllers={1: OURS}, brokers={101: OURS, 102: release})
    which = [("t", partition) for partition in range(PARTITIONS)]
    cluster.create("t", [[101, 102]] * PARTITIONS)
    with Writes(cluster, which) as writes:
        kill_and_restart(cluster, writes, "t", 101)
        kill_and_restart(cluster, writes, "t", 102)
        cluster.prefer(which)
        writes.wait_progress()
    cluster.assert_whole(writes)


@pytest.mark.parametrize("release", APACHE)
def test_brokers_of_both_kinds_follow_each_other_when_their_controllers_decide(replicated, release):
    cluster = replicated(release, controllers={1: release}, brokers={101: OURS, 102: release, 103: OURS})
    which = [("t", partition) for partition in range(PARTITIONS)]
    cluster.create("t", [[101, 102], [102, 101], [101, 102]])
    with Writes(cluster, which) as writes:
        kill_and_restart(cluster, writes, "t", 101)
        kill_and_restart(cluster, writes, "t", 102)
        cluster.prefer(which)
        writes.wait_progress()
        cluster.move({("t", 0): [102, 103], ("t", 1): [103, 102], ("t", 2): [103, 101]})
        cluster.prefer(which)
        writes.wait_progress()
    cluster.assert_whole(writes)
    cluster.assert_no_errors()


@pytest.mark.parametrize("controller", [OURS, "apache-4.3"])
def test_each_record_is_read_once_when_the_brokers_of_both_kinds_restart_in_turn(replicated, controller):
    cluster = replicated(
        "apache-4.3",
        controllers={1: controller},
        brokers={101: OURS, 102: "apache-4.3", 103: OURS, 104: "apache-4.3"},
    )
    ids = list(cluster.brokers)
    assignment = [[*ids[first:], *ids[:first]][:3] for first in range(len(ids))]
    which = [("t", partition) for partition in range(len(assignment))]
    cluster.create("t", assignment, min_insync_replicas="2")
    with Writes(cluster, which) as writes:
        for member in cluster.brokers.values():
            assert member.stop() in (0, 143), member.seen()  # 143: SIGTERM has stopped a Java process in order
            writes.wait_progress()
            member.start()
            cluster.wait_unfenced()
            cluster.wait_in_sync("t", count=len(which))
            writes.wait_progress()
        cluster.prefer(which)
        writes.wait_progress()
    cluster.assert_whole(writes)
    served = {(topic, index): cluster.read(assignment[index][0], topic, index) for topic, index in which}
    assert read_to_end(cluster.bootstrap, which) == served
    cluster.assert_no_errors()
