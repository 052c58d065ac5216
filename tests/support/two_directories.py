"""A node with several log directories, and a client that asks the node about its partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from asking import ask
from kafkacore._fast.record.batch import Batches, RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AlterReplicaLogDirsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from kafkacore.server.node import Node
from kafkacore.tools import dev
from processes import wait_until

TIMEOUT_MS = 10_000


class Client:
    """Sends requests to the broker at `address`. Tests name a directory by the last part of its path."""

    describe_version = 5  # the version of DescribeLogDirs

    def __init__(self, address: str) -> None:
        self.address = address

    def produce(self, topic: str, index: int, value: bytes = b"x", acks: int = -1) -> int:
        """Sends a Produce request. Returns the error code."""
        builder = RecordBatchBuilder()
        builder.append(timestamp=1_700_000_000_000, key=None, value=value)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=index, records=builder.build())],
                )
            ],
        )
        return int(ask(self.address, request, 9).responses[0].partition_responses[0].error_code)

    def fetch(self, topic: str, index: int, offset: int = 0) -> tuple[int, list[bytes | None]]:
        """Sends a Fetch request. Returns the error code and the values in the response."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            topics=[
                FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 24)
                    ],
                )
            ],
        )
        [partition] = ask(self.address, request, 12).responses[0].partitions
        records = [] if not partition.records else [each for batch in Batches(partition.records) for each in batch]
        return partition.error_code, [record.value for record in records if record.offset >= offset]

    def read(self, topic: str, index: int, count: int) -> list[bytes | None]:
        """Returns all values, from the beginning of the partition."""
        found: list[bytes | None] = []
        while len(found) < count:
            error, more = self.fetch(topic, index, len(found))
            assert (error, bool(more)) == (0, True)
            found += more
        return found

    def latest(self, topic: str, index: int, current_leader_epoch: int = -1) -> int:
        """Sends a ListOffsets request. Returns the error code."""
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(
                            partition_index=index, timestamp=-1, current_leader_epoch=current_leader_epoch
                        )
                    ],
                )
            ],
        )
        return int(ask(self.address, request, 7).topics[0].partitions[0].error_code)

    def offline_replicas(self, topic: str) -> list[int]:
        """Returns the partitions for which the Metadata response lists an offline replica."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        [found] = ask(self.address, request, 12).topics
        return sorted(each.partition_index for each in found.partitions if each.offline_replicas)

    def describe(self) -> dict[str, Any]:
        """Sends DescribeLogDirs. Returns the result of each directory."""
        results = ask(self.address, DescribeLogDirsRequest(topics=None), self.describe_version).results
        return {Path(each.log_dir).name: each for each in results}

    def shown(self, name: str, topic: str) -> dict[tuple[int, bool], Any]:
        """Returns the replicas of a topic that DescribeLogDirs shows in a directory. Each key is a pair: the
        partition, and True if the replica is a future replica."""
        topics = {each.name: each for each in self.describe()[name].topics}
        if topic not in topics:
            return {}
        return {(each.partition_index, each.is_future_key): each for each in topics[topic].partitions}

    def alter(self, topic: str, index: int, path: str) -> int:
        """Sends AlterReplicaLogDirs. Returns the error code."""
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                    path=path,
                    topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[index])],
                )
            ]
        )
        [answer] = ask(self.address, request, 2).results[0].partitions
        return int(answer.error_code)

    def delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=topic)], timeout_ms=TIMEOUT_MS)
        [answer] = ask(self.address, request, 6).responses
        assert answer.error_code == ErrorCode.NONE


class Directories(Client):
    """Nodes that keep the metadata log in `m` and the other logs in `a` and `b`. Each node starts with the files that
    the previous node left."""

    def __init__(self, path: Path, *overrides: str) -> None:
        self.path = path
        self.faults: list[BaseException] = []
        for name in "mab":
            (path / name).mkdir(exist_ok=True)
        given = [f"log.dirs={path}/a,{path}/b", f"metadata.log.dir={path}/m", *overrides]
        self.config = dev.configuration(str(path / "m"), 0, given)
        dev.prepare(self.config)

    def start(self) -> Node:
        self.node = Node(self.config)
        self.node.on_fault = self.faults.append
        self.node.start()
        assert self.node.bootstrap is not None
        self.address = self.node.bootstrap
        return self.node

    def stop(self) -> None:
        self.node.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def broker(self) -> Any:
        return self.node._broker

    def create(self, topic: str, partitions: int) -> None:
        [(_, error, message)] = self.node.create_topics([(topic, partitions)])
        assert error == ErrorCode.NONE, message

    def directory_of(self, topic: str, index: int) -> str:
        """Returns the directory of the partition, `a` or `b`."""
        partition = self.broker.replicas.by_name(topic, index)
        return Path(partition.directory.path).name

    def native(self, name: str) -> Any:
        return next(one for one in self.broker._logs._manager.native_directories if Path(one.path).name == name)

    def fail(self, name: str) -> None:
        """Takes a directory offline, as a disk error would."""
        self.native(name).fail(5)

    def partitions(self, topic: str) -> list[Any]:
        """Returns the topic's partitions in the committed metadata."""
        image = self.broker.context.image
        found = image.topic(topic)
        return [] if found is None else [image.partition_at(row) for row in found.partition_rows]

    def assigned(self, topic: str) -> list[str]:
        """Returns the directories to which the committed metadata assigns the replicas of this node."""
        ids = {directory: Path(path).name for directory, path in self.broker._logs._paths.items()}
        return [ids.get(each.directories[0], "?") for each in self.partitions(topic)]

    def await_assigned(self, topic: str, expected: Callable[[list[str]], bool]) -> None:
        wait_until(lambda: expected(self.assigned(topic)))
