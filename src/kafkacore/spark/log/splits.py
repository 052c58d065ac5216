"""Splits a read into tasks. Each segment becomes one task; a large segment becomes several tasks, split at offsets in
its index."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkacore._fast.log.index_files import offset_entries
from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import BatchScan
from kafkacore.spark.log.layout import Segment
from kafkacore.storage import names

_WHOLE = 1 << 31  # larger than any batch
_MAGIC_AT = 16
STABLE_MAGIC = 2  # the least magic whose batches keep their base offset when the cleaner rewrites them


class Split(NamedTuple):
    """The batches of a segment that begin at byte `start` or later, and before byte `end`. `first_offset` and
    `next_offset` describe the same batches by their base offsets, in case the cleaner replaces the file. `next_offset`
    is exclusive, and None means that there is no limit."""

    segment: Segment
    start: int
    end: int
    first_offset: int
    next_offset: int | None


def splits(segment: Segment, split_bytes: int) -> Iterator[Split]:
    """Returns parts of about `split_bytes` each. A segment whose index is missing or wrong becomes one part."""
    start, first_offset = 0, segment.base_offset
    for position, offset in _cuts(segment, split_bytes):
        yield Split(segment, start, position, first_offset, offset)
        start, first_offset = position, offset
    if start < segment.size or start == 0:
        yield Split(segment, start, segment.size, first_offset, segment.next_offset)


def _cuts(segment: Segment, split_bytes: int) -> list[tuple[int, int]]:
    """Returns the position and the base offset of the batches at which parts begin."""
    if segment.size < 2 * split_bytes:
        return []
    index = segment.path.removesuffix(names.SWAP).removesuffix(names.LOG) + names.OFFSET_INDEX
    try:
        size = os.path.getsize(index)
        with open(index, "rb") as file:
            offsets, positions = offset_entries(file.read(size), segment.base_offset)
        cuts = _sound_cuts(segment, offsets, positions, split_bytes)
        return cuts if segment.is_at(segment.path) else []  # otherwise they are positions in another file
    except (OSError, CorruptBatchError):
        return []


def _sound_cuts(
    segment: Segment, offsets: Sequence[int], positions: Sequence[int], split_bytes: int
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    last = 0
    with BatchScan(segment.path) as scan:
        for offset, position in zip(offsets, positions, strict=True):
            if position - last < split_bytes or segment.size - position < split_bytes:
                continue
            batch = scan.batch_at(position, _WHOLE)
            if batch is None or batch[1] != offset:  # the index does not match the segment
                return []
            if magic_of(scan) < STABLE_MAGIC:
                continue
            found.append((position, batch[0]))
            last = position
    return found


def magic_of(scan: BatchScan) -> int:
    """Returns the magic of the batch that `scan` has read last."""
    return int(scan.data[_MAGIC_AT])
