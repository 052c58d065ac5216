"""The image: the metadata after all records up to an offset. An image never changes, so a reader sees a consistent
state. In the controller, an image is also called a root.

Topics and partitions are stored in columns. A row is the number of a topic's or a partition's place in these columns.
The columns are split into chunks of consecutive rows. A row number is valid in one image and in the images made from
it, and has no meaning outside this process.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafkacore.metadata.partitions import CHUNK_ROWS, Ids, Partition, PartitionChunk
from kafkacore.metadata.records import MetadataError
from kafkacore.metadata.registrations import BrokerRegistration, ControllerRegistration
from kafkacore.metadata.sharded import ShardedMap
from kafkacore.protocol.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    MetadataVersion,
    check_finalized,
    metadata_version,
)
from kafkacore.protocol.uuid import Uuid

TOPIC_CHUNK_ROWS: Final = 512

# Config resource types (KIP-133, KIP-412, KIP-714, KIP-848).
TOPIC: Final = 2
BROKER: Final = 4
CLIENT_METRICS: Final = 16
GROUP: Final = 32

NO_CONFIGS: Final[Mapping[str, str | None]] = {}

ConfigKey = tuple[int, str]


class Topic(NamedTuple):
    """A topic. `partition_rows[p]` is the row of partition p, or -1 if there is no such partition."""

    name: str
    topic_id: Uuid
    partition_rows: array[int]

    def row(self, partition: int) -> int:
        """Returns the row of a partition, or -1 if the partition does not exist."""
        rows = self.partition_rows
        return rows[partition] if 0 <= partition < len(rows) else -1


class FreeRow(NamedTuple):
    """A linked list of unused rows. The row that was freed last comes first. The list is immutable, so images can share
    it.
    """

    row: int
    rest: FreeRow | None


class Transaction(NamedTuple):
    """A metadata transaction in progress (KIP-868), and the image before it."""

    name: str | None
    offset: int
    before: MetadataImage


class MetadataImage(NamedTuple):
    """A metadata image. `offset` and `epoch` come from its last record, and `timestamp_ms` from the batch of this
    record.
    """

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1
    features: Mapping[str, int] = {}
    brokers: Mapping[int, BrokerRegistration] = {}
    controllers: Mapping[int, ControllerRegistration] = {}
    topic_chunks: Sequence[list[Topic | None]] = ()
    topic_ids: Sequence[bytearray] = ()  # one bytearray for each chunk, with 16 bytes for each row
    topics_by_name: ShardedMap[str, int] = ShardedMap()
    topics_by_id: ShardedMap[Uuid, int] = ShardedMap()
    # metric name: the names of the topics that have this metric name (KAFKA-2337). Only names with `.` or `_` are here.
    lookalikes: ShardedMap[str, tuple[str, ...]] = ShardedMap()
    topic_rows: int = 0
    free_topics: FreeRow | None = None
    partition_chunks: Sequence[PartitionChunk] = ()
    partition_rows: int = 0
    partition_count: int = 0
    free_partitions: FreeRow | None = None
    configs: ShardedMap[ConfigKey, Mapping[str, str | None]] = ShardedMap()
    next_producer_id: Any = None  # the last ProducerIdsRecord
    # records that are stored unchanged, so that snapshots can repeat them; each key begins with the record's type
    kept: ShardedMap[tuple[Any, ...], Any] = ShardedMap()
    transaction: Transaction | None = None

    # --- features ---

    @property
    def metadata_version(self) -> MetadataVersion:
        """The level of metadata.version. Raises MetadataError before the bootstrap records are replayed."""
        level = self.features.get(METADATA_VERSION)
        if level is None:
            raise MetadataError("the cluster has no metadata.version yet")
        try:
            return metadata_version(level)
        except ValueError:
            self.check_features()
            raise

    def check_features(self) -> None:
        """Raises MetadataError for a finalized feature level that this release does not support. The message says how
        to fix this."""
        try:
            check_finalized(self.features)
        except ValueError as error:
            raise MetadataError(str(error)) from None

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    # --- topics ---

    def topic_at(self, row: int) -> Topic:
        topic = self.topic_chunks[row // TOPIC_CHUNK_ROWS][row % TOPIC_CHUNK_ROWS]
        if topic is None:
            raise MetadataError(f"there is no topic in row {row}")
        return topic

    def topic(self, name: str) -> Topic | None:
        row = self.topics_by_name.get(name)
        return None if row is None else self.topic_at(row)

    def topic_by_id(self, topic_id: Uuid) -> Topic | None:
        row = self.topics_by_id.get(topic_id)
        return None if row is None else self.topic_at(row)

    def topics(self) -> Iterator[Topic]:
        """Yields all topics, in the order of their rows."""
        for chunk in self.topic_chunks:
            for topic in chunk:
                if topic is not None:
                    yield topic

    # --- partitions ---

    def partition_at(self, row: int) -> Partition:
        return self.partition_chunks[row // CHUNK_ROWS].get(row % CHUNK_ROWS)

    def partition(self, topic: Topic, partition: int) -> Partition | None:
        rows = topic.partition_rows
        if not 0 <= partition < len(rows) or rows[partition] < 0:
            return None
        return self.partition_at(rows[partition])

    def leader_epoch(self, topic: Topic, partition: int) -> int | None:
        """Returns the leader epoch of a partition, or None if there is no such partition or it has no replicas."""
        rows = topic.partition_rows
        if not 0 <= partition < len(rows) or rows[partition] < 0:
            return None
        chunk, at = self.partition_chunks[rows[partition] // CHUNK_ROWS], rows[partition] % CHUNK_ROWS
        return chunk.leader_epoch[at] if chunk.replicas[at * chunk.width] >= 0 else None

    def replicas(self, topic: Topic, partition: int) -> Ids:
        """Returns the replicas of a partition, or an empty tuple if there is no such partition."""
        rows = topic.partition_rows
        if not 0 <= partition < len(rows) or rows[partition] < 0:
            return ()
        return self.partition_chunks[rows[partition] // CHUNK_ROWS].replicas_of(rows[partition] % CHUNK_ROWS)

    def topics_of_rows(self, rows: Iterable[int]) -> Iterator[Topic]:
        """Returns the topics to which partition rows belong, without duplicates."""
        topic_rows = {self.partition_chunks[row // CHUNK_ROWS].topic[row % CHUNK_ROWS] for row in rows}
        return map(self.topic_at, topic_rows)

    # --- the rest ---

    def config(self, resource_type: int, name: str) -> Mapping[str, str | None]:
        """Returns the settings of a resource. For BROKER, the name "" stands for the defaults of all brokers."""
        return self.configs.get((resource_type, name)) or NO_CONFIGS

    def set_config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Returns the settings of a resource, without those whose value is None."""
        told = self.configs.get((resource_type, name))
        return {key: value for key, value in told.items() if value is not None} if told else {}

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        return self.set_config(TOPIC, name)

    def is_active(self, broker_id: int) -> bool:
        """Returns whether a broker is neither fenced nor in controlled shutdown."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    @property
    def somebody_leaves(self) -> bool:
        """Whether any unfenced broker is in controlled shutdown."""
        return any(each.in_controlled_shutdown and not each.fenced for each in self.brokers.values())


EMPTY_IMAGE: Final = MetadataImage()


def has_collision_characters(name: str) -> bool:
    return "." in name or "_" in name


def unify_collision_characters(name: str) -> str:
    """Returns the name of a topic in metrics. `a.b` and `a_b` have the same name there."""
    return name.replace(".", "_")
