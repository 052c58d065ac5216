"""Compaction for Python. Its steps run without the GIL, on a thread of low priority."""

from typing import Final, NamedTuple

from kafkacore._fast.compact.offset_map import KeyOffsets
from kafkacore._fast.log.partition_handle import PartitionHandle

MAP: Final = "map"
COPY: Final = "copy"
SWAP: Final = "swap"
DONE: Final = "done"

class CompactionCancelled(Exception):
    """The log was truncated, moved or closed during the round. The round has not changed it since."""

class UncleanableLog(Exception):
    """The log cannot be compacted. It is unchanged."""

class CompactionTotals(NamedTuple):
    mapped_bytes: int
    mapped_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    kept_records: int
    keyless_records: int

class Compaction:
    """One compaction round of one log: call `step` until it returns "done". `keys.begin` has been called for the log's
    dirty section.

    Blocking: use a thread of your own. Call `close` in any case; it discards a copied group that has not replaced the
    original segments yet. Raises CompactionCancelled, UncleanableLog, OSError.
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
        """Works on about `max_bytes`. Returns the phase that comes next."""

    @property
    def phase(self) -> str: ...
    @property
    def end_offset(self) -> int:
        """After the map phase: where the log's dirty section begins after this round."""

    @property
    def totals(self) -> CompactionTotals: ...
    def close(self) -> None:
        """Removes the files of an unfinished group. Idempotent."""

def largest_timestamp(handle: PartitionHandle, base_offset: int) -> int:
    """The largest timestamp of a segment in ms; -1 when it has none, or there is no such segment. Blocking. Raises
    OSError."""

def first_timestamp(handle: PartitionHandle, base_offset: int) -> int:
    """The largest timestamp of a segment's first batch in ms; -1 when it has none. Blocking. Raises OSError."""
