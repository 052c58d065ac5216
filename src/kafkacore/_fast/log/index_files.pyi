from array import array
from typing import Final

from typing_extensions import Buffer

OFFSET_ENTRY_SIZE: Final[int]
TIME_ENTRY_SIZE: Final[int]
ABORTED_ENTRY_SIZE: Final[int]

def offset_entries(data: Buffer, base_offset: int) -> tuple[array[int], array[int]]:
    """`(offsets, positions)` of the whole entries."""

def time_entries(data: Buffer, base_offset: int) -> tuple[array[int], array[int]]:
    """`(timestamps, offsets)` of the whole entries."""

def aborted_transactions(data: Buffer) -> list[tuple[int, int, int, int]]:
    """`(producer id, first offset, last offset, last stable offset)` of each whole entry. Raises ValueError."""

def producer_entries(data: Buffer) -> list[tuple[int, int, int, int, int, tuple[int, int, int, int, int] | None]]:
    """`(producer id, epoch, coordinator epoch, first offset of its open transaction or -1, last timestamp, last batch)`
    of each producer of a snapshot, in the file's order. The batch is None or `(first sequence, last sequence, first
    offset, last offset, timestamp)`. Raises ValueError when version, checksum or length are wrong."""
