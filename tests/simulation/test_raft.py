"""Whole quorums under random faults, which a seed decides: messages are lost, late or reordered, disks are slow, and
crashes lose unsynced data.

The test checks the invariants of Raft from outside: there is one leader per epoch, high watermarks never go back, logs
agree below the high watermark, and committed records stay. After the faults have ended, there must be a leader and
progress.
"""

from __future__ import annotations

import pytest

from kafkacore.protocol.messages import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from kafkacore.raft.control import control_batch
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from raft_world import World, quiet, records, target

SNAPSHOT = control_batch([SnapshotHeaderRecord()], 0, 0, 0) + control_batch([SnapshotFooterRecord()], 1, 0, 0)


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
