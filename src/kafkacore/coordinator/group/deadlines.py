"""Deadlines that are postponed far more often than they pass.

Postponing a deadline takes only one assignment, because its heap entry moves only when its old time has come. The heap
has one live entry for each deadline. A deadline that was cancelled, or moved to an earlier time, leaves a dead entry in
the heap. When there are more dead entries than live ones, a sweep removes the dead entries.

A deadline that waits for a client is patient. If `advance` finds the deadline late, this coordinator could not receive
requests for a while, or its clock was moved. A request of the client may then be waiting, so `advance` postpones the
deadline once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_SWEEP_ABOVE: Final = 64  # up to this number of dead entries, a sweep costs more than it saves


class Deadline:
    """A deadline. `call` sets the action that runs when the deadline has passed."""

    __slots__ = ("action", "args", "due_ms", "patience_ms", "queued_ms", "ticket")

    def __init__(self) -> None:
        self.action: Callable[..., None] = _ignore
        self.args: tuple[Any, ...] = ()
        self.due_ms: int | None = None
        self.patience_ms = 0  # the longest time by which a late call of `advance` postpones this deadline
        self.queued_ms = 0
        self.ticket = 0  # the time of the deadline's entry in the heap; 0 if there is no entry

    def call(self, action: Callable[..., None], *args: Any) -> Deadline:
        self.action = action
        self.args = args
        return self


def _ignore() -> None:
    """Does nothing. This is the default action."""


class Deadlines:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._last_ticket = 0
        self._dead = 0

    def set(self, deadline: Deadline, due_ms: int, patience_ms: int = 0) -> None:
        """Sets the time of a deadline, whether it was set before or not."""
        deadline.patience_ms = patience_ms
        was_ms, deadline.due_ms = deadline.due_ms, due_ms
        if deadline.ticket:
            if was_ms is None:
                self._dead -= 1
            if deadline.queued_ms <= due_ms:
                return
            self._dead += 1  # the entry with the later time is dead
        self._push(deadline)
        self._sweep()

    def cancel(self, deadline: Deadline) -> None:
        if deadline.due_ms is not None:
            deadline.due_ms = None
            if deadline.ticket:
                self._dead += 1
                self._sweep()

    def next_ms(self) -> int | None:
        """Returns a time before which no deadline is due. The first deadline may be due later than this time."""
        return self._heap[0][0] if self._heap else None

    def advance(self, now_ms: int) -> None:
        """Runs the actions of the deadlines that are due, in the order of their times. If an action sets a deadline,
        that deadline runs in a later call at the earliest. The owner calls this at `next_ms`. If the call comes later,
        deadlines with patience are postponed once by the delay, but at most by their patience."""
        due = self._take_due(now_ms)
        try:
            while due:
                deadline = due.popleft()
                # An earlier action may have cancelled or postponed this deadline.
                if not deadline.ticket and deadline.due_ms is not None and deadline.due_ms <= now_ms:
                    deadline.due_ms = None
                    deadline.action(*deadline.args)
        finally:
            for deadline in due:  # if an action has raised, the others run in the next call
                if not deadline.ticket and deadline.due_ms is not None:
                    self._push(deadline)

    def _take_due(self, now_ms: int) -> deque[Deadline]:
        due: deque[Deadline] = deque()
        heap = self._heap
        late_ms = now_ms - heap[0][0] if heap else 0
        while heap and heap[0][0] <= now_ms:
            _, ticket, deadline = heapq.heappop(heap)
            if ticket != deadline.ticket:
                self._dead -= 1
                continue
            deadline.ticket = 0
            if deadline.due_ms is None:
                self._dead -= 1
            elif deadline.due_ms > now_ms:
                self._push(deadline)
            elif late_ms > 0 and deadline.patience_ms > 0:
                deadline.due_ms = now_ms + min(late_ms, deadline.patience_ms)
                deadline.patience_ms = 0
                self._push(deadline)
            else:
                due.append(deadline)
        return due

    def __len__(self) -> int:
        return len(self._heap)

    def _push(self, deadline: Deadline) -> None:
        assert deadline.due_ms is not None
        self._last_ticket += 1
        deadline.ticket = self._last_ticket
        deadline.queued_ms = deadline.due_ms
        heapq.heappush(self._heap, (deadline.due_ms, self._last_ticket, deadline))

    def _sweep(self) -> None:
        if self._dead <= _SWEEP_ABOVE or self._dead * 2 <= len(self._heap):
            return
        live = []
        for entry in self._heap:
            _, ticket, deadline = entry
            if ticket != deadline.ticket:
                continue
            if deadline.due_ms is None:
                deadline.ticket = 0
            else:
                live.append(entry)
        heapq.heapify(live)
        self._heap = live
        self._dead = 0
