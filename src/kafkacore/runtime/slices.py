"""Long work on an event loop, cut into slices of a few milliseconds, so that one request does not hold up the others.

Work is a generator. It yields None wherever it may be interrupted, and returns its result. It may yield often, because
a step costs only a tenth of a microsecond. Time alone decides how many steps fill a slice.

A step itself cannot be cut, so it must be short. A coroutine that loops over items of a client's request uses `Slice`
instead.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Generator, Iterable
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")
H = TypeVar("H")
Work: TypeAlias = Generator[None, None, T]

SLICE_S: Final = 0.003
_SORTED_AT_ONCE: Final = 2_000
_STRIDE: Final = 64  # short steps between two looks at the clock


def in_slices(work: Work[T]) -> T | Awaitable[T]:
    """Returns the result if one slice is enough for the work, else an awaitable of the result. Raises what the work
    raises."""
    try:
        _run_slice(work)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return _rest(work)


async def finish(work: Work[T]) -> T:
    """Returns the result; for use in a coroutine."""
    try:
        _run_slice(work)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return await _rest(work)


def finish_now(work: Work[T]) -> T:
    """Does all of the work at once, for a caller that holds up no event loop."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _clock() -> Callable[[], float]:
    """The clock that ends slices: the machine's, unless the running loop is a simulated one with another clock."""
    return getattr(_get_running_loop(), "slice_clock", perf_counter)


def _run_slice(work: Work[T]) -> None:
    """Raises StopIteration with the result when the work is done."""
    clock = _clock()
    end = clock() + SLICE_S
    while True:
        next(work)
        if clock() >= end:
            return


async def _rest(work: Work[T]) -> T:
    while True:
        await asyncio.sleep(0)
        try:
            _run_slice(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Slice:
    """The slice of a coroutine that also awaits other things."""

    __slots__ = ("_clock", "_end")

    def __init__(self) -> None:
        self._clock = _clock()
        self._end = self._clock() + SLICE_S

    async def give_way(self) -> None:
        """Lets the loop go on with other work when the slice is over. Await it in each round of a long loop."""
        if self._clock() >= self._end:
            await asyncio.sleep(0)
            self._end = self._clock() + SLICE_S


def distinct(items: Iterable[H]) -> Work[dict[H, None]]:
    """Each item once, in the order of first occurrence."""
    found: dict[H, None] = {}
    for number, item in enumerate(items):
        found[item] = None
        if not number % _STRIDE:
            yield
    return found


def counted(items: Iterable[H]) -> Work[dict[H, int]]:
    """How often each item occurs, in the order of first occurrence."""
    found: dict[H, int] = {}
    for number, item in enumerate(items):
        found[item] = found.get(item, 0) + 1
        if not number % _STRIDE:
            yield
    return found


def sorted_in_slices(names: Iterable[str]) -> Work[list[str]]:
    """Sorts as `sorted` does."""
    runs: list[list[str]] = []
    run: list[str] = []
    for name in names:
        run.append(name)
        if len(run) == _SORTED_AT_ONCE:
            runs.append(sorted(run))
            run = []
            yield
    if not runs:
        return sorted(run)
    merged = []
    for count, name in enumerate(heapq.merge(*runs, sorted(run))):
        merged.append(name)
        if not count % _STRIDE:
            yield
    return merged
