"""One change of a setting as IncrementalAlterConfigs asks for it (KIP-339)."""

from __future__ import annotations

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
    for entry in _parts(given or ""):
        if operation == SUBTRACT and entry in entries:
            entries.remove(entry)
        elif operation == APPEND and entry not in entries:
            entries.append(entry)
    return ",".join(entries)


def _parts(text: str) -> list[str]:
    """As Java's String.split: empty entries count but at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
