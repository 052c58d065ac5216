"""The nodes of the tree, and the text forms that Java gives to values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kafkacore.config.values import java_double


class Leaf(NamedTuple):
    """A file. `text` is a line as Apache Kafka's shell prints it. `value` is the same content as JSON."""

    text: str
    value: Any


class Directory:
    """A directory. It creates its children at the first access, because a cluster can have a million partitions."""

    def __init__(self, names: Callable[[], Iterable[str]], child: Callable[[str], Node | None]) -> None:
        self._names, self.child = names, child

    def names(self) -> list[str]:
        """Returns the names of the children, in the order of Java's strings."""
        return sorted(self._names(), key=_utf16)


Node = Leaf | Directory


def fixed(children: Mapping[str, Callable[[], Node]]) -> Directory:
    """Returns a directory with these names. Each name comes with the function that creates the child."""

    def child(name: str) -> Node | None:
        make = children.get(name)
        return None if make is None else make()

    return Directory(lambda: children, child)


def plain(value: str | float) -> Leaf:
    """Returns a file with one string or number."""
    return Leaf(java_double(value) if isinstance(value, float) else str(value), value)


def described(title: str, fields: Mapping[str, tuple[str, Any]], brackets: str = "()") -> Leaf:
    """Returns a file with `title(name=text, ...)`. Each field has a text and a value as JSON."""
    text = ", ".join(f"{name}={shown}" for name, (shown, _) in fields.items())
    return Leaf(f"{title}{brackets[0]}{text}{brackets[1]}", {name: value for name, (_, value) in fields.items()})


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


# --- Java's forms of values ------------------------------------------------------------------------------------------


def field(value: Any) -> tuple[str, Any]:
    """Returns the text and the JSON value of a value that Java and Python show in nearly the same way: a string, a
    number, a boolean, null, or a list of these."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(str, value))}]", [each if isinstance(each, int) else str(each) for each in value]
    return (json.dumps(value) if value is None or isinstance(value, bool) else str(value)), value


def java_time(timestamp_ms: int) -> str:
    """Returns a time in UTC in the format of DateTimeFormatter.ISO_ZONED_DATE_TIME: `2023-11-14T22:13:21.5Z[UTC]`."""
    seconds, millis = divmod(timestamp_ms, 1000)
    fraction = f".{millis:03d}".rstrip("0") if millis else ""
    try:
        moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"  # Python cannot represent this year
    return f"{moment}{fraction}Z[UTC]"
