"""Lets the controller make one decision at a time. While a long decision is being made, other decisions wait."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """A lock for one event loop. The body of `async with` makes a decision and appends its records.

    When a long decision ends, all waiting decisions run in order, in one iteration of the loop, so that their appends
    share an fsync. If one of them is also long, the decisions after it wait again.
    """

    def __init__(self) -> None:
        self.taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = 0  # the number of waiters that were woken but have not run yet

    async def __aenter__(self) -> None:
        if self._called and not self.taken:
            await self._wait()  # let the woken decisions run first
        while self.taken:
            await self._wait()
        self.taken = True

    async def __aexit__(self, *_: object) -> None:
        self.taken = False
        if not self._called:
            self._call()

    async def _wait(self) -> None:
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        finally:
            if mine.done() and not mine.cancelled():
                self._called -= 1
                if not self._called and not self.taken:
                    # This was the last woken waiter. If it was cancelled, it makes no decision and never wakes the
                    # remaining waiters. So wake them in the loop's next iteration.
                    asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        if self.taken or self._called:
            return
        while self._waiting:
            mine = self._waiting.popleft()
            if not mine.done():
                mine.set_result(None)
                self._called += 1
