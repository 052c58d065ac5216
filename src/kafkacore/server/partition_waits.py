"""Coroutines that wait for partitions: the purgatory of the handler loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import PartitionWatch
from kafkacore._fast.world.environment import Environment
from kafkacore.runtime.clock import Clock
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.runtime.slices import Slice


class PartitionWaits:
    """Belongs to the running loop, and so does `timers`, which follows `clock`. Call `close` before the loop ends."""

    def __init__(self, clock: Clock, timers: Scheduler, environment: Environment | None = None) -> None:
        """`environment` is the one of the partitions; None stands for the real one."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._timers = timers
        self._watch = PartitionWatch(environment)
        self._futures: dict[object, asyncio.Future[bool]] = {}
        self._loop.add_reader(self._watch.fileno(), self._deliver)

    @property
    def count(self) -> int:
        """The number of coroutines that wait."""
        return len(self._futures)

    def now_ms(self) -> float:
        """The clock of the deadlines."""
        return self._clock.monotonic_ns() / 1e6

    def wall_ms(self) -> int:
        """The clock of the records that this broker makes."""
        return self._clock.wall_ms()

    async def any(
        self,
        waits: Iterable[tuple[PartitionHandle, int, int] | tuple[PartitionHandle, int, int, int]],
        timeout_ms: float,
    ) -> bool:
        """Waits until one of `(partition, kind, offset)` is satisfied or its partition's role changes. An
        acknowledgement names a leadership as well; the wait ends when that leadership ends. Returns False when the time
        is over."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._futures[future] = future
        try:
            slice_ = Slice()
            for partition, *condition in waits:
                await slice_.give_way()
                if not self._watch.arm(future, partition, *condition):
                    return True
            deadline = self._timers.after(
                timeout_ms, lambda: _settle(future, satisfied=False), "a partition's deadline"
            )
            try:
                return await future
            finally:
                deadline.cancel()
        finally:
            self._watch.disarm(future)
            del self._futures[future]

    def _deliver(self) -> None:
        for token in self._watch.take():
            future = self._futures.get(token)
            if future is not None:
                _settle(future, satisfied=True)

    def close(self) -> None:
        self._loop.remove_reader(self._watch.fileno())
        self._watch.close()


def _settle(future: asyncio.Future[bool], *, satisfied: bool) -> None:
    if not future.done():
        future.set_result(satisfied)
