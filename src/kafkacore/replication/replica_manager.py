"""Applies the committed image to the native partitions of this broker, and publishes the table of those partitions.

Belongs to one loop. The changes of a root come as rows. A change of a partition is one native call, and the table in
which the planes look partitions up is made once for all changes.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from kafkacore._fast.log.partition_handle import PartitionHandle, lead_alone
from kafkacore._fast.log.settings import LogSettings
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.dynamic import adopted
from kafkacore.metadata.delta import MetadataDelta, rows_of_older_topics
from kafkacore.metadata.image import BROKER, TOPIC, MetadataImage, Topic
from kafkacore.metadata.partitions import CHUNK_ROWS, Ids, PartitionChunk, alike
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import Uuid
from kafkacore.storage.log_settings import log_settings

LOG: Final = logging.getLogger("kafkacore.replication")
NO_EPOCH: Final = -1


class Logs(Protocol):
    """Opens and deletes the logs of partitions: the log manager."""

    def open(
        self, topic: str, topic_id: Uuid, indexes: Sequence[int], directory: Uuid, settings: LogSettings
    ) -> list[PartitionHandle]:
        """Returns the logs found at start, or new ones, which cost no file until their first append. They should lie
        in `directory`."""

    def delete(self, partition: PartitionHandle) -> None:
        """Deletes a log whose topic is gone or belongs to another broker: renames it now, unlinks it after
        file.delete.delay.ms."""

    def cordon(self, paths: Sequence[str]) -> None:
        """From now on these log directories, and no others, take no new logs (KIP-1066)."""


class Hosted:
    """This broker's partitions of one topic."""

    __slots__ = ("name", "partitions", "settings", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, settings: LogSettings) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.partitions: dict[int, PartitionHandle] = {}

    def placed(self) -> Placed:
        partitions = self.partitions
        count = max(partitions) + 1
        return self.name, self.topic_id, [*map(partitions.get, range(count))]


# Name, id, and the partitions by index, with None where another broker has the partition: the form of the native table.
Placed = tuple[str, Uuid, list[PartitionHandle | None]]


class ReplicaManager:
    """After each root, `publish` gets the topics that are hosted differently now, and the ids of those that are
    gone."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        logs: Logs,
        publish: Callable[[list[Placed], list[Uuid]], None],
        on_config: Callable[[BrokerConfig], None] = lambda config: None,
    ) -> None:
        """Calls `on_config` with the broker's configuration each time it has changed at run time."""
        self._node_id = node_id
        self._config = config
        self._logs = logs
        self._publish = publish
        self._on_config = on_config
        self._topics: dict[Uuid, Hosted] = {}
        self._by_name: dict[str, Hosted] = {}
        self._changed: set[Uuid] = set()
        self._settings: dict[tuple[tuple[str, str], ...], LogSettings] = {}

    # --- lookups ---

    def hosted(self) -> Iterator[PartitionHandle]:
        for topic in self._topics.values():
            yield from topic.partitions.values()

    def by_name(self, topic: str, index: int) -> PartitionHandle | None:
        hosted = self._by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def by_id(self, topic_id: Uuid, index: int) -> PartitionHandle | None:
        hosted = self._topics.get(topic_id)
        return None if hosted is None else hosted.partitions.get(index)

    def locate(
        self, image: MetadataImage, topic: str, index: int, current_epoch: int, *, leader_only: bool = True
    ) -> tuple[PartitionHandle | None, ErrorCode]:
        """The partition if this broker may answer for it; else None and the reason. `current_epoch` is the client's,
        or -1."""
        partition = self.by_name(topic, index)
        if partition is None:
            known = image.topic(topic)
            elsewhere = known is not None and image.partition(known, index) is not None
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = _role_error(partition, current_epoch, leader_only=leader_only)
        return (None, error) if error else (partition, ErrorCode.NONE)

    # --- changes ---

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Moves to a newer root. `delta` is None when everything may have changed."""
        if delta is None:
            self._apply_all(image)
        else:
            self._apply(image, delta)
        changed, self._changed = self._changed, set()
        if changed:
            placed = [self._topics[topic_id].placed() for topic_id in changed if topic_id in self._topics]
            self._publish(placed, [topic_id for topic_id in changed if topic_id not in self._topics])

    def _apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        for topic_id in delta.topics_deleted:
            self._drop_topic(topic_id)
        if any(kind == BROKER for kind, _ in delta.configs) and self.take_config(image):
            self._configure(image, list(self._topics.values()))
        else:
            names = [name for kind, name in delta.configs if kind == TOPIC]
            self._configure(image, [self._by_name[name] for name in names if name in self._by_name])
        for topics, first, count in _side_by_side(map(image.topic_at, delta.topics_created.values())):
            self._place_created(image, topics, first, count)
        for topic_row, rows in _by_topic(image, rows_of_older_topics(image, delta)).items():
            self._place(image, image.topic_at(topic_row), rows)

    def _apply_all(self, image: MetadataImage) -> None:
        for topic_id in [topic_id for topic_id in self._topics if image.topic_by_id(topic_id) is None]:
            self._drop_topic(topic_id)
        self.take_config(image)
        self._configure(image, list(self._topics.values()))
        for topic in image.topics():
            self._place(image, topic, topic.partition_rows)

    def _place(self, image: MetadataImage, topic: Topic, rows: Iterable[int]) -> None:
        """Opens new partitions, drops those that are gone, and gives every partition its role."""
        hosted = self._topics.get(topic.topic_id)
        if hosted is None:
            hosted = Hosted(topic.name, topic.topic_id, self.settings_of(image, topic.name))
        known = hosted.partitions
        for chunk, at, count in alike(image.partition_chunks, rows):
            replicas, indexes = chunk.replicas_of(at), chunk.partition[at : at + count]
            if self._node_id not in replicas:
                for index in indexes:
                    if index in known:
                        self._drop(hosted, index)
                continue
            new = [index for index in indexes if index not in known]
            if new:
                self._open(hosted, new, chunk.directory_of(at, replicas.index(self._node_id)))
            self._become(image, topic.name, [known[index] for index in indexes], chunk, at, replicas)

    def _place_created(self, image: MetadataImage, topics: Sequence[Topic], first: int, count: int) -> None:
        """Places new topics, with `count` rows from `first` on. If this broker is the only replica of all, they get
        their role in one call."""
        at = first % CHUNK_ROWS
        if count == 0 or not self._has_alone(chunk := image.partition_chunks[first // CHUNK_ROWS], at, count):
            for topic in topics:
                self._place(image, topic, topic.partition_rows)
            return
        directory = chunk.directory_of(at, 0)
        handles: list[PartitionHandle] = []
        for topic in topics:
            hosted = Hosted(topic.name, topic.topic_id, self.settings_of(image, topic.name))
            self._open(hosted, range(len(topic.partition_rows)), directory)
            handles += hosted.partitions.values()
        lead_alone(handles, self._node_id, chunk.leader_epoch[at], chunk.partition_epoch[at])

    def _has_alone(self, chunk: PartitionChunk, at: int, count: int) -> bool:
        """Whether this broker is the only replica and the leader of all these rows, and the rows agree."""
        leads = chunk.leader[at] == self._node_id and chunk.replicas_of(at) == (self._node_id,)
        return leads and chunk.alike(at, count)

    def _open(self, hosted: Hosted, indexes: Sequence[int], directory: Uuid) -> None:
        self._topics[hosted.topic_id] = self._by_name[hosted.name] = hosted
        self._changed.add(hosted.topic_id)
        logs = self._logs.open(hosted.name, hosted.topic_id, indexes, directory, hosted.settings)
        hosted.partitions.update(zip(indexes, logs, strict=True))

    def _become(
        self,
        image: MetadataImage,
        topic: str,
        handles: list[PartitionHandle],
        chunk: PartitionChunk,
        at: int,
        replicas: Ids,
    ) -> None:
        """Gives all of them the role in the row `at`."""
        leader, leader_epoch, partition_epoch = chunk.leader[at], chunk.leader_epoch[at], chunk.partition_epoch[at]
        if leader != self._node_id:
            for handle in handles:
                handle.become_follower(leader, leader_epoch, partition_epoch)
        elif len(replicas) == 1:
            lead_alone(handles, leader, leader_epoch, partition_epoch)
        else:
            isr = chunk.isr_of(at)
            followers = [(each, each in isr) for each in replicas if each != leader]
            # min.insync.replicas above the number of replicas can never be met: Kafka then asks for all replicas.
            min_isr = min(self._min_isr(image, topic), len(replicas))
            for handle in handles:
                handle.become_leader(leader, leader_epoch, partition_epoch, followers, min_isr)

    def _drop_topic(self, topic_id: Uuid) -> None:
        hosted = self._topics.get(topic_id)
        if hosted is not None:
            for index in list(hosted.partitions):
                self._drop(hosted, index)

    def _drop(self, hosted: Hosted, index: int) -> None:
        self._changed.add(hosted.topic_id)
        partition = hosted.partitions.pop(index)
        partition.close(gone=True)
        self._logs.delete(partition)
        if not hosted.partitions:
            del self._topics[hosted.topic_id]
            # A topic that was created again under the name has taken its place already.
            if self._by_name.get(hosted.name) is hosted:
                del self._by_name[hosted.name]

    # --- configuration ---

    @property
    def config(self) -> BrokerConfig:
        """The configuration with its changes at run time."""
        return self._config

    def take_config(self, image: MetadataImage) -> bool:
        """Takes the broker settings that changed at run time (KIP-226), which topics inherit; returns whether any
        did."""
        changed = self._adopt(image.set_config(BROKER, ""), image.set_config(BROKER, str(self._node_id)))
        self._logs.cordon(self._config.cordoned_log_dirs)
        return changed

    def _adopt(self, default: Mapping[str, str], own: Mapping[str, str]) -> bool:
        if not (default or own or self._config.dynamic_default or self._config.dynamic_broker):
            return False

        config = adopted(self._config, default, own)
        if config is self._config:
            return False
        self._config = config
        self._settings.clear()
        self._on_config(config)
        return True

    def _configure(self, image: MetadataImage, topics: Iterable[Hosted]) -> None:
        for hosted in topics:
            settings = self.settings_of(image, hosted.name)
            if settings is not hosted.settings:
                hosted.settings = settings
                for handle in hosted.partitions.values():
                    handle.configure(settings)
            topic = image.topic(hosted.name)
            if topic is not None and topic.topic_id == hosted.topic_id:
                # min.insync.replicas is part of the role.
                self._place(image, topic, topic.partition_rows)

    def topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        return TopicConfig(self._config, image.topic_overrides(topic))

    def settings_of(self, image: MetadataImage, topic: str) -> LogSettings:
        """The settings of a topic's logs. Topics that are configured alike share one object, as most do."""
        overrides = image.topic_overrides(topic)
        key = tuple(sorted(overrides.items())) if overrides else ()
        settings = self._settings.get(key)
        if settings is None:
            config = TopicConfig(self._config, overrides)
            settings = self._settings[key] = log_settings(config)
            for note in config.notes():
                LOG.warning("topic %s: %s", topic, note)
        return settings

    def _min_isr(self, image: MetadataImage, topic: str) -> int:
        return self.topic_config(image, topic).min_insync_replicas

    def close(self) -> None:
        """Refuses further appends; all waiters get an answer."""
        for partition in self.hosted():
            partition.close()


def _side_by_side(topics: Iterable[Topic]) -> Iterator[tuple[list[Topic], int, int]]:
    """Groups of topics whose rows, each topic's in order, follow each other within one chunk: their first row and
    their count. The count is 0 for a topic whose rows have no such order."""
    group: list[Topic] = []
    start = end = 0
    for topic in topics:
        rows = topic.partition_rows
        first = rows[0] if rows else 0
        last = first + len(rows)
        in_chunk = first >= 0 and first % CHUNK_ROWS + len(rows) <= CHUNK_ROWS
        fits = in_chunk and rows == array("i", range(first, last))
        if group and not (fits and first == end and end % CHUNK_ROWS):
            yield group, start, end - start
            group = []
        if not fits:
            yield [topic], 0, 0
            continue
        start = start if group else first
        group.append(topic)
        end = last
    if group:
        yield group, start, end - start


def _by_topic(image: MetadataImage, rows: Iterable[int]) -> dict[int, list[int]]:
    """Rows by the row of their topic."""
    made: dict[int, list[int]] = {}
    for row in rows:
        made.setdefault(image.partition_chunks[row // CHUNK_ROWS].topic[row % CHUNK_ROWS], []).append(row)
    return made


def _role_error(partition: PartitionHandle, current_epoch: int, *, leader_only: bool) -> ErrorCode:
    # Comes first, as in Kafka: its leadership ends soon, and a client must get the reason.
    if partition.state == "failed" or partition.directory.offline_errno:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if current_epoch not in (NO_EPOCH, partition.leader_epoch):
        older = current_epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    if leader_only and partition.role != "leader":
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
