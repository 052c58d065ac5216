"""An asyncio loop in virtual time. Each machine has several loops, one for each thread of a real node. The schedule
runs all loops of all machines on one thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import logging
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from kafkacore.simulation.machine import Machine

T = TypeVar("T")
LOG: Final = logging.getLogger("kafkacore.simulation")
# The shortest and the longest duration of work on another thread, without the time of disk operations.
_WORK_S: Final = (0.000_02, 0.001)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """An asyncio loop with all functions that the tasks of a node need. Work for executors runs on the machine's loop
    "work", after a delay that the seed chooses.

    Native code wakes the loop with a bell: a wake-up signal that replaces an eventfd. One iteration of the loop runs
    the callbacks that are ready. If an iteration uses the disk, the loop runs nothing else for the duration of the disk
    operations.
    """

    def __init__(self, machine: Machine, kind: str) -> None:
        self.machine = machine
        self.kind = kind
        self._schedule = machine.schedule
        self._ready: deque[asyncio.Handle] = deque()
        self._is_listed = False  # whether the schedule lists this loop as ready
        self._answer: asyncio.Handle | None = None  # runs when the disk operations of a turn are done
        self._closed = False
        self._looks = 0
        self._tasks: dict[asyncio.Task[Any], None] = {}
        # Coroutines that were submitted and have no task yet.
        self._unstarted: dict[Coroutine[Any, Any, Any], None] = {}

    def __repr__(self) -> str:
        return f"<SimulatedLoop {self.machine.name}/{self.kind}>"

    # --- turns ---

    def put(self, handle: asyncio.Handle) -> None:
        """Makes the loop run the handle in its next iteration."""
        if handle is self._answer:
            self._answer, self._is_listed = None, False
            self.wake()
            return
        self._ready.append(handle)
        if not self._is_listed:
            self.wake()

    def wake(self) -> None:
        if self._ready and not self._is_listed and not self.machine.is_paused and not self._closed:
            self._is_listed = True
            self._schedule.ready(self)

    def run_turn(self) -> None:
        """Runs the callbacks that are ready now. Callbacks that they add wait for the next iteration. If the machine
        dies in this iteration, the remaining callbacks do not run.
        """
        self._is_listed = False
        machine = self.machine
        if machine.is_paused or self._closed:
            return
        machine.tell_time()
        events._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                if not self._ready:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            events._set_running_loop(None)
        spent_ns = machine.take_spent_ns()
        if spent_ns:
            self._is_listed = True  # keeps the loop from running before its disk operations are done
            self._answer = asyncio.Handle(self.wake, (), self)
            self._schedule.at(self._schedule.now_ns + spent_ns, self._answer, self)
        else:
            self.wake()

    def abandon(self) -> None:
        """Drops all callbacks, because the machine is off. The loop's coroutines never continue."""
        if self._closed:
            return
        self._closed = True
        unstarted, self._unstarted = self._unstarted, {}
        for each in unstarted:
            _give_up(each)
        self._ready.clear()
        self._schedule.forget_closed()
        tasks, self._tasks = self._tasks, {}
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            try:
                if asyncio.iscoroutine(coroutine):
                    _give_up(coroutine)
            except (RuntimeError, ValueError):  # the coroutine is running, or would wait during its cleanup
                LOG.debug("a coroutine of %s did not end", self)
            except Exception:
                LOG.debug("a coroutine of %s failed during its cleanup", self, exc_info=True)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs a coroutine from another loop on this loop. If this loop's machine is off, the coroutine never
        starts."""
        if self._closed:
            _give_up(coroutine)
            return concurrent.futures.Future()
        self._unstarted[coroutine] = None
        future = asyncio.run_coroutine_threadsafe(coroutine, self)
        self.call_soon(self._unstarted.pop, coroutine)  # runs after the callback that creates the task
        return future

    # --- callbacks and timers ---

    def call_soon(  # type: ignore[override]
        self, callback: Any, *arguments: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, arguments, self, context)
        if not self._closed:
            self.put(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *arguments: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, arguments, self, context)
        if not self._closed:
            self._schedule.at(self.machine.after(delay), handle, self)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *arguments: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *arguments, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Does nothing. The schedule drops the cancelled handle when its time comes."""

    def time(self) -> float:
        self.machine.tell_time()
        return self.machine.clock.monotonic_ns() / 1e9

    def slice_clock(self) -> float:
        """The clock of `runtime.slices`, which splits long work into slices. Each reading advances it by a fixed time,
        so slices end at the same points in every run of a seed."""
        self._looks += 1
        return self._looks * 0.000_02

    # --- futures and tasks ---

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, work: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(work, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, work: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = work(*arguments)
            except Exception as error:  # noqa: BLE001 - the task that awaits the result gets it
                self.call_soon(_fail, future, error)
            else:
                self.call_soon(_end, future, result)

        self.machine.loop("work").call_later(self.machine.work_random(*_WORK_S), run)
        return future

    # --- bells and connections ---

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *arguments: Any
    ) -> None:
        self._schedule.watch(fd, self, callback, arguments)

    def remove_reader(self, fd: Any) -> bool:
        return self._schedule.unwatch(fd)

    def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Awaitable[Any]:  # type: ignore[override]
        network = self.machine.network
        assert network is not None
        return network.connect(self, factory, host, port)

    # --- life ---

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def close(self) -> None:
        self.abandon()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            LOG.error("%s: %s", self, context.get("message"), exc_info=context.get("exception"))


def _give_up(coroutine: Any) -> None:
    """Closes a coroutine that never continues. If it has not started, its arguments may be coroutines that it would
    have awaited. Closes these too, because nobody else does."""
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        for each in coroutine.cr_frame.f_locals.values():
            if inspect.iscoroutine(each):
                _give_up(each)
    coroutine.close()


def _end(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class SimulatedLoopThread:
    """Replaces `runtime.loops.LoopThread` for a loop that has no thread."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.name = f"{loop.machine.name}/{loop.kind}"

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls the function soon, on the loop."""
        self.loop.call_soon(function, *arguments)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return self.loop.submit(coroutine)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Raises RuntimeError, because a wait would block the only thread. Callers await `World.on` instead."""
        coroutine.close()
        raise RuntimeError(f"{self.name} is simulated: await its result")

    @property
    def inside(self) -> bool:
        return events._get_running_loop() is self.loop

    def idle_ns(self) -> int:
        return int(self.loop.time() * 1e9)
