"""Virtual time, and the order in which the loops of all machines run. The same seed gives the same order."""

from __future__ import annotations

import heapq
import itertools
from asyncio import Handle
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kafkacore._fast.world.agenda import SimulatedAgenda

if TYPE_CHECKING:
    from kafkacore.simulation.loop import SimulatedLoop

# The duration of a loop's turn (one run of its ready callbacks). If it were 0, time would not advance while callbacks
# schedule each other.
TURN_NS: Final = 1_000
NS_OF_A_S: Final = 1_000_000_000
_LEAST_SWEPT: Final = 1_024


class Schedule:
    """The schedule of all loops. Time is counted in nanoseconds from the beginning of the run. It does not advance
    while a loop runs its turn. When no loop has anything to run, time jumps to the next timer.

    Each loop stands for a thread. Real threads run in any order, so `random` chooses among the loops that are ready.
    The callbacks of one loop keep their order. `agenda` holds the tasks of native code. A bell is a signal of native
    code that wakes a loop.
    """

    def __init__(self, random: Random) -> None:
        self.now_ns = 0
        self.turns = 0
        self.agenda = SimulatedAgenda(random.getrandbits(63))
        self._bells: dict[int, tuple[SimulatedLoop, Callable[[], object]]] = {}
        self._announced: dict[int, None] = {}  # bells whose callbacks will run
        self._random = random.random
        self._timers: list[tuple[int, int, Handle, SimulatedLoop]] = []
        self._order = itertools.count()
        self._ready: list[SimulatedLoop] = []
        self._sweep_at = _LEAST_SWEPT
        self.ran: SimulatedLoop | None = None  # the loop that ran in the last step; None if no loop ran

    def ready(self, loop: SimulatedLoop) -> None:
        """Lists the loop as ready. Call this once for each turn, when the loop has something to run."""
        self._ready.append(loop)

    def at(self, when_ns: int, handle: Handle, loop: SimulatedLoop) -> None:
        """Runs the handle on the loop at `when_ns`, or later if the loop's machine is paused then."""
        if len(self._timers) >= self._sweep_at:
            self._timers = [each for each in self._timers if not each[2].cancelled()]
            heapq.heapify(self._timers)
            self._sweep_at = max(2 * len(self._timers), _LEAST_SWEPT)
        heapq.heappush(self._timers, (max(when_ns, self.now_ns), next(self._order), handle, loop))

    # --- bells ---

    def watch(
        self, bell: int, loop: SimulatedLoop, callback: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        """Calls `callback` on the loop when native code has rung the bell. Repeats the call until the callback has
        drained the bell."""
        self._bells[bell] = loop, partial(callback, *arguments)
        self._hear()

    def unwatch(self, bell: int) -> bool:
        self._announced.pop(bell, None)
        return self._bells.pop(bell, None) is not None

    def _hear(self) -> None:
        for bell in self.agenda.rung():
            watched = self._bells.get(bell)
            if watched is not None and bell not in self._announced:
                self._announced[bell] = None
                watched[0].call_soon(self._answer, bell)

    def _answer(self, bell: int) -> None:
        if self._announced.pop(bell, self) is None and bell in self._bells:
            self._bells[bell][1]()

    def _go_to(self, now_ns: int) -> None:
        self.now_ns = self.agenda.now_ns = max(self.now_ns, now_ns)

    # --- steps ---

    def forget_closed(self) -> None:
        """Frees the timer callbacks of machines that are off."""
        self._timers = [each for each in self._timers if not each[3].is_closed()]
        heapq.heapify(self._timers)

    def clear(self) -> None:
        """Drops all scheduled callbacks."""
        self._timers.clear()
        self._bells.clear()
        self._ready.clear()

    def step(self, until_ns: int) -> bool:
        """Runs one iteration of one loop, or advances time to the next timer. If nothing is left to do before
        `until_ns`, sets the time to `until_ns` and returns False."""
        ready = self._ready
        if ready:
            # The last loop moves to the position of the chosen loop, so that no other loop has to move.
            chosen = int(self._random() * len(ready))
            loop, ready[chosen] = ready[chosen], ready[-1]
            ready.pop()
            self._go_to(self.now_ns + TURN_NS)
            self.turns += 1
            self.ran = loop
            loop.run_turn()
            self._hear()
            return True
        self.ran = None
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        task_ns = self.agenda.next_ns
        if task_ns >= 0 and task_ns <= until_ns and (not timers or task_ns <= timers[0][0]):
            self._go_to(task_ns)
            self.turns += self.agenda.run_due()
            self._hear()
            return True
        if not timers or timers[0][0] > until_ns:
            self._go_to(until_ns)
            return False
        self._go_to(timers[0][0])
        while timers and timers[0][0] <= self.now_ns:
            _, _, handle, loop = heapq.heappop(timers)
            if not handle.cancelled():
                loop.put(handle)
        return True
