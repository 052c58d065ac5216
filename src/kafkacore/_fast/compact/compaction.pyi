"""Python's face of compaction: what it calls runs without the GIL, on a thread of low priority."""

from typing import Final, NamedTuple

from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle

MAP: Final = "map"
COPY: Final = "copy"
SWAP: Final = "swap"
DONE: Final = "done"

class CompactionCancelled(Exception):
    """The log was truncated, moved or closed meanwhile; it is as it was then."""

class UncleanableLog(Exception):
    """What the log holds cannot be compacted; it is as it was."""

class CompactionTotals(NamedTuple):
    mapped_bytes: int
    mapped_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    kept_records: int
    keyless_records: int

class Compaction:
    """One round of one log: `step` until it says "done". `keys` has been begun for the log's dirty section.

    Blocking, for a thread of one's own. `close` in any case; a group that was copied and has not taken its place is
    given up. Raises CompactionCancelled, UncleanableLog, OSError.
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
        """Goes on for about so many bytes; the phase that comes next."""

    @property
    def phase(self) -> str: ...
    @property
    def end_offset(self) -> int:
        """Once the map is made: where the log's dirty section begins after this round."""

    @property
    def totals(self) -> CompactionTotals: ...
    def close(self) -> None:
        """Files of an unfinished group go. Idempotent."""

def largest_timestamp(handle: PartitionHandle, base_offset: int) -> int:
    """Of a segment, in ms; -1 when it has none, or there is no such segment. Blocking. Raises OSError."""

def first_timestamp(handle: PartitionHandle, base_offset: int) -> int:
    """The largest of a segment's first batch, in ms; -1 when it has none. Blocking. Raises OSError."""
