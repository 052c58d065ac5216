"""The environment of a node: its clock, disk, threads, loops, random numbers and UUIDs. A node has exactly one `World`.

`World` is the real environment. The simulated environment (`simulation.world`) has the same methods, but runs a node on
its caller's thread and in virtual time.
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
    """The real environment of a node. A test can replace the clock and the disk that native code uses (`environment`),
    and the disk on which Python stores small files (`files`). If a test passes an `environment`, the node starts
    threads of its own, because a thread reads the clock of only one environment.

    `make_plane` creates a plane. It takes the arguments of `network.plane.Plane`. If it is None, a node creates a
    `network.plane.Plane`.
    """

    make_plane: Callable[..., Any] | None = None
    # Makes connections to other nodes, as `loop.create_connection` does. If None, the running loop makes them.
    connect: Callable[[Callable[[], asyncio.Protocol], str, int], Coroutine[Any, Any, object]] | None = None

    # Only for tests that cut links; otherwise None. A node calls this function with each new native connection and the
    # address of the other end. The test can then call the connection's methods `hold` and `disconnect`. The node calls
    # the returned function when the connection has ended.
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
        """Returns the name under which other machines can reach this machine."""
        return socket.getfqdn()

    # --- threads and loops ---

    def runtime(self, data_processors: int | None) -> Runtime:
        """Returns a share of the threads for planes. The caller must call the share's `release`."""
        if self.own_threads:
            return Runtime(data_processors, environment=self.environment)
        return Runtime.shared(data_processors)

    def executor(self, threads: int, name: str) -> Executor:
        """Returns threads that run as soon as they are woken. Use these threads if a loop waits for their results."""
        return ThreadPoolExecutor(threads, name, enter_thread, (name, True))

    def workers(self, threads: int, name: str) -> Workers:
        """Returns threads for handlers that wait for a disk."""
        return Workers(threads, name)

    def pool(self, threads: int, name: str) -> Executor:
        """Returns threads for one large task, such as the loading of logs."""
        return ThreadPoolExecutor(threads, name)

    def thread(self, name: str, body: Callable[[], None]) -> BackgroundThread:
        """Returns a thread that has not been started yet. It does not keep the process alive."""
        return daemon_thread(name, body)

    def background_loop(self, name: str) -> asyncio.AbstractEventLoop | None:
        """Returns the loop on which a simulated world does the work of a background thread. Returns None in the real
        world, which starts a thread instead."""

    # --- starting and stopping; both wait for loops ---

    def drive(self, steps: Coroutine[Any, Any, T]) -> T:
        """Runs the steps of a start or stop on the caller's thread, which blocks whenever a step waits."""
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        steps.close()
        raise RuntimeError("a step of a start or stop may await only methods of its world")

    async def on(self, loop: LoopThread, work: Coroutine[Any, Any, T], limit_s: float | None = None) -> T:
        """Awaits the result of work that runs on a loop. Raises TimeoutError."""
        return loop.run(work, limit_s)

    async def first(self, loop: LoopThread, work: Coroutine[Any, Any, None], end: Future[None], limit_s: float) -> bool:
        """Awaits work that runs on a loop. Returns True when the work is done. If `end` is done first or the time limit
        passes, cancels the work and returns False. Raises the errors of the work."""
        future = loop.submit(work)
        wait([future, end], min(limit_s, threading.TIMEOUT_MAX), FIRST_COMPLETED)
        if not future.done():
            future.cancel()
            return False
        future.result()
        return True
