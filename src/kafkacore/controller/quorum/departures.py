"""Holds the heartbeats of brokers in controlled shutdown, until the remaining brokers have read which partitions they
have taken over.

Apache Kafka's controller answers such a heartbeat immediately, and the broker sends its next heartbeat after 2 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Departures:
    """Used only on the controller's loop. Holds at most one heartbeat of each broker."""

    def __init__(self) -> None:
        self._held: dict[int, asyncio.Future[bool]] = {}

    @property
    def held(self) -> frozenset[int]:
        """The brokers whose heartbeats are held."""
        return frozenset(self._held)

    async def hold(self, broker_id: int, until_s: float) -> bool:
        """Waits until the broker can stop, and returns True when `wake` finds that it can. Returns False if the loop's
        time reaches `until_s`, or if `release` ends the wait."""
        self.release(broker_id)
        mine: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._held[broker_id] = mine
        try:
            async with asyncio.timeout_at(until_s):
                return await mine
        except TimeoutError:
            return False
        finally:
            if self._held.get(broker_id) is mine:
                del self._held[broker_id]

    def release(self, broker_id: int) -> None:
        """Ends the wait of a held heartbeat. Called because a newer heartbeat of the same broker has arrived."""
        older = self._held.get(broker_id)
        if older is not None and not older.done():
            older.set_result(False)

    def wake(self, may_leave: Callable[[int], bool]) -> None:
        """Ends the waits of the brokers for which `may_leave` returns True. Called after a broker has read more
        metadata or was fenced."""
        for broker_id, each in self._held.items():
            if not each.done() and may_leave(broker_id):
                each.set_result(True)

    def end(self, error: Exception) -> None:
        """Fails all held heartbeats, because this controller is no longer active."""
        for each in self._held.values():
            if not each.done():
                each.set_exception(error)
