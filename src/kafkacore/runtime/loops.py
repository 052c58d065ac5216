"""Event loops, each on its own thread. A process has one loop for each kind of plane (a group of listeners, see
network/plane.py)."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from kafkacore._fast.base.thread_priority import enter_thread

T = TypeVar("T")

_STOP_SECONDS: Final = 5.0
_HOLD_SECONDS: Final = 1.0


class LoopThread:
    """A running uvloop loop on its thread. Any other thread may use `call` and `run`."""

    def __init__(self, name: str) -> None:

        self.name = name
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self.loop.set_exception_handler(_report)
        self._started_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._held = False
        _MADE.add(self)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls the function soon, on the loop."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        if self._held:
            coroutine.close()
            raise RuntimeError(
                f"loop {self.name} has ended with the process: close everything that uses the loop before the process "
                "ends"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Waits for the result. Raises TimeoutError. Raises RuntimeError when called on the loop itself."""
        if self.inside:
            coroutine.close()
            raise RuntimeError(f"loop {self.name} cannot wait for itself")
        return self.submit(coroutine).result(timeout_seconds)

    @property
    def inside(self) -> bool:
        """Returns whether the caller runs on this loop."""
        return threading.get_ident() == self._thread.ident

    def idle_ns(self) -> int:
        """Returns how long the loop's thread has used no CPU since the loop's start. After its end, the thread counts
        as idle."""
        elapsed_ns = time.monotonic_ns() - self._started_ns
        ident = self._thread.ident
        if ident is None or not self._thread.is_alive():
            return elapsed_ns
        return max(elapsed_ns - time.clock_gettime_ns(time.pthread_getcpuclockid(ident)), 0)

    def stop(self) -> None:
        """Cancels the loop's tasks and ends the thread."""
        if self._thread.is_alive() and not self._held:
            self.submit(_cancel_tasks()).result(_STOP_SECONDS)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive() and not self.loop.is_closed():
            self.loop.close()

    def hold(self) -> None:
        """Suspends the thread at its current position. Call this only at the end of the process."""
        if self._thread.is_alive():
            self._held = True
            held = threading.Event()
            self.call(_hold, held)
            held.wait(_HOLD_SECONDS)

    def _main(self) -> None:
        # The data plane's loop is urgent too. If the kernel preempted this loop while it held the GIL, the control
        # plane's loop would have to wait.
        enter_thread(self.name, urgent=True)
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_MADE: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


@atexit.register
def _hold_all() -> None:
    """Suspends all loops at the end of the process. A loop that continued after the interpreter's end would crash,
    because libuv calls the interpreter for every timer and socket. The loops are not stopped, because this would cancel
    their tasks and run arbitrary `finally` blocks."""
    for each in tuple(_MADE):
        each.hold()


def _hold(held: threading.Event) -> None:
    forever = threading.Lock()
    forever.acquire()
    held.set()
    forever.acquire()


async def _cancel_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:

    logging.getLogger("kafkacore.runtime").error("%s", context["message"], exc_info=context.get("exception"))
