"""Decides which part of a log to compact, and when (Kafka's LogCleanerManager and LogToClean)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from kafkacore._fast.compact.compaction import first_timestamp, largest_timestamp
from kafkacore._fast.log.partition_handle import PartitionHandle, SegmentInfo

FOREVER_MS: Final = (1 << 63) - 1


class DirtySection(NamedTuple):
    """The part of a log to compact next: from `first_dirty` to `upper_bound`, which is the base offset of a segment.
    The compaction is `delay_ms` overdue according to max.compaction.lag.ms."""

    first_dirty: int
    upper_bound: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @property
    def ratio(self) -> float:
        """Kafka's cleanable ratio: dirty bytes divided by all bytes."""
        return self.cleanable_bytes / (self.clean_bytes + self.cleanable_bytes)

    def is_due(self, min_ratio: float) -> bool:
        return self.cleanable_bytes > 0 and (self.delay_ms > 0 or self.ratio > min_ratio)


def dirty_section(handle: PartitionHandle, cleaned_until: int | None, now_ms: int) -> DirtySection | None:
    """Returns the part of the log to compact next, or None if the log has only its active segment. May read the first
    bytes of segments. Raises OSError."""
    segments = handle.segments()
    if len(segments) < 2:
        return None
    bases = [segment.base_offset for segment in segments]
    first_dirty = _first_dirty(handle, cleaned_until)
    waiting = segments[_floor(bases, first_dirty) : -1]
    # Transactions above the last stable offset are undecided, and the active segment still receives appends.
    bound = min(handle.last_stable_offset, bases[-1], _lagging(handle, waiting, now_ms))
    upper_bound = bases[_floor(bases, max(bound, first_dirty))]
    clean_bytes = sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty)
    begin = _floor(bases, min(first_dirty, upper_bound))
    cleanable_bytes = sum(segment.size_bytes for segment in segments[begin:] if segment.base_offset < upper_bound)
    if clean_bytes + cleanable_bytes == 0:
        return None
    return DirtySection(first_dirty, upper_bound, clean_bytes, cleanable_bytes, _delay_ms(handle, waiting, now_ms))


def _first_dirty(handle: PartitionHandle, cleaned_until: int | None) -> int:
    """Returns the first offset that is not compacted. Ignores a checkpoint outside the log. Such a checkpoint remains
    after the log was truncated or was restarted at a new offset."""
    start = handle.log_start_offset
    if cleaned_until is None or not start <= cleaned_until <= handle.end_offset:
        return start
    return cleaned_until


def _floor(bases: list[int], offset: int) -> int:
    """Returns the index of the last segment whose base offset is at most `offset`."""
    return max(bisect_right(bases, offset) - 1, 0)


def _lagging(handle: PartitionHandle, waiting: list[SegmentInfo], now_ms: int) -> int:
    """Returns the base offset of the first segment that contains a record younger than min.compaction.lag.ms. Returns
    FOREVER_MS if there is no such segment."""
    lag_ms = handle.settings.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in waiting:
            if largest_timestamp(handle, segment.base_offset) > now_ms - lag_ms:
                return segment.base_offset
    return FOREVER_MS


def _delay_ms(handle: PartitionHandle, waiting: list[SegmentInfo], now_ms: int) -> int:
    lag_ms = handle.settings.max_compaction_lag_ms
    if lag_ms >= now_ms:
        return 0
    begun_ms = [first_timestamp(handle, segment.base_offset) for segment in waiting]
    earliest_ms = min((timestamp for timestamp in begun_ms if timestamp > 0), default=FOREVER_MS)
    return max(now_ms - lag_ms - earliest_ms, 0)
