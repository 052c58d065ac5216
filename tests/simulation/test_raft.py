"""Whole quorums from a seed: lost, late and reordered messages, slow disks, crashes that lose what was not synced.

The invariants are those of Raft, checked from outside: one leader per epoch, a high watermark that never goes back,
logs that match below it, committed records that stay. After the faults end there must be a leader and progress.
"""

from __future__ import annotations

import heapq
from random import Random

import pytest

from kafkacore._fast.record.batch import Batches
from kafkacore.protocol.messages import SnapshotFooterRecord, SnapshotHeaderRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.control import control_batch
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.roles import Leader
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet
from kafkacore.storage.quorum_state import QuorumState

CLUSTER = "simulated"
SNAPSHOT = control_batch([SnapshotHeaderRecord()], 0, 0, 0) + control_batch([SnapshotFooterRecord()], 1, 0, 0)


def directory(node_id: int) -> Uuid:
    return Uuid((1000 + node_id).to_bytes(16, "big"))


class Node:
    def __init__(self, world: World, node_id: int, observer: bool) -> None:
        self.world, self.node_id, self.observer = world, node_id, observer
        self.log = MemoryLog()
        self.state: QuorumState | None = None
        self.synced = 0
        self.raft: Raft | None = None
        self.life = 0
        self.highest = 0

    def start(self) -> None:
        config = RaftConfig(
            node_id=self.node_id, directory_id=directory(self.node_id), cluster_id=CLUSTER, voters=self.world.voters,
            can_vote=not self.observer, fetch_max_bytes=self.world.random.choice((1, 150, 1 << 20)),
        )  # fmt: skip
        self.life += 1
        self.raft = Raft(config, self.log, self.state, self.world.random, self.world.now, lambda: self.world.now)
        self.highest = self.raft.high_watermark  # a restart forgets it
        self.settle()

    def crash(self) -> None:
        self.raft = None
        self.life += 1
        self.log.crash(self.synced)

    def settle(self) -> None:
        """Does the work of a driver, with the delays of this world."""
        raft, world = self.raft, self.world
        assert raft is not None
        while True:
            outputs = raft.take_outputs()
            for output in outputs:
                world.carry(self, output)
            if not outputs:
                break
        state = raft.take_state()
        if state is not None:
            world.later(world.disk_delay(), self, self.state_written, state)
        sync = raft.take_sync()
        self.synced = min(self.synced, raft.durable_offset)
        if sync is not None:
            world.later(world.disk_delay(), self, self.log_synced, sync)
        world.later(max(0, raft.next_tick_ms - world.now), self, self.ticked)
        world.check(self)

    def state_written(self, state: tuple[int, QuorumState]) -> None:
        self.state = state[1]
        self.raft.persisted(state[0], self.world.now)
        self.settle()

    def log_synced(self, sync: tuple[int, int]) -> None:
        self.raft.durable(sync, self.world.now)
        self.synced = self.raft.durable_offset
        self.settle()

    def ticked(self) -> None:
        if self.raft.next_tick_ms <= self.world.now:
            self.raft.tick(self.world.now)
            self.settle()

    def received(self, token: tuple[Node, int, int], request: object) -> None:
        self.raft.request(token, request, self.world.now)
        self.settle()

    def answered(self, correlation: int, response: object) -> None:
        self.raft.response(correlation, response, self.world.now)
        self.settle()


class World:
    def __init__(self, seed: int, voters: int, observers: int = 1) -> None:
        self.random = Random(seed)
        self.now = 0
        self.loss = 0.1
        self.slow_disk = True
        self.voters = VoterSet(Voter(ReplicaKey(n), (("CONTROLLER", f"node{n}", 9093),)) for n in range(voters))
        self.nodes = [Node(self, n, n >= voters) for n in range(voters + observers)]
        self.events: list[tuple[int, int, Node, int, object, tuple]] = []
        self.count = 0
        self.leaders: dict[int, int] = {}
        self.committed: list[tuple[int, bytes]] = []  # epoch and value at each offset
        self.values = 0
        self.damaged = 0

    def later(self, delay: int, node: Node, what: object, *arguments: object) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, node, node.life, what, arguments))

    def disk_delay(self) -> int:
        return self.random.randrange(30) if self.slow_disk else 0

    def carry(self, node: Node, output: Send | Answer) -> None:
        if self.random.random() < self.loss:
            return
        delay = self.random.choice((1, 2, 3, 10, 200 if self.loss else 5))
        if isinstance(output, Send):
            target = self.nodes[int(output.to.host.removeprefix("node"))]
            assert output.to.node_id == target.node_id
            request = type(output.request).decode(
                output.request.encode(output.request.VERSIONS[1]), output.request.VERSIONS[1]
            )
            self.later(delay, target, target.received, (node, node.life, output.correlation), request)
        else:
            source, life, correlation = output.token
            response = type(output.response).decode(
                output.response.encode(output.response.VERSIONS[1]), output.response.VERSIONS[1]
            )
            if self.loss and self.random.random() < 0.1:
                self.damage(response)
            if life == source.life:
                self.later(delay, source, source.answered, correlation, response)

    def damage(self, response: object) -> None:
        """Flips a bit of the records of a Fetch, where a checksum covers it, or cuts them off."""
        for topic in response.responses if response.NAME == "FetchResponse" else ():
            records = bytearray(topic.partitions[0].records or b"")
            if records:
                at = self.random.randrange(len(records))
                if self.random.random() < 0.5:
                    records[-1 - at % 20] ^= 1 << self.random.randrange(8)
                else:
                    del records[at:]
                self.damaged += 1
                topic.partitions[0].records = bytes(records)

    def run_until(self, end: int, stop: object = None) -> bool:
        while self.events and self.events[0][0] <= end:
            self.now, _, node, life, what, arguments = heapq.heappop(self.events)
            if node.life == life and node.raft is not None:
                what(*arguments)
                if stop is not None and stop():
                    return True
        self.now = end
        return stop is not None and stop()

    def check(self, node: Node) -> None:
        raft = node.raft
        if isinstance(raft.role, Leader):
            assert self.leaders.setdefault(raft.epoch, node.node_id) == node.node_id, (
                f"two leaders in epoch {raft.epoch}"
            )
        assert raft.high_watermark >= node.highest, "a high watermark went back"
        if raft.high_watermark > node.highest:
            self.check_committed(node, node.highest, raft.high_watermark)
            node.highest = raft.high_watermark

    def check_committed(self, node: Node, start: int, end: int) -> None:
        known = len(self.committed)
        for offset, epoch, value in records(node.log, start, end):
            if offset < known:
                assert self.committed[offset] == (epoch, value), f"node {node.node_id} differs at committed {offset}"
            else:
                assert offset == len(self.committed)
                self.committed.append((epoch, value))

    def leader(self) -> Node | None:
        leaders = [node for node in self.nodes if node.raft is not None and node.raft.is_leader]
        return max(leaders, key=lambda node: node.raft.epoch) if leaders else None

    def append(self) -> None:
        leader = self.leader()
        if leader is not None:
            self.values += 1
            leader.raft.append([b"value %d" % self.values])
            leader.settle()


def records(log: MemoryLog, start: int, end: int) -> list[tuple[int, int, bytes]]:
    found = []
    for batch in Batches(log.read(start, 1 << 30)) if start < log.end_offset else ():
        found += [(r.offset, batch.partition_leader_epoch, (r.key or b"") + (r.value or b"")) for r in batch]
    return [each for each in found if start <= each[0] < end]


def quiet(world: World) -> None:
    world.loss, world.slow_disk = 0.0, False
    for node in world.nodes:
        if node.raft is None:
            node.start()


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_quorum_keeps_committed_records(seed: int, voters: int) -> None:
    world = World(seed, voters)
    for node in world.nodes:
        node.start()
    for _ in range(60):
        world.run_until(world.now + world.random.randrange(50, 1500))
        roll = world.random.random()
        if roll < 0.15:
            victim = world.random.choice(world.nodes)
            if victim.raft is not None:
                victim.crash()
        for node in world.nodes:
            if node.raft is None and world.random.random() < 0.4:
                node.start()
        for _ in range(world.random.randrange(4)):
            world.append()
    quiet(world)
    assert world.damaged or voters == 1
    assert world.run_until(world.now + 60_000, lambda: world.leader() is not None), f"no leader with seed {seed}"
    before = len(world.committed)
    deadline = world.now + 60_000

    def everybody_has_it() -> bool:
        leader = world.leader()
        if leader is None:
            return False
        if len(world.committed) <= before or leader.raft.high_watermark < leader.log.end_offset:
            return False
        return all(node.raft.high_watermark == leader.raft.high_watermark for node in world.nodes)

    while world.now < deadline and not everybody_has_it():
        if len(world.committed) <= before:
            world.append()
        world.run_until(world.now + 500, everybody_has_it)
    assert everybody_has_it(), (
        f"no progress with seed {seed}: {[(n.raft.role, n.raft.high_watermark) for n in world.nodes]}"
    )
    whole = [records(node.log, 0, node.raft.high_watermark) for node in world.nodes]
    assert all(each == whole[0] for each in whole)


@pytest.mark.parametrize("seed", range(3))
def test_leader_resigns_when_it_loses_its_quorum_and_another_one_leads(seed: int) -> None:
    world = World(seed, 3, 0)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    old = world.leader()
    carry = world.carry
    world.carry = lambda node, output: None if old in (node, target(world, output)) else carry(node, output)
    assert world.run_until(world.now + 30_000, lambda: not old.raft.is_leader)
    assert world.run_until(world.now + 30_000, lambda: world.leader() is not None)
    assert world.leader() is not old


def target(world: World, output: Send | Answer) -> Node:
    return world.nodes[output.to.node_id] if isinstance(output, Send) else output.token[0]


def test_follower_takes_a_snapshot_when_it_is_too_far_behind() -> None:
    world = World(5, 3, 1)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    for _ in range(20):
        world.append()
        world.run_until(world.now + 100)
    behind = next(node for node in world.nodes if node is not world.leader())
    behind.crash()
    behind.log, behind.synced, behind.highest, behind.state = MemoryLog(), 0, 0, None
    leader = world.leader()
    snapshot = OffsetAndEpoch(leader.raft.high_watermark, leader.raft.epoch)
    leader.log.write_snapshot(snapshot, 0, SNAPSHOT)
    leader.log.finish_snapshot(snapshot)
    leader.log.trim(snapshot.offset)
    world.append()
    behind.start()
    assert world.run_until(world.now + 30_000, lambda: behind.raft.loaded_snapshot == snapshot)
    assert world.run_until(world.now + 30_000, lambda: behind.log.end_offset == leader.log.end_offset)
    assert behind.log.start_offset == snapshot.offset
    assert behind.log.read_snapshot(snapshot, 0, 1000) == SNAPSHOT
