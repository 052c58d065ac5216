"""An answer that waits for a future: what a request costs that is parked, and no task beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Later(Generic[T]):
    """What `future` brings, as `shape` makes an answer of it; `shape` is given the future when it is done, and raises
    what ends the connection. A plane asks for `answer` when it is; anybody else may await it."""

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
