"""A quorum of Raft cores. A seed decides what the network and the disks lose, delay and reorder.

`World` delivers messages and checks the invariants of Raft from outside. `quiet` stops all faults.
"""

from __future__ import annotations

import heapq
from random import Random

from kafkacore._fast.record.batch import Batches
from kafkacore.protocol.messages import (
    ApiVersionsResponse,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.control import control_batch
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.effects import Work
from kafkacore.raft.election import NEVER
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import Leader
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet
from kafkacore.storage.quorum_state import QuorumState

CLUSTER = "simulated"


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
        self.bootstrap: tuple[tuple[str, int], ...] = ()
        self.endpoints: tuple[tuple[str, str, int], ...] = ()
        self.auto_join = False
        self.directory_id = directory(node_id)

    def start(self) -> None:
        config = RaftConfig(
            node_id=self.node_id, directory_id=self.directory_id, cluster_id=CLUSTER, voters=self.world.voters,
            can_vote=not self.observer, fetch_max_bytes=self.world.random.choice((1, 150, 1 << 20)),
            bootstrap=self.bootstrap, endpoints=self.endpoints,
            auto_join=self.auto_join, append_linger_ms=self.world.random.choice((0, 25)),
        )  # fmt: skip
        self.log.cold_below = self.world.random.choice((0, 1 << 62))
        self.life += 1
        self.raft = Raft(config, self.log, self.state, self.world.random, self.world.now, lambda: self.world.now)
        # A restart forgets the high watermark, so the check that it never goes back begins anew.
        self.highest = self.raft.high_watermark
        self.settle()

    def crash(self) -> None:
        self.raft = None
        self.life += 1
        self.log.crash(self.synced)

    def settle(self) -> None:
        """Does the work of a driver, with the delays of this world's disk."""
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
        for work in raft.take_work():
            world.later(world.disk_delay(), self, self.work_done, work)
        sync = raft.take_sync()
        self.synced = min(self.synced, raft.durable_offset)
        if sync is not None:
            world.later(world.disk_delay(), self, self.log_synced, sync)
        if raft.next_tick_ms < NEVER:
            world.later(max(0, raft.next_tick_ms - world.now), self, self.ticked)
        world.check(self)

    def state_written(self, state: tuple[int, QuorumState]) -> None:
        self.state = state[1]
        self.raft.persisted(state[0], self.world.now)
        self.settle()

    def work_done(self, work: Work) -> None:
        self.raft.done(work.number, work.effect.perform(self.log), self.world.now)
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
        if request.NAME == "ApiVersionsRequest":  # the server of a node answers it, not the Raft core
            kraft = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.world.carry(self, Answer(token, ApiVersionsResponse(supported_features=[kraft])))
            return
        self.raft.request(token, request, self.world.now)
        self.settle()

    def answered(self, correlation: int, response: object) -> None:
        self.raft.response(correlation, response, self.world.now)
        self.settle()


class Client:
    """A client that has requested a change of the voters. Its `response` comes once, or never."""

    response = None


class World:
    def __init__(self, seed: int, voters: int, observers: int = 1) -> None:
        self.random = Random(seed)
        self.now = 0
        self.loss = 0.1
        self.slow_disk = True
        self.delays: tuple[int, ...] = ()  # the delays of messages to choose from; empty: a random mix
        self.voters = VoterSet(Voter(ReplicaKey(n), (("CONTROLLER", f"node{n}", 9093),)) for n in range(voters))
        self.nodes = [Node(self, n, n >= voters) for n in range(voters + observers)]
        self.events: list[tuple[int, int, Node, int, object, tuple]] = []
        self.count = 0
        self.leaders: dict[int, int] = {}
        self.committed: list[tuple[int, bytes]] = []  # epoch and value at each offset
        self.values = 0
        self.damaged = 0
        # Whether a dead node's machine refuses connections; otherwise requests to the node get no answer.
        self.refuses = False

    def later(self, delay: int, node: Node, what: object, *arguments: object) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, node, node.life, what, arguments))

    def disk_delay(self) -> int:
        return self.random.randrange(30) if self.slow_disk else 0

    def carry(self, node: Node, output: Send | Answer) -> None:
        if self.random.random() < self.loss:
            return
        delay = self.random.choice(self.delays or (1, 2, 3, 10, 200 if self.loss else 5))
        if isinstance(output, Answer) and isinstance(output.token, Client):
            output.token.response = output.response
        elif isinstance(output, Send):
            target = self.nodes[int(output.to.host.removeprefix("node"))]
            assert output.to.node_id in (target.node_id, -2 - target.node_id)
            if self.refuses and target.raft is None:
                self.later(1, node, node.answered, output.correlation, None)
                return
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

    def kill(self, victim: Node) -> None:
        """Kills a node, as SIGKILL does. The machine continues to run, so it resets the connections of the process and
        refuses new ones."""
        self.refuses = True
        victim.crash()
        for node in self.nodes:
            if node.raft is not None:
                for sent in in_flight(node, victim.node_id):
                    self.later(1, node, node.answered, sent.correlation, None)

    def damage(self, response: object) -> None:
        """Flips a bit in the records of a Fetch answer, or cuts off the records. A checksum covers each bit that it
        flips."""
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


def target(world: World, output: Send | Answer) -> Node:
    return world.nodes[output.to.node_id] if isinstance(output, Send) else output.token[0]


def endpoint(node_id: int) -> tuple[str, str, int]:
    return "CONTROLLER", f"node{node_id}", 9093


def dynamic_world(seed: int, voters: int, others: int) -> World:
    """Makes a world in which every node can become a voter. The first checkpoint of the log lists the first `voters`
    nodes as voters."""
    world = World(seed, voters, others)
    first = VoterSet(Voter(ReplicaKey(n, directory(n)), (endpoint(n),)) for n in range(voters))
    world.voters = VoterSet()
    records = [SnapshotHeaderRecord(), KRaftVersionRecord(kraft_version=1), first.to_record(), SnapshotFooterRecord()]
    checkpoint = control_batch(records, 0, 0, 0)
    for node in world.nodes:
        node.observer = False
        node.bootstrap = tuple((f"node{n}", 9093) for n in range(voters))
        # A leader sends its endpoints to the voters that it contacts. Without them, a voter whose log names other
        # voters could not find this leader.
        node.endpoints = (endpoint(node.node_id),)
        node.log.write_snapshot(OffsetAndEpoch(0, 0), 0, checkpoint)
        node.log.finish_snapshot(OffsetAndEpoch(0, 0))
    return world


def led_world(seed: int, voters: int, others: int) -> tuple[World, Node]:
    """Makes a world in which all nodes run, and the leader has committed a record in its epoch."""
    world = dynamic_world(seed, voters, others)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    world.run_until(world.now + 1_000)
    return world, world.leader()


def drop(world: World, unwanted: object) -> None:
    """Makes the world lose, from now on, every message for which `unwanted(sender, output)` is true."""
    carry = world.carry
    world.carry = lambda node, output: None if unwanted(node, output) else carry(node, output)


def in_flight(node: Node, to: int) -> list[InFlight]:
    """Returns the requests from `node` to which node `to` has not answered yet."""
    return [sent for sent in node.raft.replica.requests._in_flight.values() if sent.to.node_id == to]
