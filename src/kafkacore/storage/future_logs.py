"""Moves logs to other directories (KIP-113). The copy of a log is called its future log, and its directory is named
`TOPIC-PARTITION.UNIQUE-future` until the copy replaces the original."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log import move as log_move
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore.runtime import open_files
from kafkacore.runtime.files import Files
from kafkacore.storage import log_loader, names
from kafkacore.storage.errors import LogDirectoryError, reason
from kafkacore.storage.managed_directory import Key, ManagedDirectory


class Owner(Protocol):
    """The methods of the log manager that this module calls."""

    def holder(self, key: Key) -> ManagedDirectory | None:
        """Returns the directory of a log. The caller holds the mutex."""

    def rename_aside(self, directory: ManagedDirectory, name: str, handle: PartitionHandle, kind: names.Kind) -> None:
        """Renames the directory `name` of a closed log."""

    def fail(self, directory: ManagedDirectory) -> None:
        """Takes a directory offline because its files cannot be renamed."""


LOG: Final = logging.getLogger("kafkacore.storage")

_ROOM: Final = (errno.ENOMEM, *open_files.SHORTAGE)
LAST_BYTES: Final = 1 << 20  # the size of the steps of a move's last copy, during which appends wait


class MoveCancelled(Exception):
    """The partition or its future log no longer exists, or was replaced since the move started."""


class FutureLog(NamedTuple):
    """A future log, which is a copy in progress. `name` is the name of its directory."""

    handle: PartitionHandle
    directory: ManagedDirectory
    name: str

    @property
    def path(self) -> str:
        return os.path.join(self.directory.path, self.name)


class FutureLogs:
    """The future logs of a node. This object belongs to a log manager, whose `mutex` guards the dictionaries of both
    objects."""

    def __init__(self, mutex: threading.Lock, files: Files, owner: Owner, new_uuid: Callable[[], Uuid]) -> None:
        self._mutex = mutex
        self._files = files
        self._owner = owner
        self._new_uuid = new_uuid
        self._futures: dict[Key, FutureLog] = {}
        self._busy: set[Key] = set()
        self._idle = threading.Condition(mutex)

    # --- the future logs ---

    def get(self, key: Key) -> FutureLog | None:
        with self._mutex:
            return self._futures.get(key)

    def all(self) -> list[FutureLog]:
        with self._mutex:
            return list(self._futures.values())

    def of(self, directory: ManagedDirectory) -> list[tuple[Key, PartitionHandle]]:
        return [((one.handle.topic, one.handle.index), one.handle) for one in self.all() if one.directory is directory]

    def count(self, directory: ManagedDirectory) -> int:
        """Returns the number of logs that are moving to a directory. The caller holds the mutex."""
        return sum(future.directory is directory for future in self._futures.values()) if self._futures else 0

    def add(self, future: FutureLog) -> FutureLog | None:
        """Adds a future log that the starting node has found. If the partition already has a future log, adds nothing,
        and returns that log."""
        with self._mutex:
            other = self._futures.setdefault((future.handle.topic, future.handle.index), future)
        return None if other is future else other

    def create(self, key: Key, topic_id: Uuid, directory: ManagedDirectory, settings: LogSettings) -> FutureLog:
        """Creates a future log, which has no files yet. If a future log already exists in that directory, returns it.
        If one exists in another directory, raises MoveCancelled. The caller holds the mutex."""
        known = self._futures.get(key)
        if known is not None:
            if known.directory is not directory:
                raise MoveCancelled(f"{key[0]}-{key[1]} is being moved to {known.directory.path}")
            return known
        live = names.partition_directory_name(*key)
        name = names.partition_directory_name(*key, names.Kind.FUTURE, self._new_uuid().hex())
        suffix = name.removeprefix(live)
        handle = log_move.new_future(directory.native, *key, topic_id, settings, suffix)
        made = self._futures[key] = FutureLog(handle, directory, name)
        return made

    @contextmanager
    def alone(self, key: Key) -> Iterator[None]:
        """Returns a context manager. Inside it, only the caller's thread can delete this log or move it to another
        directory."""
        with self._idle:
            self._idle.wait_for(lambda: key not in self._busy)
            self._busy.add(key)
        try:
            yield
        finally:
            with self._idle:
                self._busy.discard(key)
                self._idle.notify_all()

    def drop(self, key: Key, kind: names.Kind = names.Kind.DELETE, name: str | None = None) -> None:
        """Removes a future log and renames its directory. With `name`, does nothing if the directory has another name.
        Call this inside `alone`, or while the node starts."""
        with self._mutex:
            future = self._futures.get(key)
            if future is not None and name not in (None, future.name):
                return
            self._futures.pop(key, None)
        if future is not None:
            future.handle.retire()
            self._owner.rename_aside(future.directory, future.name, future.handle, kind)

    def forget(self, directory: ManagedDirectory) -> None:
        """Drops the future logs of a directory that failed. The node finds them again at its next start."""
        with self._mutex:
            lost = [key for key, future in self._futures.items() if future.directory is directory]
            handles = [self._futures.pop(key).handle for key in lost]
        for handle in handles:
            log_move.fail(handle, directory.native, directory.native.offline_errno)

    # --- moving ---

    def copy(self, key: Key, max_bytes: int) -> int:
        """Copies up to `max_bytes` more from the log to its future log. Returns the number of copied bytes, which is
        less than `max_bytes` when the copy is complete. Raises OSError, MoveCancelled."""
        current, _, future = self._both(key)
        if future.handle.state == "closed":
            future = self._reopened(key, future)
        return _copy(current, future.handle, max_bytes)

    def _both(self, key: Key) -> tuple[PartitionHandle, ManagedDirectory, FutureLog]:
        with self._mutex:
            directory, future = self._owner.holder(key), self._futures.get(key)
            if directory is None or future is None:
                raise MoveCancelled(f"{key[0]}-{key[1]} or its future log no longer exists")
            return directory.partitions[key], directory, future

    def replace_current(self, key: Key) -> None:
        """Replaces the current log by the future log while appends wait. The former directory is deleted later. Raises
        MoveCancelled and OSError. After either error, the current log stays in use."""
        with self.alone(key):
            current, source, future = self._both(key)
            future.handle.flush()  # now, so that little is left to sync while appends wait
            log_move.hold_still(current)
            try:
                while _copy(current, future.handle, LAST_BYTES):
                    continue
                self._hand_over(current, self._settle(future, current.log_start_offset, current.end_offset), future)
            finally:
                log_move.go_on(current)
            with self._mutex:
                self._futures.pop(key, None)
                del source.partitions[key]
                future.directory.partitions[key] = current
                failed = future.directory.failed
            if failed:
                # The target directory failed before its `partitions` contained this log, so the failure did not reach
                # the log.
                log_move.fail(current, future.directory.native, future.directory.native.offline_errno)
            live = names.partition_directory_name(*key)
            self._owner.rename_aside(source, live, current, names.Kind.DELETE)
            LOG.info("%s-%d has moved from %s to %s", *key, source.path, future.directory.path)

    def _reopened(self, key: Key, future: FutureLog) -> FutureLog:
        """Opens the future log again after a failed replacement. Raises OSError, MoveCancelled."""
        with self.alone(key):
            closed = future.handle
            native, suffix = future.directory.native, future.name.removeprefix(names.partition_directory_name(*key))
            handle = log_move.new_future(native, *key, closed.topic_id, closed.settings, suffix)
            if self._files.is_directory(future.path):
                try:
                    log_loader.load(
                        handle, future.path, clean=False, recovery_point=closed.end_offset, files=self._files
                    )
                except LogDirectoryError as error:
                    raise OSError(reason(error)) from error
            with self._mutex:
                if self._futures.get(key) is not future:
                    raise MoveCancelled(f"{future.path} no longer exists")
                made = self._futures[key] = future._replace(handle=handle)
            return made

    def _hand_over(self, current: PartitionHandle, fresh: PartitionHandle, future: FutureLog) -> None:
        try:
            log_move.adopt(current, fresh)
        except OSError:
            # The current log stays in use. At its next start, the node must not find a second log for the partition. So
            # this code renames the new log.
            log_move.go_on(fresh)
            fresh.retire()
            with self._mutex:
                self._futures.pop((fresh.topic, fresh.index), None)
            live = names.partition_directory_name(fresh.topic, fresh.index)
            self._owner.rename_aside(future.directory, live, fresh, names.Kind.STRAY)
            raise

    def promote(self, key: Key) -> None:
        """Makes the future log the current log. The starting node calls this if it has found no other log for the
        partition. Raises OSError."""
        with self._mutex:
            future = self._futures.pop(key)
        handle = self._settle(future, future.handle.log_start_offset, future.handle.end_offset)
        with self._mutex:
            future.directory.partitions[key] = handle

    def _settle(self, future: FutureLog, log_start_offset: int, end_offset: int) -> PartitionHandle:
        """Renames the future log to its final name, syncs the directory and opens the log there."""
        handle = future.handle
        key = (handle.topic, handle.index)
        path = os.path.join(future.directory.path, names.partition_directory_name(*key))
        handle.shut()
        fresh = PartitionHandle(future.directory.native, *key, handle.topic_id, handle.settings)
        if not self._files.is_directory(future.path):
            if end_offset > 0:
                fresh.truncate_fully(end_offset)
        else:
            try:
                self._files.rename(future.path, path)
                self._files.sync_directory(future.directory.path)
                log_loader.load(
                    fresh,
                    path,
                    clean=True,
                    recovery_point=end_offset,  # the checkpointed recovery point of the future log may be this high
                    log_start_offset=log_start_offset,
                    gaps_until=future.directory.cleaned.get(key, 0),
                    files=self._files,
                )
            except (OSError, LogDirectoryError, MemoryError) as error:
                if _is_want_of_room(error):
                    self._rename_back(path, future)
                else:
                    self._owner.fail(future.directory)
                raise OSError(f"{path}: {reason(error)}") from error
        return fresh

    def _rename_back(self, path: str, future: FutureLog) -> None:
        """Renames the directory of a future log back after the log could not replace the current log. The current log
        gets more records from now on, so after a power loss the node must not find the future log under the final
        name."""
        try:
            if not self._files.is_directory(future.path):
                self._files.rename(path, future.path)
                open_files.finish(self._files.sync_directory, future.directory.path)
        except OSError:
            LOG.exception("%s cannot be renamed", path)
            self._owner.fail(future.directory)


def _is_want_of_room(error: Exception) -> bool:
    """Returns whether memory or a file descriptor was missing. The disk has not failed then."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _ROOM)


def _copy(current: PartitionHandle, future: PartitionHandle, max_bytes: int) -> int:
    """Makes the future log agree with the current log, and then copies more of it. Begins again if the current log is
    truncated meanwhile."""
    copied = None
    while copied is None:
        truncations = current.truncations  # read now, because the comparison may miss a later truncation
        _agree(current, future)
        copied = log_move.copy(current, future, max_bytes, truncations)
    return copied


def _agree(current: PartitionHandle, future: PartitionHandle) -> None:
    """Removes from the future log the records that were truncated in the current log after the move copied them
    (KIP-101)."""
    end = min(_agreed_end(current, future), current.end_offset)
    if future.end_offset > end:
        LOG.info(
            "%s-%d: the future log is truncated to offset %d, the end of the current log",
            future.topic,
            future.index,
            end,
        )
        future.truncate_to(end)


def _agreed_end(current: PartitionHandle, future: PartitionHandle) -> int:
    """Returns the end of the last epoch of the future log that the current log contains too (KIP-279)."""
    end = future.end_offset
    for epoch, start in reversed(future.leader_epochs()):
        found, epoch_end = current.epoch_end(epoch)
        if found == epoch:
            return min(end, epoch_end)
        end = min(end, start)
    return end
