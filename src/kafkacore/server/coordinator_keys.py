"""Where a coordinator keeps a key: the partition of its topic, by Java's hash of the key."""

from __future__ import annotations

from typing import Final

from kafkacore._fast.base.java_text import hash_code

_LEAST: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())`."""
    value = hash_code(text)
    return 0 if value == _LEAST else abs(value)
