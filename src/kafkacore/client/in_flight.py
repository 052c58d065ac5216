"""The requests that a producer or a reader has in flight, at most one to each broker, and the clock of their deadlines.

A client has no thread. While its caller does something else, nobody sends or receives, and responses that have arrived
stay unread. A broker must not count as late because of such a pause, so the clock leaves these pauses out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from kafkacore.client.connection import Connection, Disconnected, wait_ready

Cargo = TypeVar("Cargo")


class OwnTime:
    """Counts the seconds in which the client itself ran. The clock stands still until `start`, and after `stop`."""

    def __init__(self) -> None:
        self._ran_s = 0.0
        self._started_at: float | None = None

    def now(self) -> float:
        return self._ran_s if self._started_at is None else self._ran_s + time.monotonic() - self._started_at

    def start(self) -> None:
        if self._started_at is None:
            self._started_at = time.monotonic()

    def stop(self) -> None:
        self._ran_s, self._started_at = self.now(), None


class Request(NamedTuple, Generic[Cargo]):
    """A request in flight. `cargo` is data of the owner about the request. `deadline` is a time of `OwnTime`."""

    connection: Connection
    correlation_id: int
    deadline: float
    cargo: Cargo


class InFlight(Generic[Cargo]):
    """The requests in flight, by broker. When a request is lost, the broker becomes free for another request, and this
    object calls the owner's function `lost` with the broker, the error and the cargo."""

    def __init__(self, api: str, own_time: OwnTime, lost: Callable[[int, Exception, Cargo], None]) -> None:
        self._api = api
        self._time = own_time
        self._lost = lost
        self._requests: dict[int, Request[Cargo]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, node: int) -> bool:
        return node in self._requests

    def cargoes(self) -> Iterator[Cargo]:
        return (each.cargo for each in self._requests.values())

    def send(
        self, node: int, connection: Connection, message: Any, version: int, timeout_s: float, cargo: Cargo
    ) -> None:
        """Sends a request. Raises Disconnected and TimeoutError."""
        correlation_id = connection.send(message, version, time.monotonic() + timeout_s)
        self._requests[node] = Request(connection, correlation_id, self._time.now() + timeout_s, cargo)

    def give_up(self) -> None:
        """Gives up the requests that are late, and the requests whose connection the client has closed because the
        broker left the cluster. Call this before `wait`, after everything that may request metadata."""
        for node, each in list(self._requests.items()):
            if not each.connection.is_open:
                reason = f"the connection to {each.connection.place} was closed: the broker has left the cluster"
                self._give_up(node, Disconnected(reason))
            elif each.deadline <= self._time.now():
                self._give_up(node, TimeoutError(f"{each.connection.place} did not answer a {self._api} in time"))

    def _give_up(self, node: int, error: Exception) -> None:
        self._lost(node, error, self._requests.pop(node).cargo)

    def wait(self, most_s: float) -> list[int]:
        """Returns the brokers from which something can be read. Waits for one of them, but at most `most_s`, and not
        beyond the first deadline."""
        if not self._requests:
            time.sleep(max(most_s, 0.0))
            return []
        buffered = [node for node, each in self._requests.items() if each.connection.has_buffered]
        if buffered:
            return buffered
        left_s = min(each.deadline for each in self._requests.values()) - self._time.now()
        connections = (each.connection for each in self._requests.values())
        ready = wait_ready(connections, max(min(most_s, left_s), 0.0))
        return [node for node, each in self._requests.items() if each.connection.fileno() in ready]

    def receive(self, node: int) -> tuple[Request[Cargo], Any] | None:
        """Returns a broker's response and its request. Returns None if the response is not complete yet or is lost."""
        request = self._requests[node]
        try:
            answer = request.connection.receive()
        except Disconnected as error:
            self._give_up(node, error)
            return None
        if answer is None or answer.correlation_id != request.correlation_id:
            return None
        del self._requests[node]
        return request, answer.message

    def drop(self) -> None:
        """Closes the connections of all requests in flight, because nobody will receive their responses."""
        for each in self._requests.values():
            each.connection.close()
        self._requests.clear()
