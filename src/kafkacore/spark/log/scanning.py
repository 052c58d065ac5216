"""Iterates over the intact and the damaged batches of a split (a part of a segment). The broker may rename or delete
the file meanwhile."""

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeVar

from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import REASONS, BatchScan
from kafkacore.spark.log.layout import Looks, Segment, present, segments
from kafkacore.spark.log.splits import Split

BLOCK_BYTES: Final = 4 << 20
_WHOLE: Final = 1 << 31  # larger than any batch
_ZEROS: Final = 4096  # no batch begins with so many zeros


class Damage(NamedTuple):
    """Bytes in a file that are not an intact batch. `offset` is the base offset in their header, or None."""

    path: str
    position: int
    offset: int | None
    reason: str

    def text(self) -> str:
        where = "" if self.offset is None else f", the batch at offset {self.offset}"
        return f"{self.path}: byte {self.position}{where}: {self.reason}"


class Block(NamedTuple):
    """Whole batches with correct checksums, and their position in a file."""

    path: str
    position: int
    data: memoryview


class _Closable(Protocol):
    """An open file."""

    def close(self) -> None: ...


_File = TypeVar("_File", bound=_Closable)


def opened(split: Split, open_file: Callable[[str, Split], _File]) -> tuple[_File, Split] | None:
    """Opens the file that now holds the split's batches. Calls `open_file` with the path of this file, and with a split
    that names the file's segment and bytes. Returns the open file and that split, or None if the batches no longer
    exist.

    If the listed file still exists under one of its names, the task reads the listed bytes of this file. Otherwise the
    cleaner has replaced the file, and positions in the listed file mean nothing in the new one. In that case the task
    finds the segment that now covers the split's offsets. From this segment it reads the batches whose base offsets are
    in the split.

    Some tasks may see the file before the cleaner replaces it, and others afterwards. Even then, no record is missing
    or doubled. The splits of a replica divide its offsets among them without a gap or an overlap. The cleaner does not
    join or divide batches, and a batch keeps its base offset. The cleaner may join segments, but does not divide them.
    So each batch that the cleaner keeps belongs to the same split before and after, and is in one file.

    Raises ChangingDirectoryError.
    """
    looks = Looks(split.segment.replica.path)
    while True:
        try:
            place = _located(split)
            if place is None:
                return None
            path, current = place
            file = open_file(path, current)
        except FileNotFoundError:  # renamed since it was located
            looks.again()
            continue
        if current.segment.is_at(path):
            return file, current
        file.close()  # replaced since it was located
        looks.again()


def _located(split: Split) -> tuple[str, Split] | None:
    """Returns the path of the file that holds the split's batches now, and the split as it is in this file.
    Raises FileNotFoundError if the file is renamed meanwhile."""
    path = present(split.segment)
    if path is not None:
        return path, split
    if split.segment.inode is None:
        return None
    covering = [each for each in segments(split.segment.replica) if each.base_offset <= split.first_offset]
    if not covering:  # retention has deleted the split's records
        return None
    segment = covering[-1]
    start, end = _range(segment, split.first_offset, split.next_offset)
    return segment.path, split._replace(segment=segment, start=start, end=end)


def _range(segment: Segment, first_offset: int, next_offset: int | None) -> tuple[int, int]:
    """Returns the range of a segment's bytes that holds the batches with base offsets from `first_offset` up to
    `next_offset`. If damage hides where this range starts or ends, it includes all bytes from the damage on, so that a
    reader of the range reports the damage."""
    start = None
    with BatchScan(segment.path, segment.size) as scan:
        try:
            while (batch := scan.batch_at(scan.position, _WHOLE)) is not None:
                if next_offset is not None and batch[0] >= next_offset:
                    end = scan.batch_position
                    return end if start is None else start, end
                if start is None and batch[0] >= first_offset:
                    start = scan.batch_position
        except CorruptBatchError:
            pass
        return scan.position if start is None else start, scan.size


def _scan_of(path: str, split: Split) -> BatchScan:
    scan = BatchScan(path, split.end)
    scan.seek(min(split.start, scan.size))
    return scan


def blocks(split: Split) -> Iterator[Block | Damage]:
    """Yields the intact batches of the split, in blocks of whole batches, and the damage between them, in file order.

    An incomplete batch at the end of the active segment ends the scan and is not damage, because an append may be in
    progress. The space that a broker with log.preallocate has reserved there is not damage either. If a batch has an
    impossible length, the scan finds nothing after this batch.
    """
    found = opened(split, _scan_of)
    if found is None:
        return
    scan, split = found
    with scan:
        while True:
            position = scan.position
            try:
                data = scan.sound(BLOCK_BYTES)
            except CorruptBatchError:
                if not split.segment.active or not is_preallocated(scan.path, scan.position):
                    yield Damage(scan.path, scan.position, None, REASONS[scan.damage])
                return
            if data is None:
                break
            yield Block(scan.path, position, data) if len(data) else _bad_batch(scan)
        if scan.left and not split.segment.active:
            yield torn(scan.path, scan.position, scan.size)


def is_preallocated(path: str, position: int) -> bool:
    """Returns whether the file has only zeros at `position`, as in space that a broker has reserved for appends."""
    try:
        with open(path, "rb") as file:
            found = os.pread(file.fileno(), _ZEROS, position)
    except FileNotFoundError:  # the segment was deleted during the read
        return True
    return bool(found) and not any(found)


def torn(path: str, position: int, end: int) -> Damage:
    """Returns the damage at the end of a segment: bytes that do not form a whole batch."""
    return Damage(path, position, None, f"the last {end - position} bytes are not a whole batch")


def _bad_batch(scan: BatchScan) -> Damage:
    position, fault = scan.batch_position, scan.fault
    return Damage(scan.path, position, scan.base_offset, REASONS[fault])


def shown_path(split: Split) -> str:
    """Returns the path of the file relative to its log directory. It is the same on each broker:
    `orders-0/00000000000000000000.log`."""
    return os.path.join(os.path.basename(split.segment.replica.path), os.path.basename(split.segment.path))
