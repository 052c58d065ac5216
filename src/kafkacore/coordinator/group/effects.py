"""The effects of an input to a shard: records to append, and answers to give."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol, TypeAlias

# The waiter of a request. Its owner chooses the type: a future, a slot, in a test a name. The shard hands it back and
# never looks into it.
Waiter: TypeAlias = Any
GroupRecord: TypeAlias = tuple[bytes, bytes | None]  # key and value; None deletes the record of the key


class Caller(Protocol):
    """The part of a request's context that a group depends on; `network.request.RequestContext` provides it."""

    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str:
        """The peer's address, without port and without the slash that Kafka writes before it."""


class Append(NamedTuple):
    """Records that go into one batch, in this order, after those of every earlier append.

    The owner reports the batch's fate with this token: by `GroupShard.committed` or `failed`, and by `timed_out` while
    neither is known yet. Tokens count up from 1, and appends are committed in that order. An append may fail while
    earlier ones still wait for the replicas. No later append depends on an `independent` one, so if only that one
    cannot be appended, it fails alone.
    """

    token: int
    records: Collection[GroupRecord]
    independent: bool = False


class Answer(NamedTuple):
    """`response` is a message, or whatever the method that took the waiter documents."""

    waiter: Waiter
    response: Any


class Effects:
    """The owner may carry them out in any order, except that it appends in the order of the list. Falsy when there is
    nothing to do."""

    __slots__ = ("answers", "appends")

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self.answers: list[Answer] = []

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers)

    def __repr__(self) -> str:
        return f"Effects(appends={self.appends!r}, answers={self.answers!r})"
