"""The broker's logs as its replica manager asks for them: from the log manager, which waits for disks, off the loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Final

from kafkacore._fast.partition_handle import LogSettings, PartitionHandle
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.uuid import UNASSIGNED_DIRECTORY, Uuid
from kafkacore.storage.log_manager import Key, LogManager
from kafkacore.storage.names import Kind

LOG: Final = logging.getLogger("kafkacore.server")


class BrokerLogs:
    """Belongs to the data plane's loop. `paths` are the log directories by their ids."""

    def __init__(self, manager: LogManager, paths: Mapping[Uuid, str], blocking: Executor) -> None:
        self._manager = manager
        self._paths = paths
        self._blocking = blocking
        self._ids = {path: directory for directory, path in paths.items()}
        self._leaving: dict[Key, Future[None]] = {}
        self._placed: dict[tuple[Uuid, int], Uuid] = {}

    def load(self) -> None:
        """Takes up what the directories hold. Waits for disks. Raises LogDirectoryError."""
        self._manager.load()

    def open(
        self, topic: str, topic_id: Uuid, indexes: Sequence[int], directory: Uuid, settings: LogSettings
    ) -> list[PartitionHandle]:
        """The logs that were found at start, or new ones that cost no file until their first append."""
        for index in indexes if self._leaving else ():
            leaving = self._leaving.pop((topic, index), None)
            if leaving is not None:
                # Deleted and made again at once: the old directory must be renamed before the new one takes its name.
                leaving.result()
        wanted = self._path_of(directory)
        placed = self._manager.create(topic, topic_id, indexes, wanted, settings)
        for partition in placed:
            if partition.settings is not settings:
                partition.configure(settings)
        for lies_in in {partition.directory for partition in placed}:
            if lies_in.path != wanted and lies_in.path in self._ids:
                there = self._ids[lies_in.path]
                self._placed |= {(topic_id, each.index): there for each in placed if each.directory is lies_in}
        return placed

    def _path_of(self, directory: Uuid) -> str | None:
        """None where any will do. What was told to lie in a directory that is not here lies in one that could not be
        opened, if there is such a one: a second log of it elsewhere would begin at 0."""
        known = self._paths.get(directory)
        if known is not None or directory == UNASSIGNED_DIRECTORY:
            return known
        unopened = [path for path, serves in self._manager.directories() if not serves and path not in self._ids]
        return unopened[0] if unopened else None

    def take_placed(self) -> dict[tuple[Uuid, int], Uuid]:
        """The directories of replicas that were opened elsewhere than the metadata says, since this was last asked."""
        placed, self._placed = self._placed, {}
        return placed

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

    def by_directory(self) -> list[tuple[str, bool, list[PartitionHandle]]]:
        """Absolute path, whether it serves, and what lies there, for each log directory."""
        directories = self._manager.directories()
        held: dict[str, list[PartitionHandle]] = {path: [] for path, _ in directories}
        for partition in self._manager:
            held[partition.directory.path].append(partition)
        return [(os.path.abspath(path), serves, held[path]) for path, serves in directories]

    def put_strays_aside(self, image: MetadataImage, node_id: int) -> int:
        """What was found at start and is no replica of this broker's (KAFKA-14616); how many. Waits for disks."""
        strays = []
        for partition in self._manager:
            topic = image.topic(partition.topic)
            placed = None if topic is None else image.partition(topic, partition.index)
            if (
                placed is None
                or topic is None
                or node_id not in placed.replicas
                or partition.topic_id != topic.topic_id
            ):
                strays.append((partition.topic, partition.index))
        if strays:
            LOG.warning(
                "%d partitions are no replicas of this broker's: their directories get the end -stray", len(strays)
            )
            self._manager.delete(strays, Kind.STRAY)
        return len(strays)
