"""Kills the active one of three controllers, and measures when another one answers CreateTopics.

Three controllers in this process, on real sockets and a file system in memory. The brokers are only registered: they
have a long session and send no heartbeat. A kill closes the node's sockets without a word to the others, so they wait
for the fetch timeout and then elect a leader. Figures are milliseconds from the kill to the answer.
"""

import statistics
import time

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.features import FEATURES
from kafkacore.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.testing import Cluster

BROKERS, RACKS, FACTOR = 9, 3, 3
CONTROLLERS = 2  # endpoint type of DescribeCluster
PARTITIONS_OF_A_TOPIC = 10
PARTITIONS_OF_A_REQUEST = 8_000  # with the records of their topics these are 8,800 of 10,000 records
PATIENCE_S = 120
CONFIGS = {
    "broker.session.timeout.ms": "3600000",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.fetch.timeout.ms": "2000",  # Apache Kafka's defaults; the test kit has shorter ones
    "controller.quorum.election.timeout.ms": "1000",
    # Otherwise three nodes would write their snapshots on one loop.
    "metadata.log.max.record.bytes.between.snapshots": str(1 << 40),
}


def registration(broker, cluster_id):
    made = BrokerRegistrationRequest
    return made(
        broker_id=broker, cluster_id=cluster_id, incarnation_id=Uuid.random(), rack=f"rack{broker % RACKS}",
        log_dirs=[Uuid.random()],
        listeners=[made.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[
            made.Feature(name=name, min_supported_version=each.lowest, max_supported_version=each.highest)
            for name, each in FEATURES.items()
        ],
    )  # fmt: skip


def topics(names, partitions=PARTITIONS_OF_A_TOPIC):
    made = CreateTopicsRequest
    asked = [made.CreatableTopic(name=name, num_partitions=partitions, replication_factor=FACTOR) for name in names]
    return made(topics=asked, timeout_ms=PATIENCE_S * 1000)


def fill(cluster, count):
    """Registers the brokers and creates `count` partitions."""
    active = cluster.controller.active
    cluster_id = active.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), limit_s=PATIENCE_S).cluster_id
    for broker in range(101, 101 + BROKERS):
        answer = active.ask(registration(broker, cluster_id), limit_s=PATIENCE_S)
        beat = BrokerHeartbeatRequest(
            broker_id=broker, broker_epoch=answer.broker_epoch, current_metadata_offset=1 << 40, want_fence=False
        )
        assert not active.ask(beat, limit_s=PATIENCE_S).is_fenced
    names = [f"topic-{number}" for number in range(count // PARTITIONS_OF_A_TOPIC)]
    at_once = PARTITIONS_OF_A_REQUEST // PARTITIONS_OF_A_TOPIC
    for first in range(0, len(names), at_once):
        while not created(cluster.controller.active, topics(names[first : first + at_once])):
            pass  # on a busy machine another controller may have become active


def created(node, request):
    try:
        answer = node.ask(request, limit_s=PATIENCE_S)
    except (KafkaError, OSError, TimeoutError):
        return False
    return all(each.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) for each in answer.topics)


def kill_once(cluster, number):
    """Milliseconds until the new active controller has answered."""
    offset = cluster.controller.active.image.offset
    cluster.wait_until(
        lambda: all(node.is_running and node.image.offset >= offset for node in cluster), "standbys", PATIENCE_S
    )
    killed = cluster.controller.active
    began = time.perf_counter()
    killed.kill()
    while not created(cluster.controller.active, topics([f"after-{number}"], 1)):
        pass
    took_ms = (time.perf_counter() - began) * 1e3
    killed.start()
    return took_ms


def failover(counts, rounds):
    print("| partitions | kills | median ms | longest ms | fetch timeout ms |\n|---|---|---|---|---|")
    for count in counts:
        with Cluster(controllers=3, brokers=0, configs=CONFIGS) as cluster:
            fill(cluster, count)
            took = [kill_once(cluster, number) for number in range(rounds)]
            timeout_ms = cluster.controller.active.server.config.controller_quorum_fetch_timeout_ms
        print(f"| {count:,} | {rounds} | {statistics.median(took):.0f} | {max(took):.0f} | {timeout_ms} |")
