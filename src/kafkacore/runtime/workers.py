"""Threads for what waits, whose number can be changed while they work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any


class Workers(Executor):
    """A thread pool behind which another one can take its place: what the former has begun or has waiting, it ends."""

    def __init__(self, threads: int, name: str) -> None:
        self._name = name
        self._threads = threads
        self._mutex = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, name)

    @property
    def threads(self) -> int:
        """As many as work at once, as soon as those of before are through."""
        return self._threads

    def submit(self, what: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        with self._mutex:
            return self._pool.submit(what, *arguments, **named)

    def resize(self, threads: int) -> None:
        if threads == self._threads:
            return
        made = ThreadPoolExecutor(threads, self._name)
        with self._mutex:
            former, self._pool, self._threads = self._pool, made, threads
        former.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
