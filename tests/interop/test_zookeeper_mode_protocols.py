"""inter.broker.protocol.version below 3.9, in clusters of both implementations. Topics have no ids, leaders write ISRs
to ZooKeeper, and producer ids come from a znode. A rolling restart then raises the version."""

import contextlib
import json

import pytest
from kazoo.client import KazooClient

from kafkacore.protocol.uuid import ZERO
from quorums import OURS
from zookeeper_cluster import APACHE, COUNT, ZooKeeperCluster, consume, produce, values
from zookeepers import need_zookeeper

pytestmark = pytest.mark.timeout(240)
OLD = {
    "inter.broker.protocol.version": "2.6",
    # With this value, a paused follower leaves the ISR long before its session ends.
    "replica.lag.time.max.ms": "1500",
    "zookeeper.session.timeout.ms": "10000",
}


@contextlib.contextmanager
def znodes_of(cluster):
    client = KazooClient(f"{cluster.zookeeper.connect}/kafka")
    client.start()
    try:
        yield lambda path: json.loads(client.get(path)[0])
    finally:
        client.stop()
        client.close()


def topic_ids(cluster):
    return [cluster.metadata(node_id, "t").topics[0].topic_id for node_id in cluster.brokers]


@pytest.mark.parametrize("controller", [1, 2], ids=["Apache Kafka controls", "ours controls"])
def test_mixed_cluster_serves_topics_without_ids_and_gives_them_ids_when_the_version_rises(
    tmp_path, tools_of_either, controller
):
    need_zookeeper()
    with ZooKeeperCluster(tmp_path, {1: APACHE, 2: OURS}, OLD, first=controller) as cluster, znodes_of(cluster) as read:
        topics = ["--bootstrap-server", cluster.bootstrap]
        tools_of_either[APACHE].run(
            "kafka-topics", *topics, "--create", "--topic", "t", "--replica-assignment", "1:2,2:1"
        )
        for partition, leader in ((0, 1), (1, 2)):
            cluster.wait_leader("t", partition, leader)
            produce(cluster, "t", partition, values(partition))
            assert consume(cluster, "t", partition, COUNT) == values(partition)
        assert "topic_id" not in read("/brokers/topics/t")
        assert topic_ids(cluster) == [ZERO, ZERO]
        assert read("/brokers/ids/2")["version"] == 4
        assert not list(cluster.brokers[2].data.glob("t-*/partition.metadata"))
        assert read("/latest_producer_id_block")["block_end"], "no broker took producer ids from the znode"

        # Each leader writes to the znode to remove its follower from the ISR and to add it again.
        for leader, follower, partition in ((2, 1, 1), (1, 2, 0)):
            state = f"/brokers/topics/t/partitions/{partition}/state"
            cluster.brokers[follower].pause()
            try:
                # These records are acknowledged only when the leader is alone in the ISR.
                produce(cluster, "t", partition, values("later"), bootstrap=cluster.addresses[leader])
                cluster.wait(lambda path=state, isr=leader: read(path)["isr"] == [isr], f"{leader} is alone in the ISR")
                alone = read(state)
            finally:
                cluster.brokers[follower].resume()
            cluster.wait(lambda path=state: len(read(path)["isr"]) == 2, "the follower is in the ISR again")
            assert read(state)["leader_epoch"] == alone["leader_epoch"], "the leader must have written it"
            # The leader tells the controller which states it has written. The controller reads them and sends them to
            # all brokers.
            cluster.wait_isr("t", partition, 1, 2)

        other = 3 - controller
        for node_id in (other, controller):
            cluster.restart_with(node_id, {"inter.broker.protocol.version": "3.9"})
            for partition in (0, 1):
                cluster.wait_isr("t", partition, 1, 2)
        cluster.wait(lambda: cluster.controller() == other, "the controller has moved")
        told = read("/brokers/topics/t")["topic_id"]
        cluster.wait(lambda: {str(each) for each in topic_ids(cluster)} == {told}, "clients see the new id")
        for partition in (0, 1):
            produce(cluster, "t", partition, values("after"))
            expected = [value for name in (partition, "later", "after") for value in values(name)]
            assert consume(cluster, "t", partition, 3 * COUNT) == expected
            assert cluster.brokers[1].batches("t", partition) == cluster.brokers[2].batches("t", partition)
