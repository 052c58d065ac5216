from array import array
from typing import Final

from typing_extensions import Buffer

OFFSET_ENTRY_SIZE: Final[int]
TIME_ENTRY_SIZE: Final[int]
ABORTED_ENTRY_SIZE: Final[int]

def offset_entries(data: Buffer, base_offset: int) -> tuple[array[int], array[int]]:
    """Returns `(offsets, positions)` of the complete entries."""

def time_entries(data: Buffer, base_offset: int) -> tuple[array[int], array[int]]:
    """Returns `(timestamps, offsets)` of the complete entries."""

def aborted_transactions(data: Buffer) -> list[tuple[int, int, int, int]]:
    """Returns `(producer id, first offset, last offset, last stable offset)` for each complete entry. Raises ValueError
    if an entry has an unknown version."""

def producer_entries(data: Buffer) -> list[tuple[int, int, int, int, int, tuple[int, int, int, int, int] | None]]:
    """Returns `(producer id, epoch, coordinator epoch, first offset of its open transaction or -1, last timestamp, last
    batch)` for each producer of a snapshot, in the order of the file. The last batch is None or `(first sequence, last
    sequence, first offset, last offset, timestamp)`. Raises ValueError if the version, the checksum or the length is
    wrong."""
