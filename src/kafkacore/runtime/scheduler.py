"""Runs work at a given time, once or periodically, on a loop. A test can replace the clock."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Callable
from typing import Final, Protocol

from kafkacore.runtime.clock import Clock

LOG: Final = logging.getLogger("kafkacore.runtime")
_NS_OF_A_MS: Final = 1_000_000
_LEAST_SWEPT: Final = 256  # a queue with fewer entries keeps cancelled entries until they are due


class _Handle(Protocol):
    def cancel(self) -> None: ...


class _Later(Protocol):
    def __call__(self, delay: float, callback: Callable[[], None], /) -> _Handle: ...


class Scheduled:
    """Work that a scheduler runs at a given time, unless `cancel` is called before."""

    __slots__ = ("cancelled", "due_ns", "function", "interval_ns", "name")

    def __init__(self, name: str, function: Callable[[], object], due_ns: int, interval_ns: int) -> None:
        self.name = name
        self.function = function
        self.due_ns = due_ns
        self.interval_ns = interval_ns
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Scheduler:
    """Runs scheduled work. A scheduler belongs to one thread: the loop's thread if the scheduler gets the `call_later`
    of a loop, else the thread that calls `run_due`.

    If the work raises an error, the scheduler logs the error, and periodic work continues. Missed runs of periodic work
    are skipped.
    """

    def __init__(self, clock: Clock, call_later: _Later | None = None) -> None:
        self._clock = clock
        self._call_later = call_later
        self._queue: list[tuple[int, int, Scheduled]] = []
        self._order = itertools.count()
        self._handle: _Handle | None = None
        self._armed_ns = 0
        self._sweep_at = _LEAST_SWEPT

    def after(self, delay_ms: float, function: Callable[[], object], name: str = "") -> Scheduled:
        """Runs `function` once, after `delay_ms`."""
        return self._add(name, function, delay_ms, 0)

    def every(
        self, interval_ms: float, function: Callable[[], object], name: str = "", delay_ms: float | None = None
    ) -> Scheduled:
        """Runs the work periodically, first after `delay_ms` (by default the interval). Raises ValueError for an
        interval below 1 ms."""
        if interval_ms < 1:
            raise ValueError(f"an interval is at least 1 ms, not {interval_ms}")
        return self._add(name, function, interval_ms if delay_ms is None else delay_ms, int(interval_ms * _NS_OF_A_MS))

    def run_due(self) -> int:
        """Runs the work that is due, and returns the number of functions that ran. A test calls this after it has moved
        the clock."""
        count = 0
        now_ns = self._clock.monotonic_ns()
        while self._queue and self._queue[0][0] <= now_ns:
            scheduled = heapq.heappop(self._queue)[2]
            if scheduled.cancelled:
                continue
            count += 1
            if scheduled.interval_ns:
                late = (now_ns - scheduled.due_ns) // scheduled.interval_ns
                self._push(scheduled, scheduled.due_ns + (late + 1) * scheduled.interval_ns)
            try:
                scheduled.function()
            except Exception:
                LOG.exception("scheduled work %s failed", scheduled.name or scheduled.function)
        return count

    def catch_up(self) -> int:
        """Runs the work that is due, and sets the timer for the rest again. Call this after a test has moved the
        clock."""
        count = self.run_due()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._arm()
        return count

    @property
    def kept(self) -> int:
        """Returns the number of entries in the queue, including cancelled entries."""
        return len(self._queue)

    def next_due_ns(self) -> int | None:
        """Returns the time at which the next entry is due."""
        while self._queue and self._queue[0][2].cancelled:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def close(self) -> None:
        self._queue.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _add(self, name: str, function: Callable[[], object], delay_ms: float, interval_ns: int) -> Scheduled:
        scheduled = Scheduled(name, function, 0, interval_ns)
        self._push(scheduled, self._clock.monotonic_ns() + int(max(delay_ms, 0) * _NS_OF_A_MS))
        self._arm()
        return scheduled

    def _push(self, scheduled: Scheduled, due_ns: int) -> None:
        if len(self._queue) >= self._sweep_at:
            # Most timeouts are cancelled long before they are due. This code removes cancelled entries, which would
            # otherwise stay in the queue until they are due.
            self._queue = [each for each in self._queue if not each[2].cancelled]
            heapq.heapify(self._queue)
            self._sweep_at = max(2 * len(self._queue), _LEAST_SWEPT)
        scheduled.due_ns = due_ns
        heapq.heappush(self._queue, (due_ns, next(self._order), scheduled))

    def _arm(self) -> None:
        due_ns = self.next_due_ns()
        if self._call_later is None or due_ns is None or (self._handle is not None and self._armed_ns <= due_ns):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_ns = due_ns
        self._handle = self._call_later(max(due_ns - self._clock.monotonic_ns(), 0) / 1e9, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self.run_due()
        self._arm()
