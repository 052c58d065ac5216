"""The log cleaner. It compacts the dirtiest log, then the next one, until no log needs compaction (Kafka's LogCleaner).

The upkeep thread calls `check` at intervals to look for work. Cleaner threads and the memory of their offset maps exist
only while there is work. A cleaner thread makes the decisions in Python. `_fast.compact.compaction` copies the records
in steps. Between two steps the thread waits if the rate limit (log.cleaner.io.max.bytes.per.second) requires it, and
checks whether it has to stop.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final, NamedTuple

from kafkacore._fast.compact.compaction import DONE, Compaction, CompactionCancelled, CompactionTotals, UncleanableLog
from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log import move as log_move
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.runtime.workers import BackgroundThread, daemon_thread
from kafkacore.storage.cleaner_choice import DirtySection, dirty_section
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.managed_directory import Key

LOG: Final = logging.getLogger("kafkacore.storage")

# After compacting this many bytes, a thread checks the rate limit and whether it has to stop.
STEP_BYTES: Final = 4 << 20
# The nice value of a cleaner thread. It gives the thread a lower priority than the threads of the data plane.
CLEANER_NICE: Final = 10
MOST_MAP_BYTES: Final = (1 << 31) - 1  # Kafka's limit for the offset map of one thread
LEAST_BACKOFF_MS: Final = 50
LEAST_LOAD_FACTOR: Final = 0.01
# After these errors the cleaner tries again: the disk is full, a resource is exhausted, or the log has moved to another
# directory.
_RETRIED: Final = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOENT)
_NS: Final = 1_000_000_000


class CleanerSettings(NamedTuple):
    """The settings of the cleaner. All cleaner threads share `dedupe_buffer_bytes` and `io_buffer_bytes`. The defaults
    are Kafka's."""

    enabled: bool = True  # log.cleaner.enable
    threads: int = 1  # log.cleaner.threads
    dedupe_buffer_bytes: int = 134217728  # log.cleaner.dedupe.buffer.size
    load_factor: float = 0.9  # log.cleaner.io.buffer.load.factor
    io_buffer_bytes: int = 524288  # log.cleaner.io.buffer.size
    max_bytes_per_second: float = 1.7976931348623157e308  # log.cleaner.io.max.bytes.per.second
    backoff_ms: int = 15_000  # log.cleaner.backoff.ms


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    # Apache Kafka accepts NaN for these two keys, and a rate of NaN limits nothing.
    load_factor, rate = config.log_cleaner_io_buffer_load_factor, config.log_cleaner_io_max_bytes_per_second
    return CleanerSettings(
        enabled=config.log_cleaner_enable,
        threads=config.log_cleaner_threads,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        load_factor=1.0 if math.isnan(load_factor) else min(max(load_factor, LEAST_LOAD_FACTOR), 1.0),
        io_buffer_bytes=config.log_cleaner_io_buffer_size,
        max_bytes_per_second=math.inf if math.isnan(rate) else rate,
        backoff_ms=config.log_cleaner_backoff_ms,
    )


class LastRound(NamedTuple):
    """The figures of a thread's last round. A round is the compaction of one log."""

    read_bytes: int
    written_bytes: int
    elapsed_s: float
    utilization: float  # the share of the offset map that was in use


class Work(NamedTuple):
    key: Key
    handle: PartitionHandle
    section: DirtySection
    truncations: int  # the log's count of truncations before the section was chosen


class LogCleaner:
    """Compacts logs on its own threads. `check` and `configure` can be called on any thread that can wait for a disk.
    Call `close` before the logs are closed."""

    def __init__(
        self,
        manager: LogManager,
        environment: Environment,
        settings: CleanerSettings,
        new_thread: Callable[[str, Callable[[], None]], BackgroundThread] = daemon_thread,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._manager = manager
        self._new_thread, self._random_bytes = new_thread, random_bytes
        self._environment = environment
        self._settings = settings
        self._changed = threading.Condition()
        self._threads: dict[int, BackgroundThread] = {}
        self._busy: set[Key] = set()
        self._uncleanable: dict[Key, PartitionHandle] = {}
        # Maps each log that could not be compacted to the time until which the cleaner skips the log.
        self._resting: dict[Key, int] = {}
        self._stopping = False
        self._rate_since_ns = 0
        self._rate_bytes = 0
        self._rounds: dict[int, LastRound] = {}
        self._checked_ms = environment.wall_ms()
        self.max_dirty_ratio = 0.0
        self.max_delay_ms = 0
        self.dead_threads = 0

    @property
    def backoff_ms(self) -> int:
        return max(self._settings.backoff_ms, LEAST_BACKOFF_MS)

    def configure(self, settings: CleanerSettings) -> None:
        """Applies new settings. The new rate applies immediately. The other settings apply from the next round."""
        with self._changed:
            if settings == self._settings:
                return
            self._settings = settings
            self._rate_since_ns = 0
            self.dead_threads = 0  # `check` starts the configured number of threads again
            self._changed.notify_all()

    def close(self) -> None:
        """Cancels the rounds in progress and waits for their threads. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join()

    def settle(self, timeout_s: float) -> bool:
        """Waits until no round is in progress. Returns False if this takes longer than `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads, timeout_s)

    # --- looking for work ---

    def check(self) -> None:
        """Starts one thread for each log that needs compaction, up to log.cleaner.threads."""
        self._forget_the_gone()
        due = len(self._due()) if self._settings.enabled else 0
        with self._changed:
            wanted = min(len(self._threads) + due, self._settings.threads)
            for number in range(self._settings.threads):
                if len(self._threads) < wanted and number not in self._threads and not self._stopping:
                    name = f"kafkacore-cleaner-{number}"
                    thread = self._new_thread(name, partial(self._run, number))
                    # The start may fail, so it comes before the entry in `_threads`. The new thread cannot remove the
                    # entry earlier, because it needs the lock that this code holds.
                    thread.start()
                    self._threads[number] = thread

    def _due(self) -> list[Work]:
        """Returns the logs that need compaction and that no thread is compacting, the dirtiest first."""
        now_ms = self._checked_ms = self._environment.wall_ms()
        sections = [
            work for key, handle in self._manager.compactions.logs() if (work := self._look(key, handle, now_ms))
        ]
        self.max_dirty_ratio = max((work.section.ratio for work in sections), default=0.0)
        self.max_delay_ms = max((work.section.delay_ms for work in sections), default=0)
        due = [work for work in sections if work.section.is_due(work.handle.settings.min_cleanable_dirty_ratio)]
        return sorted(due, key=lambda work: work.section.ratio, reverse=True)

    def _look(self, key: Key, handle: PartitionHandle, now_ms: int) -> Work | None:
        with self._changed:
            if key in self._busy or self._uncleanable.get(key) is handle:
                return None
            if self._resting.get(key, 0) > self._environment.monotonic_ns():
                return None
        truncations = handle.truncations
        try:
            section = dirty_section(handle, self._manager.compactions.known_until(key), now_ms)
        except OSError as error:
            self._failed(key, handle, handle.directory, error)
            return None
        return None if section is None else Work(key, handle, section, truncations)

    def _forget_the_gone(self) -> None:
        with self._changed:
            marked = list(self._uncleanable.items())
        gone = [key for key, handle in marked if self._manager.get(*key) is not handle]
        now_ns = self._environment.monotonic_ns()
        with self._changed:
            for key in gone:
                del self._uncleanable[key]
            self._resting = {key: due_ns for key, due_ns in self._resting.items() if due_ns > now_ns}

    # --- threads ---

    def _run(self, number: int) -> None:
        try:
            self._clean_all(number)
        except Exception:
            LOG.exception("a thread of the log cleaner died")
            with self._changed:
                self.dead_threads += 1
        finally:
            with self._changed:
                self._threads.pop(number, None)
                self._changed.notify_all()

    def _clean_all(self, number: int) -> None:
        settings = self._settings
        budget = min(settings.dedupe_buffer_bytes // max(settings.threads, 1), MOST_MAP_BYTES)
        keys = KeyOffsets(budget, settings.load_factor, self._random_bytes(16))
        while settings is self._settings and (work := self._grab()) is not None:
            try:
                self._clean(number, work, keys)
            finally:
                with self._changed:
                    self._busy.discard(work.key)
        if settings is not self._settings:
            self._rounds.pop(number, None)

    def _grab(self) -> Work | None:
        for work in self._due():
            with self._changed:
                if self._stopping:
                    return None
                if work.key not in self._busy:
                    self._busy.add(work.key)
                    return work
        return None

    def _clean(self, number: int, work: Work, keys: KeyOffsets) -> None:
        key, handle = work.key, work.handle
        directory = handle.directory
        try:
            self._compact(number, work, keys)
        except CompactionCancelled as error:
            LOG.info("%s-%d: its compaction was cancelled: %s", *key, error)
            self._rest(key)
        except UncleanableLog as error:
            LOG.warning("%s-%d will not be compacted until the node restarts: %s", *key, error)
            with self._changed:
                self._uncleanable[key] = handle
        except MemoryError:
            self._failed(key, handle, directory, OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)))
        except OSError as error:
            self._failed(key, handle, directory, error)

    def _rest(self, key: Key) -> None:
        with self._changed:
            self._resting[key] = self._environment.monotonic_ns() + self.backoff_ms * 1_000_000

    def _failed(self, key: Key, handle: PartitionHandle, directory: LogDirectory, error: OSError) -> None:
        """Handles the error of a round. `directory` is the directory that contained the log."""
        if error.errno in (errno.EIO, errno.EROFS):
            log_move.fail(handle, directory, error.errno)  # a disk error takes the directory offline
        if directory.offline_errno:
            self._manager.check_directories()
        elif error.errno in _RETRIED:
            LOG.warning("%s-%d could not be compacted; the cleaner tries again: %s", *key, error)
            self._rest(key)
        else:
            LOG.warning("%s-%d will not be compacted until the node restarts: %s", *key, error)
            with self._changed:
                self._uncleanable[key] = handle

    def _compact(self, number: int, work: Work, keys: KeyOffsets) -> None:
        (key, handle, section, truncations), settings = work, self._settings
        began_ns = self._environment.monotonic_ns()
        self._prepare(key, handle, section.upper_bound)
        keys.begin(section.upper_bound - section.first_dirty)
        try:
            compaction = Compaction(
                handle,
                keys,
                section.first_dirty,
                section.upper_bound,
                now_ms=self._environment.wall_ms(),
                delete_retention_ms=handle.settings.delete_retention_ms,
                buffer_bytes=settings.io_buffer_bytes // max(settings.threads, 1) // 2,
                nice=CLEANER_NICE,
            )
            with closing(compaction):
                if handle.truncations != truncations:  # `compaction` itself notices a later truncation
                    raise CompactionCancelled("the log was truncated")
                moved = 0
                while compaction.phase != DONE:
                    compaction.step(STEP_BYTES)
                    totals = compaction.totals
                    so_far = totals.mapped_bytes + totals.read_bytes + totals.written_bytes
                    self._keep_to_the_rate(key, handle, so_far - moved)
                    moved = so_far
                end_offset, totals, utilization = compaction.end_offset, compaction.totals, keys.utilization
        finally:
            keys.release()
        self._manager.compactions.end(key, handle, end_offset, truncations)
        elapsed_s = (self._environment.monotonic_ns() - began_ns) / _NS
        self._rounds[number] = LastRound(totals.read_bytes, totals.written_bytes, elapsed_s, utilization)
        self._tell(work, end_offset, totals, elapsed_s)

    def _prepare(self, key: Key, handle: PartitionHandle, upper_bound: int) -> None:
        """Prepares a round. Raises CompactionCancelled, OSError."""
        if not self._manager.compactions.begin(key, handle):
            raise CompactionCancelled("the log is moving to another directory, or was deleted")
        # A compacted log has gaps. The topic's cleanup.policy may change later, and a start after a crash would then
        # regard gaps above the recovery point as damage. So this code first raises the recovery point.
        if handle.recovery_point < upper_bound:
            handle.flush()
        self._manager.checkpoint_recovery_point(key, upper_bound)

    def _tell(self, work: Work, end_offset: int, totals: CompactionTotals, elapsed_s: float) -> None:
        LOG.info(
            "%s-%d was compacted from offset %d to %d in %.1f s: %d records (%d KiB) remain of %d (%d KiB)",
            *work.key,
            work.section.first_dirty,
            end_offset,
            elapsed_s,
            totals.kept_records,
            totals.written_bytes >> 10,
            totals.read_records,
            totals.read_bytes >> 10,
        )
        if totals.keyless_records:
            LOG.warning("%s-%d: compaction removed %d records without a key", *work.key, totals.keyless_records)

    def _keep_to_the_rate(self, key: Key, handle: PartitionHandle, moved_bytes: int) -> None:
        """Waits until the rate limit allows `moved_bytes` more. Raises CompactionCancelled."""
        with self._changed:
            now_ns = self._environment.monotonic_ns()
            # Unused capacity of one second is not carried over to the next second.
            if now_ns - self._rate_since_ns > _NS and self._is_slow_enough(now_ns):
                self._rate_since_ns, self._rate_bytes = now_ns, 0
            self._rate_bytes += moved_bytes
            while not self._stopping and not self._is_slow_enough(self._environment.monotonic_ns()):
                self._changed.wait(min(self._rate_bytes / self._rate, 1.0))
            if self._stopping:
                raise CompactionCancelled("the cleaner is closed")
        if self._manager.get(*key) is not handle:
            raise CompactionCancelled("the log was deleted")
        if not self._manager.compactions.may_go_on(key, handle):
            raise CompactionCancelled(
                "the log is moving to another directory, was truncated, or its cleanup.policy has changed"
            )

    def _is_slow_enough(self, now_ns: int) -> bool:
        return int(self._rate_bytes / self._rate * _NS) <= now_ns - self._rate_since_ns

    @property
    def _rate(self) -> float:
        return max(self._settings.max_bytes_per_second, 1.0)

    # --- metrics ---

    def last_rounds(self) -> list[LastRound]:
        """Returns the figures of each thread's last round."""
        return list(self._rounds.values())

    @property
    def since_last_check_ms(self) -> int:
        return self._environment.wall_ms() - self._checked_ms

    def uncleanable(self) -> dict[str, tuple[int, int]]:
        """Returns for each log directory the number of logs that could not be compacted, and the number of dirty bytes
        in these logs."""
        found = dict.fromkeys((path for path, _ in self._manager.directories()), (0, 0))
        with self._changed:
            marked = list(self._uncleanable.items())
        for key, handle in marked:
            logs, dirty_bytes = found.get(handle.directory.path, (0, 0))
            found[handle.directory.path] = (logs + 1, dirty_bytes + self._dirty_bytes(key, handle))
        return found

    def _dirty_bytes(self, key: Key, handle: PartitionHandle) -> int:
        try:
            section = dirty_section(handle, self._manager.compactions.known_until(key), self._environment.wall_ms())
        except OSError:
            return 0  # the log's directory is offline, or is going offline now
        return 0 if section is None else section.cleanable_bytes
