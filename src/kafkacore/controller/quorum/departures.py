"""Holds heartbeats of brokers in controlled shutdown until the brokers that stay have read which partitions they now
lead.

Apache Kafka answers such a heartbeat at once, and the broker asks again: a broker of Apache Kafka does so every 2 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Departures:
    """Belongs to the controller's loop. It holds at most one heartbeat of each broker."""

    def __init__(self) -> None:
        self._held: dict[int, asyncio.Future[bool]] = {}

    @property
    def held(self) -> frozenset[int]:
        """The brokers whose heartbeats wait."""
        return frozenset(self._held)

    async def hold(self, broker_id: int, until_s: float) -> bool:
        """Waits. Returns True when `wake` finds that the broker may leave, and False when the loop's time reaches
        `until_s` or `release` ends the wait."""
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
        """Ends the wait of a held heartbeat, because a newer one of the same broker has come."""
        older = self._held.get(broker_id)
        if older is not None and not older.done():
            older.set_result(False)

    def wake(self, may_leave: Callable[[int], bool]) -> None:
        """Looks at the held heartbeats again: a broker has read further, or is fenced."""
        for broker_id, each in self._held.items():
            if not each.done() and may_leave(broker_id):
                each.set_result(True)

    def end(self, error: Exception) -> None:
        """This controller is no longer active."""
        for each in self._held.values():
            if not each.done():
                each.set_exception(error)
