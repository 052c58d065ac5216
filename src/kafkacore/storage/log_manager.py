"""The logs of a node. The log manager records which directory contains each log. It loads, checkpoints, deletes and
closes the logs (Kafka's LogManager)."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, NamedTuple

from kafkacore._fast.base.made_ids import is_made, shown
from kafkacore._fast.base.uuid import ZERO, Uuid
from kafkacore._fast.log import cuts
from kafkacore._fast.log import move as log_move
from kafkacore._fast.log.partition_handle import PartitionHandle, new_partitions
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.runtime import open_files
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.runtime.process import DATA_NICE
from kafkacore.storage import checkpoints, clean_shutdown, directory_load, names
from kafkacore.storage.compactions import Compactions
from kafkacore.storage.directory_load import DirectoryLoad
from kafkacore.storage.errors import LoadAbandoned, LogDirectoryError, MalformedFileError
from kafkacore.storage.future_logs import FutureLog, FutureLogs, MoveCancelled
from kafkacore.storage.managed_directory import Key, ManagedDirectory

LOG: Final = logging.getLogger("kafkacore.storage")

SHUT_THREADS: Final = 32
# The number of groups for each thread. Logs are closed in groups, because passing a single log to a thread takes longer
# than closing an unused log.
SHUT_TURNS: Final = 8
# If no file descriptor is free, a stopping node repeats a write of checkpoints this many times, once a second. Native
# code waits equally long.
WRITE_RETRIES: Final = 30
WRITE_RETRY_S: Final = 1.0
MANY_LOGS: Final = 100  # a start with more logs than this checks whether they can exceed the limit on open files


class Doomed(NamedTuple):
    """A renamed directory that the upkeep thread will remove after file.delete.delay.ms."""

    path: str
    due_ns: int


def _nothing() -> None:
    """Does nothing between two steps of a long task."""


class LogManager:
    """All logs except the metadata log, by topic and partition.

    `settings_of` returns the settings of a topic by its name. Methods that use files block, so do not call them on the
    thread of a loop. When a directory fails, the manager takes it offline and calls `on_failure` once with its path.
    The directories in `failed` could not be opened at all. Requests for logs that may be in one of them get
    KAFKA_STORAGE_ERROR.
    """

    def __init__(
        self,
        environment: Environment,
        paths: Iterable[str],
        settings_of: Callable[[str], LogSettings],
        *,
        on_failure: Callable[[str], None] = lambda path: None,
        recovery_threads: int = 2,
        io_threads: int = 8,
        failed: Iterable[str] = (),
        files: Files = OS_FILES,
        make_pool: Callable[[int, str], Executor] = ThreadPoolExecutor,
        new_uuid: Callable[[], Uuid] = Uuid.random,
    ) -> None:
        """`make_pool` creates the threads that load and close logs. Raises OSError."""
        self.loads: list[DirectoryLoad] = []  # not empty while the starting node loads the logs
        self._is_abandoned = False
        self._environment = environment
        self._settings_of = settings_of
        self._on_failure = on_failure
        self.recovery_threads = recovery_threads  # the number of threads for each directory in the next load
        self._files = files
        self._make_pool, self._new_uuid = make_pool, new_uuid
        self._mutex = threading.Lock()
        self._doomed: list[Doomed] = []
        # A strong reference would form a cycle, and only the garbage collector could then free the manager.
        owner: LogManager = weakref.proxy(self)
        self.futures = FutureLogs(self._mutex, files, owner, new_uuid)
        self.compactions = Compactions(self._mutex, owner, self.futures)
        broken = list(failed)
        self._directories = [
            ManagedDirectory(LogDirectory(environment, path, io_threads, nice=DATA_NICE)) for path in (*paths, *broken)
        ]
        for directory in self._directories[len(self._directories) - len(broken) :]:
            directory.native.fail(errno.EIO)
            directory.failed = True

    # --- look-ups ---

    def __iter__(self) -> Iterator[PartitionHandle]:
        with self._mutex:
            found = [handle for directory in self._directories for handle in directory.partitions.values()]
        return iter(found)

    def get(self, topic: str, index: int) -> PartitionHandle | None:
        with self._mutex:
            for directory in self._directories:
                handle = directory.partitions.get((topic, index))
                if handle is not None:
                    return handle
        return None

    @property
    def native_directories(self) -> list[LogDirectory]:
        """The native directories that are online."""
        return [directory.native for directory in self._directories if not directory.failed]

    def directories(self) -> list[tuple[str, bool]]:
        """Returns the path of each directory, and whether the directory is online."""
        return [(directory.path, not directory.failed) for directory in self._directories]

    def cordon(self, paths: Iterable[str]) -> None:
        """Cordons exactly the directories in `paths`: from now on, these get no new logs. If all directories are
        cordoned, the first one still gets new logs (KIP-1066)."""
        cordoned = frozenset(paths)
        with self._mutex:
            for directory in self._directories:
                directory.cordoned = directory.path in cordoned

    def failure(self, path: str) -> str:
        """Returns the operating system's message about the failure of a directory."""
        return next(os.strerror(one.native.offline_errno) for one in self._directories if one.path == path)

    # --- loading ---

    def load(
        self,
        place_of: Callable[[str, int], str | None] = lambda topic, index: None,
        why_stray: Callable[[PartitionHandle], str | None] = lambda log: None,
    ) -> None:
        """Loads every log in the directories, several at the same time. Before that, removes the marks of a clean
        shutdown (KAFKA-10471).

        Takes a directory offline if its disk fails. If two directories contain a log for the same partition, renames
        each log for which `why_stray` returns a reason. If two logs remain, `place_of` returns the right directory, and
        the log in the other directory is renamed. Raises LogDirectoryError if `place_of` returns None for such logs,
        and for a subdirectory that is neither a log nor another directory that Kafka creates. Raises LoadAbandoned if
        `abandon_load` was called.
        """
        self._end_if_abandoned()
        began = time.monotonic()
        self.loads = [
            DirectoryLoad(
                directory,
                self._begin_directory(directory),
                self.recovery_threads,
                settings_of=self._settings_of,
                take_up=self._take_up,
                fail=self.fail,
                files=self._files,
            )
            for directory in self._directories
            if not directory.failed
        ]
        try:
            self._end_if_abandoned()
            directory_load.run(self.loads, self._make_pool)
            self._end_if_abandoned()
        finally:
            loads, self.loads = self.loads, []
        self._settle_doubles(place_of, why_stray)
        for load in loads:
            load.directory.loaded = True
            # The node may have been killed after it renamed a log's directory, but before it wrote the checkpoints.
            self._forget(load.directory, self._absent(load.directory) | self.compactions.lower(load.directory))
        total = sum(load.total for load in loads)
        if total:
            LOG.info("loaded %d logs in %.0f ms", total, (time.monotonic() - began) * 1000)
        if total > MANY_LOGS:
            open_files.warn_of(total)

    def abandon_load(self) -> None:
        """Ends the load that is running, and any later load. Does not wait for the end of the load. Runs on any
        thread."""
        self._is_abandoned = True
        for load in self.loads:
            load.abandon()

    def _end_if_abandoned(self) -> None:
        if self._is_abandoned:
            raise LoadAbandoned

    def _settle_doubles(
        self, place_of: Callable[[str, int], str | None], why_stray: Callable[[PartitionHandle], str | None]
    ) -> None:
        """Decides between two logs of one partition. Two directories have a log of the partition if a crash came after
        the first of the two renames of a move. Both logs are stray if the topic was deleted, or the replica reassigned,
        while the node was down."""
        seen: set[Key] = set()
        doubles: set[Key] = set()
        for directory in self._directories:
            doubles |= seen & directory.partitions.keys()
            seen |= directory.partitions.keys()
        for key in sorted(doubles):
            holders = [one for one in self._directories if key in one.partitions]
            reasons = {one: why_stray(one.partitions[key]) for one in holders}
            left = [one for one in holders if reasons[one] is None]
            if len(left) > 1:
                place = place_of(*key)
                if place not in [one.path for one in left]:
                    first, second = (os.path.join(one.path, names.partition_directory_name(*key)) for one in left[:2])
                    raise LogDirectoryError(
                        f"{second}: the partition is also in {first}; move the older of the two away"
                    )
                reasons |= {one: f"the partition is in {place}" for one in left if one.path != place}
            for one, reason in reasons.items():
                if reason is not None:
                    LOG.warning("%s-%d: renaming its log in %s: %s", *key, one.path, reason)
                    one.cleaned.pop(key, None)
                    handle = one.partitions.pop(key)
                    handle.retire()
                    self.rename_aside(one, names.partition_directory_name(*key), handle, names.Kind.STRAY)

    def _begin_directory(self, directory: ManagedDirectory) -> list[directory_load.Found]:
        path = directory.path
        try:
            directory.clean = clean_shutdown.exists(path, self._files)
            clean_shutdown.remove(path, self._files)
            if not directory.clean:
                # A killed process may have created a log without syncing the directory entry, so that a power cut could
                # still remove the log.
                self._files.sync_directory(path)
            for name in checkpoints.OFFSETS:
                if offsets := self._read_checkpoint(path, name):
                    directory.stored[name] = offsets
            directory.cleaned = dict(directory.entries(checkpoints.CLEANER_OFFSET))
            found = self._files.list_directories(path)
        except OSError:
            LOG.exception("the log directory %s cannot be read", path)
            self.fail(directory)
            return []
        return [(name, parsed) for name in found if (parsed := self._sort_out(path, name)) is not None]

    def _read_checkpoint(self, path: str, name: str) -> dict[Key, int]:
        """Reads a checkpoint. Treats a malformed checkpoint as empty, as Kafka does. Recovery then starts at the
        beginning of the log."""
        try:
            return checkpoints.OffsetCheckpoint(path, name, self._files).read()
        except MalformedFileError as error:
            LOG.warning("ignored a checkpoint: %s", error)
            return {}

    def _sort_out(self, path: str, name: str) -> names.PartitionDirectory | None:
        """Returns the parsed name of a log to load, or None for other known directories. Raises LogDirectoryError for
        unknown directories."""
        if name == names.CLUSTER_METADATA_DIRECTORY or name in names.NO_LOGS:
            return None
        parsed = names.parse_partition_directory(name)
        if parsed is None:
            raise LogDirectoryError(
                f"{os.path.join(path, name)} is not the directory of a partition (TOPIC-PARTITION); move it elsewhere: "
                "a log directory (log.dirs) may contain only logs"
            )
        if parsed.kind is names.Kind.DELETE:
            self._doom(os.path.join(path, name), 0)
        return parsed if parsed.kind in (names.Kind.LIVE, names.Kind.FUTURE) else None

    def _take_up(self, directory: ManagedDirectory, loaded: list[tuple[directory_load.Found, PartitionHandle]]) -> None:
        live = {}
        high_watermarks = directory.entries(checkpoints.REPLICATION_OFFSET)
        for (name, parsed), handle in loaded:
            if parsed.kind is names.Kind.FUTURE:
                other = self.futures.add(FutureLog(handle, directory, name))
                if other is not None:
                    path = os.path.join(directory.path, name)
                    raise LogDirectoryError(
                        f"{path}: {other.path} is a future log of the same partition; move the older of the two away"
                    )
                continue
            key = (parsed.topic, parsed.partition)
            handle.restore_high_watermark(high_watermarks.get(key, 0))
            live[key] = handle
        with self._mutex:
            directory.partitions |= live

    def held(self) -> list[tuple[Key, PartitionHandle]]:
        """Returns the logs in the directories that are online."""
        with self._mutex:
            return [item for one in self._directories if not one.failed for item in one.partitions.items()]

    def holder(self, key: Key) -> ManagedDirectory | None:
        """Returns the directory of a log. The caller holds the mutex."""
        return next((directory for directory in self._directories if key in directory.partitions), None)

    # --- creation and deletion ---

    def create(
        self,
        topic: str,
        topic_id: Uuid,
        indexes: Iterable[int],
        path: str | None = None,
        settings: LogSettings | None = None,
    ) -> list[PartitionHandle]:
        """Returns the partitions of a topic, and creates those that do not exist. A new partition has no files until
        its first append. `path` is the directory of the new partitions. Without `path`, each new partition belongs to
        the uncordoned directory with the fewest logs. In an offline directory, a new partition is offline from the
        beginning."""
        if settings is None:
            settings = self._settings_of(topic)
        keys = [(topic, index) for index in indexes]
        held = self._held(keys)
        found = self._with_topic_id(topic_id, held) if held else held
        for handle in found.values():
            if handle.settings is not settings:
                handle.configure(settings)
        missing = [key for key in keys if key not in found] if found else keys
        with self._mutex:
            for directory, part in self._spread(missing, path):
                made = new_partitions(directory.native, topic, topic_id, [index for _, index in part], settings)
                directory.partitions.update(zip(part, made, strict=True))
                if directory.cleaned:
                    for key in part:
                        directory.cleaned.pop(key, None)  # the entry belonged to an earlier log with the same name
                if directory.failed:
                    for handle in made:
                        handle.fail(directory.native.offline_errno)
                if len(made) == len(keys):
                    return made
                found.update(zip(part, made, strict=True))
        return [found[key] for key in keys]

    def _held(self, keys: list[Key]) -> dict[Key, PartitionHandle]:
        held = {}
        with self._mutex:
            for partitions in [one.partitions for one in self._directories]:
                if not partitions.keys().isdisjoint(keys):
                    held.update({key: partitions[key] for key in keys if key in partitions})
        return held

    def _with_topic_id(self, topic_id: Uuid, found: dict[Key, PartitionHandle]) -> dict[Key, PartitionHandle]:
        """Returns the logs that belong to the topic. A log without a topic id belongs to the topic: either the log is
        older than topic ids, or a crash interrupted its creation. If the topic has no id, all logs belong to it. A log
        with another id belongs to a deleted topic, and is renamed."""
        settled, strays = {}, []
        for key, handle in found.items():
            held_id = handle.topic_id
            if shown(held_id) == ZERO or is_made(topic_id):
                if held_id != topic_id:
                    self._assign_topic_id(handle, topic_id)
            elif held_id != topic_id:
                LOG.warning("%s-%d: renaming its log, which has topic id %s, not %s", *key, held_id, topic_id)
                strays.append(key)
                continue
            settled[key] = handle
        self.delete(strays, names.Kind.STRAY)
        return settled

    def _assign_topic_id(self, handle: PartitionHandle, topic_id: Uuid) -> None:
        try:
            handle.assign_topic_id(topic_id)
        except OSError as error:
            # The failed write has taken the log directory offline. The log stays listed, so that requests for it get
            # KAFKA_STORAGE_ERROR, and the caller still gets the topic's other logs.
            LOG.error("the topic id could not be written: %s", error.strerror)  # noqa: TRY400 - the disk is at fault
            # An offline log keeps the id in memory, and does not write partition.metadata.
            handle.assign_topic_id(topic_id)

    def _spread(self, keys: list[Key], path: str | None) -> Iterator[tuple[ManagedDirectory, list[Key]]]:
        """Assigns all logs to `path`. Without `path`, assigns each log to the directory with the fewest logs. The
        controller may choose this broker before it learns that every directory is cordoned. New logs then go to the
        first directory, as in Kafka."""
        if path is None:
            serving = [one for one in self._directories if not one.failed] or self._directories[:1]
            serving = [one for one in serving if not one.cordoned] or serving[:1]
        else:
            serving = [one for one in self._directories if one.path == path]
        if len(serving) == 1:
            yield serving[0], keys
        else:
            sizes = [len(one.partitions) + self.futures.count(one) for one in serving]
            parts: list[list[Key]] = [[] for _ in serving]
            for key in keys:
                fewest = sizes.index(min(sizes))
                sizes[fewest] += 1
                parts[fewest].append(key)
            yield from zip(serving, parts, strict=True)

    def configure(self, topic: str, settings: LogSettings) -> None:
        """Applies these settings to all logs of the topic."""
        for handle in self:
            if handle.topic == topic:
                handle.configure(settings)

    def delete(self, keys: Collection[Key], kind: names.Kind = names.Kind.DELETE) -> set[Key]:
        """Deletes logs. Immediately wakes all waiters and renames the directories, which are removed after
        file.delete.delay.ms. Directories of kind STRAY are never removed. All logs of one call share the syncs and the
        writes of the checkpoints. Returns the logs that the next start may find again, because their log directories
        have failed."""
        places: dict[Key, ManagedDirectory] = {}
        leaving: dict[ManagedDirectory, list[tuple[str, PartitionHandle]]] = {}
        for key in keys:
            with self.futures.alone(key):
                with self._mutex:
                    directory = self.holder(key)
                    if directory is not None:
                        handle = directory.partitions.pop(key)
                        directory.cleaned.pop(key, None)
                        self.compactions.disturb(key)
                # The log has left `partitions`, so from now on no other thread can create a future log for it.
                self.futures.drop(key, kind)
                if directory is None:
                    continue
                places[key] = directory
                handle.retire()
                # A second deletion of the log waits in `alone`, and its caller may then create the next log of this
                # name. So the rename must come before the end of `alone`.
                renamed = self._rename(directory, names.partition_directory_name(*key), handle, kind)
            if renamed is not None:
                leaving.setdefault(directory, []).append(renamed)
        for directory, logs in leaving.items():
            self._end_renames(directory, logs, kind)
        self._forget_everywhere(keys)
        return {key for key, directory in places.items() if directory.failed}

    def rename_aside(self, directory: ManagedDirectory, name: str, handle: PartitionHandle, kind: names.Kind) -> None:
        """Renames the directory `name` of a closed log."""
        renamed = self._rename(directory, name, handle, kind)
        if renamed is not None:
            self._end_renames(directory, [renamed], kind)

    def _end_renames(
        self, directory: ManagedDirectory, renamed: Iterable[tuple[str, PartitionHandle]], kind: names.Kind
    ) -> None:
        """Makes the renames durable. `renamed` contains the new path of each log's directory."""
        if directory.failed:
            return
        try:
            open_files.finish(self._files.sync_directory, directory.path)
        except OSError as error:
            self._fail_renames(directory, error)
            return
        if kind is names.Kind.DELETE:
            for path, handle in renamed:
                self._doom(path, handle.settings.file_delete_delay_ms)

    def _fail_renames(self, directory: ManagedDirectory, error: OSError) -> None:
        LOG.error("a log's directory in %s cannot be renamed", directory.path, exc_info=error)
        self.fail(directory)

    def _rename(
        self, directory: ManagedDirectory, name: str, handle: PartitionHandle, kind: names.Kind
    ) -> tuple[str, PartitionHandle] | None:
        """Returns the new path and the log. Returns None if the log has no directory yet, or if the rename fails, which
        takes the log directory offline."""
        path = os.path.join(directory.path, name)
        unique = self._new_uuid().hex()
        aside = os.path.join(directory.path, names.partition_directory_name(handle.topic, handle.index, kind, unique))
        try:
            if not self._files.is_directory(path):
                return None
            self._files.rename(path, aside)
        except OSError as error:
            self._fail_renames(directory, error)
            return None
        return aside, handle

    def _absent(self, directory: ManagedDirectory) -> set[Key]:
        """Returns the logs that have entries in the directory's checkpoints, but are not in the directory."""
        entries: set[Key] = set().union(*directory.stored.values())
        with self._mutex:
            entries -= directory.partitions.keys()
        return entries.difference(key for key, _ in self.futures.of(directory))

    def _forget_everywhere(self, keys: Collection[Key]) -> None:
        for directory in self._directories:
            self._forget(directory, keys)

    def _forget(self, directory: ManagedDirectory, keys: Collection[Key]) -> None:
        """Removes logs that have left a directory from the checkpoints of the directory. Otherwise, after a crash,
        their entries would apply to the next logs with the same names. The next start would then delete records below
        an earlier log's start, or trust records that were never synced."""
        for name, offsets_of in (
            (checkpoints.RECOVERY_POINT, self._recovery_points),
            (checkpoints.LOG_START_OFFSET, self._moved_starts),
            (checkpoints.REPLICATION_OFFSET, self._high_watermarks),
            (checkpoints.CLEANER_OFFSET, self.compactions.offsets),
        ):
            with directory.checkpointing:  # waits for a write that began before the logs left
                is_stored = not directory.entries(name).keys().isdisjoint(keys)
            if is_stored and directory.loaded and not directory.failed:
                self._checkpoint(directory, name, offsets_of)

    def _doom(self, path: str, delay_ms: int) -> None:
        with self._mutex:
            self._doomed.append(Doomed(path, self._environment.monotonic_ns() + delay_ms * 1_000_000))

    def remove_doomed(self, between: Callable[[], None] = _nothing) -> int:
        """Removes the deleted partitions whose delay has passed. Calls `between` after each file, because the removal
        can take long. Returns the number of removed partitions."""
        now_ns = self._environment.monotonic_ns()
        with self._mutex:
            due = [one for one in self._doomed if one.due_ns <= now_ns]
            self._doomed = [one for one in self._doomed if one.due_ns > now_ns]
        for one in due:
            for _ in self._removing(one.path):
                between()
        return len(due)

    def _removing(self, path: str) -> Iterator[None]:
        """Removes the directory of a deleted partition. Yields after each file."""
        try:
            for name in self._files.list(path):
                self._files.unlink(os.path.join(path, name))
                yield
            self._files.remove_directory(path)
        except OSError:
            LOG.exception("%s cannot be removed; the next start tries again", path)

    # --- moving ---

    def create_future(self, key: Key, path: str) -> None:
        """Creates a future log in `path`, which `futures` will fill. Does nothing if the future log already exists.
        Uses no files. Raises MoveCancelled if the log no longer exists or is moving to another directory, or if the
        future log belongs to an earlier topic of the same name."""
        current, known = self.get(*key), self.futures.get(key)
        target = next(one for one in self._directories if one.path == path)
        if current is None:
            raise MoveCancelled(f"{key[0]}-{key[1]} no longer exists")
        topic_id = current.topic_id  # needs the lock of the log, which must not be awaited under the mutex
        if known is not None and shown(known.handle.topic_id) not in (ZERO, topic_id):
            raise MoveCancelled(f"{known.path} belongs to another topic of the same name")
        with self._mutex:
            holder = self.holder(key)
            if holder is None or holder.partitions[key] is not current:
                raise MoveCancelled(f"{key[0]}-{key[1]} no longer exists")
            self.futures.create(key, topic_id, target, current.settings)
            self.compactions.disturb(key)

    def drop_future(self, key: Key, kind: names.Kind = names.Kind.DELETE, name: str | None = None) -> None:
        """Drops the future log of a partition. Call this if the move was cancelled, or if this broker no longer has a
        replica of the partition. With `name`, does nothing if the future log's directory has another name."""
        with self.futures.alone(key):
            self.futures.drop(key, kind, name)
        self._forget_everywhere([key])

    def replace_with_future(self, key: Key) -> None:
        """Ends a move: the future log replaces the log. Raises OSError, MoveCancelled."""
        # Checkpoints the log start offset and the compacted offset before the former directory is removed.
        self.checkpoint_log_starts()
        try:
            with self.compactions.moving(key):
                self.futures.replace_current(key)
        finally:
            self._forget_everywhere([key])
        self.checkpoint_recovery_points()
        self.checkpoint_high_watermarks()

    # --- upkeep ---

    def delete_old_segments(self, between: Callable[[], None] = _nothing) -> int:
        """Applies retention. Calls `between` after each log. Returns the number of removed segments."""
        removed = 0
        for count in self._each(PartitionHandle.delete_old_segments):
            removed += count
            between()
        return removed

    def expire_producers(self) -> int:
        return sum(self._each(PartitionHandle.expire_producers))

    def flush_due(self) -> int:
        """Applies flush.ms: requests a sync of every log whose oldest unsynced byte is too old. Returns the number of
        these logs."""
        now_ms = self._environment.monotonic_ns() // 1_000_000
        count = 0
        for handle in self:
            since_ms = handle.unflushed_since_ms
            if since_ms >= 0 and now_ms - since_ms >= handle.settings.flush_ms:
                handle.flush_soon()
                count += 1
        return count

    def _each(self, work: Callable[[PartitionHandle], int]) -> Iterator[int]:
        for handle in self:
            if handle.state == "failed":
                continue
            try:
                yield work(handle)
            except OSError:
                self.check_directories()

    def checkpoint_recovery_points(self) -> bool:
        return self.checkpoint(checkpoints.RECOVERY_POINT, self._recovery_points)

    def checkpoint_recovery_point(self, key: Key, offset: int) -> None:
        """Stores for the next start that the log is synced up to `offset`. Raises OSError, but does not take the
        directory offline, because the caller can wait for free space on the disk."""
        with self._mutex:
            directory = self.holder(key)
        if directory is None:
            return
        name = checkpoints.RECOVERY_POINT
        with directory.checkpointing:
            if directory.entries(name).get(key, 0) < offset:
                offsets = self._recovery_points(directory)
                checkpoints.OffsetCheckpoint(directory.path, name, self._files).write(offsets)
                directory.stored[name] = offsets

    def _recovery_points(self, directory: ManagedDirectory) -> dict[Key, int]:
        return self._offsets(directory, PartitionHandle.recovery_point_to_write)

    def await_cuts(self, wanted: bool) -> None:
        """Sets whether the caller will call `checkpoint_cuts` each time a directory's `fileno` is readable. If so, a
        log that is truncated below its recovery point or its start on disk accepts no appends until that call."""
        for directory in self._directories:
            cuts.await_checkpoints(directory.native, wanted)

    def checkpoint_cuts(self) -> bool:
        """Checkpoints the offsets of logs that were truncated, and lets their appends continue. Returns False if a file
        could not be written although its disk has not failed. The caller must then call this again later."""
        for directory in self._directories:
            cut = cuts.take(directory.native)
            if cut is not None:
                directory.cut.append(cut)
            if directory.cut and (directory.failed or self._lower(directory)):
                for each in directory.cut:
                    each.go_on()
                directory.cut.clear()
        return not any(directory.cut for directory in self._directories)

    def _lower(self, directory: ManagedDirectory) -> bool:
        self.compactions.lower(directory)
        # The next load would remove the records of a log that ends below its checkpointed start.
        written = self._checkpoint(directory, checkpoints.LOG_START_OFFSET, self._moved_starts)
        written &= self._checkpoint(directory, checkpoints.RECOVERY_POINT, self._recovery_points)
        if directory.cleaned:
            written &= self._checkpoint(directory, checkpoints.CLEANER_OFFSET, self.compactions.offsets)
        return written

    def checkpoint_log_starts(self) -> bool:
        """Checkpoints the log start offset of each log that starts above the base offset of its first segment. Each
        other log starts at the offset in the name of its first file."""
        return self.checkpoint(checkpoints.LOG_START_OFFSET, self._moved_starts)

    def checkpoint_high_watermarks(self) -> bool:
        return self.checkpoint(checkpoints.REPLICATION_OFFSET, self._high_watermarks)

    def _high_watermarks(self, directory: ManagedDirectory) -> dict[Key, int]:
        return self._offsets(directory, _high_watermark)

    def _offsets(self, directory: ManagedDirectory, offset_of: Callable[[PartitionHandle], int]) -> dict[Key, int]:
        with self._mutex:
            handles = list(directory.partitions.items())
        handles += self.futures.of(directory)
        return {key: offset_of(handle) for key, handle in handles if handle.state != "lazy"}

    def _moved_starts(self, directory: ManagedDirectory) -> dict[Key, int]:
        with self._mutex:
            handles = list(directory.partitions.items())
        # This includes logs without a segment. A log that has lost all its segments continues at the offset where they
        # ended.
        starts = {key: handle.log_start_to_write() for key, handle in (*handles, *self.futures.of(directory))}
        return {key: offset for key, offset in starts.items() if offset >= 0}

    def checkpoint(self, name: str, offsets_of: Callable[[ManagedDirectory], dict[Key, int]]) -> bool:
        """Writes one checkpoint file in each directory. Returns False if a write failed although its disk has not
        failed."""
        # While a directory is not loaded, some of its logs are not known. A new file would lose their offsets.
        known = [directory for directory in self._directories if directory.loaded and not directory.failed]
        written = [self._checkpoint(directory, name, offsets_of) for directory in known]
        return all(written)

    def _checkpoint(
        self, directory: ManagedDirectory, name: str, offsets_of: Callable[[ManagedDirectory], dict[Key, int]]
    ) -> bool:
        """Writes one checkpoint file. Returns False if the write failed although the disk has not failed. A later
        attempt may then succeed."""
        # The upkeep thread and the end of a move may write a checkpoint at the same time. Each checkpoint has only one
        # temporary file, so a lock separates the two writers.
        with directory.checkpointing:
            offsets = offsets_of(directory)
            if directory.stored.get(name) == offsets:
                return True
            try:
                checkpoints.OffsetCheckpoint(directory.path, name, self._files).write(offsets)
                directory.stored[name] = offsets
            except OSError as error:
                if error.errno in open_files.SHORTAGE:
                    LOG.warning(
                        "%s in %s could not be written: %s; the node tries again%s",
                        name, directory.path, error.strerror, open_files.explain(error.errno),
                    )  # fmt: skip
                    return False
                LOG.exception("%s cannot be written in %s", name, directory.path)
                self.fail(directory, error.errno or errno.EIO)
        return True

    # --- failures and closing ---

    def check_directories(self) -> None:
        """Takes failed directories offline and reports them. Call this when the `fileno` of a directory's LogDirectory
        is readable."""
        for directory in self._directories:
            if directory.native.offline_errno:
                self.fail(directory)

    def fail(self, directory: ManagedDirectory, error: int = errno.EIO) -> None:
        """Takes a directory offline. The reason is the directory's own error if it has one, and otherwise `error`.
        Reports the directory only the first time."""
        with self._mutex:
            if directory.failed:
                return
            directory.failed = True
            handles = list(directory.partitions.values())
        error = directory.native.offline_errno or error
        directory.native.fail(error)
        why, advice = os.strerror(error), open_files.explain(error)
        LOG.error("the log directory %s and its logs (%d) are offline: %s%s", directory.path, len(handles), why, advice)
        for handle in handles:
            log_move.fail(handle, directory.native, error)
        self.futures.forget(directory)
        self._on_failure(directory.path)

    def close(self, broker_epoch: int = clean_shutdown.NO_EPOCH, *, clean: bool = True) -> None:
        """Closes every log. If `clean`, also writes the checkpoints, and marks the directories without an error as
        cleanly shut down. Without this mark, the node recovers the logs at its next start, as after a crash. A
        directory that the node has not loaded gets the mark only if the previous run shut the directory down
        cleanly."""
        self.await_cuts(False)
        self._end_cuts()
        for directory in self._directories:
            with self._mutex:
                handles = list(directory.partitions.values())
            handles += [handle for _, handle in self.futures.of(directory)]
            # One commit of the file system's journal serves many concurrent syncs, so there are far more threads than
            # disks.
            some = len(handles) // (SHUT_THREADS * SHUT_TURNS) + 1
            parts = [handles[at : at + some] for at in range(0, len(handles), some)]
            with self._make_pool(SHUT_THREADS, "kafkacore-shut") as pool:
                shut = list(pool.map(_shut_all, parts))
            if not all(shut):
                self.fail(directory)
        # If a directory were marked but its log start checkpoint were old, the next start would bring deleted records
        # back.
        clean = clean and _insist(self._checkpoint_all)
        self.check_directories()
        for directory in self._directories:
            if clean and not directory.failed and self._is_clean(directory):
                self._mark_clean(directory, broker_epoch)
            directory.native.close()

    def _end_cuts(self) -> None:
        """Ends the wait of the logs that were truncated. While such a log waits, it cannot be closed."""
        if not _insist(self.checkpoint_cuts):
            for directory in self._directories:
                if directory.cut:
                    self.fail(directory, errno.EMFILE)
            self.checkpoint_cuts()

    def _checkpoint_all(self) -> bool:
        written = self.checkpoint_recovery_points()
        written &= self.checkpoint_log_starts()
        return self.checkpoint_high_watermarks() and written

    def _is_clean(self, directory: ManagedDirectory) -> bool:
        return directory.loaded or directory.clean or clean_shutdown.exists(directory.path, self._files)

    def _mark_clean(self, directory: ManagedDirectory, broker_epoch: int) -> None:
        try:
            open_files.finish(lambda path: clean_shutdown.write(path, broker_epoch, self._files), directory.path)
        except OSError:
            LOG.exception("%s was shut down cleanly, but could not be marked as clean", directory.path)
            self.fail(directory)


def _insist(write: Callable[[], bool]) -> bool:
    """Repeats the write of a checkpoint while no file descriptor is free. Returns whether it succeeded. Blocks."""
    for _ in range(WRITE_RETRIES):
        if write():
            return True
        time.sleep(WRITE_RETRY_S)
    return write()


def _high_watermark(handle: PartitionHandle) -> int:
    return handle.high_watermark


def _shut_all(handles: list[PartitionHandle]) -> bool:
    """Closes all logs. Returns False if at least one of them could not be closed cleanly."""
    failed = [handle for handle in handles if not _shut(handle)]
    return not failed


def _shut(handle: PartitionHandle) -> bool:
    handle.close()
    try:
        handle.shut()
    except OSError:
        # `fail` reports a failed directory once, with the reason. A directory may contain thousands of logs.
        if not handle.directory.offline_errno:
            LOG.exception("%s-%d could not be shut down cleanly", handle.topic, handle.index)
        return False
    return handle.state != "failed"
