"""CRC-32C (Castagnoli), computed by the fastest implementation that this processor supports."""

from collections.abc import Callable

from typing_extensions import Buffer

def checksum(data: Buffer, seed: int = 0) -> int:
    """Returns the CRC-32C of `data`. `seed` is the checksum of the bytes before `data`."""

def combine(first: int, second: int, second_size_bytes: int) -> int:
    """Returns the checksum of two adjacent parts: `combine(checksum(a), checksum(b), len(b)) == checksum(a + b)`."""

def implementation() -> str:
    """Returns the name of the chosen implementation: "avx512", "sse42", "armv8" or "table"."""

def implementations(ieee: bool = False) -> dict[str, Callable[[Buffer, int], int]]:
    """Returns every implementation that this processor supports. The keys are their names, the values are functions
    `(data, seed)`. `ieee` selects CRC-32."""
