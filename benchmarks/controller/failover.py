"""Kills the active one of three controllers. Measures the time until another controller answers CreateTopics.

Each of the three controllers is a process with its own directory and the default settings of Apache Kafka, also for
snapshots. The brokers exist only as registrations, with a long session and without heartbeats. The kill is a SIGKILL.
The client requests a topic from the two other controllers in turn, until one has created it. The figure is the time in
milliseconds from the kill to that answer. The memory figure shows how much the largest process of a controller has
grown since the cluster had no topic.
"""

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.features import FEATURES
from kafkacore.protocol.messages import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    CreateTopicsRequest,
)
from kafkacore.protocol.uuid import Uuid

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from process_cluster import ProcessCluster
from processes import rss_bytes
from quorums import CLUSTER_ID

BROKERS, RACKS, FACTOR = 9, 3, 3
PARTITIONS_OF_A_TOPIC = 10
PARTITIONS_OF_A_REQUEST = 8_000  # these and their topics make 8,800 records; the limit is 10,000
PATIENCE_S = 120
ASK_EACH_S = 0.005
FETCH_TIMEOUT_MS, ELECTION_TIMEOUT_MS = 2000, 1000  # Apache Kafka's defaults
CONFIGS = {
    "broker.session.timeout.ms": "3600000",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.fetch.timeout.ms": str(FETCH_TIMEOUT_MS),
    "controller.quorum.election.timeout.ms": str(ELECTION_TIMEOUT_MS),
}
# The versions of the requests that the benchmark sends.
REGISTER, BEAT, CREATE = 4, 1, 7


def registration(broker):
    made = BrokerRegistrationRequest
    return made(
        broker_id=broker, cluster_id=CLUSTER_ID, incarnation_id=Uuid.random(), rack=f"rack{broker % RACKS}",
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
    active = cluster.leader()
    for broker in range(101, 101 + BROKERS):
        answer = cluster.ask(active, registration(broker), REGISTER)
        beat = BrokerHeartbeatRequest(
            broker_id=broker, broker_epoch=answer.broker_epoch, current_metadata_offset=1 << 40, want_fence=False
        )
        assert not cluster.ask(active, beat, BEAT).is_fenced
    names = [f"topic-{number}" for number in range(count // PARTITIONS_OF_A_TOPIC)]
    at_once = PARTITIONS_OF_A_REQUEST // PARTITIONS_OF_A_TOPIC
    for first in range(0, len(names), at_once):
        request = topics(names[first : first + at_once])
        while not created(cluster, active, request):
            active = cluster.leader()  # on a busy machine another controller may have become active


def created(cluster, node_id, request):
    answer = cluster.ask(node_id, request, CREATE)
    known = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    return answer is not None and all(each.error_code in known for each in answer.topics)


def kill_once(cluster, number):
    """Kills the active controller. Returns the milliseconds until another controller has answered CreateTopics."""
    cluster.wait_equal()
    killed = cluster.leader()
    others = [node_id for node_id in cluster.controllers if node_id != killed]
    request = topics([f"after-{number}"], 1)
    began = time.perf_counter()
    cluster.controllers[killed].kill()
    while not any(created(cluster, node_id, request) for node_id in others):
        if time.perf_counter() - began > PATIENCE_S:
            raise TimeoutError(f"no controller answers CreateTopics\n{cluster.seen()}")
        time.sleep(ASK_EACH_S)
    took_ms = (time.perf_counter() - began) * 1e3
    cluster.controllers[killed].start()
    return took_ms


def memory_mib(cluster):
    return [rss_bytes(member.child.pid) / (1 << 20) for member in cluster.controllers.values()]


def failover(counts, rounds, directory=None):
    print("| partitions | kills | median ms | p90 ms | longest ms | must: median, p90 | memory MiB |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for count in counts:
        path = Path(tempfile.mkdtemp(prefix="kafkacore-failover-", dir=directory))
        cluster = ProcessCluster(path, brokers={}, settings=CONFIGS)
        try:
            cluster.start()
            empty = memory_mib(cluster)
            fill(cluster, count)
            cluster.wait_equal()
            memory = max(full - before for full, before in zip(memory_mib(cluster), empty, strict=True))
            took = []
            for number in range(rounds):
                took.append(kill_once(cluster, number))
                print(f"kill {number + 1} of {rounds}: {took[-1]:.0f} ms", file=sys.stderr, flush=True)
        finally:
            cluster.close()
            shutil.rmtree(path)
        p90 = sorted(took)[max(0, -(-9 * len(took) // 10) - 1)]
        must = f"{FETCH_TIMEOUT_MS + 100}, {FETCH_TIMEOUT_MS + ELECTION_TIMEOUT_MS}"
        told = f"{statistics.median(took):.0f} | {p90:.0f} | {max(took):.0f} | {must} | {memory:.0f}"
        print(f"| {count:,} | {rounds} | {told} |", flush=True)
