"""Replicated partitions of a test kit's `Cluster`: the committed state of a partition, and a client that retries."""

from __future__ import annotations

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.metadata.partitions import Partition
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import ProduceRequest
from kafkacore.testing import Cluster
from kafkacore.testing.cluster import ClusterNode

# With these settings, the cluster quickly notices a killed broker or a follower that hangs.
FAST = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 200, "replica.lag.time.max.ms": 2000}
TWO_OF_THREE = {"min.insync.replicas": 2}


def row(cluster: Cluster, topic: str, partition: int = 0) -> Partition:
    """Returns the state of the partition that the active controller has committed."""
    image = cluster.controller.active.image
    known = image.topic(topic)
    assert known is not None
    found = image.partition(known, partition)
    assert found is not None
    return found


def wait_for_isr(cluster: Cluster, topic: str, *members: int, partition: int = 0) -> None:
    cluster.wait_until(
        lambda: set(row(cluster, topic, partition).isr) == set(members), f"the ISR {members} of {topic}-{partition}"
    )


def produce(cluster: Cluster, topic: str, *values: str) -> None:
    """Writes each value with acks=all, and retries while the leader moves, as a client does."""
    for value in values:

        def write(value: str = value) -> bool:
            try:
                cluster.produce(topic, value)
            except (KafkaError, OSError):
                cluster.run_for(0.05)
                return False
            return True

        cluster.wait_until(write, f"an acknowledgement of {value}")


def append(node: ClusterNode, topic: str, value: str, acks: int = -1) -> int:
    """Sends one Produce request to this node. Returns the error code."""
    builder = RecordBatchBuilder()
    builder.append(1, None, value.encode())
    data = ProduceRequest.PartitionProduceData(index=0, records=bytes(builder.build()))
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    answer = node.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), version=9)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def values(cluster: Cluster, topic: str, count: int) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.consume(topic, count)]
