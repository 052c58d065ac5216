"""Keeps the requests that wait for a response, with a deadline for each. At most one request waits for each node. After
a failed request, also keeps the time at which this replica may send to that node again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkacore.raft.roles import Destination


class InFlight(NamedTuple):
    correlation: int
    deadline_ms: int
    to: Destination
    request: Any


class Requests:
    """The requests in flight. Times are monotonic milliseconds. `finish` returns None for a request that was given
    up."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._correlation = 0
        self._in_flight: dict[int, InFlight] = {}
        self._quiet_until: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._in_flight)

    def is_free(self, node_id: int, now_ms: int) -> bool:
        """Returns whether a request can be sent to the node now."""
        return node_id not in self._in_flight and self._quiet_until.get(node_id, 0) <= now_ms

    def begin(self, to: Destination, request: Any, now_ms: int) -> int:
        """Starts a request. Returns the correlation id for the response. If an earlier request to the same node has no
        response yet, gives that request up."""
        self._correlation += 1
        self._in_flight[to.node_id] = InFlight(self._correlation, now_ms + self._timeout_ms, to, request)
        return self._correlation

    def waits(self, correlation: int) -> bool:
        return any(sent.correlation == correlation for sent in self._in_flight.values())

    def finish(self, correlation: int) -> InFlight | None:
        """Removes and returns the request of a response, or returns None if that request was given up."""
        for node_id, sent in self._in_flight.items():
            if sent.correlation == correlation:
                return self._in_flight.pop(node_id)
        return None

    def take_expired(self, now_ms: int) -> list[InFlight]:
        due = [sent for sent in self._in_flight.values() if sent.deadline_ms <= now_ms]
        for sent in due:
            del self._in_flight[sent.to.node_id]
        return due

    def give_up(self) -> None:
        """Gives up all requests, because the role that sent them has ended."""
        self._in_flight.clear()

    def leave_alone(self, node_id: int, until_ms: int) -> None:
        self._quiet_until[node_id] = until_ms

    def welcome(self, node_id: int) -> None:
        """Ends the back-off of a node, because the node has answered."""
        self._quiet_until.pop(node_id, None)

    def is_left_alone(self, node_id: int, now_ms: int) -> bool:
        return self._quiet_until.get(node_id, 0) > now_ms

    def end_back_offs(self, now_ms: int) -> None:
        """Forgets the back-offs that are over. The caller then sends requests to these nodes again."""
        self._quiet_until = {node_id: until for node_id, until in self._quiet_until.items() if until > now_ms}

    def next_ms(self) -> int | None:
        """Returns the time of the next event: a request times out, or a failed node can get requests again. Returns
        None if there is no next event. Once its time has come, an event stays the next event until `take_expired` or
        `end_back_offs` has handled it.
        """
        times = [sent.deadline_ms for sent in self._in_flight.values()]
        return min([*times, *self._quiet_until.values()], default=None)
