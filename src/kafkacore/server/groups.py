"""Coordinates groups on this broker. Creates `__consumer_offsets`, runs the shards of the partitions that this broker
leads, and finds the coordinator of each group. A shard runs all groups of one partition.

The broker creates this object when the topic exists or when a client first asks for a coordinator. So groups cost
nothing on a broker without groups.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from typing import Any, Final

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.config import BrokerConfig
from kafkacore.coordinator.group.core import Counts
from kafkacore.coordinator.group.effects import Effects
from kafkacore.coordinator.group.published_groups import PublishedGroups
from kafkacore.coordinator.group.settings import GroupSettings, group_settings
from kafkacore.coordinator.group.shard import GroupShard
from kafkacore.coordinator.journal import Acknowledgement, JournalSettings
from kafkacore.coordinator.runtime import CoordinatorRuntime, RuntimePorts, RuntimeSettings
from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.made_ids import is_made
from kafkacore.protocol.uuid import RandomUuids
from kafkacore.replication.replica_manager import ReplicaManager
from kafkacore.runtime.clock import Clock
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.server.auto_topics import AutoTopics
from kafkacore.server.coordinator_keys import java_hash
from kafkacore.server.partition_waits import PartitionWaits
from kafkacore.storage.names import OFFSETS_TOPIC

LOG: Final = logging.getLogger("kafkacore.server")
# A FindCoordinator request waits at most this long for the topic. After that, the client has to send the request again.
CREATION_PATIENCE_S: Final = 2.0

Operation = Callable[[GroupShard, asyncio.Future[Any], int], Effects]


class Groups:
    """The group coordinator of a broker. Belongs to the data plane's loop."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        read_image: Callable[[], MetadataImage],
        count_partitions: Callable[[str], int | None],
        auto_topics: AutoTopics,
        waits: PartitionWaits,
        clock: Clock,
        timers: Scheduler,
        blocking: Executor,
        published_groups: PublishedGroups | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        found_other_groups: Callable[[int, Mapping[str, int]], None] = lambda index, counts: None,
    ) -> None:
        """Creates the coordinator without partitions. `count_partitions` returns the number of partitions of a
        coordinators' topic, or None if the topic does not exist. `found_other_groups` is called for each loaded
        partition that holds groups of kinds that this node does not run. The function gets the number of groups of each
        kind."""
        self.settings: GroupSettings = group_settings(config)
        self.counts = Counts()
        self._config = config
        self._replicas = replicas
        self._read_image = read_image
        self._count_partitions = count_partitions
        self._auto_topics = auto_topics
        self._waits = waits
        self._blocking = blocking
        self._found_other_groups = found_other_groups
        self._published_groups = published_groups
        self._new_uuid = RandomUuids(random_bytes)
        self._loop = asyncio.get_running_loop()
        self._led: set[int] = set()
        self._awaiting: dict[asyncio.Future[None], None] = {}
        self._closed = False
        self._limit_as_of: MetadataImage | None = None
        self._limit_bytes = 0
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            self._make_shard,
            RuntimeSettings(
                OFFSETS_TOPIC,
                JournalSettings(
                    config.group_coordinator_append_linger_ms,
                    config.offsets_commit_timeout_ms,
                    config.offsets_topic_compression_codec,
                ),
                config.offsets_load_buffer_size,
            ),
            RuntimePorts(clock, timers, self._run_blocking, self._wait, self.max_batch_bytes),
            self._loaded,
        )

    # --- functions for the runtime ---

    def _make_shard(self) -> GroupShard:
        return GroupShard(self.settings, self._new_uuid, self._published_groups, self.counts, self.max_batch_bytes)

    async def _run_blocking(self, work: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._blocking, work)

    async def _wait(self, log: PartitionHandle, ack: Acknowledgement, limit_s: float) -> bool:
        return await self._waits.any([(log, *ack)], limit_s * 1000)

    def max_batch_bytes(self) -> int:
        """Returns the topic's max.message.bytes."""
        image = self._read_image()
        if image is not self._limit_as_of:
            self._limit_as_of = image
            self._limit_bytes = self._replicas.topic_config(image, OFFSETS_TOPIC).max_message_bytes
        return self._limit_bytes

    def _loaded(self, index: int, shard: GroupShard) -> None:
        others = shard.other_groups()
        if others:
            self._found_other_groups(index, others)

    # --- the committed metadata ---

    def apply(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Applies a metadata image. Call this after the replica manager has given the partitions their roles."""
        if self._closed:
            return
        if delta is not None and delta.topics_deleted:
            seen = self._read_image()
            gone = [
                (name, topic_id)
                for topic_id, name in delta.topics_deleted.items()
                # A topic that had no id and has one now is still the same topic, and was not deleted.
                if not is_made(topic_id) or seen.topic(name) is None
            ]
            self.runtime.tell(lambda shard, now_ms: shard.topics_deleted(gone, now_ms))
        elif delta is not None and not delta.most_rows:
            return
        leading = {each.index: each for each in self._led_by(image.topic(OFFSETS_TOPIC))}
        for index in self._led - leading.keys():
            self.runtime.resign(index)
        for index, log in leading.items():
            self.runtime.lead(index, log.leader_epoch, log)
        self._led = set(leading)
        awaiting, self._awaiting = self._awaiting, {}
        for future in awaiting:
            if not future.done():
                future.set_result(None)

    def _led_by(self, topic: Topic | None) -> Iterator[PartitionHandle]:
        for index in range(len(topic.partition_rows) if topic is not None else 0):
            log = self._replicas.by_name(OFFSETS_TOPIC, index)
            if log is not None and log.role == "leader":
                yield log

    # --- the partition of a group ---

    def partition_of(self, group_id: str) -> int:
        count = self._count_partitions(OFFSETS_TOPIC) or self._config.offsets_topic_num_partitions
        return java_hash(group_id) % count

    def coordinator_of(self, group_id: str) -> int:
        """Returns the id of the broker that leads the group's partition, or -1 while the partition has no leader or
        does not exist yet."""
        image = self._read_image()
        topic = image.topic(OFFSETS_TOPIC)
        partition = None if topic is None else image.partition(topic, self.partition_of(group_id))
        return -1 if partition is None else partition.leader

    async def create_topic(self) -> None:
        """Waits until the topic exists, until the controller refuses it, or until the client should send its request
        again."""
        self._auto_topics.request([OFFSETS_TOPIC])
        try:
            async with asyncio.timeout(CREATION_PATIENCE_S):
                if await self._auto_topics.asked(OFFSETS_TOPIC):
                    while self._read_image().topic(OFFSETS_TOPIC) is None:
                        await self._applied()
        except TimeoutError:
            LOG.warning("%s does not exist after %.0f s; clients ask again", OFFSETS_TOPIC, CREATION_PATIENCE_S)

    async def _applied(self) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._awaiting[future] = None
        try:
            await future
        finally:
            self._awaiting.pop(future, None)  # a waiter that gave up must not stay until the metadata changes

    # --- requests ---

    def ask(self, group_id: str, operation: Operation) -> asyncio.Future[Any]:
        """Passes a request to the group's shard. Raises NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or
        COORDINATOR_NOT_AVAILABLE if the node is stopping."""
        self._check_open()
        return self.runtime.ask(self.partition_of(group_id), operation)

    def shard_of(self, group_id: str) -> GroupShard:
        """Returns the shard of a group. Raises the same errors as `ask`."""
        self._check_open()
        return self.runtime.shard(self.partition_of(group_id))

    def takes_markers(self, index: int) -> bool:
        """Returns whether the partition's shard is loaded. If a marker were appended during the load, the load could
        miss it."""
        return not self._closed and self.runtime.is_active(index)

    def end_transaction(self, index: int, producer_id: int, committed: bool, offset: int) -> None:
        """Ends the producer's transaction in this partition. Call this when the marker at `offset` is committed. If the
        shard was unloaded in the meantime, its next load reads the marker."""
        if self.takes_markers(index):
            self.runtime.shard(index).replay_end_of_transaction(producer_id, committed, offset)

    def now_ms(self) -> int:
        """Returns the time that the runtime gives to shards. Callers that use a shard without the runtime must use this
        time too."""
        return self.runtime.now_ms()

    def _check_open(self) -> None:
        if self._closed:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def close(self) -> None:
        """Answers every waiter with an error that makes its client look for another coordinator."""
        self._closed = True
        await self.runtime.close()
