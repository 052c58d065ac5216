"""Loads the logs of one log directory on several threads when the node starts, and reports the progress (KIP-831)."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from typing import Final

from kafkacore._fast.log import move as log_move
from kafkacore._fast.log import partition_load
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_load import LoadProgress, LogLoad
from kafkacore._fast.log.settings import LogSettings
from kafkacore.runtime.files import Files, names_in
from kafkacore.storage import clean_shutdown, log_loader, names, partition_metadata
from kafkacore.storage.checkpoints import LOG_START_OFFSET, RECOVERY_POINT
from kafkacore.storage.managed_directory import ManagedDirectory

LOG: Final = logging.getLogger("kafkacore.storage")
PROGRESS_S: Final = 5.0
# The number of logs in a group. A group of logs that need no recovery is loaded without the GIL. Releasing and taking
# the GIL takes longer than loading one such log.
CLEAN_BATCH: Final = 32

Found = tuple[str, names.PartitionDirectory]


class DirectoryLoad:
    """The logs that were found in a directory, and the progress of loading them on `threads` threads
    (num.recovery.threads.per.data.dir). Each thread passes its loaded logs to `take_up`."""

    def __init__(
        self,
        directory: ManagedDirectory,
        found: Iterable[Found],
        threads: int,
        *,
        settings_of: Callable[[str], LogSettings],
        take_up: Callable[[ManagedDirectory, list[tuple[Found, PartitionHandle]]], None],
        fail: Callable[[ManagedDirectory, int], None],
        files: Files,
    ) -> None:
        self.directory = directory
        self._below = os.path.join(directory.path, "")
        self._todo = deque(found)
        self.total = len(self._todo)
        self._settings_of = settings_of
        self._take_up = take_up
        self._fail = fail
        self._files = files
        self._progress = [LoadProgress() for _ in range(threads)]
        self._done = [0] * threads
        self._is_abandoned = False

    def abandon(self) -> None:
        """Ends the load. Each thread finishes the segment that it is recovering, but does not finish a replay of
        producers. Runs on any thread."""
        self._is_abandoned = True
        for progress in self._progress:
            progress.abandon()

    # --- progress; read on any thread ---

    @property
    def threads(self) -> int:
        """The number of threads that have logs to load."""
        return min(len(self._progress), self.total)

    @property
    def remaining(self) -> int:
        return self.total - sum(self._done)

    def segments_to_recover(self) -> list[int]:
        """Returns the number of segments that remain to be recovered in the current log of each thread."""
        return [progress.segments_to_recover for progress in self._progress]

    def tell_begin(self) -> None:
        if self.total and self.directory.clean:
            LOG.info("%s was shut down cleanly: its %d logs need no recovery", self.directory.path, self.total)
        elif self.total:
            LOG.info(
                "%s has no %s: the node recovers its %d logs", self.directory.path, clean_shutdown.NAME, self.total
            )

    def tell_progress(self) -> None:
        if self.remaining:
            LOG.info(
                "%s: %d of %d logs remain; the logs being recovered have %d segments left, %d segments are done, %d "
                "MiB checked",
                self.directory.path,
                self.remaining,
                self.total,
                sum(self.segments_to_recover()),
                sum(progress.segments_done for progress in self._progress),
                sum(progress.bytes_done for progress in self._progress) >> 20,
            )

    # --- a thread's part ---

    def work(self, number: int) -> None:
        """Loads groups of logs until no log is left, the load is abandoned, or the directory fails. Raises
        LogDirectoryError, MalformedFileError."""
        while not self.directory.failed and not self._is_abandoned:
            some = self._take()
            if not some:
                return
            try:
                with self._unclean_after_failure(self._progress[number]):
                    self._load(some, self._progress[number])
            except OSError as error:
                if error.errno == errno.ECANCELED:  # the load was abandoned
                    return
                LOG.exception("loading logs in %s failed", self.directory.path)
                self._fail(self.directory, error.errno or errno.EIO)
                return
            self._done[number] += len(some)

    @contextlib.contextmanager
    def _unclean_after_failure(self, progress: LoadProgress) -> Iterator[None]:
        """Ensures that the directory is not marked as clean after a failed load that rebuilt indexes, because nobody
        syncs these indexes. In a clean directory, the load counts bytes in `bytes_done` only while it rebuilds
        indexes."""
        try:
            yield
        except Exception:
            if progress.bytes_done:
                self.directory.clean = False
            raise

    def _take(self) -> list[Found]:
        taken: list[Found] = []
        with contextlib.suppress(IndexError):
            while len(taken) < (CLEAN_BATCH if self.directory.clean else 1):
                taken.append(self._todo.popleft())
        return taken

    def _load(self, found: list[Found], progress: LoadProgress) -> None:
        # os.path.join would take a microsecond for each partition, and there can be many partitions.
        paths = [self._below + name for name, _ in found]
        settings = {parsed.topic: self._settings_of(parsed.topic) for _, parsed in found}
        handles = [self._new_handle(name, parsed, settings[parsed.topic]) for name, parsed in found]
        self._read_topic_ids(paths, handles)
        listed = names_in(paths, self._files)
        loads = [
            self._load_of(path, parsed, handle, there, progress)
            for path, (_, parsed), handle, there in zip(paths, found, handles, listed, strict=True)
        ]
        partition_load.run(loads)
        for path, load in zip(paths, loads, strict=True):
            log_loader.finish(load, path, self._files)
        self._take_up(self.directory, list(zip(found, handles, strict=True)))

    def _new_handle(self, name: str, parsed: names.PartitionDirectory, settings: LogSettings) -> PartitionHandle:
        topic, index, kind = parsed
        suffix = name.removeprefix(names.partition_directory_name(topic, index)) if kind is names.Kind.FUTURE else ""
        return log_move.new_future(self.directory.native, topic, index, None, settings, suffix)

    def _read_topic_ids(self, paths: list[str], handles: list[PartitionHandle]) -> None:
        for path, handle, is_read in zip(paths, handles, partition_load.read_topic_ids(handles), strict=True):
            if not is_read:
                topic_id = partition_metadata.read(path, self._files)
                if topic_id is not None:
                    handle.assign_topic_id(topic_id)

    def _load_of(
        self,
        path: str,
        parsed: names.PartitionDirectory,
        handle: PartitionHandle,
        listed: list[str],
        progress: LoadProgress,
    ) -> LogLoad:
        directory, key = self.directory, (parsed.topic, parsed.partition)
        return LogLoad(
            handle,
            log_loader.survey(path, self._files, listed),
            clean=directory.clean,
            at_rest=True,
            log_start_offset=directory.entries(LOG_START_OFFSET).get(key, 0),
            recovery_point=directory.entries(RECOVERY_POINT).get(key, 0),
            gaps_until=directory.cleaned.get(key, 0),
            progress=progress,
        )


def run(loads: list[DirectoryLoad], make_pool: Callable[[int, str], Executor]) -> None:
    """Runs all loads at the same time, and logs their progress at intervals. Raises the errors of `work`."""
    parts = [(load, number) for load in loads for number in range(load.threads)]
    if not parts:
        return
    for load in loads:
        load.tell_begin()
    with make_pool(len(parts), "kafkacore-load") as pool:
        futures = [pool.submit(load.work, number) for load, number in parts]
        waiting: set[Future[None]] = set(futures)
        while waiting:
            _, waiting = wait(waiting, PROGRESS_S)
            for load in loads if waiting else ():
                load.tell_progress()
    for future in futures:
        future.result()
