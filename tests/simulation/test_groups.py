"""Consumer groups under random faults, which a seed decides: requests are lost, late or repeated, appends fail or come
late, coordinators crash or resign, and members crash, leave and come back.

These rules always hold. In a generation, no partition has two owners. Committed offsets never go back, and no
acknowledged offset is lost. A shard that loads the log has the same state as the shard that wrote it. After the faults
have ended, every partition has an owner, and offsets advance.
"""

from __future__ import annotations

import os

import pytest

from group_world import GROUP, PARTITIONS, SETTINGS, Client, Consumer, World, committed_offsets
from kafkacore.coordinator.group.shard import GroupShard

SEEDS = int(os.environ.get("KAFKACORE_GROUP_SEEDS", "25"))
FAULTY_MS = 120_000
CALM_MS = 90_000


def trouble(world: World) -> None:
    """Causes at most one fault in each second, in addition to the faults of the network."""
    if world.calm:
        return
    world.later(1_000, lambda: trouble(world))
    world.check_replay()
    if world.shard is not None and world.chance(0.03):
        world.crash()
    elif world.shard is not None and world.chance(0.03):
        world.resign()
    if world.consumers and world.chance(0.03):
        gone = world.random.choice(world.consumers)
        gone.die()
        Consumer(world, f"{gone.name}'", gone.instance)
    if world.chance(0.02) and len(world.consumers) < 8:
        Consumer(world, f"new-{world.now}")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_group_keeps_its_invariants_during_faults(seed: int) -> None:
    world = World(seed)
    for number in range(world.random.randint(1, 5)):
        Consumer(world, f"c{number}", f"static-{number}" if world.random.random() < 0.3 else None)
    trouble(world)
    world.run(FAULTY_MS)
    world.check_log()

    world.calm = True
    if not world.consumers:
        Consumer(world, "last")
    world.run(CALM_MS)
    world.check_log()
    world.check_replay()
    assert world.shard is not None
    before = committed_offsets(world.shard)
    described = world.shard.describe_group(Client(), GROUP)
    assert described.group_state == "Stable"
    owned = sorted(partition for each in world.consumers for partition in each.positions)
    assert owned == list(range(PARTITIONS))
    world.run(10_000)
    after = committed_offsets(world.shard)
    assert all(after[partition] > before[partition] for partition in range(PARTITIONS))
    assert all(world.now - since < 1_000 for since in world.waiting.values())


def test_every_prefix_of_a_log_loads_and_offsets_only_advance() -> None:
    world = World(7)
    for number in range(4):
        Consumer(world, f"c{number}")
    trouble(world)
    world.run(FAULTY_MS)
    assert len(world.log) > 100
    shard = GroupShard(SETTINGS, lambda: bytes(16))
    last: dict[int, int] = {}
    for offset, (key, value) in enumerate(world.log):
        shard.replay(key, value, offset)
        now = committed_offsets(shard)
        assert all(now[partition] >= was for partition, was in last.items())
        last = now
        again = GroupShard(SETTINGS, lambda: bytes(16))
        if offset % 40 == 0:
            for at, record in enumerate(world.log[: offset + 1]):
                again.replay(*record, offset=at)
            assert committed_offsets(again) == now
            assert again.describe_group(Client(), GROUP) == shard.describe_group(Client(), GROUP)
