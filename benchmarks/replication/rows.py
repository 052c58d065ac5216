"""The rows of the table. Each row is a function that puts a load on one cluster for a moment and returns its
figures."""

import dataclasses
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.floor.floor import ENVIRONMENT
from benchmarks.peers import requests
from benchmarks.peers.rows import (
    PIPELINE_DEPTH,
    back_memory,
    batches,
    checked,
    load,
    one_record,
    produce,
    round_trip,
    with_cpu,
)

from kafkacore._fast.plane.load_client import Load, LoadResult
from kafkacore.protocol.messages import ListPartitionReassignmentsRequest

from .cluster import LIMIT_S, NODES, REPLICAS, THROTTLED
from .probe import Probe, first_records

LEADER, FOLLOWER, THIRD = NODES
BATCH_MB = 1.0
# During a reassignment, another load runs in slices of SLICE_S. The load ends with the first slice after the
# reassignment.
SLICE_S = 0.1
STOP_S = 300
SMALL_BYTES = 100 << 20
TOPIC_PARTITIONS = 100


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The amount of work of each row."""

    round_trips: int = 3000
    produce_mb: int = 400
    followed_mb: int = 1000
    led_partitions: int = 2000
    probed_partitions: int = 100
    new_partitions: int = 5000
    idle_partitions: int = 10_000
    settle_s: float = 20.0
    idle_s: float = 30.0
    reassigned_mb: int = 1000
    moved_partitions: int = 4
    throttle_mb: int = 0  # the limit of a reassignment in MB/s; 0 is no limit


SMOKE = Sizes(
    round_trips=100, produce_mb=8, followed_mb=8, led_partitions=20, probed_partitions=10, new_partitions=100,
    idle_partitions=100, settle_s=0.1, idle_s=0.5, reassigned_mb=8, moved_partitions=2,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    """One row. The plot shows the figure that `shown` names. With `alone`, each round starts a cluster, and no other
    cluster runs meanwhile. Otherwise all clusters run through all rounds, and the first round warms up and does not
    count."""

    title: str
    shown: str
    measure: Callable
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    alone: bool = False
    floor: Callable | None = None


# --- one leader and its followers ---


def one_at_a_time(nodes, sizes):
    return round_trip(nodes, sizes.round_trips)


def large_batches(nodes, sizes):
    return produce(nodes, "none", round(sizes.produce_mb / BATCH_MB))


def followed(nodes, sizes):
    """Writes large batches to a partition with two replicas. Measures the CPU time of the follower's process. That
    process is also a controller, so the figure includes the work of an idle node."""
    made, _ = batches("none")
    topic = nodes.fresh_topic(replicas=2)
    sent = [requests.produce(topic, 0, batch) for batch in made]
    client, count = load(nodes, depth=PIPELINE_DEPTH), round(sizes.followed_mb / BATCH_MB)
    back_memory(3 * count * len(sent[0]))
    where = requests.produce_error_at(topic)
    result, cpu_s = with_cpu(lambda: client.run(sent, count=count, error_at=where), nodes.pid_of(FOLLOWER))
    client.close()
    checked(result, count)
    requests.delete(nodes.bootstrap, topic)
    size_mb = count * sum(map(len, made)) / len(made) / 1e6
    return {"CPU s per GB": cpu_s / size_mb * 1000, "MB/s": size_mb / (result.elapsed_ns / 1e9)}


def followed_floor(floor, directory, sizes):
    """Measures a lower bound for `followed`: a C program (benchmarks/floor) that only receives, checks and writes the
    same amount of data."""
    figures = run_floor(floor, "produce", directory, round(BATCH_MB * 1e6), round(sizes.followed_mb / BATCH_MB))
    return {"CPU s per GB": 1000 / figures["mb_per_cpu_s"], "MB/s": figures["mb_per_s"]}


# --- failover ---


def leader_killed(nodes, sizes):
    """Kills the leader of a partition, a node that is not the active controller."""
    active = nodes.leader()
    return killed(nodes, next(node_id for node_id in NODES if node_id != active))


def controller_killed(nodes, sizes):
    """Kills the active controller, which is also the broker that leads the partition."""
    return killed(nodes, nodes.leader())


def killed(nodes, victim):
    """Kills the leader of a partition with SIGKILL. Returns the time from the last record that this leader acknowledged
    to the next acknowledged record."""
    topic = nodes.fresh_topic(leader=victim)
    with Probe(nodes, topic, {0: victim}) as probe:
        probe.wait_at(victim)
        nodes.members[victim].kill()
        stall_s = probe.wait_without(victim)
    nodes.bring_back(victim, topic, 1)
    requests.delete(nodes.bootstrap, topic)
    return {"next acknowledged s": stall_s}


def stopped(nodes, sizes):
    """Sends SIGTERM to a broker that leads many partitions."""
    active = nodes.leader()
    victim = next(node_id for node_id in NODES if node_id != active)
    topic = nodes.fresh_topic(sizes.led_partitions, leader=victim)
    step = sizes.led_partitions // sizes.probed_partitions
    with Probe(nodes, topic, dict.fromkeys(range(0, sizes.led_partitions, step), victim)) as probe:
        time.sleep(min(sizes.settle_s, 2.0))  # for comparison, the longest stall without a fault
        calm_s = max(probe.stalls.values())
        probe.wait_at(victim)
        began = time.perf_counter()
        nodes.members[victim].child.terminate(STOP_S)
        exit_s = time.perf_counter() - began
        stall_s = probe.wait_without(victim)
    nodes.members[victim].start()
    nodes.wait_unfenced()
    return {"longest stall ms": stall_s * 1000, "before that ms": calm_s * 1000, "exit s": exit_s}


# --- many partitions ---


def made_until_written(nodes, sizes):
    began = time.perf_counter()
    names = nodes.make(sizes.new_partitions // TOPIC_PARTITIONS, TOPIC_PARTITIONS)
    answered_s = time.perf_counter() - began
    first_records(nodes, names, TOPIC_PARTITIONS)
    return {"first records acknowledged s": time.perf_counter() - began, "answered s": answered_s}


def made_floor(floor, directory, sizes):
    """Measures a lower bound for new partitions: benchmarks/floor makes the same number of directories with a written
    log in each, and syncs once."""
    figures = run_floor(floor, "create", directory, len(one_record()), sizes.new_partitions * REPLICAS)
    return {"first records acknowledged s": figures["seconds"]}


def idle(nodes, sizes):
    names = nodes.make(sizes.idle_partitions // TOPIC_PARTITIONS, TOPIC_PARTITIONS)
    first_records(nodes, names, TOPIC_PARTITIONS)
    time.sleep(sizes.settle_s)
    _, cpu_s = with_cpu(lambda: time.sleep(sizes.idle_s), *nodes.pids)
    return {"% of a core": cpu_s / sizes.idle_s * 100}


# --- moves ---


def reassigned(nodes, sizes):
    """Moves partitions with one replica to another broker. Meanwhile a client writes records to another partition, one
    at a time."""
    limited = THROTTLED if sizes.throttle_mb else {}
    topic = nodes.fresh_topic(sizes.moved_partitions, FOLLOWER, replicas=1, **limited)
    beside = nodes.fresh_topic()
    if limited:
        nodes.throttle(sizes.throttle_mb * 1_000_000)
    size_mb = filled(nodes, topic, sizes)
    request, where = [requests.produce(beside, 0, one_record())], requests.produce_error_at(beside)
    client = load(nodes)
    calm = client.run(request, count=max(sizes.round_trips // 10, 50), error_at=where)
    began = time.perf_counter()
    nodes.reassign({(topic, index): [THIRD] for index in range(sizes.moved_partitions)})
    results = []
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(wait_moved, nodes)
        while not ended.done():
            results.append(client.run(request, seconds=SLICE_S, error_at=where))
        taken_s = ended.result() - began
    client.close()
    places = {(state.replicas, state.isr) for state in nodes.partitions(topic).values()}
    if places != {((THIRD,), (THIRD,))}:
        raise RuntimeError(f"the partitions did not move to broker {THIRD}, but are at {places}")
    during = together(results)
    for name in (topic, beside):
        requests.delete(nodes.bootstrap, name)
    return {
        "MB/s": size_mb / taken_s,
        "p99 of others ms": during.percentile_ns(0.99) / 1e6,
        "p99 before ms": calm.percentile_ns(0.99) / 1e6,
    }


def wait_moved(nodes):
    """Waits until no reassignment is left. Returns the time at which this was seen."""
    request, deadline = ListPartitionReassignmentsRequest(timeout_ms=20_000), time.monotonic() + 4 * LIMIT_S
    while (answer := nodes.ask(LEADER, request, 0)) is None or answer.error_code or answer.topics:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the partitions did not move within {4 * LIMIT_S} s")
        time.sleep(0.01)
    return time.perf_counter()


def filled(nodes, topic, sizes):
    """Writes to the partitions at FOLLOWER, which leads them. Returns MB."""
    made, _ = batches("none")
    host, port = nodes.addresses[FOLLOWER].rsplit(":", 1)
    back_memory(round(2e6 * sizes.reassigned_mb))
    count = round(sizes.reassigned_mb / BATCH_MB / sizes.moved_partitions)
    for index in range(sizes.moved_partitions):
        client = Load(host, int(port), depth=PIPELINE_DEPTH)
        sent = [requests.produce(topic, index, batch) for batch in made]
        checked(client.run(sent, count=count, error_at=requests.produce_error_at(topic)), count)
        client.close()
    return sizes.moved_partitions * count * sum(map(len, made)) / len(made) / 1e6


def together(results):
    """Combines several runs of a load into one."""
    buckets = {}
    for result in results:
        if result.errors or result.broken:
            raise RuntimeError(f"the load during the reassignment failed: {result}")
        for bucket, count in result.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
    sums = {
        each: sum(getattr(result, each) for result in results)
        for each in ("requests", "errors", "broken", "sent_bytes", "received_bytes", "elapsed_ns", "cpu_ns")
    }
    return LoadResult(buckets=buckets, **sums)


# --- floors ---


def run_floor(program, work, directory, size_bytes, count):
    """Runs benchmarks/floor and returns its figures. The program's files stay, as the files of the clusters do. Only a
    large file is deleted, because the next round should reuse its pages."""
    scratch = tempfile.mkdtemp(dir=directory)
    command = [program, work, scratch, str(size_bytes), str(count)]
    figures = json.loads(subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout)
    if size_bytes * count > SMALL_BYTES:
        shutil.rmtree(scratch)
    return figures


SHORT_SESSION = {"broker.session.timeout.ms": "500", "broker.heartbeat.interval.ms": "100"}
ROWS = {
    "round-trip": Row("RF 3, acks=all, 100 B, one at a time", "p50 us", one_at_a_time),
    "produce": Row("RF 3, acks=all, 1 KB records in 1 MB batches, 5 in flight", "MB/s per CPU-s", large_batches),
    "follower": Row("CPU of a follower", "CPU s per GB", followed, floor=followed_floor),
    "reassign": Row("reassignment", "MB/s", reassigned),
    "shutdown": Row("controlled shutdown of a leader of many partitions", "longest stall ms", stopped, alone=True),
    "create": Row(
        "new partitions, RF 3", "first records acknowledged s", made_until_written, alone=True, floor=made_floor
    ),
    "idle": Row("three idle nodes with many partitions, RF 3", "% of a core", idle, alone=True),
    "leader-kill": Row("SIGKILL of a leader, session 500 ms", "next acknowledged s", leader_killed, SHORT_SESSION),
    "controller-kill": Row(
        "SIGKILL of a leader that is the active controller", "next acknowledged s", controller_killed, SHORT_SESSION
    ),
}
