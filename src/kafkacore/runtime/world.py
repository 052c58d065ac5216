"""The world of a node: its clock, disk, threads, loops, random numbers and UUIDs. A node has exactly one.

`World` is the real one. The simulated one (`simulation.world`) has the same methods; it runs a node on its caller's
thread and in virtual time.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from kafkacore._fast.base.thread_priority import enter_thread
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.world.environment import Environment
from kafkacore.runtime.files import OS_FILES, Files
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.process import Runtime
from kafkacore.runtime.randomness import randomness
from kafkacore.runtime.workers import BackgroundThread, Workers, daemon_thread

T = TypeVar("T")


class World:
    """The real world. `environment` replaces the clock and the disk of native code. `files` replaces the disk of
    Python's small files. A node with an environment of its own gets threads of its own, because those threads read that
    environment's clock.

    `make_plane` makes the planes of this world, with the arguments of `network.plane.Plane`; without it that class is
    used.
    """

    make_plane: Callable[..., Any] | None = None
    # Makes connections to other nodes, as `loop.create_connection` does; without it the running loop makes them.
    connect: Callable[[Callable[[], asyncio.Protocol], str, int], Coroutine[Any, Any, object]] | None = None

    # Watches the link to a host and port on behalf of a connection of native code (`hold`, `disconnect`), until the
    # returned function is called; None: no test cuts links.
    watch_link: Callable[[tuple[str, int], Any], Callable[[], None]] | None = None

    def __init__(self, environment: Environment | None = None, files: Files = OS_FILES) -> None:
        self.own_threads = environment is not None
        self.environment = environment or Environment()
        self.files = files
        self.random: random.Random = randomness()

    def new_uuid(self) -> Uuid:
        return Uuid.random()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def host_name(self) -> str:
        """The name by which other machines know this one."""
        return socket.getfqdn()

    # --- threads and loops ---

    def runtime(self, data_processors: int | None) -> Runtime:
        """A share of the threads for planes. The caller must call its `release`."""
        if self.own_threads:
            return Runtime(data_processors, environment=self.environment)
        return Runtime.shared(data_processors)

    def executor(self, threads: int, name: str) -> Executor:
        """Threads that run as soon as they are woken, for work that a loop's decisions wait for."""
        return ThreadPoolExecutor(threads, name, enter_thread, (name, True))

    def workers(self, threads: int, name: str) -> Workers:
        """Threads for handlers that wait for a disk."""
        return Workers(threads, name)

    def pool(self, threads: int, name: str) -> Executor:
        """Threads for one burst of work, such as the loading of logs."""
        return ThreadPoolExecutor(threads, name)

    def thread(self, name: str, body: Callable[[], None]) -> BackgroundThread:
        """A thread that is not started yet, and does not keep the process alive."""
        return daemon_thread(name, body)

    def background_loop(self, name: str) -> asyncio.AbstractEventLoop | None:
        """A loop for work that the real world does on a background thread. None when this world has such threads."""

    # --- starts and stops, which wait for loops ---

    def drive(self, steps: Coroutine[Any, Any, T]) -> T:
        """Runs the steps of a start or stop on the caller's thread. While a step waits, the thread waits."""
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        steps.close()
        raise RuntimeError("a step of a start or stop may await only methods of its world")

    async def on(self, loop: LoopThread, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """Awaits the result of work on a loop. Raises TimeoutError."""
        return loop.run(work, limit_s)

    async def first(self, loop: LoopThread, work: Coroutine[Any, Any, None], end: Future[None], limit_s: float) -> bool:
        """Awaits work on a loop. Returns True when the work is done. Returns False, and cancels the work, when `end`
        comes first or the time is over. Raises what the work raises."""
        future = loop.submit(work)
        wait([future, end], min(limit_s, threading.TIMEOUT_MAX), FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            return False
        future.result()
        return True
