"""A broker leaves a simulated cluster. The other brokers immediately report that they lead its partitions."""

from __future__ import annotations

from kafkacore.testing import Cluster

HEARTBEAT_MS = 2_000  # broker.heartbeat.interval.ms


def test_broker_leaves_long_before_the_next_heartbeat_of_the_others() -> None:
    with Cluster(controllers=1, brokers=3, seed=5) as cluster:
        cluster.create_topic("t", partitions=30, replication_factor=3)
        leaver = cluster.leader("t", 0)
        began_ms = cluster._backend.now_ms()
        leaver.stop()
        took_ms = cluster._backend.now_ms() - began_ms
        image = cluster.controller.active.image
        assert image.brokers[leaver.node_id].fenced
        topic = image.topic("t")
        leaders = {image.partition(topic, index).leader for index in range(30)}
        assert leaders == {node_id for node_id in cluster.brokers if node_id != leaver.node_id}
        assert took_ms < HEARTBEAT_MS / 4
