"""Gives the replica manager access to the broker's logs. The log manager opens and deletes the logs on other threads,
because these operations wait for disks."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore.metadata.image import MetadataImage
from kafkacore.protocol.uuid import UNASSIGNED_DIRECTORY, ZERO, Uuid
from kafkacore.replication.log_dir_moves import LogDirMoves
from kafkacore.runtime.slices import Work
from kafkacore.storage import partition_metadata
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.managed_directory import Key
from kafkacore.storage.names import Kind, partition_directory_name

LOG: Final = logging.getLogger("kafkacore.server")
# limit of partitions whose directory is set before the partition exists; a further entry replaces the oldest
MAX_PREFERRED: Final = 100_000


class BrokerLogs:
    """Belongs to the data plane's loop. `paths` maps the ids of log directories to their paths."""

    def __init__(self, manager: LogManager, paths: Mapping[Uuid, str], blocking: Executor) -> None:
        self._manager = manager
        self._paths = paths
        self._blocking = blocking
        self._ids = {path: directory for directory, path in paths.items()}
        self._mutex = threading.Lock()
        self._doomed: list[Key] = []  # the logs that the next deletion will delete; guarded by the mutex
        self._is_queued = False  # whether the last deletion still waits for a thread; guarded by the mutex
        self._deletion: Future[list[Key]] = Future()  # the last deletion
        self._leaving: dict[Key, Future[list[Key]]] = {}
        self._undeleted: set[Key] = set()  # the logs whose last deletion has failed; guarded by the mutex
        self._placed: dict[tuple[Uuid, int], Uuid] = {}
        self._preferred: dict[Key, str] = {}
        self._cordoned: frozenset[str] = frozenset()
        self._idle = threading.Event()  # set while no load runs
        self._idle.set()

    def recover_with(self, threads: int) -> None:
        """Sets the number of threads that load each directory (num.recovery.threads.per.data.dir)."""
        self._manager.recovery_threads = threads

    def load(self, image: MetadataImage, node_id: int) -> None:
        """Opens the logs of this broker's replicas, and renames all other logs in the directories to `-stray`. Blocks.
        Raises LogDirectoryError."""

        def place_of(name: str, index: int) -> str | None:
            topic = image.topic(name)
            replica = None if topic is None else image.partition(topic, index)
            if replica is None or node_id not in replica.replicas:
                return None
            return self._paths.get(replica.directory(node_id))

        why_stray = partial(_why_stray, image, node_id)
        with self._loading():
            self._manager.load(place_of, why_stray)
            self._put_strays_aside(why_stray)
            self._promote_abandoned(place_of)
            self._await_cuts()

    @contextmanager
    def _loading(self) -> Iterator[None]:
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    def abandon_load(self) -> None:
        """Ends the load of the logs, and waits for its end. Runs on any thread."""
        self._manager.abandon_load()
        self._idle.wait()

    def delete_gone(self, image: MetadataImage, node_id: int) -> set[Key]:
        """Deletes the logs that have become stray during `load`, and returns their partitions. `image` is the first
        image whose changes the broker applies. Earlier changes may have deleted topics or moved replicas, and only
        these logs show that."""
        futures = (future.handle for future in self._manager.futures.all())
        handles = {(each.topic, each.index): each for each in chain(futures, self._manager)}
        gone = set()
        for (topic, index), handle in handles.items():
            reason = _why_stray(image, node_id, handle)
            if reason is not None:
                LOG.info("%s-%d is deleted, because %s", topic, index, reason)
                self.delete(handle)
                gone.add((topic, index))
        return gone

    def _await_cuts(self) -> None:
        """From now on, a log that is truncated below its recovery point on disk accepts no appends until the upkeep has
        written the new recovery point. The upkeep sets this too, but it starts only when the broker is ready, and
        followers truncate most often right after a start."""
        self._manager.await_cuts(True)

    def load_all(self) -> None:
        """Opens the logs in the directories. In ZooKeeper mode, a broker learns later which of the logs are its
        replicas, and the controller says which logs to delete. Blocks. Raises LogDirectoryError."""
        with self._loading():
            self._manager.load()
            self._await_cuts()

    def find(self, topic: str, index: int) -> PartitionHandle | None:
        """Returns an open log, even if this broker neither leads nor follows the partition."""
        return self._manager.get(topic, index)

    def is_offline(self, topic: str, index: int, *, is_new: bool) -> bool:
        """Returns whether the log of a replica is in a failed directory. If the replica is not new and has no open log,
        its log may be in any failed directory. A broker in ZooKeeper mode does not know in which directory the log
        was."""
        log = self.find(topic, index)
        if log is None:
            return not is_new and not self.all_serve
        return log.state == "failed" or bool(log.directory.offline_errno)

    def open(
        self, topic: str, topic_id: Uuid, indexes: Sequence[int], directory: Uuid, settings: LogSettings
    ) -> list[PartitionHandle]:
        """Returns the logs found at start, or new logs, which have no files until their first append."""
        if self._leaving:
            self._end_deletions([(topic, index) for index in indexes])
        wanted = self._path_of(directory)
        if self._preferred:
            self._open_preferred(topic, topic_id, indexes, settings)
        placed = self._manager.create(topic, topic_id, indexes, wanted, settings)
        for lies_in in {partition.directory for partition in placed}:
            if lies_in.path != wanted and lies_in.path in self._ids:
                there = self._ids[lies_in.path]
                self._placed |= {(topic_id, each.index): there for each in placed if each.directory is lies_in}
        return placed

    def _end_deletions(self, keys: Sequence[Key]) -> None:
        """Returns when earlier logs with these names are deleted. Such logs exist if a topic was deleted and
        immediately created again, or if a replica has come back. A new log must not find the directory of the earlier
        log, nor the earlier log's entries in the checkpoints. The loop waits meanwhile. So this method itself deletes
        the logs that still wait for a thread: all threads may be busy for long, and would delete other logs too."""
        keys = [key for key in keys if key in self._leaving]
        if not keys:
            return
        wanted = set(keys)
        with self._mutex:
            mine = dict.fromkeys(key for key in self._doomed if key in wanted)
            self._doomed = [key for key in self._doomed if key not in wanted]
        if mine:
            self._delete_now(mine)
        for key in keys:
            leaving = self._leaving.pop(key, None)
            if leaving is not None and key not in mine:
                leaving.result()

    def _open_preferred(self, topic: str, topic_id: Uuid, indexes: Sequence[int], settings: LogSettings) -> None:
        for index in indexes:
            path = self._preferred.pop((topic, index), None)
            if path is not None and self.serves(path):
                self._manager.create(topic, topic_id, [index], path, settings)

    def _path_of(self, directory: Uuid) -> str | None:
        """Returns the path of the directory with this id, or None if any directory will do. If the id is unknown and a
        directory could not be opened, the id may belong to that directory. Then its path is returned, because a second
        log elsewhere would begin at offset 0."""
        known = self._paths.get(directory)
        if known is not None or directory == UNASSIGNED_DIRECTORY:
            return known
        unopened = [path for path, serves in self._manager.directories() if not serves and path not in self._ids]
        return unopened[0] if unopened else None

    def take_placed(self) -> dict[tuple[Uuid, int], Uuid]:
        """Returns the actual directory of each replica that was opened since the last call and is not in the directory
        that the metadata names."""
        placed, self._placed = self._placed, {}
        return placed

    def delete(self, partition: PartitionHandle) -> None:
        """Renames the log's directory soon, and deletes its files after file.delete.delay.ms. The logs that wait for a
        thread are deleted together and share the writes of the checkpoints, because a topic may have thousands of
        partitions."""
        key = (partition.topic, partition.index)
        with self._mutex:
            self._undeleted.discard(key)
            self._doomed.append(key)
            is_queued, self._is_queued = self._is_queued, True
        if is_queued:
            self._leaving[key] = self._deletion
            return
        self._deletion = self._leaving[key] = self._blocking.submit(self._delete_doomed)
        self._deletion.add_done_callback(self._left)

    async def undeleted(self, keys: Collection[Key]) -> set[Key]:
        """Waits until the deletions of these logs have renamed the directories. Returns the logs for which that has
        failed. Deletions that have not begun fail when the node stops."""
        for deletion in dict.fromkeys(self._leaving[key] for key in keys if key in self._leaving):
            await asyncio.wait([asyncio.wrap_future(deletion)])
        with self._mutex:
            return {*self._undeleted, *self._doomed}.intersection(keys)

    def _delete_doomed(self) -> list[Key]:
        """Runs on another thread. Returns the logs that were to be deleted."""
        with self._mutex:
            keys, self._doomed, self._is_queued = self._doomed, [], False
        self._delete_now(keys)
        return keys

    def _delete_now(self, keys: Collection[Key]) -> None:
        try:
            failed: Collection[Key] = self._manager.delete(keys)
        except Exception:
            failed = keys
            LOG.exception("these logs could not be deleted: %s", ", ".join(f"{topic}-{index}" for topic, index in keys))
        with self._mutex:
            self._undeleted.update(failed)

    def _left(self, done: Future[list[Key]]) -> None:
        """Handles the end of a deletion. Runs on the thread that deleted the logs."""
        for key in () if done.cancelled() else done.result():
            if self._leaving.get(key) is done:
                self._leaving.pop(key, None)

    def cordon(self, paths: Sequence[str]) -> None:
        cordoned = frozenset(paths)
        if cordoned != self._cordoned:
            LOG.info("log directories that take no new replicas: %s", ", ".join(sorted(cordoned)) or "none")
            self._manager.cordon(cordoned)
            self._cordoned = cordoned

    def is_cordoned(self, path: str) -> bool:
        """Returns whether the directory is cordoned (cordoned.log.dirs), and so takes no new replicas."""
        return os.path.abspath(path) in map(os.path.abspath, self._cordoned)

    @property
    def cordoned_ids(self) -> frozenset[Uuid]:
        """The ids of the cordoned directories that could be opened."""
        return frozenset(self._ids[path] for path in self._cordoned if path in self._ids)

    def directories(self) -> list[tuple[str, bool]]:
        """Returns the absolute path of each log directory, and whether it works."""
        return [(os.path.abspath(path), serves) for path, serves in self._manager.directories()]

    def by_directory(self) -> Work[list[tuple[str, bool, list[PartitionHandle]]]]:
        """Returns the absolute path of each log directory, whether it works, and its partitions."""
        directories = self._manager.directories()
        held: dict[str, list[PartitionHandle]] = {path: [] for path, _ in directories}
        for partition in chain(self._manager, (future.handle for future in self._manager.futures.all())):
            yield
            held[partition.directory.path].append(partition)
        return [(os.path.abspath(path), serves, held[path]) for path, serves in directories]

    def directory_path(self, absolute: str) -> str | None:
        """Returns the log directory as the configuration spells it, or None if the configuration has no such
        directory."""
        return next((path for path, _ in self._manager.directories() if os.path.abspath(path) == absolute), None)

    def path_of_id(self, directory: Uuid) -> str | None:
        """Returns the path of a directory that could be opened."""
        return self._paths.get(directory)

    def serves(self, path: str) -> bool:
        return (path, True) in self._manager.directories()

    @property
    def all_serve(self) -> bool:
        return all(serves for _, serves in self._manager.directories())

    def prefer(self, topic: str, index: int, path: str) -> None:
        """Sets the directory of a partition that does not exist yet (AlterReplicaLogDirs). This directory overrides the
        directory in the metadata."""
        while len(self._preferred) >= MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic, index] = path

    def moves(
        self,
        told: Callable[[tuple[Uuid, int], Uuid], Awaitable[None]],
        threads: int,
        limit: Callable[[], int],
        backoff_ms: int,
    ) -> LogDirMoves:
        """Returns the object that moves replicas between the directories. The object calls `told` to report a replica's
        directory to the controller."""

        async def assign(replica: tuple[Uuid, int], path: str) -> None:
            await told(replica, self._ids[path])

        return LogDirMoves(self._manager, assign, threads, limit, backoff_ms)

    def future_of(self, partition: PartitionHandle) -> PartitionHandle | None:
        """Returns the log in another directory that will replace this log (its future log), or None."""
        future = self._manager.futures.get((partition.topic, partition.index))
        return None if future is None else future.handle

    def _put_strays_aside(self, why_stray: Callable[[PartitionHandle], str | None]) -> None:
        """Renames to `-stray` the logs that were found at start and are not replicas of this broker (KAFKA-14616). A
        future log is checked separately from the log in use: it may remain from an earlier topic of the same name, or a
        crash may have left it without a topic id."""

        def tell(path: str, reason: str) -> None:
            LOG.warning("%s: %s; the directory is kept under a name that ends with -stray", path, reason)

        for future in self._manager.futures.all():
            reason = why_stray(future.handle)
            if reason is not None:
                tell(future.path, reason)
                self._manager.drop_future((future.handle.topic, future.handle.index), Kind.STRAY)
        strays = [(log, reason) for log in self._manager if (reason := why_stray(log)) is not None]
        for log, reason in strays:
            tell(os.path.join(log.directory.path, partition_directory_name(log.topic, log.index)), reason)
        self._manager.delete([(log.topic, log.index) for log, _ in strays], Kind.STRAY)

    def _promote_abandoned(self, place_of: Callable[[str, int], str | None]) -> None:
        """Completes moves that were interrupted just before the rename. In that case, the metadata already names the
        directory of the future log, and the partition has no other log."""
        for future in self._manager.futures.all():
            key = future.handle.topic, future.handle.index
            if self._manager.get(*key) is None and place_of(*key) == future.directory.path:
                LOG.warning(
                    "%s-%d: the future log in %s is the only log of the partition, so the broker uses it from now on",
                    *key,
                    future.path,
                )
                try:
                    self._manager.futures.promote(key)
                except OSError:
                    LOG.exception("%s-%d is offline, because its log directory failed", *key)


def _why_stray(image: MetadataImage, node_id: int, partition: PartitionHandle) -> str | None:
    """Returns why the log is not a replica of this broker, or None if it is one."""
    topic = image.topic(partition.topic)
    if topic is None:
        return "there is no such topic"
    if node_id not in image.replicas(topic, partition.index):
        return "no replica of the partition is here"
    if partition.topic_id == ZERO:
        # The topic id is on disk before the first record (KIP-516). As in Apache Kafka 4.3, a starting broker does not
        # guess a missing id.
        return f"it has no {partition_metadata.NAME}, the file that names its topic"
    if partition.topic_id != topic.topic_id:
        return f"its topic id is {partition.topic_id}, but the topic now has {topic.topic_id}"
    return None
