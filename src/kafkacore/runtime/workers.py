"""Threads for work that waits, for example for a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import Any, Protocol


class BackgroundThread(Protocol):
    """A background thread, with the methods of `threading.Thread`."""

    def start(self) -> None: ...
    def join(self) -> None: ...
    def is_alive(self) -> bool: ...


def daemon_thread(name: str, body: Callable[[], None]) -> BackgroundThread:
    """Returns a thread that has not been started yet. It does not keep the process alive."""
    return threading.Thread(target=body, name=name, daemon=True)


class Workers(Executor):
    """A thread pool whose size can change. After a change, new work goes to a new pool. The previous pool finishes the
    work that it has begun or queued."""

    def __init__(self, threads: int, name: str) -> None:
        self._name = name
        self._threads = threads
        self._mutex = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, name)
        self._left: set[Future[Any]] = set()  # unfinished work of all pools; nothing else waits for previous pools

    @property
    def threads(self) -> int:
        """The number of threads. A new value applies immediately to new work. Earlier work ends in the previous
        pool."""
        return self._threads

    def submit(self, what: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        with self._mutex:
            future = self._pool.submit(what, *arguments, **named)
            self._left.add(future)
        future.add_done_callback(self._left.discard)
        return future

    def resize(self, threads: int) -> None:
        if threads == self._threads:
            return
        made = ThreadPoolExecutor(threads, self._name)
        with self._mutex:
            former, self._pool, self._threads = self._pool, made, threads
        former.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shuts down the current and the previous pools, as Executor.shutdown does."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
        left = tuple(self._left)
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            wait_for(left)
