"""Coroutines that wait for partitions: the punt path's purgatory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kafkacore._fast.partition_handle import PartitionHandle
from kafkacore._fast.watch import PartitionWatch


class PartitionWaits:
    """Belongs to the running loop. `close` before the loop ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watch = PartitionWatch()
        self._futures: dict[object, asyncio.Future[None]] = {}
        self._loop.add_reader(self._watch.fileno(), self._deliver)

    async def any(self, waits: Iterable[tuple[PartitionHandle, int, int]], timeout_s: float) -> bool:
        """Until one of `(partition, kind, offset)` is satisfied or its partition changes hands; False: the time is
        over.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self._futures[future] = future
        try:
            for partition, kind, at in waits:
                if not self._watch.arm(future, partition, kind, at):
                    return True
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._watch.disarm(future)
            del self._futures[future]
        return True

    def _deliver(self) -> None:
        for token in self._watch.take():
            future = self._futures.get(token)
            if future is not None and not future.done():
                future.set_result(None)

    def close(self) -> None:
        self._loop.remove_reader(self._watch.fileno())
        self._watch.close()
