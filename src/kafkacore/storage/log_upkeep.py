"""The upkeep thread, which maintains the logs. It writes checkpoints, applies retention, requests the flushes that are
due, removes deleted directories, and handles failed disks."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from typing import Final, NamedTuple

from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.config import BrokerConfig
from kafkacore.runtime.scheduler import Scheduled, Scheduler
from kafkacore.storage.cleaner import LogCleaner
from kafkacore.storage.log_manager import LogManager

_NEVER_MS: Final = 1 << 40  # a longer interval means "never", as in Kafka
_DOOMED_CHECK_MS: Final = 5_000
_CUTS_RETRY_MS: Final = 1_000
_NS_OF_A_MS: Final = 1_000_000
_WAKES: Final = 4096  # the number of wake-up bytes that one read consumes


class UpkeepIntervals(NamedTuple):
    """The intervals of the upkeep's tasks in milliseconds, with Kafka's defaults."""

    initial_delay_ms: int = 30_000  # log.initial.task.delay.ms
    retention_check_ms: int = 300_000  # log.retention.check.interval.ms
    flush_check_ms: int = (1 << 63) - 1  # log.flush.scheduler.interval.ms
    recovery_point_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    log_start_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    high_watermark_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    producer_expiration_ms: int = 600_000  # producer.id.expiration.check.interval.ms


DEFAULTS: Final = UpkeepIntervals()


def intervals_from(config: BrokerConfig) -> UpkeepIntervals:
    return UpkeepIntervals(
        initial_delay_ms=config.log_initial_task_delay_ms,
        retention_check_ms=config.log_retention_check_interval_ms,
        flush_check_ms=config.log_flush_scheduler_interval_ms,
        recovery_point_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        high_watermark_ms=config.replica_high_watermark_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_check_interval_ms,
    )


class LogUpkeep:
    """Maintains the logs from `start` to `end_tasks`. From then on until `close`, it only writes the checkpoints for
    which truncated logs wait. Sleeps until a task is due or a directory fails."""

    def __init__(
        self,
        manager: LogManager,
        environment: Environment,
        intervals: UpkeepIntervals = DEFAULTS,
        cleaner: LogCleaner | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """If `loop` is given, everything runs on this loop instead of on a thread. The loop must be one that may wait
        for disks."""
        self._manager = manager
        self._cleaner = cleaner
        self._environment = environment
        self._loop = loop
        self._scheduler = Scheduler(environment, None if loop is None else loop.call_later)
        self._periodic: list[Scheduled] = []
        self._wake_read = self._wake_write = -1
        if loop is None:
            self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._tasks_ended = self._stopping = False
        self._cuts_retry: Scheduled | None = None
        self._mutex = threading.Lock()
        self._asked: list[threading.Event] = []  # events to set when all due tasks are done
        self._thread = threading.Thread(target=self._run, name="kafkacore-upkeep", daemon=True)
        self._plan(intervals)

    def _plan(self, intervals: UpkeepIntervals) -> None:
        manager = self._manager
        for interval_ms, work in (
            (intervals.retention_check_ms, self._delete_old_segments),
            (intervals.flush_check_ms, manager.flush_due),
            (intervals.recovery_point_ms, manager.checkpoint_recovery_points),
            (intervals.log_start_ms, manager.checkpoint_log_starts),
            (intervals.high_watermark_ms, manager.checkpoint_high_watermarks),
            (intervals.producer_expiration_ms, manager.expire_producers),
            (_DOOMED_CHECK_MS, self._remove_doomed),
        ):
            if interval_ms < _NEVER_MS:
                delay_ms = max(interval_ms, intervals.initial_delay_ms)
                self._periodic.append(self._scheduler.every(interval_ms, work, work.__name__, delay_ms))

        self._plan_compaction()

    def _plan_compaction(self) -> None:
        """Schedules the next check for compaction work. The interval may have changed."""
        if self._cleaner is not None:
            self._scheduler.after(self._cleaner.backoff_ms, self._check_cleaner, "compaction")

    def _check_cleaner(self) -> None:
        assert self._cleaner is not None
        if self._tasks_ended:
            return
        try:
            self._cleaner.check()
        finally:
            self._plan_compaction()

    def _delete_old_segments(self) -> None:
        self._manager.delete_old_segments(self._between_deletions)

    def _remove_doomed(self) -> None:
        self._manager.remove_doomed(self._between_deletions)

    def _between_deletions(self) -> None:
        """Looks at the directories, because deletions can take minutes. If a checkpoint has failed, does nothing until
        its retry is due. Otherwise each deletion would try again."""
        if self._cuts_retry is None or self._cuts_retry.due_ns <= self._environment.monotonic_ns():
            self._look_at_directories()

    def start(self) -> None:
        self._manager.await_cuts(True)
        if self._loop is None:
            self._thread.start()
            return
        for directory in self._manager.native_directories:
            self._loop.add_reader(directory.fileno(), self._hear, directory)

    def _hear(self, directory: LogDirectory) -> None:
        assert self._loop is not None
        if directory.offline_errno:
            self._loop.remove_reader(directory.fileno())
        self._look_at_directories()

    def _look_at_directories(self) -> None:
        """Handles directories that have failed, or that contain logs that were truncated below their recovery
        points."""
        if not self._tasks_ended:
            self._manager.check_directories()
        if self._cuts_retry is not None:
            self._cuts_retry.cancel()
            self._cuts_retry = None
        if not self._manager.checkpoint_cuts():
            self._cuts_retry = self._scheduler.after(
                _CUTS_RETRY_MS, self._look_at_directories, "recovery points of truncated logs"
            )

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        watched = {directory.fileno(): directory for directory in self._manager.native_directories}
        for file in watched:
            poll.register(file, select.POLLIN)
        while not self._stopping:
            for file, _ in poll.poll(self._timeout_ms()):
                if file in watched:
                    if watched[file].offline_errno:
                        poll.unregister(file)
                    self._look_at_directories()
                else:
                    os.read(self._wake_read, _WAKES)
            if not self._stopping:
                self._run_due()

    def _run_due(self) -> None:
        with self._mutex:
            asked, self._asked = self._asked, []
        self._scheduler.run_due()
        for done in asked:
            done.set()

    def catch_up(self, timeout_seconds: float) -> bool:
        """Waits until all due tasks are done. Tests call this after they have moved the clock. Returns False on
        timeout. Can be called on any thread."""
        done = threading.Event()
        with self._mutex:
            if self._stopping:
                return True
            self._asked.append(done)
            os.write(self._wake_write, b"x")
        return done.wait(timeout_seconds)

    def _timeout_ms(self) -> int | None:
        due_ns = self._scheduler.next_due_ns()
        if due_ns is None:
            return None
        return max((due_ns - self._environment.monotonic_ns()) // _NS_OF_A_MS + 1, 0)

    def end_tasks(self) -> None:
        """Starts no further task. A broker that stops may still truncate logs, and it waits for their checkpoints. So
        these checkpoints are still written until `close`."""
        self._tasks_ended = True
        for task in self._periodic:
            task.cancel()

    def close(self) -> None:
        """Ends the thread and waits for its current task. Idempotent."""
        with self._mutex:
            if self._stopping:
                return
            self._stopping = True
            if self._loop is None:
                os.write(self._wake_write, b"x")
        if self._loop is not None:
            self._scheduler.close()
            for directory in self._manager.native_directories:
                self._loop.remove_reader(directory.fileno())
            return
        if self._thread.is_alive():
            self._thread.join()
        for done in self._asked:
            done.set()
        self._scheduler.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
