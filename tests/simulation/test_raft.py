"""Whole quorums from a seed: lost, late and reordered messages, slow disks, crashes that lose what was not synced.

The invariants are those of Raft, checked from outside: one leader per epoch, a high watermark that never goes back,
logs that match below it, committed records that stay. After the faults end there must be a leader and progress.
"""

from __future__ import annotations

import heapq
from random import Random

import pytest

from kafkacore._fast.record.batch import Batches
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AddRaftVoterRequest,
    ApiVersionsResponse,
    KRaftVersionRecord,
    RemoveRaftVoterRequest,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft import messages
from kafkacore.raft.control import control_batch
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.effects import Work
from kafkacore.raft.election import NEVER
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
        if request.NAME == "ApiVersionsRequest":  # a node's server answers it, not its Raft core
            kraft = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.world.carry(self, Answer(token, ApiVersionsResponse(supported_features=[kraft])))
            return
        self.raft.request(token, request, self.world.now)
        self.settle()

    def answered(self, correlation: int, response: object) -> None:
        self.raft.response(correlation, response, self.world.now)
        self.settle()


class Client:
    """A client that asked for a change of the voters; its `response` comes once, or never."""

    response = None


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
        if isinstance(output, Answer) and isinstance(output.token, Client):
            output.token.response = output.response
        elif isinstance(output, Send):
            target = self.nodes[int(output.to.host.removeprefix("node"))]
            assert output.to.node_id in (target.node_id, -2 - target.node_id)
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
    assert world.run_until(world.now + 30_000, lambda: behind.raft.replica.loaded_snapshot == snapshot)
    assert world.run_until(world.now + 30_000, lambda: behind.log.end_offset == leader.log.end_offset)
    assert behind.log.start_offset == snapshot.offset
    assert behind.log.read_snapshot(snapshot, 0, 1000) == SNAPSHOT


# --- voters that come and go (KIP-853) ---


def endpoint(node_id: int) -> tuple[str, str, int]:
    return "CONTROLLER", f"node{node_id}", 9093


def dynamic_world(seed: int, voters: int, others: int) -> World:
    """Every node may vote; the first checkpoint of the log names the first `voters` of them."""
    world = World(seed, voters, others)
    first = VoterSet(Voter(ReplicaKey(n, directory(n)), (endpoint(n),)) for n in range(voters))
    world.voters = VoterSet()
    records = [SnapshotHeaderRecord(), KRaftVersionRecord(kraft_version=1), first.to_record(), SnapshotFooterRecord()]
    checkpoint = control_batch(records, 0, 0, 0)
    for node in world.nodes:
        node.observer = False
        node.bootstrap = tuple((f"node{n}", 9093) for n in range(voters))
        node.log.write_snapshot(OffsetAndEpoch(0, 0), 0, checkpoint)
        node.log.finish_snapshot(OffsetAndEpoch(0, 0))
    return world


def add(world: World, node_id: int) -> Client:
    name, host, port = endpoint(node_id)
    listener = AddRaftVoterRequest.Listener(name=name, host=host, port=port)
    return ask_leader(
        world,
        AddRaftVoterRequest(
            cluster_id=CLUSTER, voter_id=node_id, voter_directory_id=directory(node_id), listeners=[listener]
        ),
    )


def remove(world: World, node_id: int) -> Client:
    return ask_leader(
        world, RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=node_id, voter_directory_id=directory(node_id))
    )


def ask_leader(world: World, request: object) -> Client:
    client, leader = Client(), world.leader()
    if leader is not None:
        leader.raft.request(client, request, world.now)
        leader.settle()
    return client


def voter_ids(world: World) -> set[int]:
    leader = world.leader()
    return {voter.key.replica_id for voter in leader.raft.voters.latest.voters()} if leader is not None else set()


def change(world: World, ask: object, node_id: int) -> None:
    """Asks until the change is committed: a leader refuses while the new voter lags or another change is under way."""
    for _ in range(100):
        client = ask(world, node_id)
        world.run_until(world.now + 10_000, lambda client=client: client.response is not None)
        if client.response is not None and client.response.error_code == ErrorCode.NONE:
            return
        world.run_until(world.now + 500)
    raise AssertionError(f"{ask.__name__} {node_id}: {client.response}")


@pytest.mark.parametrize("seed", range(3))
def test_quorum_of_one_grows_to_three_and_shrinks_to_another_one(seed: int) -> None:
    world = dynamic_world(seed, 1, 2)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    # No voter has fetched from the leader for longer than the check of its quorum allows.
    world.run_until(world.now + 60_000)
    epoch = world.leader().raft.epoch
    for node_id in (1, 2):
        change(world, add, node_id)
        world.append()
    assert (voter_ids(world), world.leader().raft.epoch) == ({0, 1, 2}, epoch)
    for node_id in (0, 1):
        change(world, remove, node_id)
        assert world.run_until(
            world.now + 30_000, lambda node_id=node_id: world.leader() not in (None, world.nodes[node_id])
        )
        world.append()
    assert voter_ids(world) == {2}
    assert world.leader() is world.nodes[2]
    end = world.leader().log.end_offset
    assert world.run_until(world.now + 30_000, lambda: all(node.raft.high_watermark == end for node in world.nodes))


@pytest.mark.parametrize("seed", range(12))
def test_quorum_keeps_what_it_committed_while_voters_come_and_go(seed: int) -> None:
    world = dynamic_world(seed, 3, 2)
    for node in world.nodes:
        node.start()
    answered = 0
    for _ in range(80):
        world.run_until(world.now + world.random.randrange(50, 1500))
        roll = world.random.random()
        if roll < 0.1:
            victim = world.random.choice(world.nodes)
            if victim.raft is not None:
                victim.crash()
        for node in world.nodes:
            if node.raft is None and world.random.random() < 0.5:
                node.start()
        world.append()
        if world.random.random() < 0.5:
            node_id = world.random.randrange(5)
            ask = remove if node_id in voter_ids(world) and len(voter_ids(world)) > 2 else add
            client = ask(world, node_id)
            world.run_until(world.now + 3_000, lambda client=client: client.response is not None)
            answered += client.response is not None and client.response.error_code == ErrorCode.NONE
    quiet(world)
    assert world.run_until(world.now + 120_000, lambda: world.leader() is not None), f"no leader with seed {seed}"
    world.append()

    def everybody_has_it() -> bool:
        leader = world.leader()
        return leader is not None and all(
            node.raft.high_watermark == leader.log.end_offset == node.log.end_offset for node in world.nodes
        )

    assert world.run_until(world.now + 120_000, everybody_has_it), (
        f"no progress with seed {seed}: {[(n.raft.role, n.raft.high_watermark) for n in world.nodes]}"
    )
    assert answered > 0, f"no voter came or went with seed {seed}"


def test_leader_refuses_changes_that_cannot_be_made() -> None:
    world = dynamic_world(1, 3, 1)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    duplicate = add(world, 1).response
    assert (duplicate.error_code, "already part of the set of voters 0, 1, 2" in duplicate.error_message) == (
        ErrorCode.DUPLICATE_VOTER,
        True,
    )
    assert remove(world, 3).response.error_code == ErrorCode.VOTER_NOT_FOUND
    nameless = ask_leader(
        world, AddRaftVoterRequest(cluster_id=CLUSTER, voter_id=3, voter_directory_id=directory(3), listeners=[])
    )
    assert nameless.response.error_code == ErrorCode.INVALID_REQUEST
    change(world, remove, (world.leader().node_id + 1) % 3)
    first, second = remove(world, world.leader().node_id), add(world, 3)
    assert (first.response, second.response.error_code) == (None, ErrorCode.REQUEST_TIMED_OUT)
    follower = next(node for node in world.nodes if not node.raft.is_leader)
    client = Client()
    follower.raft.request(
        client, RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=0, voter_directory_id=directory(0)), world.now
    )
    follower.settle()
    assert client.response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(voter_ids(world)) == 1


def test_static_voters_refuse_a_new_one() -> None:
    world = World(1, 3, 1)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    assert add(world, 3).response.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_voter_that_listens_elsewhere_has_the_leader_write_it() -> None:
    world = dynamic_world(2, 3, 0)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    moved = next(node for node in world.nodes if not node.raft.is_leader)
    moved.crash()
    moved.endpoints = (endpoint(moved.node_id), ("SECOND", f"node{moved.node_id}", 9094))
    moved.start()
    assert world.run_until(
        world.now + 30_000,
        lambda: all(
            node.raft.voters.latest.get(moved.node_id).endpoints == moved.endpoints
            and node.raft.voters.latest_offset < node.raft.high_watermark
            for node in world.nodes
        ),
    )


def led_world(seed: int, voters: int, others: int) -> tuple[World, Node]:
    """Everybody runs, and the leader has committed a record of its epoch."""
    world = dynamic_world(seed, voters, others)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    world.run_until(world.now + 1_000)
    return world, world.leader()


def drop(world: World, unwanted: object) -> None:
    """From now on the world loses what `unwanted(sender, output)` is true of."""
    carry = world.carry
    world.carry = lambda node, output: None if unwanted(node, output) else carry(node, output)


def test_leader_refuses_a_change_while_the_latest_one_is_not_committed() -> None:
    world, leader = led_world(1, 3, 1)
    drop(world, lambda node, output: not isinstance(getattr(output, "token", None), Client))
    first = remove(world, (leader.node_id + 1) % 3)
    assert world.run_until(world.now + 2_500, lambda: first.response is not None)
    assert (first.response.error_code, leader.raft.is_leader) == (ErrorCode.REQUEST_TIMED_OUT, True)
    second = remove(world, (leader.node_id + 2) % 3)
    assert second.response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert second.response.error_message == "The latest change of the voters is not committed yet."


def test_leader_adds_no_voter_that_has_not_fetched_its_log() -> None:
    world = dynamic_world(1, 3, 1)
    drop(world, lambda node, output: node.node_id == 3 and isinstance(output, Send))
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    client = add(world, 3)
    assert world.run_until(world.now + 2_500, lambda: client.response is not None)
    assert "is lagging behind" in client.response.error_message
    assert voter_ids(world) == {0, 1, 2}


def test_leader_that_removed_itself_resigns_when_it_hears_no_majority_of_the_others() -> None:
    world, leader = led_world(1, 3, 0)
    silent = world.nodes[(leader.node_id + 1) % 3]
    drop(world, lambda node, output: silent in (node, None if answers_client(output) else target(world, output)))
    remove(world, leader.node_id)
    assert silent.node_id in voter_ids(world)
    assert world.run_until(world.now + 10_000, lambda: not leader.raft.is_leader)


def answers_client(output: Send | Answer) -> bool:
    return isinstance(output, Answer) and isinstance(output.token, Client)


def test_leader_that_resigns_answers_a_change_that_waits() -> None:
    world, leader = led_world(1, 3, 0)
    drop(world, lambda node, output: not answers_client(output))
    client = remove(world, (leader.node_id + 1) % 3)
    assert client.response is None
    leader.raft.resign()
    leader.settle()
    assert client.response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_controller_joins_by_itself_when_it_may() -> None:
    world = dynamic_world(3, 3, 2)
    for node in world.nodes[3:]:
        node.auto_join, node.endpoints = True, (endpoint(node.node_id),)
    quiet(world)
    assert world.run_until(60_000, lambda: voter_ids(world) == {0, 1, 2, 3, 4})
    end = world.leader().log.end_offset
    assert world.run_until(world.now + 30_000, lambda: all(node.raft.high_watermark >= end for node in world.nodes))


def test_controller_with_a_new_disk_replaces_the_voter_of_its_id() -> None:
    world, leader = led_world(4, 3, 0)
    wiped = next(node for node in world.nodes if node is not leader)
    wiped.crash()
    wiped.log, wiped.synced, wiped.highest, wiped.state = MemoryLog(), 0, 0, None
    wiped.directory_id = Uuid(b"the directory id")
    wiped.auto_join, wiped.endpoints = True, (endpoint(wiped.node_id),)
    wiped.start()
    joined = ReplicaKey(wiped.node_id, wiped.directory_id)

    def is_voter_again() -> bool:
        voters = leader.raft.voters
        return joined in voters.latest and len(voters.latest) == 3 and voters.latest_offset < leader.raft.high_watermark

    assert world.run_until(world.now + 60_000, is_voter_again)
    assert world.run_until(world.now + 5_000, lambda: wiped.raft.is_voter)


# --- from static to dynamic voters (kraft.version 0 to 1) ---


def static_world(seed: int, voters: int, others: int) -> World:
    world = World(seed, voters, others)
    quiet(world)
    for node in world.nodes:
        node.crash()
        node.endpoints = (endpoint(node.node_id),)
        node.start()
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    return world


def may_be_dynamic(world: World) -> bool:
    leader = world.leader()
    return leader is not None and leader.raft.why_not_dynamic() is None


@pytest.mark.parametrize("seed", range(3))
def test_static_voters_become_dynamic_and_can_change(seed: int) -> None:
    world = static_world(seed, 3, 1)
    assert world.run_until(world.now + 30_000, lambda: may_be_dynamic(world))
    leader = world.leader()
    offset = leader.raft.make_dynamic()
    leader.settle()
    assert world.run_until(world.now + 10_000, lambda: all(node.raft.high_watermark > offset for node in world.nodes))
    expected = VoterSet(Voter(ReplicaKey(n, directory(n)), (endpoint(n),)) for n in range(3))
    for node in world.nodes:
        assert (node.raft.voters.kraft_version, node.raft.voters.latest) == (1, expected)
    world.nodes[3].observer = False
    world.nodes[3].crash()
    world.nodes[3].start()
    change(world, add, 3)
    change(world, remove, (world.leader().node_id + 1) % 3)
    assert len(voter_ids(world)) == 3 and 3 in voter_ids(world)


def test_static_voters_stay_static_while_one_of_them_has_not_said_its_directory() -> None:
    world = World(1, 3, 0)
    quiet(world)
    for node in world.nodes:
        node.crash()
        node.endpoints = (endpoint(node.node_id),)
    for node in world.nodes[:2]:
        node.start()
    assert world.run_until(30_000, lambda: world.leader() is not None and world.leader().raft.high_watermark > 0)
    world.run_until(world.now + 10_000)
    assert "of the voters 2 yet" in world.leader().raft.why_not_dynamic()
    world.nodes[2].start()
    assert world.run_until(world.now + 30_000, lambda: may_be_dynamic(world))


def test_change_to_dynamic_voters_is_undone_with_the_end_of_a_log() -> None:
    world = static_world(1, 3, 0)
    assert world.run_until(world.now + 30_000, lambda: may_be_dynamic(world))
    old = world.leader()
    drop(world, lambda node, output: old in (node, target(world, output)))
    old.raft.make_dynamic()
    old.settle()
    assert old.raft.voters.kraft_version == 1
    others = [node for node in world.nodes if node is not old]
    assert world.run_until(world.now + 30_000, lambda: any(node.raft.is_leader for node in others))
    world.append()
    del world.carry
    assert world.run_until(world.now + 30_000, lambda: old.raft.voters.kraft_version == 0)
    assert old.raft.voters.latest == world.voters


@pytest.mark.parametrize("seed", range(6))
def test_voter_with_a_wiped_disk_neither_votes_nor_leads(seed: int) -> None:
    world, leader = led_world(seed, 3, 0)
    wiped = next(node for node in world.nodes if node is not leader)
    wiped.crash()
    wiped.log, wiped.synced, wiped.highest, wiped.state = MemoryLog(), 0, 0, None
    wiped.directory_id = Uuid(b"the directory id")
    wiped.start()
    for _ in range(3):
        world.append()
        world.run_until(world.now + 1_000)
    assert not wiped.raft.is_voter and wiped.raft.high_watermark == leader.raft.high_watermark
    other = next(node for node in world.nodes if node not in (leader, wiped))
    leader.crash()
    votes = []
    carry = world.carry
    world.carry = lambda node, output: votes.append((node, output)) or carry(node, output)
    assert not world.run_until(world.now + 60_000, lambda: world.leader() is not None), "two voters of three are gone"
    assert not any(
        isinstance(output, Send) and output.request.NAME == "VoteRequest" for node, output in votes if node is wiped
    )
    answers = [output.response for node, output in votes if node is wiped and isinstance(output, Answer)]
    granted = [each for each in answers if each.NAME == "VoteResponse" and each.topics[0].partitions[0].vote_granted]
    assert (granted, other.raft.is_voter) == ([], True)
    leader.start()
    assert world.run_until(world.now + 60_000, lambda: world.leader() in (leader, other))


# --- the first election ---


@pytest.mark.parametrize("seed", range(10))
def test_quorum_that_never_ran_elects_within_a_tenth_of_the_election_timeout(seed: int) -> None:
    world = World(seed, 3, 0)
    quiet(world)
    assert world.run_until(100, lambda: world.leader() is not None), "RaftConfig has 1000 ms"


@pytest.mark.parametrize("seed", range(10))
def test_quorum_that_ran_before_waits_for_the_election_timeout(seed: int) -> None:
    world = World(seed, 3, 0)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    world.run_until(world.now + 1_000)
    for node in world.nodes:
        node.crash()
    quiet(world)
    assert not world.run_until(world.now + 999, lambda: world.leader() is not None)
    assert world.run_until(world.now + 30_000, lambda: world.leader() is not None)


@pytest.mark.parametrize("seed", range(10))
def test_static_voter_with_a_wiped_disk_follows_its_leader_without_an_election(seed: int) -> None:
    world = World(seed, 3, 0)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    world.append()
    world.run_until(world.now + 1_000)
    leader, epoch = world.leader(), world.leader().raft.epoch
    wiped = next(node for node in world.nodes if node is not leader)
    wiped.crash()
    wiped.log, wiped.synced, wiped.highest, wiped.state = MemoryLog(), 0, 0, None
    wiped.start()
    assert world.run_until(world.now + 2_000, lambda: wiped.raft.high_watermark == leader.raft.high_watermark)
    assert (world.leader(), leader.raft.epoch) == (leader, epoch)


@pytest.mark.parametrize("seed", range(10))
def test_observer_finds_a_new_leader_when_the_voters_still_named_the_old_one(seed: int) -> None:
    world = World(seed, 3, 1)
    quiet(world)
    observer = world.nodes[3]
    assert world.run_until(30_000, lambda: world.leader() is not None)
    world.run_until(world.now + world.random.randrange(2_000, 4_000))
    world.leader().crash()
    assert world.run_until(world.now + 30_000, lambda: world.leader() is not None)
    leader = world.leader().node_id
    # No message says that the old leader is dead. The observer's fetch timeout ends at most one long Fetch after that
    # of the voters.
    within = messages.FETCH_MAX_WAIT_MS + 100
    assert world.run_until(world.now + within, lambda: observer.raft.leader_id == leader)


# --- beside a voter of a release without PreVote (Apache Kafka 3.9) ---


class OldNode(Node):
    """A voter that refuses pre-votes, asks for none, and begins a new epoch for each attempt to be elected (KIP-996
    came later). After a rejection it tries again soon, as Apache Kafka 3.9 does: its waits double up to the longest
    backoff."""

    attempts = 0

    def start(self) -> None:
        super().start()
        elections, replica = self.raft.elections, self.raft.replica
        elections.campaign = elections._become_candidate
        replica.backoff_ms = self.backoff_ms

    def backoff_ms(self) -> int:
        self.attempts += 1
        return min(100 * self.world.random.randrange(2 << min(20, self.attempts)), 1000)

    def received(self, token: tuple[Node, int, int], request: object) -> None:
        if request.NAME == "VoteRequest" and request.topics[0].partitions[0].pre_vote:
            self.world.carry(self, Answer(token, messages.refused(request, ErrorCode.UNSUPPORTED_VERSION)))
            return
        super().received(token, request)


def world_with_old_voters(seed: int, old: int) -> World:
    world = World(seed, 3, 0)
    for node_id in range(old):
        world.nodes[node_id] = OldNode(world, node_id, observer=False)
    return world


@pytest.mark.parametrize("seed", range(10))
def test_voters_elect_when_an_old_one_with_a_shorter_log_stands_again_and_again(seed: int) -> None:
    world = world_with_old_voters(seed, 1)
    quiet(world)
    old, *others = world.nodes
    assert world.run_until(30_000, lambda: world.leader() is not None)
    old.crash()
    assert world.run_until(world.now + 30_000, lambda: world.leader() in others)
    for _ in range(5):
        world.append()
        world.run_until(world.now + 100)
    for node in others:
        node.crash()
    old.start()
    world.run_until(world.now + 10_000)
    assert not old.raft.is_leader
    for node in others:
        node.start()
    assert world.run_until(world.now + 10_000, lambda: world.leader() in others), (
        f"nobody leads: {[(type(node.raft.role).__name__, node.raft.epoch) for node in world.nodes]}"
    )


@pytest.mark.parametrize("old", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_mixed_voters_have_a_leader_soon_after_faults(seed: int, old: int) -> None:
    world = world_with_old_voters(seed, old)
    for node in world.nodes:
        node.start()
    for _ in range(12):
        world.loss, world.slow_disk = world.random.choice((0.0, 0.3)), world.random.random() < 0.5
        for node in world.nodes:
            if node.raft is None:
                node.start()
            elif world.random.random() < 0.4:
                node.crash()
        for _ in range(6):
            world.append()
            world.run_until(world.now + world.random.randrange(20, 600))
        quiet(world)
        # Enough time for two fetch timeouts, after which all nodes know that the last leader is gone, and for some
        # elections.
        committed, deadline = len(world.committed), world.now + 15_000
        while len(world.committed) == committed:
            assert world.now < deadline, [(type(node.raft.role).__name__, node.raft.epoch) for node in world.nodes]
            world.append()
            world.run_until(world.now + 100)
