"""`python -m benchmarks.groups` measures a large group and many offset commits, alternately on our broker and on Apache
Kafka's.

Rows:
- join: the time from the first JoinGroup until all 1,000 members of one group have their assignment, in one generation.
  group.initial.rebalance.delay.ms is 0. One member joins before the others, and joins again when all have their ids.
  Otherwise chance would decide how many generations there are.
- rebalance: the same time when all members join again.
- heartbeats: each of 1,000 members sends one heartbeat in 3 s, spread evenly. Measured at rest, and while another group
  of 1,000 rebalances repeatedly.
- commits: 16 groups commit 100 partitions in each request, and each group has one request in flight.

CPU is the broker's own. The client's CPU is also shown, because the client shares the machine's cores. The first round
warms up and does not count.
"""

import argparse
import contextlib
import gc
import json
import shutil
import statistics
import struct
import tempfile
import time
from pathlib import Path

from benchmarks.crowd import Crowd, Pulse
from benchmarks.peers.contestants import SERVER_JVM
from benchmarks.peers.report import conditions, spread
from benchmarks.peers.requests import create
from benchmarks.peers.rows import load, with_cpu

from brokers import APACHE, ApacheKafka, Node
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FindCoordinatorRequest, OffsetCommitRequest
from wire import call

MEMBERS = 1_000
JOINS, WARM_UP_JOINS = 3, 6  # groups in a round
REBALANCES, WARM_UP_REBALANCES = 5, 20
HEARTBEAT_INTERVAL_S = 3.0  # per member, the default of clients
HEARTBEATS_S, WARM_UP_HEARTBEATS_S = 6.0, 3.0
COMMIT_PARTITIONS = 100
COMMIT_GROUPS = 16  # each with one request in flight
COMMIT_S = 3.0
WARM_UP_S = 20.0  # duration of the commits in the round that does not count, so that the JVM compiles the code
LIMIT_S = 120.0
TOPIC = "committed"
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "50",
    "group.max.session.timeout.ms": "1800000",
}
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
SHOWN = {
    "join s": "1,000 members join, until all have their assignment, s",
    "join CPU s": "broker CPU of the join, s",
    "join client CPU s": "the client's CPU of the join, s",
    "rebalance s": "all 1,000 members join again, s",
    "rebalance CPU s": "broker CPU of the second join, s",
    "heartbeat p50 ms": "heartbeat p50, ms",
    "heartbeat p99 ms": "heartbeat p99, ms",
    "busy heartbeat p50 ms": "heartbeat p50 while another group rebalances, ms",
    "busy heartbeat p99 ms": "heartbeat p99 while another group rebalances, ms",
    "commits/s": "commits of 100 partitions/s",
    "commits/CPU s": "commits of 100 partitions per broker CPU-second",
}


def framed(message, version, correlation_id=0):
    inside = apis.encode_request(version, correlation_id, "groups", message)
    return struct.pack(">i", len(inside)) + inside


def find(address, group):
    """Waits until the group has a coordinator."""
    request = framed(FindCoordinatorRequest(key=group), 1)
    deadline = time.perf_counter() + LIMIT_S
    while struct.unpack_from(">h", call(address, request), 4)[0]:
        if time.perf_counter() > deadline:
            raise RuntimeError("no coordinator was found")
        time.sleep(0.05)


def stable_crowd(broker, group, meanwhile=lambda: None):
    """Returns a new crowd, the seconds until it was stable, and the CPU seconds that the broker and this process used
    meanwhile."""
    find(broker.bootstrap, group)
    crowd = Crowd(broker.bootstrap, group, MEMBERS, meanwhile)
    crowd.begin()
    own_s = time.thread_time()
    took_s, cpu_s = with_cpu(crowd.join, broker.pid)
    return crowd, took_s, cpu_s, time.thread_time() - own_s


def join_figures(broker, prefix, times):
    seen = []
    for number in range(times):
        crowd, *figures = stable_crowd(broker, f"{prefix}-{number}")
        crowd.close()
        seen.append(figures)
    took_s, cpu_s, own_s = (statistics.mean(each) for each in zip(*seen, strict=True))
    return {"join s": took_s, "join CPU s": cpu_s, "join client CPU s": own_s}


def heartbeat_figures(broker, prefix, rebalances, seconds):
    """Measures latencies of one crowd's heartbeats, at rest and while another crowd rebalances repeatedly."""
    crowd = stable_crowd(broker, f"{prefix}-beating")[0]
    pulse = Pulse(crowd, HEARTBEAT_INTERVAL_S)
    other = stable_crowd(broker, f"{prefix}-moving", pulse.look)[0]
    try:
        calm = latencies(pulse, lambda until: crowd.turn(min(pulse.wait_s(), until)), seconds)
        took_s, cpu_s = with_cpu(lambda: [other.rebalance() for _ in range(rebalances)], broker.pid)
        busy = latencies(pulse, lambda until: other.rebalance(), seconds)
    finally:
        crowd.close()
        other.close()
    return {
        "rebalance s": statistics.mean(took_s), "rebalance CPU s": cpu_s / rebalances,
        "heartbeat p50 ms": calm[49], "heartbeat p99 ms": calm[98],
        "busy heartbeat p50 ms": busy[49], "busy heartbeat p99 ms": busy[98],
    }  # fmt: skip


def latencies(pulse, step, seconds):
    """Returns percentiles, in ms, of the heartbeats that are sent during `seconds` of calls to `step`."""
    pulse.latencies.clear()
    end = time.perf_counter() + seconds
    while (left := end - time.perf_counter()) > 0:
        step(left)
        pulse.look()
    return [each / 1e6 for each in statistics.quantiles(pulse.latencies, n=100)]


def group_figures(broker, number):
    """Returns the figures of one round. The first round does not count. It is larger in every respect, so that the JVM
    compiles the code."""
    prefix = f"crowd-{number}"
    figures = join_figures(broker, prefix, JOINS if number else WARM_UP_JOINS)
    seconds = HEARTBEATS_S if number else WARM_UP_HEARTBEATS_S
    return figures | heartbeat_figures(broker, prefix, REBALANCES if number else WARM_UP_REBALANCES, seconds)


def commit(group, offset):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=index, committed_offset=offset) for index in range(COMMIT_PARTITIONS)]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return framed(OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic]), 7)


def settle(address, group):
    """Waits until the group's coordinator accepts the group's commits."""
    find(address, group)
    deadline = time.perf_counter() + LIMIT_S
    while True:
        answer = apis.response_class(8).decode(call(address, commit(group, 0)), 7)
        errors = {each.error_code for topic in answer.topics for each in topic.partitions}
        if errors == {0}:
            return
        if not errors <= NOT_YET or time.perf_counter() > deadline:
            raise RuntimeError(f"commits failed with the errors {sorted(errors)}")
        time.sleep(0.05)


def commit_figures(broker, seconds=COMMIT_S):
    groups = [f"committer-{number}" for number in range(COMMIT_GROUPS)]
    for group in groups:
        settle(broker.bootstrap, group)
    frames = [commit(group, offset) for offset in range(10) for group in groups]
    with contextlib.closing(load(broker, connections=COMMIT_GROUPS)) as commits:
        result, cpu_s = with_cpu(lambda: commits.run(frames, seconds=seconds), broker.pid)
    return {
        "commits/s": result.requests / (result.elapsed_ns / 1e9),
        "commits/CPU s": result.requests / cpu_s,
    }


def measured(brokers, rounds, only):
    """Returns the figures of each broker. Each figure is a list with one entry for each round."""
    figures = {name: [] for name in brokers}
    for number in range(rounds + 1):
        for name, broker in brokers.items():
            seen = group_figures(broker, number) if only != "commits" else {}
            if only != "members":
                seen |= commit_figures(broker, COMMIT_S if number else WARM_UP_S)
            if number:
                figures[name].append(seen)
            print(f"{number} {name:<12}" + "  ".join(f"{key} {value:.4g}" for key, value in seen.items()), flush=True)
    return figures


def table(figures):
    names = list(figures)
    rows = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for key, title in SHOWN.items():
        if not all(key in each for each in figures[names[0]]):
            continue
        cells = (spread([each[key] for each in figures[name]]) for name in names)
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


STARTERS = {
    "kafkacore": lambda directory: Node(directory / "node", overrides=OVERRIDES),
    **{
        name: lambda directory, name=name: ApacheKafka(name, directory, OVERRIDES, jvm=SERVER_JVM)
        for name in APACHE
    },
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", nargs="+", choices=STARTERS, default=["kafkacore", "apache-4.3"], metavar="NAME")
    parser.add_argument("--only", choices=("members", "commits"), help="the rows of one kind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the brokers' files go below it")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="groups-", dir=options.directory)).resolve()
    brokers = {}
    gc.disable()  # the client's pauses must not count as the broker's latency
    try:
        for name in options.brokers:
            brokers[name] = STARTERS[name](scratch / name)
            create(brokers[name].bootstrap, [TOPIC], COMMIT_PARTITIONS)
        figures = measured(brokers, options.rounds, options.only)
    finally:
        for broker in brokers.values():
            broker.stop()
        shutil.rmtree(scratch)
    words = conditions(options.rounds, options.directory)
    options.out.mkdir(parents=True, exist_ok=True)
    text = f"{words}.\n\n{table(figures)}\n"
    (options.out / "groups.md").write_text(text)
    (options.out / "groups.json").write_text(json.dumps({"conditions": words, "figures": figures}, indent=1))
    print(text)


if __name__ == "__main__":
    main()
