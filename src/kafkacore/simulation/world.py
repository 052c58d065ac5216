"""The simulated environment of a node: virtual time, a disk in memory, a network without sockets, and one thread."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar, cast

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.world.environment import Environment
from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.process import Runtime
from kafkacore.runtime.workers import BackgroundThread, Workers
from kafkacore.runtime.world import World
from kafkacore.simulation.loop import SimulatedLoopThread
from kafkacore.simulation.machine import Machine
from kafkacore.simulation.network import SimulatedNetwork
from kafkacore.simulation.plane import SimulatedPlane

T = TypeVar("T")
THREAD_S = (0.000_1, 0.01)  # the shortest and longest time until a new thread starts to run


def free_the_dead() -> None:
    """Frees the memory of nodes that are no longer reachable."""
    gc.collect()


def seeded_uuid(random: Random) -> Uuid:
    """Returns a version 4 UUID without a leading `-`, as `Uuid.random` does."""
    return Uuid.random(random.randbytes)


class SimulatedWorld(World):
    """The environment of one incarnation of a node, from the node's start to its stop or death."""

    def __init__(self, machine: Machine, disk: SimulatedDisk, network: SimulatedNetwork, random: Random) -> None:
        # Only `World.runtime` reads this attribute, and this class replaces that method.
        self.own_threads = True
        self.machine = machine
        self.environment = disk.environment(machine.clock, machine.schedule.agenda, random.getrandbits(63))
        machine.take_spent_ns = disk.take_spent_ns
        self.files = cast("Any", disk)
        self.random = random
        self.make_plane = functools.partial(SimulatedPlane, network=network, host=machine.name)

    def new_uuid(self) -> Uuid:
        return seeded_uuid(self.random)

    def host_name(self) -> str:
        return self.machine.name

    def runtime(self, data_processors: int | None) -> Runtime:
        return cast("Runtime", _SimulatedRuntime(self.machine, self.environment))

    def executor(self, threads: int, name: str) -> Executor:
        return InlineExecutor()

    def workers(self, threads: int, name: str) -> Workers:
        return cast("Workers", InlineExecutor(threads))

    def random_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    def pool(self, threads: int, name: str) -> Executor:
        return InlineExecutor(threads)

    def thread(self, name: str, body: Callable[[], None]) -> BackgroundThread:
        return _DelayedThread(self.machine, body)

    def background_loop(self, name: str) -> asyncio.AbstractEventLoop:
        return self.machine.loop(name)

    def drive(self, steps: Coroutine[Any, Any, T]) -> T:
        """Raises RuntimeError, because the start and stop of a simulated node run as a task on the machine's own
        loop."""
        steps.close()
        raise RuntimeError(f"{self.machine.name} is simulated: run Node.begin and Node.end as tasks")

    async def on(self, loop: LoopThread, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        async with asyncio.timeout(limit_s):
            return await asyncio.wrap_future(loop.submit(work))

    async def first(self, loop: LoopThread, work: Coroutine[Any, Any, None], end: Future[None], limit_s: float) -> bool:
        task = asyncio.wrap_future(loop.submit(work))
        await asyncio.wait([task, asyncio.wrap_future(end)], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True


class InlineExecutor(Executor):
    """Runs submitted work immediately, on the only thread. In contrast, work of `loop.run_in_executor` runs later, when
    the loop decides."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def submit(self, what: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(what(*arguments, **named))
        except Exception as error:  # noqa: BLE001 - the caller gets it from the future
            future.set_exception(error)
        return future

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **_: Any) -> Iterator[T]:
        return map(fn, *iterables)

    def resize(self, threads: int) -> None:
        self.threads = threads

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing, because no work is ever in progress."""


class _DelayedThread:
    """Replaces a thread. Runs the whole body at once, some time after `start`. Nothing else runs meanwhile, so the body
    must not loop forever."""

    def __init__(self, machine: Machine, body: Callable[[], None]) -> None:
        self._machine, self._body = machine, body
        self._waits = False

    def start(self) -> None:
        self._waits = True
        self._machine.loop("work").call_later(self._machine.work_random(*THREAD_S), self.join)

    def join(self) -> None:
        if self._waits:
            self._waits = False
            self._body()

    def is_alive(self) -> bool:
        return self._waits


class _SimulatedRuntime:
    """The loops of one machine. This runtime has no processor threads and no acceptor threads."""

    def __init__(self, machine: Machine, environment: Environment) -> None:
        self.environment = environment
        self.data_processors = 1
        self._machine = machine
        self._loops: dict[str, SimulatedLoopThread] = {}

    def loop(self, kind: str) -> SimulatedLoopThread:
        made = self._loops.get(kind)
        if made is None:
            made = self._loops[kind] = SimulatedLoopThread(self._machine.loop(kind))
        return made

    def processors(self, kind: str) -> list[Any]:
        return []

    def acceptor(self, kind: str) -> None:
        """Does nothing, because connections come from the simulated network."""

    def watch_fork(self, plane: object) -> None:
        """Does nothing, because a simulation does not fork."""

    def release(self) -> None:
        """Does nothing: the loops belong to the machine."""
