"""Stores how far each log has been compacted, and decides whether a round may start or continue (Kafka's
LogCleanerManager). A round is the compaction of one log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.storage import checkpoints
from kafkacore.storage.future_logs import FutureLogs
from kafkacore.storage.managed_directory import Key, ManagedDirectory


class Owner(Protocol):
    """The methods of the log manager that this module calls."""

    def held(self) -> list[tuple[Key, PartitionHandle]]:
        """Returns the logs in the directories that are online."""

    def holder(self, key: Key) -> ManagedDirectory | None:
        """Returns the directory of a log. The caller holds the mutex."""

    def checkpoint(self, name: str, offsets_of: Callable[[ManagedDirectory], dict[Key, int]]) -> bool:
        """Writes the checkpoint `name` of every directory."""


class Compactions:
    """The state of all compactions of one log manager. The manager's `mutex` guards every field here."""

    def __init__(self, mutex: threading.Lock, owner: Owner, futures: FutureLogs) -> None:
        self._mutex = mutex
        self._owner = owner
        self._futures = futures
        self._undisturbed: set[Key] = set()  # logs whose round may continue

    def logs(self) -> list[tuple[Key, PartitionHandle]]:
        """Returns the logs of compacted topics in directories that are online. Leaves out a log that is moving to
        another directory, because its copy would have to be compacted too."""
        moving = {(future.handle.topic, future.handle.index) for future in self._futures.all()}
        return [
            (key, handle)
            for key, handle in self._owner.held()
            if handle.settings.compact_policy and handle.state == "open" and key not in moving
        ]

    # --- a round ---

    def begin(self, key: Key, handle: PartitionHandle) -> bool:
        """Returns whether a round can start. If so, the caller compacts the log while `may_go_on` returns True, and
        then calls `end`."""
        with self._mutex:
            directory = self._owner.holder(key)
            if directory is None or directory.partitions[key] is not handle:
                return False
            self._undisturbed.add(key)
        if self._futures.get(key) is not None:
            with self._mutex:
                self.disturb(key)
        return self.may_go_on(key, handle)

    def may_go_on(self, key: Key, handle: PartitionHandle) -> bool:
        """Returns whether the round can continue. Returns False if the log has started to move or was
        renamed, or its topic is no longer compacted."""
        with self._mutex:
            return key in self._undisturbed and handle.settings.compact_policy

    def disturb(self, key: Key) -> None:
        """Cancels the round in progress. Call this when the log changes, because the round may already have read the
        changed part. The caller holds the mutex."""
        self._undisturbed.discard(key)

    def end(self, key: Key, handle: PartitionHandle, offset: int, truncations: int) -> None:
        """Stores that the log is compacted up to `offset`. Does nothing if the round was cancelled, or if the log was
        replaced or truncated. `truncations` is the log's count of truncations before the round."""
        with self._mutex:
            directory = self._owner.holder(key)
            if directory is None or directory.partitions[key] is not handle or key not in self._undisturbed:
                return
            self._undisturbed.discard(key)
            if handle.truncations != truncations:
                return
            directory.cleaned[key] = offset
        self.checkpoint()

    # --- how far ---

    def lower(self, directory: ManagedDirectory) -> set[Key]:
        """Lowers the compacted offset of each log that lost compacted records, and returns these logs. Otherwise the
        cleaner would skip the records that replace the lost ones, and deleted keys could come back. Call this before a
        truncated log accepts appends, and after a load."""
        with self._mutex:
            compacted = [
                (key, offset, handle)
                for key, offset in directory.cleaned.items()
                if (handle := directory.partitions.get(key)) is not None
            ]
        # Each property of a handle needs the lock of the log and then the GIL, so this code must not read it under the
        # mutex. A truncated log waits for a checkpoint only if the truncation went below the recovery point on disk. So
        # the compacted offset must never exceed the recovery point. A log that waits cannot grow meanwhile.
        lowest = {
            key: (handle, handle.recovery_point)
            for key, offset, handle in compacted
            if handle.awaits_checkpoint or offset > handle.end_offset
        }
        with self._mutex:
            for key, (handle, offset) in lowest.items():
                if directory.partitions.get(key) is handle and key in directory.cleaned:
                    directory.cleaned[key] = min(directory.cleaned[key], offset)
        return set(lowest)

    def known_until(self, key: Key) -> int | None:
        """Returns the end offset of the compacted part of the log, or None if the log was never compacted."""
        with self._mutex:
            directory = self._owner.holder(key)
            return None if directory is None else directory.cleaned.get(key)

    @contextmanager
    def moving(self, key: Key) -> Iterator[None]:
        """Surrounds the replacement of a log by its future log. During the replacement, both directories record how far
        the log was compacted, so that a starting node finds this offset in either directory. Afterwards only the log's
        directory records it."""
        source, future = self._tell_next(key), self._futures.get(key)
        try:
            yield
        except Exception:
            # The replacement failed, so the offset in the target directory is removed. Otherwise a later log with the
            # same name in that directory would count as compacted.
            with self._mutex:
                if future is not None and key not in future.directory.partitions:
                    future.directory.cleaned.pop(key, None)
            raise
        if source is not None and future is not None:
            with self._mutex:
                former, cleaned = source.cleaned.pop(key, 0), future.directory.cleaned
                if key in cleaned:  # a truncation may have lowered either of the two offsets meanwhile
                    cleaned[key] = min(cleaned[key], former)
            self.checkpoint()

    def _tell_next(self, key: Key) -> ManagedDirectory | None:
        """Copies the compacted offset to the target directory of a move. Returns the log's current directory, or None
        if the log is not moving or was never compacted."""
        future = self._futures.get(key)
        with self._mutex:
            source = self._owner.holder(key)
            if source is None or future is None:
                return None
            if key not in source.cleaned:
                future.directory.cleaned.pop(key, None)
                return None
            future.directory.cleaned[key] = source.cleaned[key]
        self.checkpoint()
        return source

    def checkpoint(self) -> None:
        """Writes cleaner-offset-checkpoint into each directory. The file contains only logs that are in the directory
        or are moving to it."""
        self._owner.checkpoint(checkpoints.CLEANER_OFFSET, self.offsets)

    def offsets(self, directory: ManagedDirectory) -> dict[Key, int]:
        """Returns the entries of cleaner-offset-checkpoint."""
        coming = {key for key, _ in self._futures.of(directory)}
        with self._mutex:
            return {
                key: offset for key, offset in directory.cleaned.items() if key in directory.partitions or key in coming
            }
