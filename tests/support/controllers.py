"""A controller whose quorum is a single node. It keeps its log in memory, and its writes become durable in the same
iteration of the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any

from kafkacore.config import BrokerConfig
from kafkacore.controller.quorum.controller import QuorumController
from kafkacore.controller.quorum.decisions import Settings
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import RecordWriter, decode_batch
from kafkacore.metadata.snapshot import ImageLoad
from kafkacore.protocol.features import FEATURES, metadata_version
from kafkacore.protocol.messages import BrokerHeartbeatRequest, BrokerRegistrationRequest, FeatureLevelRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.core import RaftConfig
from kafkacore.raft.driver import RaftDriver
from kafkacore.raft.log import MemoryLog
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet

CLUSTER = "a-cluster"
LIMIT_S = 20


class Now(Executor):
    """An executor that runs work immediately on the calling thread."""

    def submit(self, what: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(what(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - the future carries the exception
            future.set_exception(error)
        return future


class SyncedMemoryLog(MemoryLog):
    """A log in memory whose appends are durable immediately. After `stall`, no sync finishes until `resume`."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = 0
        self.silent: int | None = None

    def stall(self) -> None:
        self.silent = os.eventfd(0)

    def resume(self) -> None:
        """Lets every sync finish that has begun since `stall`, and every later sync."""
        assert self.silent is not None
        os.eventfd_write(self.silent, 1)

    def begin_sync(self) -> int | None:
        self.flushes += 1
        return self.silent

    def end_sync(self) -> bool:
        return True

    def flush(self) -> None:
        self.flushes += 1
        if self.silent is not None:
            os.close(self.silent)
            self.silent = None


class Caller:
    api_version = 4
    forwarded = False


class Applied:
    """A stub of the broker's metadata publisher, which the driver feeds."""

    def __init__(self) -> None:
        self.publisher = MetadataPublisher()
        self.leading: list[int] = []

    def on_batch(self, batch: Any) -> None:
        if batch.records:
            self.publisher.apply(batch.records, batch.base_offset, batch.epoch, batch.timestamp_ms)
        else:
            self.publisher.skip(batch.last_offset, batch.epoch, batch.timestamp_ms)

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> ImageLoad:
        return ImageLoad(offset, epoch, timestamp_ms, self.publisher.replace)

    def on_leading(self, epoch: int) -> None:
        self.leading.append(epoch)

    def on_following(self, epoch: int) -> None:
        self.leading.append(-epoch)


class Harness:
    """A controller with its Raft driver. `brokers` registers and unfences `broker_ids`."""

    def __init__(self, level: int = 30, log: Any = None, with_broker: bool = True, **properties: str) -> None:
        self.with_broker = with_broker
        self.level = level
        self.now = 1_000_000
        self.wall = 1_700_000_000_000
        self.log = log if log is not None else SyncedMemoryLog()
        self.state: Any = None
        self.faults: list[BaseException] = []
        self.executor: Executor = Now()
        self.config = BrokerConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "log.dirs": "/nowhere",
                "metadata.max.idle.interval.ms": "0",
                **{key.replace("_", "."): value for key, value in properties.items()},
            }
        )
        self.uuids = 0
        self.epochs: dict[int, int] = {}

    async def start(self) -> None:
        version = metadata_version(self.level)
        writer = RecordWriter(version)
        levels = {name: feature.default_level(version) for name, feature in FEATURES.items() if name != "kraft.version"}
        bootstrap = [
            writer.encode(FeatureLevelRecord(name=name, feature_level=level)) for name, level in levels.items() if level
        ]
        self.settings = Settings(CLUSTER, self.config, Random(7))
        voters = VoterSet([Voter(ReplicaKey(1), (("CONTROLLER", "localhost", 9093),))])
        self.driver = RaftDriver(
            RaftConfig(node_id=1, directory_id=Uuid(b"d" * 16), cluster_id=CLUSTER, voters=voters),
            self.log,
            self.state,
            decode=decode_batch,
            persist=self.persist,
            network=None,
            executor=self.executor,
            random=Random(1),
            now_ms=lambda: self.now,
            wall_ms=lambda: self.wall,
            on_fault=self.faults.append,
        )
        self.adopted = MetadataPublisher()
        self.controller = QuorumController(
            self.settings,
            self.driver,
            bootstrap,
            lambda: self.now,
            self.new_uuid,
            self.adopted.adopt,
        )
        self.applied = Applied()
        self.driver.add_listener(self.controller)
        if self.with_broker:
            self.driver.add_listener(self.applied)
        await self.driver.start()
        await self.until(lambda: self.controller.active and self.controller.image.features)

    def persist(self, state: Any, version: int) -> None:
        self.state = state

    def new_uuid(self) -> Uuid:
        self.uuids += 1
        return Uuid((5000 + self.uuids).to_bytes(16, "big"))

    def caller(self) -> Any:
        return Caller()

    async def until(self, done: Callable[[], Any]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not done():
                if self.faults:
                    raise self.faults[0]
                await asyncio.sleep(0)

    async def brokers(self, *broker_ids: int, **values: Any) -> None:
        for broker_id in broker_ids:
            await self.register(broker_id, **values)
            assert not (await self.heartbeat(broker_id)).is_fenced

    def hear_nothing(self, ms: int) -> None:
        """Advances the clock one millisecond at a time, as if no broker sent a heartbeat. Does not call `tick`."""
        for _ in range(ms):
            self.now += 1
            self.controller.next_tick_ms  # noqa: B018 - the property reads the clock

    async def register(self, broker_id: int, incarnation: int = 1, version: int = 4, **values: Any) -> Any:
        caller = Caller()
        caller.api_version = version
        response = await self.controller.register_broker(caller, self.registration(broker_id, incarnation, **values))
        self.epochs[broker_id] = response.broker_epoch
        return response

    def registration(self, broker_id: int, incarnation: int = 1, **values: Any) -> Any:
        values.setdefault("cluster_id", CLUSTER)
        values.setdefault("log_dirs", [directory_of(broker_id)])
        made = BrokerRegistrationRequest
        return made(
            broker_id=broker_id,
            incarnation_id=Uuid((100 * broker_id + incarnation).to_bytes(16, "big")),
            listeners=[made.Listener(name="PLAINTEXT", host=f"broker{broker_id}", port=9092, security_protocol=0)],
            features=[
                made.Feature(name=name, min_supported_version=each.lowest, max_supported_version=each.highest)
                for name, each in FEATURES.items()
            ],
            **values,
        )

    async def heartbeat(self, broker_id: int, **values: Any) -> Any:
        values.setdefault("current_metadata_offset", self.controller.image.offset)
        values.setdefault("broker_epoch", self.epochs[broker_id])
        values.setdefault("want_fence", False)
        request = BrokerHeartbeatRequest(broker_id=broker_id, **values)
        return await self.controller.heartbeat(Caller(), request)

    async def leaving(self, broker_id: int, **values: Any) -> asyncio.Task[Any]:
        """Sends a heartbeat that asks for a controlled shutdown. Returns when the controller has parked the heartbeat
        or answered it."""
        beat = asyncio.ensure_future(self.heartbeat(broker_id, want_shut_down=True, **values))
        await self.until(lambda: beat.done() or broker_id in self.controller.held_heartbeats)
        return beat

    def partition(self, topic: str, index: int) -> Any:
        image = self.controller.image
        return image.partition(image.topic(topic), index)


def directory_of(broker_id: int) -> Uuid:
    return Uuid((9000 + broker_id).to_bytes(16, "big"))


def run(story: Callable[[Harness], Any], **values: Any) -> Any:
    """Runs the test `story` on a started harness: `run(story, level=..., **properties)`."""

    async def whole() -> Any:
        harness = Harness(**values)
        await harness.start()
        result = await story(harness)
        assert not harness.faults
        return result

    return asyncio.run(whole())
