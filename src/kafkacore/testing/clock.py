"""The clock of a broker, which a test can move."""

from __future__ import annotations

from typing import Final

from kafkacore._fast.world.environment import ManualClock, RunningClock
from kafkacore.server.node import Node

_NS_OF_A_SECOND: Final = 1_000_000_000
# `advance` stops at each due event. After this number of events, it passes all later ones in one step.
_MAX_STEPS: Final = 10_000
CATCH_UP_SECONDS: Final = 30.0


class ClockBehind(Exception):
    """When a test moved the clock, some events that became due did not happen within the time limit. The message names
    these events."""


class BrokerClock:
    """The broker's time for records, for retention, and for everything that clients wait for.

    A running clock is the real clock plus the time that the test has added. A frozen clock moves only when the test
    moves it. The quorum and the sessions of brokers use this clock too. No heartbeat can arrive during skipped time, so
    a controller does not count this time and does not fence a broker because of it. The event loops' own timers, such
    as the timer of asyncio.sleep, run in real time.
    """

    def __init__(self, *, frozen: bool, start_ms: int) -> None:
        self.manual = ManualClock(start_ms) if frozen else RunningClock()
        self.frozen = frozen
        self._node: Node | None = None

    def attach(self, node: Node | None) -> None:
        """Connects the timers of a node to this clock. Pass None when the node has ended."""
        self._node = node

    @property
    def now_ms(self) -> int:
        """The present time in milliseconds since 1970."""
        return self.manual.wall_ms()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Moves the clock forward. On return, everything that became due has happened, in order: retention, the expiry
        of producers and group members, the deadlines of waiting requests.

        Raises ClockBehind if this takes longer than 30 s, and ValueError for a negative time.
        """
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + milliseconds / 1000
        if not total >= 0:
            raise ValueError(f"time cannot go back: {total} s")
        left_ns = round(total * _NS_OF_A_SECOND)
        node = self._node
        if node is None:
            self.manual.advance_ns(left_ns)
            return
        try:
            self.manual.advance_ns(self._step(node, left_ns))
            late = node.catch_up(CATCH_UP_SECONDS)
        except TimeoutError:
            late = ["timers of the broker's loop"]
        if late:
            raise ClockBehind(
                f"{CATCH_UP_SECONDS:.0f} s after the clock was moved, these are still late: {', '.join(late)}"
            )

    def _step(self, node: Node, left_ns: int) -> int:
        """Moves to the next time at which the broker has something to do. Returns the remaining time."""
        for _ in range(_MAX_STEPS):
            due_ns = node.run_timers(CATCH_UP_SECONDS)
            if due_ns is None:
                break
            step_ns = max(due_ns - self.manual.monotonic_ns(), 0)
            if step_ns >= left_ns:
                break
            self.manual.advance_ns(step_ns)
            left_ns -= step_ns
        return left_ns

    def __repr__(self) -> str:
        return f"BrokerClock({'frozen' if self.frozen else 'running'}, now_ms={self.now_ms})"
