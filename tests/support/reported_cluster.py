"""Makes the log directories of a stopped cluster with a known history: a leader left and came back, a partition was
moved, and a group fell behind.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from kafkacore.protocol.messages import AlterPartitionReassignmentsRequest
from kafkacore.testing import Cluster

TOPIC, GROUP = "orders", "readers"
LEFT, MOVED = 0, 1  # the partition whose leader leaves, and the partition that is moved
WRITTEN = 200  # the number of records in partition 0
EARLY, LATE = 50, 200  # the offsets that the group commits
CONFIGS = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
}


class Story(NamedTuple):
    directories: dict[int, Path]  # log directories by node id
    controller: int
    left: int  # the leader of partition 0 that left and later came back
    successor: int  # the leader that followed `left`
    moved_to: list[int]  # the replicas of partition 1 after its move


def told(directory):
    """Runs the history, stops the cluster, and copies its directories."""
    with Cluster(controllers=1, brokers=3, configs=CONFIGS) as cluster:
        cluster.wait_until_ready()
        cluster.create_topic(TOPIC, 2, replication_factor=2)
        bootstrap = ",".join(node.bootstrap for node in cluster.brokers.values())
        fall_behind(bootstrap)
        left = cluster.leader(TOPIC, LEFT)
        left.stop()
        successor = cluster.wait_until(
            lambda: (leader := cluster.leader(TOPIC, LEFT)) is not left and leader.node_id, "another leader"
        )
        left.start()
        cluster.wait_until(lambda: len(state(cluster, LEFT).isr) == 2, "all replicas in sync")
        moved_to = move(cluster)
        found, (controller,) = {}, [node.node_id for node in cluster.controller]
        for node in [*cluster.brokers.values(), *cluster.controller]:
            source = Path(node.server.config.all_log_dirs[0])
            node.stop()
            found[node.node_id] = Path(shutil.copytree(source, directory / f"node-{node.node_id}"))
    return Story(found, controller, left.node_id, successor, moved_to)


def fall_behind(bootstrap):
    """Writes WRITTEN records. Makes a group commit the offset EARLY and later LATE, so that the group falls behind."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(WRITTEN):
        producer.produce(TOPIC, b"value %d" % number, partition=LEFT)
        if number in (EARLY - 1, EARLY):  # end a batch here, so that the test knows when record EARLY was written
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0,
    })  # fmt: skip
    for offset in (EARLY, LATE):
        consumer.commit(offsets=[TopicPartition(TOPIC, LEFT, offset)], asynchronous=False)
    consumer.close()


def state(cluster, partition):
    image = next(node.image for node in cluster.brokers.values() if node.is_running)
    return image.partition(image.topic(TOPIC), partition)


def move(cluster):
    """Moves the last replica of partition MOVED to the broker that has no replica of the partition. Returns the new
    replicas."""
    first, *_ = before = list(state(cluster, MOVED).replicas)
    target = [first, *(set(cluster.brokers) - set(before))]
    request = AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=MOVED, replicas=target)
    topic = request.ReassignableTopic(name=TOPIC, partitions=[partition])
    answer = next(iter(cluster.brokers.values())).ask(request(topics=[topic], timeout_ms=30_000))
    assert answer.error_code == 0
    assert answer.responses[0].partitions[0].error_code == 0
    cluster.wait_until(lambda: list(state(cluster, MOVED).replicas) == target, "the move")
    return target
