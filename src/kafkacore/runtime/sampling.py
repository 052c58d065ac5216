"""Recent measurements: average, maximum and rate over the last 30 to 60 seconds, as Kafka's metrics sample them."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

WINDOW_MS: Final = 30_000  # the default of metrics.sample.window.ms; two windows count


class Recent:
    """It has no clock: each call passes monotonic milliseconds. A reader on another thread gets the value at that
    moment."""

    __slots__ = ("_began_ms", "_count", "_last", "_maximum", "_total")

    def __init__(self, now_ms: int) -> None:
        self._began_ms = now_ms
        self._count, self._total, self._maximum = 0, 0.0, -math.inf
        # The previous window; its start is the first item.
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
        """NaN without a measurement."""
        _, count, total, _ = self._sums(now_ms)
        return total / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        """NaN without a measurement."""
        _, count, _, most = self._sums(now_ms)
        return most if count else math.nan

    def rate(self, now_ms: int) -> float:
        """The sum of the values divided by the seconds that they cover, at least one window."""
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


class Distribution:
    """How often values in milliseconds were at most 1, 2, 4, ... since the start."""

    bounds: Final = tuple(float(1 << power) for power in range(17))

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)  # one entry more, for higher values
        self.total = 0.0

    def record(self, value_ms: float) -> None:
        self.counts[bisect_left(self.bounds, value_ms)] += 1
        self.total += value_ms
