"""The effects of an input to a shard: records to append and responses to send."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol, TypeAlias

# The waiter of a request: a future, a slot, or a name in tests. The shard's owner chooses the type. The shard only
# passes the waiter back.
Waiter: TypeAlias = Any
GroupRecord: TypeAlias = tuple[bytes, bytes | None]  # key and value; the value None deletes the record of the key


class Caller(Protocol):
    """The part of a request's context that a group depends on; `network.request.RequestContext` implements this."""

    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str:
        """The peer's address, without the port and without the slash that Kafka writes before the address."""


class Append(NamedTuple):
    """Records that go into one batch, in this order, after the records of every earlier append.

    The owner reports the result by a call of `GroupShard.committed` or `failed`. If the result takes too long, the
    owner first calls `timed_out`. `token` names the append in these calls. Tokens count up from 1, and appends are
    committed in that order. An append may fail while earlier appends still wait for the replicas. No later append
    depends on an `independent` append. So the failure of an independent append does not make later appends fail.
    """

    token: int
    records: Collection[GroupRecord]
    independent: bool = False


class Answer(NamedTuple):
    """The answer to a request. `response` is a message or another object. The method that took the waiter documents its
    type."""

    waiter: Waiter
    response: Any


class Effects:
    """The effects of one input. The owner can execute them in any order, but must make the appends in the order of the
    list. The object counts as false if there are no effects."""

    __slots__ = ("answers", "appends")

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self.answers: list[Answer] = []

    def __bool__(self) -> bool:
        return bool(self.appends or self.answers)

    def __repr__(self) -> str:
        return f"Effects(appends={self.appends!r}, answers={self.answers!r})"
