"""A wall clock that follows small jumps of the system clock slowly. If such a jump counted as silence, sessions would
expire early.

The clock follows a jump of more than an hour forward at once. Such a jump occurs when a suspended machine resumes, or
when a machine that has started with a wrong clock learns the time. The clock would otherwise stay behind for days, and
offsets would get timestamps that other brokers regard as expired. Sessions survive the jump, because a late deadline
waits once more for its client (`group.deadlines`), and sessions are shorter than an hour by default.
"""

from __future__ import annotations

from typing import Final

from kafkacore.runtime.clock import Clock

STEP_MS: Final = 3_600_000  # the clock follows longer jumps forward at once
SLEW: Final = 0.1  # the difference to the wall clock shrinks by this share of the time that passes
_NS_OF_A_MS: Final = 1e6
_SAME_NS: Final = 100_000  # several calls within this time get the same result


class SteadyClock:
    """A clock whose `wall_ms` advances with the monotonic clock, starting at the wall clock's time. After a jump of the
    wall clock, the difference between the two clocks shrinks by a tenth of the time that passes, or at once if the jump
    is longer than STEP_MS and goes forward. This clock never moves backwards."""

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
        if ahead_ms > STEP_MS:
            most_ms = ahead_ms
        self._told_ms += passed_ms + min(max(ahead_ms, -most_ms), most_ms)
        self._asked_ns = now_ns
        self._rounded_ms = round(self._told_ms)
        return self._rounded_ms
