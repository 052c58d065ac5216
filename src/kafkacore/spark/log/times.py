"""Skips the first records of a segment if a query's filter on timestamps excludes them, because they are too old. The
time index of the segment says where these records end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kafkacore._fast.log.index_files import offset_entries, time_entries
from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import BatchScan
from kafkacore.spark.log.layout import Segment
from kafkacore.spark.log.reading import LogReader
from kafkacore.spark.log.splits import STABLE_MAGIC, Split, magic_of
from kafkacore.storage import names

if TYPE_CHECKING:
    from pyspark.sql import datasource

# No record of a batch is later than the batch's maxTimestamp, which the time index contains. A batch's baseTimestamp
# can be later than its records: a producer's clock may be ahead of the clock of a broker that sets LogAppendTime, and
# the cleaner stores a delete horizon in this field (KIP-534).
_COLUMNS: Final = {"records": ("timestamp",), "batches": ("maxTimestamp",)}
_DECODED: Final = ("timestamp",)
_LOWER_BOUNDS: Final = frozenset({"GreaterThan", "GreaterThanOrEqual", "EqualTo"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE: Final = 1 << 31  # larger than any batch


class FilteringLogReader(LogReader):
    """The reader for queries with the option `pushFilters`. It skips records that are older than the query wants. Spark
    applies the filter to the rest."""

    since_ms: int | None = None

    # The annotations are strings because PySpark 4.0 does not define `Filter`.
    def pushFilters(self, filters: "list[datasource.Filter]") -> "Iterable[datasource.Filter]":  # noqa: N802
        columns = _COLUMNS.get(self.options.table, _DECODED)
        for one in filters:
            if (bound := lower_bound(one, columns)) is not None:
                self.since_ms = bound if self.since_ms is None else max(bound, self.since_ms)
            yield one

    def _splits_of(self, segment: Segment) -> Iterator[Split]:
        found = super()._splits_of(segment)
        return found if self.since_ms is None else without_older(found, segment, self.since_ms)


def lower_bound(one: Any, columns: Sequence[str]) -> int | None:
    """Returns the time in ms before which the filter accepts no row. Returns None if the filter sets no such time."""
    value = getattr(one, "value", None)
    if ".".join(getattr(one, "attribute", ())) not in columns or type(one).__name__ not in _LOWER_BOUNDS:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)


def without_older(splits: Iterable[Split], segment: Segment, since_ms: int) -> Iterator[Split]:
    """Returns the splits of a segment without the beginning that contains only records before `since_ms`."""
    position, offset = _first_wanted(segment, since_ms)
    for split in splits:
        if split.start >= position:
            yield split
        elif split.end > position:
            yield split._replace(start=position, first_offset=offset)


def _first_wanted(segment: Segment, since_ms: int) -> tuple[int, int]:
    """Returns the position and the base offset of a batch before which all records are older than `since_ms`. Returns
    the start of the segment if its indexes are missing or wrong, and its end if the whole segment is older."""
    everything = (0, segment.base_offset)
    stem = segment.path.removesuffix(names.LOG)
    try:
        older = _last_older(_read(stem + names.TIME_INDEX), segment, since_ms)
        if older is None or not segment.is_at(segment.path):
            return everything
        if segment.next_offset is not None and older + 1 >= segment.next_offset:
            return segment.size, segment.next_offset
        found = _batch_before(_read(stem + names.OFFSET_INDEX), segment, older)
    except (OSError, CorruptBatchError):
        return everything
    # If the cleaner has replaced the file meanwhile, `found` is a position in another file.
    return found if found is not None and segment.is_at(segment.path) else everything


def _last_older(index: bytes, segment: Segment, since_ms: int) -> int | None:
    """Returns the last offset for which the time index proves that its record and all earlier ones are older than
    `since_ms`. Returns None if there is no such offset, or the index is malformed."""
    times, offsets = time_entries(index, segment.base_offset)
    used = len(times)
    while used and (times[used - 1], offsets[used - 1]) == (0, segment.base_offset):  # preallocated space
        used -= 1
    if not _rises(times[:used]) or not _rises(offsets[:used]):
        return None
    at = bisect_left(times, since_ms, 0, used)
    return offsets[at - 1] if at else None


def _batch_before(index: bytes, segment: Segment, offset: int) -> tuple[int, int] | None:
    """Returns the position and the base offset of the last indexed batch that ends at `offset` or before."""
    offsets, positions = offset_entries(index, segment.base_offset)
    used = len(offsets)
    while used and positions[used - 1] == 0:
        used -= 1
    if not _rises(offsets[:used]):
        return None
    at = bisect_right(offsets, offset, 0, used)
    if not at:
        return None
    with BatchScan(segment.path) as scan:
        batch = scan.batch_at(positions[at - 1], _WHOLE)
        if batch is None or batch[1] != offsets[at - 1] or magic_of(scan) < STABLE_MAGIC:
            return None
        return positions[at - 1], batch[0]


def _rises(values: Sequence[int]) -> bool:
    return all(left <= right for left, right in pairwise(values))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
