"""A broker with its network layer, partitions and handlers, but without a controller. A growing list of metadata
records replaces the controller."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.config import BrokerConfig
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.protocol.messages import (
    AllocateProducerIdsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.process import DATA, Runtime
from kafkacore.runtime.world import World
from kafkacore.server.broker import BrokerServer
from kafkacore.server.broker_logs import BrokerLogs
from kafkacore.storage.log_manager import LogManager

DIRECTORY = Uuid(b"d" * 16)
# The processors' table of partitions holds references that keep only a real disk alive, so this list keeps the
# simulated disks alive.
_outlives_its_partitions: list[Environment] = []


class Records:
    """A stub of the controller, which immediately grants every request of the broker."""

    def __init__(self, publisher: MetadataPublisher, loop: LoopThread) -> None:
        self.publisher = publisher
        self.loop = loop
        self.live = self.send
        self.next_producer_id = 0
        self.asked_to_leave = 0
        self.unfenced = False

    def commit(self, *records: Any) -> int:
        offset = self.publisher.applied_offset + 1
        self.publisher.apply(records, offset, 1, 1)
        return offset

    def watch_versions(self, watcher: Callable[[None], None]) -> None:
        watcher(None)

    async def send(self, request: Any) -> Any:
        return getattr(self, type(request).__name__)(request)

    async def forward(self, call: Any, request: Any) -> Any:
        return await self.send(request)

    def BrokerRegistrationRequest(self, request: Any) -> Any:
        epoch = self.commit(
            FeatureLevelRecord(name="metadata.version", feature_level=29),
            RegisterBrokerRecord(
                broker_id=request.broker_id,
                broker_epoch=0,
                incarnation_id=request.incarnation_id,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(name=each.name, host=each.host, port=each.port)
                    for each in request.listeners
                ],
                fenced=True,
                log_dirs=request.log_dirs,
            ),
        )
        return BrokerRegistrationResponse(broker_epoch=epoch)

    def BrokerHeartbeatRequest(self, request: Any) -> Any:
        self.asked_to_leave += request.want_shut_down
        # The controller unfences the broker only once. So, if a test fences the broker, it stays fenced.
        if not request.want_fence and not self.unfenced:
            self.unfenced = True
            self.commit(UnfenceBrokerRecord(id=request.broker_id, epoch=0))
        return BrokerHeartbeatResponse(
            is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down
        )

    def AllocateProducerIdsRequest(self, request: Any) -> Any:
        self.next_producer_id += 1000
        return AllocateProducerIdsResponse(producer_id_start=self.next_producer_id, producer_id_len=1000)

    def CreateTopicsRequest(self, request: Any) -> Any:
        results = []
        for topic in request.topics:
            topic_id = Uuid.random()
            count = max(topic.num_partitions, 1)
            self.commit(
                TopicRecord(name=topic.name, topic_id=topic_id),
                *(
                    PartitionRecord(
                        topic_id=topic_id,
                        partition_id=index,
                        replicas=[1],
                        isr=[1],
                        leader=1,
                        leader_epoch=0,
                        partition_epoch=0,
                        directories=[DIRECTORY],
                    )
                    for index in range(count)
                ),
            )
            results.append(CreateTopicsResponse.CreatableTopicResult(name=topic.name, topic_id=topic_id))
        return CreateTopicsResponse(topics=results)


class Started:
    def __init__(self, path: Path, disk: SimulatedDisk | None = None, **overrides: str) -> None:
        """Stores the logs in the directory `path`, or in `disk` if it is given."""
        config = BrokerConfig(
            {
                "process.roles": "broker",
                "node.id": "1",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "9@127.0.0.1:1",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(path),
                **{key.replace("_", "."): text for key, text in overrides.items()},
            }
        )
        self.runtime = Runtime.shared()
        self.loop = self.runtime.loop(DATA)
        if disk is None:
            make_logs = functools.partial(LogManager, Environment(), [str(path)])
        else:
            disk.make_directories("/data")
            environment = disk.environment()
            _outlives_its_partitions.append(environment)
            make_logs = functools.partial(LogManager, environment, ["/data"], files=disk)
        self.broker = self.loop.run(self._start(config, make_logs), 20)

    async def _start(self, config: BrokerConfig, make_logs: Callable[[Any], LogManager]) -> BrokerServer:
        publisher = MetadataPublisher()
        self.records = Records(publisher, self.loop)
        blocking = ThreadPoolExecutor(4)
        logs = make_logs(lambda topic: broker.replicas.settings_of(publisher.image, topic))
        [(directory, _)] = logs.directories()
        broker = BrokerServer(
            config, "cluster", [DIRECTORY],
            world=World(), runtime=self.runtime, publisher=publisher, channel=self.records,
            logs=BrokerLogs(logs, {DIRECTORY: directory}, blocking), blocking=blocking, read_kraft_version=lambda: 0,
        )  # fmt: skip
        await broker.start()
        return broker

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.bound['PLAINTEXT'][1]}"

    def create(self, name: str, partitions: int = 1) -> None:
        """Creates a topic, and waits until the broker serves it."""
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions)

        async def created() -> None:
            self.records.CreateTopicsRequest(CreateTopicsRequest(topics=[topic]))

        self.loop.run(created(), 10)

    def stop(self) -> None:
        self.loop.run(self.broker.stop(1000, 1000), 20)
        self.runtime.release()
