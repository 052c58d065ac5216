"""Broker sessions after a failover of the controller. Under the new active controller, each session lasts one full
session timeout, and no longer."""

from __future__ import annotations

from typing import Any

from kafkacore.testing import Cluster
from partition_leaders import create

SESSION_MS = 9_000
PULSE_MS = SESSION_MS // 8


def another_controller_takes_over(harness: Any) -> None:
    controller = harness.controller
    epoch = controller._active_epoch
    controller.on_following(epoch)
    controller.on_leading(epoch)


async def pass_in_pulses(harness: Any, ms: int, *heard: int) -> None:
    """Advances the time by `ms`, and runs the controller's periodic check after each step of the clock. Meanwhile the
    brokers in `heard` send heartbeats."""
    end = harness.now + ms
    while harness.now < end:
        harness.now = min(harness.now + PULSE_MS, end)
        for broker_id in heard:
            await harness.heartbeat(broker_id)
        harness.controller.tick()


def test_silent_broker_is_fenced_a_full_session_after_another_controller_became_active(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        await create(harness, "t", [1, 2, 3])
        await pass_in_pulses(harness, SESSION_MS - 1, 2, 3)
        assert not harness.controller.image.brokers[1].fenced
        another_controller_takes_over(harness)
        await pass_in_pulses(harness, SESSION_MS - 1, 2, 3)
        assert not harness.controller.image.brokers[1].fenced
        await pass_in_pulses(harness, PULSE_MS, 2, 3)
        await harness.until(lambda: harness.controller.image.brokers[1].fenced)
        assert harness.partition("t", 0).leader == 2
        assert [harness.controller.image.is_active(each) for each in (2, 3)] == [True, True]

    run(story)


def test_every_silent_broker_is_fenced_after_several_changes_of_the_controller(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2, 3)
        for _ in range(3):
            await pass_in_pulses(harness, SESSION_MS // 2)
            another_controller_takes_over(harness)
        await pass_in_pulses(harness, SESSION_MS + PULSE_MS)
        await harness.until(lambda: all(each.fenced for each in harness.controller.image.brokers.values()))

    run(story)


def test_broker_that_leaves_has_a_session_under_another_controller(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2])
        (await harness.leaving(1)).cancel()
        another_controller_takes_over(harness)
        await pass_in_pulses(harness, SESSION_MS + PULSE_MS, 2)
        await harness.until(lambda: harness.controller.image.brokers[1].fenced)

    run(story)


def test_dead_broker_is_fenced_when_the_controller_dies_with_it() -> None:
    with Cluster(controllers=3, brokers=3, seed=11) as cluster:
        cluster.create_topic("t", partitions=6)
        dead = cluster.leader("t", 0)
        dead.kill()
        cluster.run_for(4)
        cluster.controller.active.kill()
        active = cluster.controller.active
        began_ms = cluster._backend.now_ms()
        cluster.wait_until(lambda: active.image.brokers[dead.node_id].fenced, "the fencing of the dead broker")
        assert SESSION_MS - 1_000 <= cluster._backend.now_ms() - began_ms <= SESSION_MS + 2 * PULSE_MS
        others = [node_id for node_id in cluster.brokers if node_id != dead.node_id]
        assert all(active.image.is_active(each) for each in others)
