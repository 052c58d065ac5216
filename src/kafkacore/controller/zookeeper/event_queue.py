"""The controller's single queue of events, with priorities and merging."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

from kafkacore.controller.zookeeper.events import Event, Priority

# Once this many events in sequence have overtaken waiting events of a lower priority, the event that has waited longest
# in a lower priority runs. So a stream of ISR changes delays an operator's request but does not starve it. It would not
# help to run the event of the lowest priority: events of priority UPKEEP return as soon as they have run, so they would
# starve the request.
PATIENCE: Final = 64


class EventQueue:
    """Used on one event loop, by one consumer."""

    def __init__(self) -> None:
        self._waiting: tuple[deque[Event], ...] = tuple(deque() for _ in Priority)
        self._by_key: dict[Hashable, Event] = {}
        self._taker: asyncio.Future[None] | None = None
        self._overtaking = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def put(self, event: Event) -> None:
        """Adds the event, or merges it into a waiting event with the same key."""
        key = event.key()
        if key is not None:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.merge(event)
                return
            self._by_key[key] = event
        self._waiting[event.priority].append(event)
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def clear(self, drop: Callable[[Event], None]) -> None:
        """Removes every waiting event and passes it to `drop`."""
        dropped = [event for events in self._waiting for event in events]
        for events in self._waiting:
            events.clear()
        self._by_key.clear()
        for event in dropped:
            drop(event)

    async def filled(self) -> None:
        """Waits until there is an event."""
        while not len(self):
            self._taker = asyncio.get_running_loop().create_future()
            try:
                await self._taker
            finally:
                self._taker = None

    async def take(self) -> Event:
        """Waits for the next event, removes it from the queue and returns it. From then on, no later event is merged
        into it."""
        await self.filled()
        event = self._next().popleft()
        key = event.key()
        if key is not None:
            del self._by_key[key]
        return event

    def _next(self) -> deque[Event]:
        filled = [events for events in self._waiting if events]
        if len(filled) == 1 or filled[0] is self._waiting[Priority.SESSION]:
            self._overtaking = 0
            return filled[0]
        self._overtaking += 1
        if self._overtaking < PATIENCE:
            return filled[0]
        self._overtaking = 0
        return min(filled[1:], key=lambda events: events[0].queued_s)
