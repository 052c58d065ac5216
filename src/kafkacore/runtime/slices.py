"""Splits long work on an event loop into slices of a few milliseconds, so that one request does not delay the others.

Long work is a generator (`Work`). The generator yields None wherever the work may be interrupted, and returns the
result. It may yield often, because a yield costs only a tenth of a microsecond. A step is the code between two yields.
Only the elapsed time decides how many steps fill a slice.

A step itself cannot be interrupted, so it must be short. A coroutine that loops over items of a client's request uses
`Slice` instead.

In each iteration of a loop, only one piece of long work runs, for one slice. The pieces take turns. If every piece ran
for a slice in every iteration, a request from the controller would have to wait for one slice of each long client
request.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from time import perf_counter
from typing import Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
H = TypeVar("H")
Work: TypeAlias = Generator[None, None, T]

SLICE_S: Final = 0.003
_SORTED_AT_ONCE: Final = 2_000
_STRIDE: Final = 64  # the number of short steps between two readings of the clock


def in_slices(work: Work[T]) -> T | Awaitable[T]:
    """Returns the result if the work needs only one slice, and otherwise an awaitable of the result. Raises the errors
    of the work."""
    try:
        _run_slice(work)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return _rest(work)


async def finish(work: Work[T]) -> T:
    """Does the work, one slice at a time, and returns its result. Call this in a coroutine."""
    try:
        _run_slice(work)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    return await _rest(work)


def finish_now(work: Work[T]) -> T:
    """Does all of the work immediately. Do not call this on the thread of an event loop."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _clock() -> Callable[[], float]:
    """Returns the clock that ends slices: the clock of the running loop if the loop is simulated, else the machine's
    clock."""
    return getattr(_get_running_loop(), "slice_clock", perf_counter)


def _run_slice(work: Work[T]) -> None:
    """Runs one slice of the work. Raises StopIteration with the result when the work is done."""
    clock = _clock()
    end = clock() + SLICE_S
    while True:
        next(work)
        if clock() >= end:
            return


class _Turns:
    """Lets one waiting piece of work continue in each iteration of a loop. The pieces continue in the order in which
    they began to wait."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        future = loop.create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            loop.call_soon(self._next, loop)
        return future

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # a future that is done here was cancelled
                future.set_result(None)
                break
        if self._waiting:
            loop.call_soon(self._next, loop)


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()


def _next_turn() -> asyncio.Future[None]:
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = _Turns()
    return turns.wait(loop)


async def _rest(work: Work[T]) -> T:
    while True:
        await _next_turn()
        try:
            _run_slice(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Slice:
    """A slice of a coroutine that also awaits other futures."""

    __slots__ = ("_clock", "_end")

    def __init__(self) -> None:
        self._clock = _clock()
        self._end = self._clock() + SLICE_S

    async def give_way(self) -> None:
        """Lets the loop do other work if the slice has ended. Await this in each iteration of a long loop."""
        if self._clock() >= self._end:
            await _next_turn()
            self._end = self._clock() + SLICE_S


def distinct(items: Iterable[H]) -> Work[dict[H, None]]:
    """Returns each item once, in the order of first occurrence."""
    found: dict[H, None] = {}
    for number, item in enumerate(items):
        found[item] = None
        if not number % _STRIDE:
            yield
    return found


def counted(items: Iterable[H]) -> Work[dict[H, int]]:
    """Returns how often each item occurs, in the order of first occurrence."""
    found: dict[H, int] = {}
    for number, item in enumerate(items):
        found[item] = found.get(item, 0) + 1
        if not number % _STRIDE:
            yield
    return found


def sorted_in_slices(names: Iterable[str]) -> Work[list[str]]:
    """Sorts names as `sorted` does."""
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
