"""A follower's fetch leads to a committed ISR. The change goes from native code to the controller (AlterPartition), and
back to the native partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.made_ids import made_id
from kafkacore.protocol.messages import (
    AlterPartitionResponse,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.isr_manager import IsrManager
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.server import isr_updates
from kafkacore.server.isr_updates import IsrUpdates

TOPIC = made_id("t")
GIVEN = Uuid(b"g" * 16)
DIRECTORY = Uuid(b"d" * 16)
ME, OTHER = 1, 2
MY_EPOCH, OTHER_EPOCH = 11, 22
LIMIT_S = 10
MAX_LAG_MS = 1000


class Broker:
    """A broker that leads a partition with one follower, and a stub of the controller."""

    def __init__(self, path: Path) -> None:
        self.topic_id = TOPIC
        self.clock = ManualClock()
        self.environment = Environment(self.clock)
        self.directory = LogDirectory(self.environment, str(path))
        self.log = PartitionHandle(self.directory, "t", 0, TOPIC)
        self.edges = PartitionEdges(MAX_LAG_MS, self.environment)
        self.log.report_to(self.edges)
        self.isrs = IsrManager(
            ME, lambda key: self.log if key == (self.topic_id, 0) else None, lambda: MY_EPOCH,
            lambda key: (self.topic_id, 0) if key == (TOPIC, 0) else key,
        )  # fmt: skip
        self.timers = Scheduler(self.environment, asyncio.get_running_loop().call_later)
        self.asked: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        self.updates = IsrUpdates(self.isrs, self.edges, self._send, self.timers, fail)
        self.publisher = MetadataPublisher()
        self.publisher.subscribe(self._apply)

    async def _send(self, request: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((request, future))
        return await future

    def _apply(self, image: MetadataImage, delta: Any) -> None:
        self.updates.brokers_changed(image)
        topic = image.topic("t")
        row = None if topic is None else image.partition(topic, 0)
        if row is not None:
            followers = [(each, each in row.isr) for each in row.replicas if each != ME]
            self.log.become_leader(ME, row.leader_epoch, row.partition_epoch, followers)
        self.updates.applied(image, delta)

    def commit(self, *records: Any) -> None:
        self.publisher.apply(records, self.publisher.applied_offset + 1, 1, 1)

    def give_id(self) -> None:
        """Publishes an image in which the topic has another id and the same epochs. The native log keeps its id."""
        self.topic_id = GIVEN
        self.commit(RemoveTopicRecord(topic_id=TOPIC), *created(GIVEN))

    def outlast_the_follower(self) -> None:
        """Appends a record that the follower does not fetch in time, so that it must leave the ISR."""
        self.log.append(batch())
        self.clock.advance_ms(MAX_LAG_MS + 1)
        self.timers.catch_up()

    async def request(self) -> tuple[list[tuple[int, int]], asyncio.Future[Any]]:
        """Returns the ISR in the next request, and the future for the controller's answer."""
        request, future = await self.asked.get()
        [topic] = request.topics
        [asked] = topic.partitions
        return [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs], future

    async def settled(self) -> None:
        """Waits until the broker has handled all answers."""
        assert self.updates._task is not None
        await self.updates._task

    def close(self) -> None:
        self.updates.close()
        self.timers.close()
        self.log.close()
        self.directory.close()


def fail(error: BaseException) -> None:
    raise AssertionError("nothing was to fail") from error


def accepted(isr: list[int], partition_epoch: int, topic_id: Uuid = TOPIC) -> Any:
    told = AlterPartitionResponse.PartitionData(
        partition_index=0, leader_id=ME, leader_epoch=0, isr=isr, partition_epoch=partition_epoch
    )
    return AlterPartitionResponse(topics=[AlterPartitionResponse.TopicData(topic_id=topic_id, partitions=[told])])


def created(topic_id: Uuid) -> list[Any]:
    row = PartitionRecord(
        topic_id=topic_id, partition_id=0, replicas=[ME, OTHER], isr=[ME], leader=ME, leader_epoch=0,
        partition_epoch=0, directories=[DIRECTORY] * 2,
    )  # fmt: skip
    return [TopicRecord(name="t", topic_id=topic_id), row]


def registration(broker_id: int, epoch: int, *, fenced: bool = False) -> Any:
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, fenced=fenced, log_dirs=[DIRECTORY])


Run = Callable[[Callable[[Broker], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(isr_updates, "RETRY_S", 0)

    async def play(scene: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
        broker = Broker(tmp_path)
        brokers = [registration(ME, MY_EPOCH), registration(OTHER, OTHER_EPOCH)]
        version = FeatureLevelRecord(name="metadata.version", feature_level=29)
        broker.commit(version, *brokers, *created(TOPIC))
        try:
            await scene(broker)
        finally:
            broker.close()

    return lambda scene: asyncio.run(asyncio.wait_for(play(scene), LIMIT_S))


def in_sync(log: PartitionHandle) -> list[int]:
    return [each.broker_id for each in log.followers() if each.in_sync]


def test_follower_joins_when_its_fetch_has_caught_up(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        assert broker.log.followed(OTHER, 0, OTHER_EPOCH) == 0
        isr, answer = await broker.request()
        assert isr == [(ME, MY_EPOCH), (OTHER, OTHER_EPOCH)]
        assert broker.log.is_proposing
        answer.set_result(accepted([ME, OTHER], 1))
        await broker.settled()
        assert broker.log.partition_epoch == 1
        assert in_sync(broker.log) == [OTHER]
        assert broker.isrs.counts.expands == 1

    run(scene)


def test_follower_leaves_when_it_has_not_fetched_for_the_time_of_the_lag(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        broker.commit(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[ME, OTHER]))
        broker.outlast_the_follower()
        isr, answer = await broker.request()
        assert isr == [(ME, MY_EPOCH)]
        answer.set_result(accepted([ME], 2))
        await broker.settled()
        assert in_sync(broker.log) == []
        assert broker.log.high_watermark == 1

    run(scene)


def test_request_is_sent_again_when_no_controller_answers(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        broker.log.followed(OTHER, 0, OTHER_EPOCH)
        first, answer = await broker.request()
        answer.set_exception(TimeoutError("no controller is active"))
        second, answer = await broker.request()
        assert first == second
        answer.set_exception(error_for(ErrorCode.UNKNOWN_SERVER_ERROR))
        _, answer = await broker.request()
        answer.set_result(accepted([ME, OTHER], 1))
        await broker.settled()
        assert in_sync(broker.log) == [OTHER]

    run(scene)


def test_request_is_not_sent_again_when_metadata_arrives_after_the_close(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        broker.log.followed(OTHER, 0, OTHER_EPOCH)
        _, answer = await broker.request()
        answer.set_exception(TimeoutError("no controller is active"))
        while not broker.isrs.has_more:  # noqa: ASYNC110 - the state has no event to wait for
            await asyncio.sleep(0)
        broker.updates.close()
        await asyncio.wait([task := broker.updates._task])  # type: ignore[list-item]
        broker.commit(registration(3, 33))
        assert broker.updates._task is task, "nobody would end another task"

    run(scene)


def test_isr_changes_when_the_topic_gets_its_id_before_the_answer_arrives(run: Run) -> None:
    """No later metadata would repair an ISR whose change this broker has forgotten."""

    async def scene(broker: Broker) -> None:
        broker.log.followed(OTHER, 0, OTHER_EPOCH)
        _, answer = await broker.request()
        broker.give_id()
        answer.set_result(accepted([ME, OTHER], 1))
        await broker.settled()
        assert broker.log.partition_epoch == 1
        assert in_sync(broker.log) == [OTHER]
        broker.outlast_the_follower()
        isr, _ = await broker.request()
        assert isr == [(ME, MY_EPOCH)]

    run(scene)


def test_request_is_sent_again_with_the_id_that_the_topic_got_meanwhile(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        broker.log.followed(OTHER, 0, OTHER_EPOCH)
        _, answer = await broker.request()
        broker.give_id()
        answer.set_exception(TimeoutError("no controller is active"))
        request, answer = await broker.asked.get()
        assert [topic.topic_id for topic in request.topics] == [GIVEN]
        answer.set_result(accepted([ME, OTHER], 1, GIVEN))
        await broker.settled()
        assert in_sync(broker.log) == [OTHER]

    run(scene)


def test_committed_isr_stays_when_the_topic_gets_its_id_before_the_isr_is_in_the_metadata(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        broker.log.followed(OTHER, 0, OTHER_EPOCH)
        _, answer = await broker.request()
        answer.set_result(accepted([ME, OTHER], 1))
        await broker.settled()
        broker.give_id()
        broker.outlast_the_follower()
        isr, _ = await broker.request()
        assert isr == [(ME, MY_EPOCH)]

    run(scene)


def test_follower_joins_as_soon_as_its_broker_is_unfenced(run: Run) -> None:
    async def scene(broker: Broker) -> None:
        broker.commit(registration(OTHER, OTHER_EPOCH + 1, fenced=True))
        broker.log.followed(OTHER, 0, OTHER_EPOCH + 1)
        await asyncio.sleep(0)
        assert broker.asked.empty()
        broker.commit(registration(OTHER, OTHER_EPOCH + 1))
        isr, _ = await broker.request()
        assert isr == [(ME, MY_EPOCH), (OTHER, OTHER_EPOCH + 1)]

    run(scene)


def batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.append(1, b"k", b"v")
    return bytes(builder.build())
