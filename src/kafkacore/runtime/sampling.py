"""Recent measurements: average, maximum and rate over the last 30 to 60 seconds, as Kafka's metrics sample them."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

WINDOW_MS: Final = 30_000  # the default of metrics.sample.window.ms; the last two windows count


class Recent:
    """Recent measurements of one quantity. This object has no clock, so each call passes the time in monotonic
    milliseconds. Any thread may read the current value."""

    __slots__ = ("_began_ms", "_count", "_last", "_maximum", "_total")

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._count, self._total, self._maximum = 0, 0.0, -math.inf
        # The previous window. The first item is its start.
        self._last: tuple[int, int, float, float] = (now_ms, 0, 0.0, -math.inf)

    def record(self, value: float, now_ms: int) -> None:
        if now_ms - self._began_ms >= WINDOW_MS:
            self._last = (self._began_ms, self._count, self._total, self._maximum)
            self._began_ms = now_ms
            self._count, self._total, self._maximum = 0, 0.0, -math.inf
        self._count += 1
        self._total += value
        self._maximum = max(self._maximum, value)

    def average(self, now_ms: int) -> float:
        """Returns the average, or NaN without a measurement."""
        _, count, total, _ = self._sums(now_ms)
        return total / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        """Returns the maximum, or NaN without a measurement."""
        _, count, _, most = self._sums(now_ms)
        return most if count else math.nan

    def rate(self, now_ms: int) -> float:
        """Returns the sum of the values per second. The values count as if they covered at least one window
        (WINDOW_MS)."""
        began_ms, _, total, _ = self._sums(now_ms)
        return total / (max(now_ms - began_ms, WINDOW_MS) / 1000)

    def _sums(self, now_ms: int) -> tuple[int, int, float, float]:
        began_ms, count, total, most = self._began_ms, self._count, self._total, self._maximum
        if now_ms - began_ms >= 2 * WINDOW_MS:
            return now_ms, 0, 0.0, -math.inf
        before_ms, before, before_total, before_most = self._last
        if now_ms - before_ms >= 2 * WINDOW_MS:
            return began_ms, count, total, most
        return before_ms, before + count, before_total + total, max(before_most, most)


class Share:
    """The share of time that a counter of nanoseconds has counted since the last reading, from 0 to 1. Apache Kafka's
    TimeRatio measures the same. A reading less than `SHORTEST_NS` after the last measurement returns the last share
    again, so that two readers do not disturb each other. The counter adds up the times of `threads` threads.
    """

    SHORTEST_NS: Final = 1_000_000_000

    def __init__(self, counter_ns: int, now_ns: int, threads: int = 1) -> None:
        self._counter_ns, self._at_ns = counter_ns, now_ns
        self._threads = max(threads, 1)
        self._last = 1.0

    def read(self, counter_ns: int, now_ns: int) -> float:
        elapsed_ns = now_ns - self._at_ns
        if elapsed_ns >= self.SHORTEST_NS:
            self._last = min(max((counter_ns - self._counter_ns) / elapsed_ns / self._threads, 0.0), 1.0)
            self._counter_ns, self._at_ns = counter_ns, now_ns
        return self._last


class Distribution:
    """Counts the values since the start, in milliseconds, in buckets with the upper bounds 1, 2, 4 and so on."""

    bounds: Final = tuple(float(1 << power) for power in range(17))

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)  # one more entry than bounds, for higher values
        self.total = 0.0

    def record(self, value_ms: float) -> None:
        self.counts[bisect_left(self.bounds, value_ms)] += 1
        self.total += value_ms
