"""Clocks for Python code. A clock belongs to an environment; it is real, or a test moves it. A node's native code reads
the same clock."""

from __future__ import annotations

from typing import Protocol

from kafkacore._fast.world.environment import Environment, ManualClock

__all__ = ["Clock", "Environment", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The only source of time for code that makes decisions."""

    def monotonic_ns(self) -> int:
        """Never goes back, and has no relation to the date."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""


SystemClock = Environment
