"""Heartbeats of brokers in controlled shutdown, held until the brokers that stay have read of their new leaderships.

Apache Kafka answers such a heartbeat at once and lets the broker ask again; a leaver of its releases asks every 2 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Departures:
    """Belongs to the controller's loop. It holds one heartbeat of a broker at most."""

    def __init__(self) -> None:
        self._held: dict[int, asyncio.Future[bool]] = {}

    @property
    def held(self) -> frozenset[int]:
        """The brokers whose heartbeats wait."""
        return frozenset(self._held)

    async def hold(self, broker_id: int, until_s: float) -> bool:
        """True when `wake` finds that the broker may leave; False at `until_s` (time of the loop), and when `release`
        ends it."""
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
        """A newer heartbeat of the broker takes the place of the one that is held."""
        older = self._held.get(broker_id)
        if older is not None and not older.done():
            older.set_result(False)

    def wake(self, may_leave: Callable[[int], bool]) -> None:
        """Something changed: a broker has read further, or is fenced."""
        for broker_id, each in self._held.items():
            if not each.done() and may_leave(broker_id):
                each.set_result(True)

    def end(self, error: Exception) -> None:
        """This controller is no longer active."""
        for each in self._held.values():
            if not each.done():
                each.set_exception(error)
