"""Elections that the controller starts by itself: the periodic return to preferred leaders, and unclean elections."""

from __future__ import annotations

import pytest

from kafkacore.controller.quorum import periodic_elections
from kafkacore.controller.quorum.decisions import UNCLEAN_ELECTION
from kafkacore.protocol.messages import IncrementalAlterConfigsRequest
from partition_leaders import Caller, alter, asked, create

REBALANCE_S, UNCLEAN_MS = 60, 40_000
KEYS = {
    "leader_imbalance_check_interval_seconds": str(REBALANCE_S),
    "unclean_leader_election_interval_ms": str(UNCLEAN_MS),
}


def wait(harness, ms: int) -> None:
    """Advances the time while every live broker sends heartbeats."""
    for _ in range(ms // 1000):
        harness.now += 1000
        for broker in harness.controller.image.brokers.values():
            if not broker.fenced:
                harness.controller._liveness.heard(broker.broker_id, broker.epoch, harness.now)
        harness.controller.tick()


async def committed(harness) -> None:
    await harness.until(lambda: harness.controller.image.offset == harness.controller._head.offset)


async def moved_away(harness, *partitions: int) -> None:
    """Broker 1 is the preferred leader of some partitions. Stops it and starts it again, so that it is in sync but not
    the leader."""
    await harness.heartbeat(1, want_fence=True)
    await harness.heartbeat(1)
    for partition in partitions:
        await alter(harness, asked(harness, [2, 1], partition=partition), leader=2)
        assert harness.partition("t", partition).leader == 2


def test_leadership_goes_back_after_the_interval_when_the_preferred_replica_is_in_sync(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2], [1, 2])
        await moved_away(harness, 0)
        wait(harness, REBALANCE_S * 1000 - 1000)
        await committed(harness)
        assert harness.partition("t", 0).leader == 2
        wait(harness, 1000)
        await committed(harness)
        assert harness.partition("t", 0).leader == 1
        assert harness.partition("t", 1).leader == 2  # broker 1 is not in the ISR of this partition
        before = harness.log.end_offset
        wait(harness, REBALANCE_S * 1000)
        assert harness.log.end_offset == before

    run(story, **KEYS)


def test_leadership_stays_when_rebalancing_is_off(run) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2])
        await moved_away(harness, 0)
        wait(harness, 3 * REBALANCE_S * 1000)
        assert harness.partition("t", 0).leader == 2

    run(story, **KEYS, auto_leader_rebalance_enable="false")


def test_rebalance_goes_on_at_once_when_a_look_has_found_too_many(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic_elections, "MAX_ROWS_OF_A_LOOK", 2)

    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", *[[1, 2]] * 5)
        await moved_away(harness, 0, 2, 4)
        wait(harness, REBALANCE_S * 1000)
        assert harness.controller.next_tick_ms == 0
        for _ in range(2):
            harness.controller.tick()
        assert harness.controller.next_tick_ms > 0
        await committed(harness)
        assert [harness.partition("t", at).leader for at in range(5)] == [1, 2, 1, 2, 1]

    run(story, **KEYS)


@pytest.mark.parametrize("everywhere", [False, True])
def test_unclean_election_follows_when_it_is_allowed_after_the_leader_was_lost(run, everywhere) -> None:
    async def story(harness):
        await harness.brokers(1, 2)
        await create(harness, "t", [1, 2])
        await create(harness, "other", [1, 2])
        for name in ("t", "other"):
            await alter(harness, asked(harness, [1], name), name=name)
        await harness.heartbeat(1, want_fence=True)
        assert harness.partition("t", 0).leader == -1
        await allow(harness, "" if everywhere else "t")
        wait(harness, UNCLEAN_MS)
        await committed(harness)
        row = harness.partition("t", 0)
        assert (row.leader, row.isr, row.recovery_state) == (2, (2,), 1)
        assert harness.partition("other", 0).leader == (2 if everywhere else -1)

    run(story, **KEYS, level=21)


async def allow(harness, name: str) -> None:
    made = IncrementalAlterConfigsRequest
    config = made.AlterableConfig(name=UNCLEAN_ELECTION, config_operation=0, value="true")
    resource = made.AlterConfigsResource(resource_type=2 if name else 4, resource_name=name, configs=[config])
    response = await harness.controller.incremental_alter_configs(Caller(), made(resources=[resource]))
    assert response.responses[0].error_code == 0, response.responses[0].error_message
