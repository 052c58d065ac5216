"""Voters that are added and removed (KIP-853), in whole quorums with random faults from a seed."""

from __future__ import annotations

import pytest

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.core import Answer, Send
from kafkacore.raft.log import MemoryLog
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet
from raft_world import CLUSTER, Client, World, directory, drop, dynamic_world, endpoint, led_world, quiet, target


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
    """Repeats the request until the change is committed. The leader refuses it while the new voter lags or another
    change is in progress."""
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
    # A leader with other voters would resign after so long without their fetches, but this one has none yet.
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
def test_quorum_keeps_committed_records_while_voters_come_and_go(seed: int) -> None:
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
    assert answered > 0, f"no voter was added or removed with seed {seed}"


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
    assert not world.run_until(world.now + 60_000, lambda: world.leader() is not None), "two of three voters are gone"
    assert not any(
        isinstance(output, Send) and output.request.NAME == "VoteRequest" for node, output in votes if node is wiped
    )
    answers = [output.response for node, output in votes if node is wiped and isinstance(output, Answer)]
    granted = [each for each in answers if each.NAME == "VoteResponse" and each.topics[0].partitions[0].vote_granted]
    assert (granted, other.raft.is_voter) == ([], True)
    leader.start()
    assert world.run_until(world.now + 60_000, lambda: world.leader() in (leader, other))
