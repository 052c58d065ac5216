"""Deadlines that are postponed far more often than they pass.

Postponing one costs one assignment: its entry stays where it is in the heap, and moves only when its old time comes.
The heap has one live entry for each deadline. A deadline that was cancelled or moved to an earlier time leaves a dead
entry behind. When dead entries outnumber live ones, a sweep removes them.

A deadline that waits for a client has patience. If the deadline is found late, this coordinator could not hear its
clients for a while, or its clock was moved; the client may have spoken meanwhile. So the deadline is postponed once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_SWEEP_ABOVE: Final = 64  # so many dead entries are not worth a sweep


class Deadline:
    """`call` sets the action that runs when the deadline has passed."""

    __slots__ = ("action", "args", "due_ms", "patience_ms", "queued_ms", "ticket")

    def __init__(self) -> None:
        self.action: Callable[..., None] = _ignore
        self.args: tuple[Any, ...] = ()
        self.due_ms: int | None = None
        self.patience_ms = 0  # the longest time by which a late call postpones it
        self.queued_ms = 0
        self.ticket = 0  # the time of its entry in the heap; 0 when it has no entry

    def call(self, action: Callable[..., None], *args: Any) -> Deadline:
        self.action = action
        self.args = args
        return self


def _ignore() -> None:
    """The action of a deadline that has none yet."""


class Deadlines:
    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._last_ticket = 0
        self._dead = 0

    def set(self, deadline: Deadline, due_ms: int, patience_ms: int = 0) -> None:
        """Sets the time, whatever was set before."""
        deadline.patience_ms = patience_ms
        was_ms, deadline.due_ms = deadline.due_ms, due_ms
        if deadline.ticket:
            if was_ms is None:
                self._dead -= 1
            if deadline.queued_ms <= due_ms:
                return
            self._dead += 1  # the later entry
        self._push(deadline)
        self._sweep()

    def cancel(self, deadline: Deadline) -> None:
        if deadline.due_ms is not None:
            deadline.due_ms = None
            if deadline.ticket:
                self._dead += 1
                self._sweep()

    def next_ms(self) -> int | None:
        """A time before which nothing is due. Nothing may be due at that time either."""
        return self._heap[0][0] if self._heap else None

    def advance(self, now_ms: int) -> None:
        """Runs the actions of the deadlines that are due, in the order of their times. A deadline that an action sets
        runs in a later call at the earliest. The owner calls this at `next_ms`. If it calls later, deadlines with
        patience wait for the same time once more."""
        due = self._take_due(now_ms)
        try:
            while due:
                deadline = due.popleft()
                # An earlier action may have cancelled it or put it off.
                if not deadline.ticket and deadline.due_ms is not None and deadline.due_ms <= now_ms:
                    deadline.due_ms = None
                    deadline.action(*deadline.args)
        finally:
            for deadline in due:  # an action has raised: the others run in the next call
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
