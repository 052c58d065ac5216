"""CRC-32C (Castagnoli) by the fastest means of this processor."""

from collections.abc import Callable

from typing_extensions import Buffer

def checksum(data: Buffer, seed: int = 0) -> int:
    """CRC-32C of `data`, going on from `seed`, the checksum of what came before."""

def combine(first: int, second: int, second_size_bytes: int) -> int:
    """The checksum of two neighbours: `combine(checksum(a), checksum(b), len(b)) == checksum(a + b)`."""

def implementation() -> str:
    """Which way was chosen: "avx512", "sse42", "armv8" or "table"."""

def implementations(ieee: bool = False) -> dict[str, Callable[[Buffer, int], int]]:
    """Every way that this processor offers, by name, as functions `(data, seed)`; `ieee`: of CRC-32, not CRC-32C."""
