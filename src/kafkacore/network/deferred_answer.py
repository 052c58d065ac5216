"""The answer to a parked request: it waits for a future, and needs no task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class DeferredAnswer(Generic[T]):
    """`shape` makes the answer from `future` when that is done; it raises when the connection must be closed. A plane
    calls `answer` then; any other caller may await it."""

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
