"""The answer to a parked request. It waits for a future and needs no task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class DeferredAnswer(Generic[T]):
    """`shape` makes the answer when `future` is done; it raises when the connection must be closed. A plane then calls
    `answer`; any other caller may await this object."""

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
