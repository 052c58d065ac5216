"""Keeps clients and producers after a task ends. Spark reuses a Python worker for many tasks, and new connections for
each task would cost more than a small batch."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from kafkacore.client import Client, Producer

MOST_KEPT: Final = 4  # the limit for each process; a query uses one client or producer for each set of options

Key = tuple[int, str, frozenset[tuple[str, str]]]


class Closes(Protocol):
    def close(self) -> None: ...


_kept: dict[Key, Closes] = {}


class ProducerOfItsOwn:
    """A producer together with a client that nothing else uses."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self.client = new_client(kafka)
        self.producer = self.client.producer()

    def close(self) -> None:
        self.client.close()


@contextlib.contextmanager
def client(kafka: Mapping[str, str]) -> Iterator[Client]:
    """Lends a client with these options. Reuses the client of a previous task if possible."""
    with _reused("reads", kafka, new_client) as found:
        yield found


@contextlib.contextmanager
def producer(kafka: Mapping[str, str]) -> Iterator[Producer]:
    """Lends an idempotent producer with these options. Reuses the producer of a previous task if possible."""
    with _reused("writes", kafka, ProducerOfItsOwn) as found:
        yield found.producer


def new_client(kafka: Mapping[str, str]) -> Client:
    options = dict(kafka)
    return Client(options.pop("bootstrap.servers"), options)


@contextlib.contextmanager
def _reused(what: str, kafka: Mapping[str, str], make: Callable[[Mapping[str, str]], Any]) -> Iterator[Any]:
    """Lends a client or producer, and keeps it for the next task. After an error, or if Spark stops reading early,
    closes the client or producer instead."""
    # The key contains the process id. A worker may be a fork of another process, and must not use the clients and
    # sockets of that process.
    key = (os.getpid(), what, frozenset(kafka.items()))
    found = _kept.pop(key, None) or make(kafka)
    try:
        yield found
    except BaseException:
        found.close()
        raise
    _kept[key] = found
    while len(_kept) > MOST_KEPT:
        _kept.pop(next(iter(_kept))).close()
