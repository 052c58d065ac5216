"""How soon a quorum has a leader, with random faults from a seed: when it first starts, after the leader was lost, and
with voters of an old release."""

from __future__ import annotations

import pytest

from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import messages
from kafkacore.raft.core import Answer
from kafkacore.raft.log import MemoryLog
from kafkacore.raft.roles import Candidate, Unattached
from raft_world import Node, World, quiet, target

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
    # No message says that the old leader is dead. The observer's fetch timeout ends later than the voters'
    # timeouts, but at most by the duration of one long Fetch.
    within = messages.FETCH_MAX_WAIT_MS + 100
    assert world.run_until(world.now + within, lambda: observer.raft.leader_id == leader)


# --- with a voter of a release without PreVote (Apache Kafka 3.9) ---


class OldNode(Node):
    """A voter that refuses pre-votes, sends none, and begins a new epoch for each attempt to be elected, because it is
    older than KIP-996. After a lost election it soon tries again, as Apache Kafka 3.9 does: it doubles its waits up to
    the longest backoff."""

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
        # This is enough time for two fetch timeouts and some elections. After the timeouts, all nodes know that the old
        # leader is dead.
        committed, deadline = len(world.committed), world.now + 15_000
        while len(world.committed) == committed:
            assert world.now < deadline, [(type(node.raft.role).__name__, node.raft.epoch) for node in world.nodes]
            world.append()
            world.run_until(world.now + 100)


# --- after SIGKILL of the leader ---


def led_for_a_while(seed: int, voters: int) -> World:
    """Returns a world whose leader has committed some records, the last of them at a random moment in the past."""
    world = World(seed, voters, 0)
    quiet(world)
    assert world.run_until(30_000, lambda: world.leader() is not None)
    world.run_until(world.now + 3_000)
    for _ in range(world.random.randrange(1, 8)):
        world.append()
        world.run_until(world.now + 500)
    world.run_until(world.now + world.random.randrange(500))
    return world


def milliseconds_to_the_next_leader(world: World) -> int:
    """Kills the leader with SIGKILL. Returns the time until another node has committed a record in its epoch."""
    world.kill(world.leader())
    killed = world.now

    def leads() -> bool:
        leader = world.leader()
        return leader is not None and leader.raft.high_watermark > leader.raft.role.epoch_start_offset

    assert world.run_until(killed + 60_000, leads)
    return world.now - killed


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("lags", [False, True])
def test_nine_of_ten_quorums_have_a_leader_within_the_fetch_timeout_when_the_last_one_is_killed(
    voters: int, lags: bool
) -> None:
    took = []
    for seed in range(60):
        world = led_for_a_while(seed, voters)
        if lags:  # one follower may have the last record while another does not
            world.append()
            world.run_until(world.now + world.random.randrange(4))
        took.append(milliseconds_to_the_next_leader(world))
    took.sort()
    fetch_timeout_ms, election_timeout_ms = 2_000, 1_000
    assert took[54] <= fetch_timeout_ms + 100, took
    assert took[-1] <= fetch_timeout_ms + 2 * election_timeout_ms, took


def test_voter_that_refused_a_pre_vote_is_asked_again_when_it_stands_with_a_shorter_log() -> None:
    world = led_for_a_while(1, 3)
    leader = world.leader()
    longer, shorter = [node for node in world.nodes if node is not leader]
    carry = world.carry
    world.carry = lambda node, output: None if shorter is target(world, output) else carry(node, output)
    end = leader.log.end_offset
    world.append()
    assert world.run_until(world.now + 1_000, lambda: longer.log.end_offset > end)
    world.kill(leader)
    world.carry = carry
    longer.raft.replica.role.fetch_deadline_ms = world.now + 100
    shorter.raft.replica.role.fetch_deadline_ms = world.now + 300
    killed = world.now
    world.later(100, longer, longer.ticked)
    world.later(300, shorter, shorter.ticked)
    assert world.run_until(killed + 60_000, lambda: longer.raft.is_leader)
    assert 300 <= world.now - killed < 400


def test_candidate_steps_back_at_once_when_all_who_answer_have_voted_for_others() -> None:
    world = led_for_a_while(1, 3)
    one, other = [node for node in world.nodes if node is not world.leader()]
    world.kill(world.leader())
    killed = world.now
    world.delays = (1,)
    for node in (one, other):
        node.raft.replica.role.fetch_deadline_ms = world.now
        world.later(0, node, node.ticked)
    both = [node.raft for node in (one, other)]
    assert world.run_until(killed + 100, lambda: all(isinstance(raft.role, Candidate) for raft in both))
    epoch = one.raft.epoch
    assert world.run_until(killed + 100, lambda: all(isinstance(raft.role, Unattached) for raft in both))
    assert {raft.epoch for raft in both} == {epoch}
    assert world.run_until(killed + 1_200, lambda: world.leader() is not None), "the longest back-off is 1,000 ms"
