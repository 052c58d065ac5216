"""Clocks as Python sees them: of an environment, real or moved by a test. The native code of a node reads the same
one."""

from __future__ import annotations

from typing import Protocol

from kafkacore._fast.world.environment import Environment, ManualClock

__all__ = ["Clock", "Environment", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """What deciding code is given the time by; it never asks anybody else."""

    def monotonic_ns(self) -> int:
        """Never goes back; says nothing about the date."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""


SystemClock = Environment
