"""Producer ids for idempotent producers of this broker, from blocks that the controller has made durable (KIP-730).

No id is used twice. Only this broker uses the ids of a block. When the process ends, the unused ids of its block are
lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

# When this share of a block is used, the broker requests the next block. So InitProducerId rarely has to wait for a
# commit.
PREFETCH_AT: Final = 0.9


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


class ProducerIds:
    """Belongs to one event loop. `allocate` requests a block from the controller, and raises KafkaError on failure."""

    def __init__(self, allocate: Callable[[], Awaitable[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = self._end = self._prefetch_at = 0
        self._following: asyncio.Task[ProducerIdBlock] | None = None

    async def generate(self) -> int:
        """Returns a new id. Raises the errors of `allocate`; the next call then requests a block again."""
        while self._next >= self._end:
            # If one waiter is cancelled, the request must continue for the other waiters.
            await asyncio.shield(self._request())
            self._take()
        producer_id = self._next
        self._next += 1
        if self._next >= self._prefetch_at:
            self._request()
        return producer_id

    def _request(self) -> asyncio.Task[ProducerIdBlock]:
        following = self._following
        if following is None or (following.done() and (following.cancelled() or following.exception() is not None)):
            following = self._following = asyncio.create_task(self._ask())
        return following

    async def _ask(self) -> ProducerIdBlock:
        return await self._allocate()

    def _take(self) -> None:
        if self._following is not None and self._following.done():
            block = self._following.result()
            self._following = None
            self._next, self._end = block.first, block.first + block.size
            self._prefetch_at = block.first + int(block.size * PREFETCH_AT)

    def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None
