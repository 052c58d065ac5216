"""The controller accepts requests of a broker only from its registered incarnation. A controlled shutdown applies only
to the broker epoch that requested it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    AllocateProducerIdsRequest,
    AssignReplicasToDirsRequest,
    ControllerRegistrationRequest,
    CreateTopicsRequest,
)

SESSION_MS = 9000


async def create(harness: Any, name: str, *replicas: list[int]) -> None:
    made = CreateTopicsRequest
    assignments = [
        made.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]
    topic = made.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    response = await harness.controller.create_topics(harness.caller(), made(topics=[topic], timeout_ms=1000))
    assert response.topics[0].error_code == 0


def leader(harness: Any, topic: str) -> int:
    found: int = harness.partition(topic, 0).leader
    return found


# -- broker ids


@pytest.mark.parametrize("node_id", [-1, -(1 << 31)])
def test_node_with_a_negative_id_is_not_registered(run: Any, node_id: int) -> None:
    """A broker cannot have id -1, because partitions and requests use it for "no leader" or "no broker"."""

    async def story(harness: Any) -> None:
        await harness.brokers(1)
        end = harness.log.end_offset
        negative = harness.registration(2)
        negative.broker_id = node_id
        with pytest.raises(KafkaError) as refused:
            await harness.controller.register_broker(harness.caller(), negative)
        assert refused.value.code == ErrorCode.INVALID_REGISTRATION
        request = ControllerRegistrationRequest(controller_id=node_id)
        with pytest.raises(KafkaError) as refused:
            await harness.controller.register_controller(harness.caller(), request)
        assert refused.value.code == ErrorCode.INVALID_REGISTRATION
        assert harness.log.end_offset == end and set(harness.controller.image.brokers) == {1}

    run(story)


# -- broker epochs


async def heartbeat(harness: Any, epoch: int) -> None:
    await harness.heartbeat(1, broker_epoch=epoch, want_shut_down=True, want_fence=True)


async def allocate(harness: Any, epoch: int) -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    await harness.controller.allocate_producer_ids(harness.caller(), request)


async def assign(harness: Any, epoch: int) -> None:
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch)
    await harness.controller.assign_replicas_to_dirs(harness.caller(), request)


@pytest.mark.parametrize("which", ["of the last incarnation", "one less", "one more", "-1"])
@pytest.mark.parametrize("ask", [heartbeat, allocate, assign])
def test_request_with_another_broker_epoch_is_refused_and_changes_nothing(run: Any, ask: Any, which: str) -> None:
    async def story(harness: Any) -> None:
        await harness.register(1)
        last = harness.epochs[1]
        await harness.register(1, incarnation=2)
        await harness.heartbeat(1)
        epoch = harness.epochs[1]
        assert last < epoch
        await create(harness, "a", [1])
        end = harness.log.end_offset
        named = {"of the last incarnation": last, "one less": epoch - 1, "one more": epoch + 1, "-1": -1}[which]
        with pytest.raises(KafkaError) as refused:
            await ask(harness, named)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert str(refused.value) == f"Expected broker epoch {epoch}, but got broker epoch {named}"
        assert harness.log.end_offset == end
        assert harness.controller.image.is_active(1) and leader(harness, "a") == 1

    run(story)


@pytest.mark.parametrize("difference", [-1, 1])
def test_heartbeat_of_another_incarnation_does_not_keep_a_session(run: Any, difference: int) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1)
        for _ in range(9):
            harness.now += SESSION_MS // 8
            with pytest.raises(KafkaError):
                await harness.heartbeat(1, broker_epoch=harness.epochs[1] + difference)
            harness.controller.tick()
        await harness.until(lambda: harness.controller.image.brokers[1].fenced)

    run(story)


# -- controlled shutdown


def test_broker_that_did_not_ask_to_leave_leads_again_after_its_next_heartbeat(run: Any) -> None:
    """A broker epoch is an offset, so any client can guess it and request a shutdown in the broker's name."""

    async def story(harness: Any) -> None:
        await harness.brokers(1)
        await create(harness, "a", [1])
        assert (await harness.heartbeat(1, want_shut_down=True)).should_shut_down  # another client sends this heartbeat
        assert leader(harness, "a") == -1
        told = await harness.heartbeat(1)
        assert (told.is_fenced, told.should_shut_down) == (False, False)
        assert leader(harness, "a") == 1
        broker = harness.controller.image.brokers[1]
        assert broker.active and broker.epoch == harness.epochs[1]
        assert [each.active for each in harness.applied.publisher.image.brokers.values()] == [True]
        # A shutdown that the broker itself requests works as usual.
        assert (await harness.heartbeat(1, want_shut_down=True)).should_shut_down
        assert leader(harness, "a") == -1

    run(story)


def test_broker_leaves_only_after_others_have_read_of_its_own_shutdown(run: Any) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1, 2)
        await create(harness, "a", [1, 2])
        guessed = await harness.leaving(1)  # another client sends this heartbeat
        first = harness.controller.image.offset
        await harness.heartbeat(1)
        assert harness.controller.image.is_active(1)
        assert not (await guessed).should_shut_down
        await create(harness, "b", [1, 2])
        await harness.heartbeat(2, current_metadata_offset=first)
        leaves = await harness.leaving(1)
        second = harness.controller.image.offset
        assert leader(harness, "b") == 2
        await harness.heartbeat(2, current_metadata_offset=second - 1)
        assert harness.controller.held_heartbeats == {1}
        await harness.heartbeat(2, current_metadata_offset=second)
        assert (await leaves).should_shut_down

    run(story)


def test_broker_that_was_fenced_while_it_left_is_active_when_it_stays(run: Any) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1, 2)
        await create(harness, "a", [1, 2])
        leaves = await harness.leaving(1)
        await harness.heartbeat(2)
        assert (await leaves).should_shut_down
        assert harness.controller.image.brokers[1].fenced
        assert not (await harness.heartbeat(1)).is_fenced
        assert harness.controller.image.is_active(1)
        for _ in range(3):
            told = await harness.heartbeat(1)
            assert (told.is_fenced, told.should_shut_down) == (False, False)

    run(story)


def test_shutdown_does_not_outlive_its_broker_epoch(run: Any) -> None:
    async def story(harness: Any) -> None:
        await harness.brokers(1, 2)
        await create(harness, "a", [1, 2])
        leaves = await harness.leaving(1)
        await harness.heartbeat(2)
        assert (await leaves).should_shut_down
        await harness.register(1, incarnation=2, previous_broker_epoch=harness.epochs[1])
        broker = harness.controller.image.brokers[1]
        assert broker.fenced and not broker.in_controlled_shutdown
        assert not (await harness.heartbeat(1)).is_fenced
        assert harness.controller.image.is_active(1)
        await create(harness, "b", [1, 2])
        leaves = await harness.leaving(1)
        assert not leaves.done()  # broker 2 has not yet fetched the records about the new leaders
        leaves.cancel()

    run(story)
