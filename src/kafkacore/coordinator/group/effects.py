"""What comes of an input to a shard: records to append, and answers to give."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol, TypeAlias

# Whoever asked, as the shard's owner knows them: a future, a slot, a name in a test. Handed back, never looked into.
Waiter: TypeAlias = Any
GroupRecord: TypeAlias = tuple[bytes, bytes | None]  # key and value; None deletes what the key names


class Caller(Protocol):
    """What of a request's context a group depends on; `network.request.RequestContext` is one."""

    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str:
        """The peer's address, without port and without the slash that Kafka writes before it."""


class Append(NamedTuple):
    """Records that go into one batch, in this order, after those of every append given before.

    The owner says what became of it by `GroupShard.committed`, `failed` or, while it is still open, `timed_out`, with
    this token. Tokens count up from 1; they are committed in their order. One may fail while earlier ones still wait
    for the replicas. On an `independent` one no later one counts: when it fails for its own sake, it fails alone.
    """

    token: int
    records: Collection[GroupRecord]
    independent: bool = False


class Answer(NamedTuple):
    """`response` is a message, or what the method that took the waiter says."""

    waiter: Waiter
    response: Any


class Effects:
    """To be carried out in any order, appends among themselves in theirs. Falsy when there is nothing to do."""

    __slots__ = ("answers", "appends")

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self.answers: list[Answer] = []

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers)

    def __repr__(self) -> str:
        return f"Effects(appends={self.appends!r}, answers={self.answers!r})"
