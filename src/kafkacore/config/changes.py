"""Applies one change of IncrementalAlterConfigs to a setting (KIP-339)."""

from __future__ import annotations

from collections import Counter
from typing import Final

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
NAMES: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def changed(current: str | None, operation: int, given: str | None, default: str | None) -> str | None:
    """Returns the new value, or None if the setting has no value afterwards.

    If a list is not set yet, the operation adds entries to its `default`, or removes entries from the default.
    """
    if operation in (SET, DELETE):
        return given if operation == SET else None
    entries = [entry for entry in (default or "" if current is None else current).split(",") if entry]
    parts = _parts(given or "")
    return ",".join(_appended(entries, parts) if operation == APPEND else _subtracted(entries, parts))


def _appended(entries: list[str], parts: list[str]) -> list[str]:
    known = set(entries)
    # Duplicates that are already in the list stay there.
    return entries + [part for part in dict.fromkeys(parts) if part not in known]


def _subtracted(entries: list[str], parts: list[str]) -> list[str]:
    """Returns the entries without the parts. Each part removes the first equal entry."""
    taken = Counter(parts)
    left = []
    for entry in entries:
        if taken[entry] > 0:
            taken[entry] -= 1
        else:
            left.append(entry)
    return left


def _parts(text: str) -> list[str]:
    """Splits as Java's String.split does: keeps empty parts, except at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
