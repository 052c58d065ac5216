"""One decision at a time: those that come while a long one is made wait for it."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Belongs to one loop. `async with` is a decision, up to its append.

    Those that wait go on in one turn of the loop, in their order, so that their appends share a sync. When one of them
    is long too, the others wait again.
    """

    def __init__(self) -> None:
        self.taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._called = 0  # those that are to go on, and have not run yet

    async def __aenter__(self) -> None:
        if self._called and not self.taken:
            await self._wait()  # after those that came before
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
                    # The last one that was called: later ones follow in the next turn, if it takes no turn itself.
                    asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        if self.taken or self._called:
            return
        while self._waiting:
            mine = self._waiting.popleft()
            if not mine.done():
                mine.set_result(None)
                self._called += 1
