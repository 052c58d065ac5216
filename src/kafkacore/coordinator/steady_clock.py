"""The date, for what must not take a step of the wall clock for a silence: sessions would all end at once."""

from __future__ import annotations

from typing import Final

from kafkacore.runtime.clock import Clock

SLEW: Final = 0.1  # of the time that passes: by how much the distance to the wall clock shrinks
_NS_OF_A_MS: Final = 1e6
_SAME_NS: Final = 100_000  # who asks several times in a turn is told the same


class SteadyClock:
    """A clock whose `wall_ms` goes as the monotonic clock does, begins at the wall clock, and after a step of that
    draws nearer to it by a tenth of the time that passes. It never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked_ns = clock.monotonic_ns()
        self._told_ms = float(clock.wall_ms())
        self._rounded_ms = round(self._told_ms)

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def wall_ms(self) -> int:
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._asked_ns < _SAME_NS:
            return self._rounded_ms
        passed_ms = (now_ns - self._asked_ns) / _NS_OF_A_MS
        most_ms = passed_ms * SLEW
        ahead_ms = self._clock.wall_ms() - self._told_ms - passed_ms
        self._told_ms += passed_ms + min(max(ahead_ms, -most_ms), most_ms)
        self._asked_ns = now_ns
        self._rounded_ms = round(self._told_ms)
        return self._rounded_ms
