"""Runs forwarded requests on a controller's loop, one decision at a time. So a request at the controller's own listener
waits for at most one forwarded decision.

A decision ends when its handler first waits, because a handler waits only for the commit. So any number of requests can
wait for their commits at the same time, and a slow commit does not delay other decisions. A handler that merely yields
to other work (`runtime.slices`) has not ended its decision.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Turnstile:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._deciding = False
        self._queue: deque[asyncio.Future[None]] = deque()

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Awaits `work()` after all earlier callers have made their decisions."""
        if self._deciding or self._queue:
            await self._turn()
        self._deciding = True
        return await _Deciding(work, self._decided)

    async def _turn(self) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._decided()
            raise

    def _decided(self) -> None:
        """Lets the next decision start in the next iteration of the loop."""
        while self._queue:
            mine = self._queue.popleft()
            if not mine.done():
                mine.set_result(None)
                return
        self._deciding = False


class _Deciding(Awaitable[T]):
    """Awaits the work, and reports once, either when the work first waits for something or when it ends."""

    def __init__(self, work: Callable[[], Awaitable[T]], decided: Callable[[], None]) -> None:
        self._work = work
        self._decided = decided

    def __await__(self) -> Generator[Any, None, T]:
        steps: Any = self._work().__await__()
        step, argument = steps.send, None
        open_ = False
        try:
            while True:
                try:
                    waits_for = step(argument)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                if waits_for is not None and not open_:  # asyncio.sleep(0) waits for nothing
                    open_ = True
                    self._decided()
                step, argument = steps.send, None
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001 - the work is cancelled, or its generator is closed
                    step, argument = steps.throw, error
        finally:
            if not open_:
                self._decided()
