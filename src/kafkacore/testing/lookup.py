"""Looks up the APIs, errors and topics that a test names. For an unknown name, suggests similar names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from kafkacore.protocol import apis
from kafkacore.protocol.apis import Api
from kafkacore.protocol.errors import ErrorCode

_LISTED: Final = 12  # the greatest number of names in a message
# Names of topics, or the number of partitions for each name.
Topics = Iterable[str] | Mapping[str, int]


class UnknownName(ValueError):
    """A test named an API, an error or a topic that does not exist. The message lists similar names."""


def api_named(name: str | int) -> Api:
    """Returns the API with this name or key: `"Produce"`, `"PRODUCE"` or 0. Raises UnknownName."""
    known = apis.current_apis()
    if isinstance(name, int):
        if name not in known:
            raise UnknownName(f"no API has the key {name}; for example, Produce is 0 and Fetch is 1")
        return known[name]
    plain = _plain(name)
    for api in known.values():
        if _plain(api.message) == plain:
            return api
    raise UnknownName(unknown("API", name, [api.message for api in known.values()]))


def error_named(error: str | int) -> ErrorCode:
    """Returns the error with this name or code: `"NOT_ENOUGH_REPLICAS"`, 19 or an ErrorCode. Raises UnknownName, also
    for NONE."""
    if isinstance(error, str):
        for code in ErrorCode.all():
            if code.name == error.upper() and code:
                return code
        raise UnknownName(unknown("error of Kafka's", error, [code.name for code in ErrorCode.all() if code]))
    try:
        code = ErrorCode(error)
    except ValueError:
        raise UnknownName(f"{error} is not an error code of Kafka's") from None
    if not code:
        raise UnknownName("a request cannot be refused with NONE")
    return code


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Returns the message about an unknown name."""
    by_plain = {_plain(each): each for each in names}
    close = [by_plain[each] for each in get_close_matches(_plain(name), by_plain, n=3, cutoff=0.6)]
    if close:
        return f"there is no {kind} called {name!r}; do you mean {' or '.join(close)}?"
    some = sorted(by_plain.values())
    more = f" and {len(some) - _LISTED} more" if len(some) > _LISTED else ""
    return f"there is no {kind} called {name!r}; there are {', '.join(some[:_LISTED]) or 'none at all'}{more}"


def with_partitions(topics: Topics) -> list[tuple[str, int]]:
    """Returns each topic with its number of partitions. Raises TypeError for a single name, because its letters would
    be taken for names."""
    if isinstance(topics, str):
        raise TypeError(f"`topics` is the string {topics!r}; give a list such as [{topics!r}], or {{{topics!r}: 3}}")
    return list(topics.items()) if isinstance(topics, Mapping) else [(name, 1) for name in topics]


def as_text(value: object) -> str:
    """Returns a value as text for server.properties. For example, True becomes true."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()
