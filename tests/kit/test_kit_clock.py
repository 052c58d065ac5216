"""A clock that a test advances. When `advance` returns, all work that was due is done."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from confluent_kafka import Producer

from kafkacore._fast.plane.connection import live
from kafkacore.network.client import NodeClient
from kafkacore.protocol.messages import FetchRequest
from kafkacore.testing import Broker
from kafkacore.testing import clock as clock_module
from kafkacore.testing.clock import ClockBehind

pytestmark = pytest.mark.timeout(60)


def test_frozen_clock_stands_still_and_stamps_records() -> None:
    with Broker(topics=["t"], time="frozen", start_ms=1_800_000_000_000, configs={
        "log.message.timestamp.type": "LogAppendTime",
    }) as broker:  # fmt: skip
        broker.produce("t", "one")
        broker.clock.advance(hours=1, seconds=1.5)
        broker.produce("t", "two")
        stamps = [each.timestamp_ms for each in broker.log("t").records()]
        assert stamps == [1_800_000_000_000, 1_800_003_601_500]


def test_running_clock_goes_on_from_the_time_it_was_moved_to() -> None:
    with Broker() as broker:
        real_ms = time.time_ns() // 1_000_000
        broker.clock.advance(days=1)
        ahead_ms = broker.clock.now_ms - real_ms - 86_400_000
        assert 0 <= ahead_ms < 10_000
        seen = broker.clock.now_ms
        while broker.clock.now_ms == seen:
            pass


@pytest.mark.parametrize("mode", ["running", "frozen"])
def test_records_are_deleted_when_their_retention_is_over(mode: str) -> None:
    with Broker(topics=["t"], time=mode, configs={"log.retention.hours": 24}) as broker:
        broker.produce("t", "old")
        broker.clock.advance(hours=23)
        assert broker.log("t").values() == [b"old"]
        broker.clock.advance(hours=1, minutes=5)
        assert broker.log("t").values() == []
        assert broker.log("t").start_offset == 1
        assert broker.produce("t", "new") == 1


def test_producer_is_forgotten_when_it_expires() -> None:
    """KIP-98: after the broker has forgotten an idempotent producer, the producer begins anew. So its batch is not a
    duplicate."""
    with Broker(topics=["t"], time="frozen", configs={"producer.id.expiration.ms": 60_000}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("t", b"x")
        assert producer.flush(10) == 0
        handle = broker.node.broker.replicas.by_name("t", 0)
        assert handle is not None
        broker.clock.advance(minutes=10)
        assert handle.expire_producers() == 0  # they have already been forgotten


def test_log_is_compacted_when_compaction_is_due() -> None:
    with Broker(time="frozen") as broker:
        configs = {"cleanup.policy": "compact", "segment.ms": 60_000, "min.cleanable.dirty.ratio": 0.01}
        broker.create_topic("t", configs=configs)
        for value in ("old", "new"):
            broker.produce("t", value, key="k")
        broker.clock.advance(minutes=2)
        broker.produce("t", "x", key="of the next segment")
        assert broker.log("t").values() == [b"old", b"new", b"x"]
        broker.clock.advance(minutes=1)
        assert broker.log("t").values() == [b"new", b"x"]


@pytest.mark.parametrize("record", [False, True])
def test_waiting_fetch_is_answered_when_its_time_is_over(record: bool) -> None:
    """Without a recorder, processors answer the Fetch. With a recorder, the handler loop answers it."""
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=30_000, min_bytes=1, topics=[FetchRequest.FetchTopic(topic="t", partitions=[asked])]
    )

    async def ask(broker: Broker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        client = NodeClient(host, int(port), "asker")
        await client.api_versions()
        while live()["requests"]:  # noqa: ASYNC110 - ends when the last byte of the answer is sent and counted
            await asyncio.sleep(0)
        answer = asyncio.ensure_future(client.request(request, 12))
        while not live()["requests"] or (record and not broker.node.broker.context.waits.count):  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.to_thread(broker.clock.advance, seconds=29.9)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answer), 0.05)
        await asyncio.to_thread(broker.clock.advance, seconds=0.2)
        assert record or not live()["requests"]  # the answer has already been sent
        told = await asyncio.wait_for(answer, 10)
        assert told.responses == [] or told.responses[0].partitions[0].records in {None, b""}
        await client.close()

    with Broker(topics=["t"], time="frozen", record=record) as broker:
        asyncio.run(ask(broker))


def test_due_work_happens_in_order_and_at_its_time() -> None:
    with Broker(time="frozen", start_ms=0) as broker:
        timers = broker.node.broker.timers
        seen: list[tuple[str, int]] = []

        def note(name: str) -> None:
            seen.append((name, broker.clock.now_ms))

        async def plan() -> None:
            timers.after(2_000, lambda: note("second"))
            timers.after(1_000, lambda: (note("first"), timers.after(500, lambda: note("of the first")))[0])
            timers.after(60_000, lambda: note("much later"))

        broker.node.broker.plane.loop.run(plan())
        broker.clock.advance(seconds=3)
        assert seen == [("first", 1_000), ("of the first", 1_500), ("second", 2_000)]
        assert broker.clock.now_ms == 3_000


@pytest.mark.parametrize("mode", ["running", "frozen"])
def test_broker_stays_in_its_cluster_when_weeks_pass_at_once(mode: str) -> None:
    with Broker(topics=["t"], time=mode) as broker:
        controller = broker.node.controller_server
        assert controller is not None
        quorum, loop, now_ms = controller.quorum, controller.plane.loop, controller.replica.now_ms

        async def look() -> bool:
            """Checks the sessions. Returns whether the broker is fenced."""
            quorum.tick()
            return quorum.image.brokers[broker.node_id].fenced

        assert not loop.run(look(), 5)
        epoch, before_ms = broker.log("t").leader_epoch, now_ms()
        started = time.monotonic()
        broker.clock.advance(days=60)
        assert time.monotonic() - started < 5
        assert now_ms() - before_ms >= 60 * 86_400_000  # the quorum uses the broker's clock
        assert not loop.run(look(), 5)
        broker.produce("t", "x")
        assert broker.log("t").leader_epoch == epoch


def test_clock_refuses_to_go_back() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="time cannot go back"):
        broker.clock.advance(seconds=-1)


def test_clock_can_move_between_a_stop_and_a_start() -> None:
    with Broker(topics=["t"], time="frozen", configs={"log.retention.ms": 1000}) as broker:
        broker.produce("t", "x")
        broker.stop()
        broker.clock.advance(days=1)
        broker.start()
        broker.clock.advance(minutes=5)
        assert broker.log("t").values() == []


def test_advance_names_the_work_that_did_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_module, "CATCH_UP_SECONDS", 0.05)
    held = threading.Event()
    with Broker(time="frozen") as broker:
        loop = broker.node.broker.plane.loop
        loop.call(held.wait)
        with pytest.raises(ClockBehind, match="timers of the broker's loop"):
            broker.clock.advance(seconds=1)
        held.set()
