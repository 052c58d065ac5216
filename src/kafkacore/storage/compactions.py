"""How far each log has been compacted, and whether a round of it may go on (Kafka's LogCleanerManager)."""

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
    """The log manager."""

    def held(self) -> list[tuple[Key, PartitionHandle]]:
        """The logs of directories that serve."""

    def holder(self, key: Key) -> ManagedDirectory | None:
        """Under the mutex: where a log lies."""

    def checkpoint(self, name: str, offsets_of: Callable[[ManagedDirectory], dict[Key, int]]) -> None:
        """Writes one of each directory."""


class Compactions:
    """Belongs to a log manager, whose `mutex` covers what this has."""

    def __init__(self, mutex: threading.Lock, owner: Owner, futures: FutureLogs) -> None:
        self._mutex = mutex
        self._owner = owner
        self._futures = futures
        self._undisturbed: set[Key] = set()  # logs whose round may go on

    def logs(self) -> list[tuple[Key, PartitionHandle]]:
        """Those that are to be compacted, of directories that serve. One that moves waits: what was copied of it would
        have to be compacted too."""
        moving = {(future.handle.topic, future.handle.index) for future in self._futures.all()}
        return [
            (key, handle)
            for key, handle in self._owner.held()
            if handle.settings.compact_policy and handle.state == "open" and key not in moving
        ]

    # --- a round ---

    def begin(self, key: Key, handle: PartitionHandle) -> bool:
        """Whether a round may begin; it goes on while it `may_go_on`, and ends with `end`."""
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
        """Since its round began the log has not begun to move, lost its end or its name, nor its policy."""
        with self._mutex:
            return key in self._undisturbed and handle.settings.compact_policy

    def disturb(self, key: Key) -> None:
        """Under the mutex: what a round that is under way has read of the log is not true any more."""
        self._undisturbed.discard(key)

    def end(self, key: Key, handle: PartitionHandle, offset: int) -> None:
        """It has been compacted up to there, unless that is not the log any more with which the round began."""
        with self._mutex:
            directory = self._owner.holder(key)
            if directory is None or directory.partitions[key] is not handle or key not in self._undisturbed:
                return
            self._undisturbed.discard(key)
            directory.cleaned[key] = offset
        self.checkpoint()

    def truncate(self, key: Key, offset: int) -> None:
        """The log ends at `offset`, and what comes behind it has not been compacted: a round that is under way ends,
        and is tried again (Kafka's abortCleaning). Raises OSError, KeyError."""
        with self._mutex:
            directory = self._owner.holder(key)
            if directory is None:
                raise KeyError(key)
            handle = directory.partitions[key]
            self.disturb(key)
        handle.truncate_to(offset)
        with self._mutex:
            self.disturb(key)  # one that began meanwhile, and may be over before it could notice
            compacted = directory.cleaned.get(key, 0) > offset
            if compacted:
                directory.cleaned[key] = offset
        if compacted:
            self.checkpoint()

    # --- how far ---

    def known_until(self, key: Key) -> int | None:
        """The offset from which the log has not been compacted; None where it never was."""
        with self._mutex:
            directory = self._owner.holder(key)
            return None if directory is None else directory.cleaned.get(key)

    @contextmanager
    def moving(self, key: Key) -> Iterator[None]:
        """While its future log takes the place of a log: how far that was compacted is known in both directories, so
        that a start finds it in either, and afterwards where the log is."""
        source, future = self._tell_next(key), self._futures.get(key)
        try:
            yield
        except Exception:
            # Nothing has moved: a later log of the name must not be taken for compacted in that directory.
            with self._mutex:
                if future is not None and key not in future.directory.partitions:
                    future.directory.cleaned.pop(key, None)
            raise
        if source is not None:
            with self._mutex:
                source.cleaned.pop(key, None)
            self.checkpoint()

    def _tell_next(self, key: Key) -> ManagedDirectory | None:
        """The directory where the log is now, if it was compacted at all."""
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
        """Of logs that are here, or on their way here: what became of others is nobody's concern."""
        self._owner.checkpoint(checkpoints.CLEANER_OFFSET, self._told)

    def _told(self, directory: ManagedDirectory) -> dict[Key, int]:
        coming = {key for key, _ in self._futures.of(directory)}
        with self._mutex:
            return {
                key: offset for key, offset in directory.cleaned.items() if key in directory.partitions or key in coming
            }
