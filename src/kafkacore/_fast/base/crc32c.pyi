"""CRC-32C (Castagnoli) by the fastest means of this processor."""

from collections.abc import Callable

from typing_extensions import Buffer

def checksum(data: Buffer, seed: int = 0) -> int:
    """CRC-32C of `data`, continued from `seed`, the checksum of the bytes before it."""

def combine(first: int, second: int, second_size_bytes: int) -> int:
    """The checksum of two adjacent parts: `combine(checksum(a), checksum(b), len(b)) == checksum(a + b)`."""

def implementation() -> str:
    """The chosen implementation: "avx512", "sse42", "armv8" or "table"."""

def implementations(ieee: bool = False) -> dict[str, Callable[[Buffer, int], int]]:
    """Every implementation for this processor, by name, as functions `(data, seed)`; `ieee` selects CRC-32."""
