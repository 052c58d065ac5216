"""Finds the partition of a coordinator's topic to which a key belongs, by Java's hash of the key."""

from __future__ import annotations

from typing import Final

from kafkacore._fast.base.java_text import hash_code

_LEAST: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Returns what `Utils.abs(text.hashCode())` returns in Kafka."""
    value = hash_code(text)
    return 0 if value == _LEAST else abs(value)
