"""The broker's logs as its replica manager asks for them: from the log manager, which waits for disks, off the loop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from typing import Final

from kafkacore._fast.partition_handle import LogSettings, PartitionHandle
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.uuid import Uuid
from kafkacore.storage.log_manager import Key, LogManager
from kafkacore.storage.names import Kind

LOG: Final = logging.getLogger("kafkacore.server")


class BrokerLogs:
    """Belongs to the data plane's loop. `paths` are the log directories by their ids."""

    def __init__(self, manager: LogManager, paths: Mapping[Uuid, str], blocking: Executor) -> None:
        self._manager = manager
        self._paths = paths
        self._blocking = blocking
        self._leaving: dict[Key, Future[None]] = {}

    def load(self) -> None:
        """Takes up what the directories hold. Waits for disks. Raises LogDirectoryError."""
        self._manager.load()

    def open(self, topic: str, index: int, topic_id: Uuid, directory: Uuid, settings: LogSettings) -> PartitionHandle:
        """The log that was found at start, or a new one that costs no file until its first append."""
        leaving = self._leaving.pop((topic, index), None)
        if leaving is not None:
            # Deleted and made again at once: the old directory must have another name before the new one has its own.
            leaving.result()
        [partition] = self._manager.create(topic, topic_id, [index], self._paths.get(directory))
        if partition.topic_id != topic_id:
            # Left behind by a topic of the same name that was deleted while this broker was away.
            self._manager.delete([(topic, index)], Kind.STRAY)
            [partition] = self._manager.create(topic, topic_id, [index], self._paths.get(directory))
        partition.configure(settings)
        return partition

    def delete(self, partition: PartitionHandle) -> None:
        """Renamed soon, unlinked after file.delete.delay.ms."""
        key = (partition.topic, partition.index)
        future = self._leaving[key] = self._blocking.submit(self._manager.delete, [key])
        future.add_done_callback(lambda done: self._left(key, done))

    def _left(self, key: Key, done: Future[None]) -> None:
        """On the thread that did it."""
        if self._leaving.get(key) is done:
            self._leaving.pop(key, None)
        if not done.cancelled() and done.exception() is not None:
            LOG.error("deleting %s-%d failed", *key, exc_info=done.exception())

    def put_strays_aside(self, image: MetadataImage, node_id: int) -> int:
        """What was found at start and is no replica of this broker's (KAFKA-14616); how many. Waits for disks."""
        strays = []
        for partition in self._manager:
            topic = image.topic(partition.topic)
            placed = None if topic is None else image.partition(topic, partition.index)
            if placed is None or topic is None or node_id not in placed.replicas or partition.topic_id != topic.topic_id:
                strays.append((partition.topic, partition.index))
        if strays:
            LOG.warning("%d partitions are no replicas of this broker's: their directories get the end -stray", len(strays))
            self._manager.delete(strays, Kind.STRAY)
        return len(strays)
