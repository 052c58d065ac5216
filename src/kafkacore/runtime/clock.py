"""Clocks for Python code. A clock belongs to the environment of a node, and the node's native code reads the same
clock. A clock is either the machine's clock, or a clock that a test moves."""

from __future__ import annotations

from typing import Protocol

from kafkacore._fast.world.environment import Environment, ManualClock

__all__ = ["Clock", "Environment", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The only source of time for code that makes decisions."""

    def monotonic_ns(self) -> int:
        """Returns a time that never goes backwards and has no relation to the date."""

    def wall_ms(self) -> int:
        """Returns the time in milliseconds since 1970. It may jump."""


SystemClock = Environment
