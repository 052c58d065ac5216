"""Starts and ends faults. The seed decides their kinds, their number, their order and their durations."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from math import exp, log
from random import Random
from typing import Final, NamedTuple

from kafkacore.simulation.judge import Judge

Undo = Callable[[], None]


class Fault(NamedTuple):
    """A kind of fault. `begin` starts the fault and returns its description and the function that undoes it, or None if
    no node can have this fault now. The fault lasts from `least_ms` to `most_ms`. The logarithm of the duration is
    uniformly distributed, so that both short and long faults are frequent."""

    kind: str
    weight: float
    least_ms: int
    most_ms: int
    begin: Callable[[Random], tuple[str, Undo] | None]


MAX_AT_ONCE: Final = 4


class Schedule:
    """Starts faults at random times, and ends each of them after a random duration. The same seed gives the same
    faults."""

    def __init__(self, random: Random, judge: Judge, faults: Sequence[Fault], now_ms: Callable[[], int]) -> None:
        self._random, self._judge, self._now_ms = random, judge, now_ms
        self._faults = list(faults)
        self._weights = [fault.weight for fault in faults]
        self._under_way: list[tuple[int, int, str, str, Undo]] = []
        self._count = 0

    def step(self) -> None:
        """Ends the faults whose time has passed. Then starts another fault, unless MAX_AT_ONCE faults are active."""
        while self._under_way and self._under_way[0][0] <= self._now_ms():
            self._undo()
        if len(self._under_way) >= MAX_AT_ONCE:
            return
        fault = self._random.choices(self._faults, self._weights)[0]
        begun = fault.begin(self._random)
        if begun is None:
            return
        what, undo = begun
        self._judge.note(self._now_ms(), f"{fault.kind}: {what}")
        self._judge.fault_begins(fault.kind)
        self._count += 1
        lasts_ms = exp(self._random.uniform(log(fault.least_ms), log(fault.most_ms)))
        end_ms = self._now_ms() + round(lasts_ms)
        heapq.heappush(self._under_way, (end_ms, self._count, fault.kind, what, undo))

    def heal(self) -> None:
        """Ends all active faults."""
        while self._under_way:
            self._undo()

    def heal_one(self) -> bool:
        """Ends one of the active faults, if there is one. Returns whether others are still active."""
        if not self._under_way:
            return False
        chosen = self._random.randrange(len(self._under_way))
        self._under_way[0], self._under_way[chosen] = self._under_way[chosen], self._under_way[0]
        self._undo()
        return bool(self._under_way)

    def _undo(self) -> None:
        _, _, kind, what, undo = self._under_way.pop(0)
        heapq.heapify(self._under_way)
        undo()
        self._judge.note(self._now_ms(), f"{kind} ends: {what}")
        self._judge.fault_ends(kind)
