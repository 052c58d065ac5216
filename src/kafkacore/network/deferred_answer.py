"""The response to a request whose handler waits for a future. A request that waits in this way needs no asyncio
task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class DeferredAnswer(Generic[T]):
    """A response that is made later. When `future` is done, `shape` makes the response from it, or raises ProtocolError
    if the connection must be closed. A plane calls `answer`. Any other caller can await this object."""

    __slots__ = ("_shape", "future")

    def __init__(self, future: asyncio.Future[Any], shape: Callable[[asyncio.Future[Any]], T]) -> None:
        self.future = future
        self._shape = shape

    def answer(self) -> T:
        return self._shape(self.future)

    def __await__(self) -> Generator[Any, None, T]:
        if not self.future.done():
            yield from asyncio.wait([self.future]).__await__()
        return self._shape(self.future)
