"""The time of a broker, which a test moves."""

from __future__ import annotations

from typing import Final

from kafkacore._fast.world.environment import ManualClock, RunningClock
from kafkacore.server.node import Node

_NS_OF_A_SECOND: Final = 1_000_000_000
_MAX_STEPS: Final = 10_000  # moments at which something is due that one `advance` stops at; the rest is one step
CATCH_UP_SECONDS: Final = 30.0


class ClockBehind(Exception):
    """The clock was moved, and what was due has not all happened; the message says what has not."""


class BrokerClock:
    """What the broker takes for the time: of records, of retention, of whatever its clients have it wait for.

    It runs with the real one, ahead of it by what the test has moved it; or it is frozen, and the test alone moves it.
    What guards the node itself (its heartbeats, the metadata log, limits of its own requests) has the real clock.
    """

    def __init__(self, *, frozen: bool, start_ms: int) -> None:
        self.manual = ManualClock(start_ms) if frozen else RunningClock()
        self.frozen = frozen
        self._node: Node | None = None

    def attach(self, node: Node | None) -> None:
        """Whose timers follow; None: it ended."""
        self._node = node

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.manual.wall_ms()

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Lets so much time pass. When this returns, what was due meanwhile has happened, in its order: retention, the
        expiry of producers and group members, the deadlines of requests that wait.

        Raises ClockBehind where that takes longer than 30 s, ValueError for a time that is negative.
        """
        total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds + milliseconds / 1000
        if not total >= 0:
            raise ValueError(f"time goes forward only: {total} s")
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
            raise ClockBehind(f"{CATCH_UP_SECONDS:.0f} s after the clock was moved these are behind: {', '.join(late)}")

    def _step(self, node: Node, left_ns: int) -> int:
        """From one moment at which the broker has something to do to the next; what is left when there is no more."""
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
