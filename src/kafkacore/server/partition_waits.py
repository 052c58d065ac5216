"""Lets coroutines wait for events in partitions. This is the purgatory of the handler loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_watch import PartitionWatch
from kafkacore._fast.world.environment import Environment
from kafkacore.runtime.clock import Clock
from kafkacore.runtime.scheduler import Scheduler
from kafkacore.runtime.slices import Slice


class PartitionWaits:
    """Coroutines that wait for events in partitions. This object and `timers`, which follows `clock`, belong to the
    running loop. Call `close` before the loop ends."""

    def __init__(self, clock: Clock, timers: Scheduler, environment: Environment | None = None) -> None:
        """Creates the object on the running loop. `environment` is the environment of the partitions; None stands for
        the real environment."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._timers = timers
        self._watch = PartitionWatch(environment)
        self._futures: dict[object, asyncio.Future[bool]] = {}
        self._operations: Counter[str] = Counter()
        self._watched: Counter[str] = Counter()
        self._loop.add_reader(self._watch.fileno(), self._deliver)

    @property
    def count(self) -> int:
        """The number of coroutines that wait."""
        return len(self._futures)

    def purgatories(self) -> Mapping[str, tuple[int, int]]:
        """Returns two numbers for each name of an operation: the waiting operations, and the partitions that they
        watch. Can be called on any thread."""
        return {name: (count, self._watched[name]) for name, count in self._operations.copy().items()}

    def now_ms(self) -> float:
        """Returns the time by the clock that deadlines use."""
        return self._clock.monotonic_ns() / 1e6

    def wall_ms(self) -> int:
        """Returns the wall-clock time, for the timestamps of records that this broker writes."""
        return self._clock.wall_ms()

    async def any(
        self,
        waits: Sequence[tuple[PartitionHandle, int, int] | tuple[PartitionHandle, int, int, int]],
        timeout_ms: float,
        operation: str = "",
    ) -> bool:
        """Waits until one of the entries `(partition, kind, offset)` is satisfied, or the role of an entry's partition
        changes. If `kind` is an acknowledgement, the entry also contains a leadership, and the wait ends when that
        leadership ends. Returns False on timeout. `operation` names the wait in the metrics."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._futures[future] = future
        self._operations[operation] += 1
        self._watched[operation] += len(waits)
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
            self._operations[operation] -= 1
            self._watched[operation] -= len(waits)

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
