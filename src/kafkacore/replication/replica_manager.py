"""Applies the committed metadata image to the native partitions of this broker. Publishes the table of these
partitions, in which native code looks up each request's partitions.

Belongs to one event loop. Partitions are rows in the columns of the image, and the columns are divided into chunks. One
native call changes the roles of all partitions in a chunk. The table is built once for all changes.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from kafkacore._fast.log.partition_edges import PartitionEdges
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.log.traffic_counts import TrafficCounts, traffic_of
from kafkacore.config import BrokerConfig, TopicConfig
from kafkacore.config.dynamic import adopted
from kafkacore.metadata.delta import MetadataDelta, rows_of_older_topics
from kafkacore.metadata.image import BROKER, TOPIC, MetadataImage, Topic
from kafkacore.metadata.partitions import CHUNK_ROWS, PartitionChunk
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.made_ids import is_made, made_id
from kafkacore.protocol.uuid import Uuid
from kafkacore.replication.roles import Followers, RoleChanges
from kafkacore.replication.throttles import NOTHING, Throttled, throttled
from kafkacore.replication.traffic import NOTHING as NO_TRAFFIC
from kafkacore.replication.traffic import TopicTraffic, Traffic, plus
from kafkacore.storage.log_settings import log_settings

LOG: Final = logging.getLogger("kafkacore.replication")
NO_EPOCH: Final = -1
SPARE_SETTINGS: Final = 1000  # the number of TopicSettings that are kept although no topic may use them


class Logs(Protocol):
    """Opens and deletes the logs of partitions. The class BrokerLogs implements this interface."""

    def open(
        self, topic: str, topic_id: Uuid, indexes: Sequence[int], directory: Uuid, settings: LogSettings
    ) -> list[PartitionHandle]:
        """Returns the logs of these partitions: the logs that the starting node has found, and new logs for the other
        partitions. A new log has no files until its first append. New logs go to `directory` if possible.
        """

    def delete(self, partition: PartitionHandle) -> None:
        """Deletes a log, because its topic was deleted or its replica moved to another broker. Renames the log soon,
        and deletes its files after file.delete.delay.ms."""

    def cordon(self, paths: Sequence[str]) -> None:
        """Sets the cordoned log directories, which take no new logs from now on (KIP-1066)."""


class TopicSettings(NamedTuple):
    """The configuration of a topic, in the form that native code uses. Most topics have the same configuration, and
    topics with the same configuration share one object.
    """

    log: LogSettings
    min_isr: int  # min.insync.replicas
    throttled: Throttled = NOTHING  # *.replication.throttled.replicas


class Hosted:
    """The partitions of one topic that this broker hosts."""

    __slots__ = ("name", "partitions", "settings", "topic_id", "traffic")

    def __init__(self, name: str, topic_id: Uuid, settings: TopicSettings) -> None:
        self.name = name
        self.topic_id = topic_id
        self.settings = settings
        self.partitions: dict[int, PartitionHandle] = {}
        self.traffic = Traffic()

    def placed(self) -> Placed:
        partitions = self.partitions
        count = max(partitions) + 1
        return self.name, self.topic_id, [*map(partitions.get, range(count))]


# The topic's entry in the native table: its name, its id, and its partitions by index. None stands for a partition that
# this broker does not host.
Placed = tuple[str, Uuid, list[PartitionHandle | None]]


class ReplicaManager:
    """Applies metadata images. After each image, `publish` receives the topics whose partitions on this broker have
    changed, and the ids of topics that this broker no longer hosts.
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        logs: Logs,
        publish: Callable[[list[Placed], list[Uuid]], None],
        on_config: Callable[[BrokerConfig], None] = lambda config: None,
        followers: Followers | None = None,
        edges: PartitionEdges | None = None,
    ) -> None:
        """Creates the manager without partitions. `on_config` is called with the broker's configuration each time it
        has changed at run time. The manager passes the partitions that this broker follows to `followers`. The
        partitions that it leads report changes of their followers to `edges`.
        """
        self._node_id = node_id
        self._config = config
        self._logs = logs
        self._publish = publish
        self._on_config = on_config
        self._followers = followers
        self._edges = edges
        self._leaves = False
        self._topics: dict[Uuid, Hosted] = {}
        self._by_name: dict[str, Hosted] = {}
        self._given: dict[Uuid, Uuid] = {}  # for each id made up by this broker: the id that the topic got later
        self._changed: set[Uuid] = set()
        self._settings: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        self._traffic = Traffic()

    # --- lookups ---

    def hosted(self) -> Iterator[PartitionHandle]:
        """Yields all partitions of this broker. Can be called on any thread."""
        for topic in list(self._topics.values()):
            yield from list(topic.partitions.values())

    def traffic(self) -> tuple[TrafficCounts, list[TopicTraffic]]:
        """Returns two results: the counts of all partitions since this broker started, and the counts of each topic
        that the broker hosts. The first result includes partitions that the broker no longer hosts. Can be called on
        any thread.
        """
        gone, here, topics = self._traffic.gone, NO_TRAFFIC, []
        for hosted in list(self._topics.values()):
            partitions = list(hosted.partitions.values())
            counts = hosted.traffic.sum(partitions)
            here = plus(here, counts)
            if self._by_name.get(hosted.name) is hosted:
                leads = any(each.role == "leader" for each in partitions)
                topics.append(TopicTraffic(hosted.name, leads, counts))
        return self._traffic.show(gone, here), topics

    def by_name(self, topic: str, index: int) -> PartitionHandle | None:
        hosted = self._by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def by_id(self, topic_id: Uuid, index: int) -> PartitionHandle | None:
        hosted = self._topics.get(topic_id)
        return None if hosted is None else hosted.partitions.get(index)

    def in_image(self, key: tuple[Uuid, int]) -> tuple[Uuid, int]:
        """Returns the image's topic id and partition for a partition of the native table. The two topic ids differ if
        the topic had no id when the log was created.
        """
        return (self._given[key[0]], key[1]) if key[0] in self._given else key

    def locate(
        self, image: MetadataImage, topic: str, index: int, current_epoch: int, *, leader_only: bool = True
    ) -> tuple[PartitionHandle | None, ErrorCode]:
        """Returns the partition if this broker can serve it. Otherwise returns None and the reason. `current_epoch` is
        the leader epoch in the client's request, or -1.
        """
        partition = self.by_name(topic, index)
        if partition is None:
            known = image.topic(topic)
            elsewhere = known is not None and image.partition(known, index) is not None
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER if elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = _role_error(partition, current_epoch, leader_only=leader_only)
        return (None, error) if error else (partition, ErrorCode.NONE)

    # --- changes ---

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Applies a newer metadata image. `delta` is None if everything may have changed."""
        if delta is None:
            self._apply_all(image)
        else:
            self._apply(image, delta)
        changed, self._changed = self._changed, set()
        if changed:
            placed = [self._topics[topic_id].placed() for topic_id in changed if topic_id in self._topics]
            self._publish(placed, [topic_id for topic_id in changed if topic_id not in self._topics])

    def _apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        roles = self._role_changes(image)
        for topic_id in delta.topics_deleted:
            if not self._take_id(image, topic_id):
                self._drop_topic(topic_id)
        if any(kind == BROKER for kind, _ in delta.configs) and self.take_config(image):
            self._configure(image, list(self._topics.values()), roles)
        else:
            names = [name for kind, name in delta.configs if kind == TOPIC]
            self._configure(image, [self._by_name[name] for name in names if name in self._by_name], roles)
        for topics, first, count in _side_by_side(map(image.topic_at, delta.topics_created.values())):
            self._place_created(image, topics, first, count, roles)
        for topic_row, rows in _by_topic(image, rows_of_older_topics(image, delta)).items():
            self._place(image, image.topic_at(topic_row), rows, roles)
        roles.carry_out()

    def stop_fetching_from(self, path: str) -> None:
        """Stops fetching the partitions whose logs are in this directory, which has failed. Otherwise the Fetch
        requests for an idle partition would keep its broken replica in the ISR.
        """
        if self._followers is not None:
            self._followers.stop([each for each in self.hosted() if each.directory.path == path])

    def leave(self) -> None:
        """Notes that this broker has started its controlled shutdown. From now on, when one of its replicas leaves an
        ISR, the broker stops fetching that partition.
        """
        self._leaves = True

    def _role_changes(self, image: MetadataImage) -> RoleChanges:
        return RoleChanges(self._node_id, image.partition_chunks, self._followers, leaves=self._leaves)

    def _apply_all(self, image: MetadataImage) -> None:
        for topic_id in [topic_id for topic_id in self._topics if image.topic_by_id(topic_id) is None]:
            self._drop_topic(topic_id)
        roles = self._role_changes(image)
        self.take_config(image)
        self._configure(image, list(self._topics.values()))
        for topic in image.topics():
            self._place(image, topic, topic.partition_rows, roles)
        roles.carry_out()

    def _place(self, image: MetadataImage, topic: Topic, rows: Iterable[int], roles: RoleChanges) -> None:
        """Opens new partitions, and drops partitions that this broker no longer hosts. Collects the roles of all
        partitions in `rows` that it hosts.
        """
        hosted = self._topics.get(topic.topic_id)
        if hosted is None:
            hosted = Hosted(topic.name, topic.topic_id, self._topic_settings(image, topic.name))
        known, chunks, me = hosted.partitions, image.partition_chunks, self._node_id
        here: list[tuple[int, int]] = []  # (row in the image, partition index)
        new: dict[Uuid, list[int]] = {}
        for row in rows:
            if row < 0:
                continue
            chunk, at = chunks[row // CHUNK_ROWS], row % CHUNK_ROWS
            index, replicas = chunk.partition[at], chunk.replicas[at * chunk.width : (at + 1) * chunk.width]
            if me not in replicas:
                if index in known:
                    self._drop(hosted, index)
                continue
            here.append((row, index))
            if index not in known:
                new.setdefault(chunk.directory_of(at, replicas.index(me)), []).append(index)
        for directory, indexes in new.items():
            self._open(hosted, indexes, directory)
        for row, index in here:
            roles.add(row, known[index], hosted.settings.min_isr)

    def _place_created(
        self, image: MetadataImage, topics: Sequence[Topic], first: int, count: int, roles: RoleChanges
    ) -> None:
        """Places the partitions of new topics: `count` rows of the image, starting with row `first`. If this broker is
        the only replica of all these partitions, the rows are not examined one by one.
        """
        at = first % CHUNK_ROWS
        # already hosted here: the partitions were created before the topic had an id
        hosted_already = any(topic.topic_id in self._topics for topic in topics)
        if (
            count == 0
            or hosted_already
            or not self._has_alone(chunk := image.partition_chunks[first // CHUNK_ROWS], at, count)
        ):
            for topic in topics:
                self._place(image, topic, topic.partition_rows, roles)
            return
        directory = chunk.directory_of(at, 0)
        for topic in topics:
            hosted = Hosted(topic.name, topic.topic_id, self._topic_settings(image, topic.name))
            self._open(hosted, range(len(topic.partition_rows)), directory)
            handles = list(hosted.partitions.values())
            roles.add_run(first, handles, hosted.settings.min_isr)
            first += len(handles)

    def _has_alone(self, chunk: PartitionChunk, at: int, count: int) -> bool:
        """Returns whether this broker is the only replica and the leader of all these rows, and the rows have the same
        values in all other columns."""
        leads = chunk.leader[at] == self._node_id and chunk.replicas_of(at) == (self._node_id,)
        return leads and chunk.alike(at, count)

    def _open(self, hosted: Hosted, indexes: Sequence[int], directory: Uuid) -> None:
        logs = self._logs.open(hosted.name, hosted.topic_id, indexes, directory, hosted.settings.log)
        self._topics[hosted.topic_id] = self._by_name[hosted.name] = hosted
        self._changed.add(hosted.topic_id)
        if self._edges is not None:
            for log in logs:
                log.report_to(self._edges)
        hosted.partitions.update(zip(indexes, logs, strict=True))
        if hosted.settings.throttled is not NOTHING:
            _throttle(hosted)

    def _take_id(self, image: MetadataImage, topic_id: Uuid) -> bool:
        """Returns True if the topic had no id before and has one now. Its partitions then stay, and their native logs
        keep the made-up id until this broker starts again.
        """
        hosted = self._topics.get(topic_id) if is_made(topic_id) else None
        now = None if hosted is None else image.topic(hosted.name)
        if hosted is None or now is None:
            return False
        del self._topics[topic_id]
        self._topics[now.topic_id] = hosted
        self._given[topic_id] = hosted.topic_id = now.topic_id
        self._changed |= {topic_id, now.topic_id}
        return True

    def _drop_topic(self, topic_id: Uuid) -> None:
        hosted = self._topics.get(topic_id)
        if hosted is not None:
            for index in list(hosted.partitions):
                self._drop(hosted, index)

    def _drop(self, hosted: Hosted, index: int) -> None:
        self._changed.add(hosted.topic_id)
        partition = hosted.partitions.pop(index)
        if self._followers is not None:
            self._followers.stop([partition])
        partition.close(gone=True)
        self._logs.delete(partition)
        hosted.traffic.retire(traffic_of([partition]))
        if not hosted.partitions:
            del self._topics[hosted.topic_id]
            self._given.pop(made_id(hosted.name), None)
            self._traffic.retire(hosted.traffic.gone)
            # A new topic with the same name may already have replaced this one.
            if self._by_name.get(hosted.name) is hosted:
                del self._by_name[hosted.name]

    # --- configuration ---

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration, including changes made at run time."""
        return self._config

    def take_config(self, image: MetadataImage) -> bool:
        """Applies the broker settings from which topics take their defaults, if they have changed at run time
        (KIP-226). Returns whether any of them has changed.
        """
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

    def _configure(self, image: MetadataImage, topics: Iterable[Hosted], roles: RoleChanges | None = None) -> None:
        """Applies the configurations of topics. Collects in `roles` the partitions whose min.insync.replicas has
        changed, because that value is part of their role.
        """
        for hosted in topics:
            settings, before = self._topic_settings(image, hosted.name), hosted.settings
            hosted.settings = settings
            if settings.log is not before.log:
                for handle in hosted.partitions.values():
                    handle.configure(settings.log)
            if settings.throttled != before.throttled:
                _throttle(hosted)
            if roles is None or settings.min_isr == before.min_isr:
                continue
            topic = image.topic(hosted.name)
            if topic is not None and topic.topic_id == hosted.topic_id:
                self._place(image, topic, topic.partition_rows, roles)

    def topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        return TopicConfig(self._config, image.topic_overrides(topic))

    def settings_of(self, image: MetadataImage, topic: str) -> LogSettings:
        """Returns the settings of a topic's logs. Can be called on any thread."""
        return self._topic_settings(image, topic).log

    def min_isr_of(self, topic: str) -> int:
        """Returns the min.insync.replicas of a topic, or the broker's own value if the broker hosts no partition of the
        topic."""
        hosted = self._by_name.get(topic)
        return self._config.min_insync_replicas if hosted is None else hosted.settings.min_isr

    def _topic_settings(self, image: MetadataImage, topic: str) -> TopicSettings:
        overrides = image.topic_overrides(topic)
        key = tuple(sorted(overrides.items())) if overrides else ()
        settings = self._settings.get(key)
        if settings is None:
            if len(self._settings) > 2 * len(self._topics) + SPARE_SETTINGS:
                self._drop_unused_settings()
            config = TopicConfig(self._config, overrides)
            settings = self._settings[key] = TopicSettings(
                log_settings(config), config.min_insync_replicas, throttled(config, self._node_id)
            )
            for note in config.notes():
                LOG.warning("topic %s: %s", topic, note)
        return settings

    def _drop_unused_settings(self) -> None:
        # The threads that load logs also read and add settings, so this method iterates over copies.
        used = {id(hosted.settings) for hosted in list(self._topics.values())}
        self._settings = {key: each for key, each in self._settings.copy().items() if not key or id(each) in used}

    def close(self) -> None:
        """Refuses all appends from now on, and answers all waiting requests."""
        for partition in self.hosted():
            partition.close()


def _throttle(hosted: Hosted) -> None:
    for index, handle in hosted.partitions.items():
        handle.throttled = hosted.settings.throttled.bits(index)


def _side_by_side(topics: Iterable[Topic]) -> Iterator[tuple[list[Topic], int, int]]:
    """Groups neighbouring topics whose partitions have consecutive rows, in order and within one chunk. Yields each
    group with its first row and its number of rows. Any other topic is a group by itself, with the count 0.
    """
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
    """Groups partition rows by topic. Each key is the topic's row in the image."""
    made: dict[int, list[int]] = {}
    for row in rows:
        made.setdefault(image.partition_chunks[row // CHUNK_ROWS].topic[row % CHUNK_ROWS], []).append(row)
    return made


def _role_error(partition: PartitionHandle, current_epoch: int, *, leader_only: bool) -> ErrorCode:
    # As in Kafka, this check is the first. Clients must get this error until the leadership ends, which will be soon.
    if partition.state == "failed" or partition.directory.offline_errno:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if current_epoch not in (NO_EPOCH, partition.leader_epoch):
        older = current_epoch < partition.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    if leader_only and partition.role != "leader":
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
