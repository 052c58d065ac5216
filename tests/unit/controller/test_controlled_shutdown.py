"""Controlled shutdown: once the remaining brokers have taken over all partitions of a leaving broker, the controller
answers that broker's heartbeat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import UnregisterBrokerRequest
from partition_leaders import create

SESSION_MS = 9_000
SHORT = {"broker_session_timeout_ms": "200", "broker_heartbeat_interval_ms": "50"}


async def led_by_one(harness: Any, partitions: int = 1) -> None:
    """Registers three brokers. Broker 1 leads all partitions."""
    await harness.brokers(1, 2, 3)
    await create(harness, "t", *[[1, 2, 3]] * partitions)


def test_heartbeat_of_a_leaver_waits_until_all_others_have_read_of_the_new_leaders(run) -> None:
    async def story(harness):
        await led_by_one(harness, 20)
        leaves = await harness.leaving(1)
        assert {harness.partition("t", index).leader for index in range(20)} == {2}
        broker = harness.controller.image.brokers[1]
        assert broker.in_controlled_shutdown and not broker.fenced
        moved = harness.controller.image.offset
        await harness.heartbeat(2, current_metadata_offset=moved)
        await harness.heartbeat(3, current_metadata_offset=moved - 1)
        assert harness.controller.held_heartbeats == {1} and not leaves.done()
        await harness.heartbeat(3, current_metadata_offset=moved)
        told = await leaves
        assert (told.should_shut_down, told.is_fenced) == (True, True)
        assert harness.controller.image.brokers[1].fenced and not harness.controller.held_heartbeats

    run(story)


def test_leaver_that_leads_nothing_is_answered_at_once(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        assert (await harness.heartbeat(3, want_shut_down=True)).should_shut_down
        assert harness.partition("t", 0).isr == (1, 2)

    run(story)


def test_heartbeat_of_a_leaver_is_answered_after_a_quarter_of_its_session(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        began = asyncio.get_running_loop().time()
        told = await harness.heartbeat(1, want_shut_down=True)
        held_s = asyncio.get_running_loop().time() - began
        assert (told.should_shut_down, told.is_fenced) == (False, False)
        assert held_s >= 0.049 and not harness.controller.held_heartbeats
        assert harness.controller.counts.late_heartbeats == 0
        # The leaving broker sends the heartbeat again. In the meantime the other brokers have read the new metadata.
        for other in (2, 3):
            await harness.heartbeat(other)
        assert (await harness.heartbeat(1, want_shut_down=True)).should_shut_down

    run(story, **SHORT)


def test_leaver_does_not_wait_for_a_broker_that_is_fenced_meanwhile(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        leaves = await harness.leaving(1)
        await harness.heartbeat(2)
        assert harness.controller.held_heartbeats == {1}
        await harness.heartbeat(3, want_fence=True, current_metadata_offset=0)
        assert (await leaves).should_shut_down

    run(story)


def test_newer_heartbeat_of_a_leaver_takes_the_place_of_the_held_one(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        first = await harness.leaving(1)
        second = asyncio.ensure_future(harness.heartbeat(1, want_shut_down=True))
        assert not (await first).should_shut_down
        assert harness.controller.held_heartbeats == {1}
        for other in (2, 3):
            await harness.heartbeat(other)
        assert (await second).should_shut_down

    run(story)


def test_held_heartbeat_is_refused_when_the_controller_is_no_longer_active(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        leaves = await harness.leaving(1)
        harness.controller.on_following(99)
        with pytest.raises(KafkaError) as refused:
            await leaves
        assert refused.value.code == ErrorCode.NOT_CONTROLLER

    run(story)


def test_leaver_waits_for_the_others_when_another_controller_becomes_active(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        (await harness.leaving(1)).cancel()
        controller = harness.controller
        epoch = controller._active_epoch
        controller.on_following(epoch)
        controller.on_leading(epoch)
        leaves = await harness.leaving(1)
        assert not leaves.done()
        for other in (2, 3):
            await harness.heartbeat(other)
        assert (await leaves).should_shut_down

    run(story)


# --- a broker that is registered again ---


def test_held_heartbeat_is_refused_when_its_broker_is_registered_again(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        former = await harness.leaving(1)
        await harness.controller.unregister_broker(harness.caller(), UnregisterBrokerRequest(broker_id=1))
        await harness.register(1, incarnation=2)
        assert not (await harness.heartbeat(1)).is_fenced
        with pytest.raises(KafkaError) as refused:
            await former
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert harness.controller.image.is_active(1) and not harness.controller.held_heartbeats

    run(story)


def test_heartbeat_of_a_leaver_is_refused_when_its_broker_is_registered_again_before_the_commit(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        harness.log.stall()
        former = asyncio.ensure_future(harness.heartbeat(1, want_shut_down=True))
        await asyncio.sleep(0)
        harness.hear_nothing(SESSION_MS)
        harness.controller.tick()  # fences the brokers
        again = asyncio.ensure_future(harness.register(1, incarnation=2))
        await asyncio.sleep(0)
        harness.log.resume()
        await again
        assert not (await harness.heartbeat(1)).is_fenced
        with pytest.raises(KafkaError) as refused:
            await former
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH

    run(story)


def test_heartbeat_of_a_leaver_is_refused_when_the_controller_resigns_right_after_the_commit(run) -> None:
    async def story(harness):
        await led_by_one(harness)
        harness.log.stall()
        leaves = asyncio.ensure_future(harness.heartbeat(1, want_shut_down=True))
        await asyncio.sleep(0)
        controller = harness.controller
        commit = controller._commit

        def commit_and_resign(image, delta):
            commit(image, delta)
            asyncio.get_running_loop().call_soon(controller.on_following, 99)  # runs before the waiting task

        controller._commit = commit_and_resign
        harness.log.resume()
        with pytest.raises(KafkaError) as refused:
            await leaves
        assert refused.value.code == ErrorCode.NOT_CONTROLLER

    run(story, **SHORT)
