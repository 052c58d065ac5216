"""Compaction for Python callers. The steps run without the GIL, on a thread of low priority."""

from typing import Final, NamedTuple

from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle

MAP: Final = "map"
COPY: Final = "copy"
SWAP: Final = "swap"
DONE: Final = "done"

class CompactionCancelled(Exception):
    """Raised when the log was truncated, moved or closed during the round. Since then, the round has changed
    nothing."""

class UncleanableLog(Exception):
    """Raised when the log cannot be compacted. The log is unchanged."""

class CompactionTotals(NamedTuple):
    mapped_bytes: int
    mapped_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    kept_records: int
    keyless_records: int

class Compaction:
    """One compaction round of one log. First call `keys.begin` for the log's dirty section. Then call `step` until it
    returns "done".

    The methods block, so call them on a separate thread. Always call `close` at the end. It discards a copied group of
    segments that has not replaced the original segments yet. Raises CompactionCancelled, UncleanableLog, OSError.
    """

    def __init__(
        self,
        handle: PartitionHandle,
        keys: KeyOffsets,
        first_dirty: int,
        upper_bound: int,
        *,
        now_ms: int,
        delete_retention_ms: int,
        buffer_bytes: int,
        nice: int = 0,
    ) -> None: ...
    def step(self, max_bytes: int) -> str:
        """Processes about `max_bytes`. Returns the next phase: "map", "copy", "swap" or "done"."""

    @property
    def phase(self) -> str: ...
    @property
    def end_offset(self) -> int:
        """The offset at which the log's dirty section begins after this round. Valid after the map phase."""

    @property
    def totals(self) -> CompactionTotals: ...
    def close(self) -> None:
        """Removes the files of an unfinished group. Further calls do nothing."""

def largest_timestamp(handle: PartitionHandle, base_offset: int) -> int:
    """Returns the largest timestamp of a segment in ms. Returns -1 if the segment has no timestamp or does not exist.
    Blocking. Raises OSError."""

def first_timestamp(handle: PartitionHandle, base_offset: int) -> int:
    """Returns the largest timestamp of a segment's first batch in ms, or -1 if the batch has none. Blocking. Raises
    OSError."""
