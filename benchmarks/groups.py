"""`python -m benchmarks.groups`: a large classic group, and many commits, on ours and Apache Kafka in turns.

Rows: 1,000 members join one group, counted from the first JoinGroup until every member has its assignment in one
generation (group.initial.rebalance.delay.ms=0: nobody waits for the sake of waiting; a member that is stable hears of
the next rebalance by a heartbeat every 50 ms); heartbeats of that group, spread evenly over time; commits of 100
partitions each, 16 groups one at a time each. CPU is the broker's own. The first round warms up and is not counted.
"""

import argparse
import contextlib
import heapq
import json
import selectors
import shutil
import socket
import statistics
import struct
import tempfile
import time
from pathlib import Path

from benchmarks.peers.contestants import SERVER_JVM
from benchmarks.peers.report import conditions, spread
from benchmarks.peers.requests import create
from benchmarks.peers.rows import load, with_cpu

from brokers import APACHE, ApacheKafka, Node
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from wire import call

MEMBERS = 1_000
JOIN, SYNC, HEARTBEAT = (11, 5), (14, 3), (12, 3)
WHILE_JOINING_S = 0.05
HEARTBEATS_S = 5.0
HEARTBEATS_PER_SECOND = 1_000
COMMIT_PARTITIONS = 100
COMMIT_GROUPS = 16  # in as many partitions, one request of each at a time
COMMIT_S = 3.0
WARM_UP_S = 20.0  # of commits in the round that does not count: a JVM compiles what runs often
LIMIT_S = 120.0
TOPIC = "committed"
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "50",
    "group.max.session.timeout.ms": "1800000",
}
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
JOIN_AGAIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.MEMBER_ID_REQUIRED}
SHOWN = {
    "join s": "1,000 members join until stable, s",
    "join CPU s": "broker CPU of that, s",
    "heartbeat p50 ms": "heartbeat p50, ms",
    "heartbeat p99 ms": "heartbeat p99, ms",
    "commits/s": "commits of 100 partitions/s",
    "commits/CPU s": "commits of 100 partitions per broker CPU-second",
}


def framed(message, version, correlation_id=0):
    inside = apis.encode_request(version, correlation_id, "groups", message)
    return struct.pack(">i", len(inside)) + inside


class Member:
    """One connection and what its consumer would know."""

    def __init__(self, address, group):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group, self.id, self.generation, self.stable = group, "", -1, False
        self.leads = 0  # how many members its last generation has, when it leads
        self.asked, self.sent_ns = None, 0
        self.received = bytearray()

    def send(self, api, message):
        self.asked, self.sent_ns = api, time.perf_counter_ns()
        self.socket.sendall(framed(message, api[1]))

    def receive(self):
        """A whole answer, or None. Raises ConnectionError."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionError("the broker closed a member's connection")
        self.received += part
        if len(self.received) < 4 or len(self.received) < 4 + struct.unpack_from(">i", self.received)[0]:
            return None
        answer = apis.response_class(self.asked[0]).decode(bytes(self.received[8:]), self.asked[1])
        self.received.clear()
        return answer

    def join(self):
        self.stable = False
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + bytes(20))
        self.send(
            JOIN,
            JoinGroupRequest(
                group_id=self.group, session_timeout_ms=300_000, rebalance_timeout_ms=300_000, member_id=self.id,
                protocol_type="consumer", protocols=[protocol],
            ),
        )  # fmt: skip

    def beat(self):
        self.send(HEARTBEAT, HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id))

    def answered(self, answer):
        """Does what comes next; True when it has its assignment, or its heartbeat was fine."""
        if answer.error_code in JOIN_AGAIN:
            self.id = getattr(answer, "member_id", self.id) or self.id
            self.join()
            return False
        if answer.error_code:
            raise RuntimeError(f"{type(answer).__name__}: {ErrorCode(answer.error_code).name}")
        if self.asked == JOIN:
            self.id, self.generation, self.leads = answer.member_id, answer.generation_id, len(answer.members)
            share = SyncGroupRequest.SyncGroupRequestAssignment
            shares = [share(member_id=each.member_id, assignment=bytes(30)) for each in answer.members]
            self.send(
                SYNC,
                SyncGroupRequest(
                    group_id=self.group, generation_id=self.generation, member_id=self.id, assignments=shares
                ),
            )
            return False
        self.stable = True
        return True


class Crowd:
    """All members of one group, driven by one thread."""

    def __init__(self, address, group, count):
        self.members = [Member(address, group) for _ in range(count)]
        self.selector = selectors.DefaultSelector()
        for member in self.members:
            self.selector.register(member.socket, selectors.EVENT_READ, member)

    def settled(self):
        leaders = [member for member in self.members if member.leads == len(self.members)]
        newest = max((leader.generation for leader in leaders), default=None)
        return newest is not None and all(each.stable and each.generation == newest for each in self.members)

    def join(self):
        """Seconds until stable."""
        began, beats = time.perf_counter(), []
        for member in self.members:
            member.join()
        while not self.settled():
            now = time.perf_counter()
            if now - began > LIMIT_S:
                raise RuntimeError(f"the group was not stable after {LIMIT_S:.0f} s")
            while beats and beats[0][0] <= now:
                heapq.heappop(beats)[2].beat()
            for key, _ in self.selector.select(max(beats[0][0] - now, 0) if beats else 1):
                answer = key.data.receive()
                if answer is not None and key.data.answered(answer):
                    heapq.heappush(beats, (time.perf_counter() + WHILE_JOINING_S, id(key.data), key.data))
        return time.perf_counter() - began

    def heartbeats(self):
        """Latencies in ns; a member that is still waited for is passed over."""
        self.drain()
        latencies, began, sent = [], time.perf_counter(), 0
        while (now := time.perf_counter()) - began < HEARTBEATS_S:
            due = int((now - began) * HEARTBEATS_PER_SECOND)
            while sent < due:
                member = self.members[sent % len(self.members)]
                sent += 1
                if member.asked is None:
                    member.beat()
            latencies += self.collect(0.0005)
        return latencies

    def collect(self, timeout_s):
        latencies = []
        for key, _ in self.selector.select(timeout_s):
            answer = key.data.receive()
            if answer is not None:
                latencies.append(time.perf_counter_ns() - key.data.sent_ns)
                key.data.asked = None
                if answer.error_code:
                    raise RuntimeError(f"a heartbeat met {ErrorCode(answer.error_code).name}")
        return latencies

    def drain(self):
        """Until nobody waits for an answer of the joining's."""
        deadline = time.perf_counter() + 1
        while time.perf_counter() < deadline:
            self.collect(0.05)
        for member in self.members:
            member.asked = None

    def close(self):
        self.selector.close()
        for member in self.members:
            member.socket.close()


def find(address, group):
    """Until the group has a coordinator."""
    request = framed(FindCoordinatorRequest(key=group), 1)
    deadline = time.perf_counter() + LIMIT_S
    while struct.unpack_from(">h", call(address, request), 4)[0]:
        if time.perf_counter() > deadline:
            raise RuntimeError("no coordinator was found")
        time.sleep(0.05)


def group_figures(broker, number):
    group = f"crowd-{number}"
    find(broker.bootstrap, group)
    crowd = Crowd(broker.bootstrap, group, MEMBERS)
    try:
        took_s, cpu_s = with_cpu(crowd.join, broker.pid)
        cuts = statistics.quantiles(crowd.heartbeats(), n=100)
    finally:
        crowd.close()
    return {
        "join s": took_s, "join CPU s": cpu_s, "heartbeat p50 ms": cuts[49] / 1e6, "heartbeat p99 ms": cuts[98] / 1e6,
    }  # fmt: skip


def commit(group, offset):
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=index, committed_offset=offset) for index in range(COMMIT_PARTITIONS)]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)
    return framed(OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic]), 7)


def settle(address, group):
    """Until the group's coordinator takes its commits."""
    find(address, group)
    deadline = time.perf_counter() + LIMIT_S
    while True:
        answer = apis.response_class(8).decode(call(address, commit(group, 0)), 7)
        errors = {each.error_code for topic in answer.topics for each in topic.partitions}
        if errors == {0}:
            return
        if not errors <= NOT_YET or time.perf_counter() > deadline:
            raise RuntimeError(f"a commit met the errors {sorted(errors)}")
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
    """Figures by broker, a list with one entry for each round."""
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
