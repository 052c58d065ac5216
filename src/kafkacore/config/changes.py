"""One change of a setting as IncrementalAlterConfigs asks for it (KIP-339)."""

from __future__ import annotations

from collections import Counter
from typing import Final

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
NAMES: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def changed(current: str | None, operation: int, given: str | None, default: str | None) -> str | None:
    """What becomes of `current`, None for a value that is not set (any more).

    A list that nobody has set yet is added to, and taken from, as it is by `default`.
    """
    if operation in (SET, DELETE):
        return given if operation == SET else None
    entries = [entry for entry in (default or "" if current is None else current).split(",") if entry]
    parts = _parts(given or "")
    return ",".join(_appended(entries, parts) if operation == APPEND else _subtracted(entries, parts))


def _appended(entries: list[str], parts: list[str]) -> list[str]:
    known = set(entries)
    # Those that are there twice already stay so.
    return entries + [part for part in dict.fromkeys(parts) if part not in known]


def _subtracted(entries: list[str], parts: list[str]) -> list[str]:
    """Each part takes one entry away, the first that is left."""
    taken = Counter(parts)
    left = []
    for entry in entries:
        if taken[entry] > 0:
            taken[entry] -= 1
        else:
            left.append(entry)
    return left


def _parts(text: str) -> list[str]:
    """As Java's String.split: empty entries count but at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
