"""Iterates over the intact and the damaged batches of a split (a part of a segment). The broker may rename or delete
the file meanwhile."""

import os
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import REASONS, BatchScan
from kafkacore.spark.log.layout import present
from kafkacore.spark.log.splits import Split

BLOCK_BYTES: Final = 4 << 20
_File = TypeVar("_File")


class Damage(NamedTuple):
    """Bytes in a file that are not an intact batch. `offset` is the base offset in their header, or None."""

    path: str
    position: int
    offset: int | None
    reason: str

    def text(self) -> str:
        where = "" if self.offset is None else f", the batch at offset {self.offset}"
        return f"{self.path}: byte {self.position}{where}: {self.reason}"


def found(split: Split) -> str | None:
    """Returns the current path of the split's file, or None if retention or the cleaner has removed the file since it
    was listed."""
    path = present(split.segment.path)
    try:
        return path if path is not None and os.path.getsize(path) >= split.start else None
    except FileNotFoundError:  # renamed between the two calls
        return found(split)


def opened(split: Split, open_file: Callable[[str, Split], _File]) -> _File | None:
    """Returns what `open_file` opens at the current path of the split's file, or None if the file no longer exists."""
    while (path := found(split)) is not None:
        try:
            return open_file(path, split)
        except FileNotFoundError:  # renamed between the two calls
            continue
    return None


def _scan_of(path: str, split: Split) -> BatchScan:
    scan = BatchScan(path, split.end)
    scan.seek(split.start)
    return scan


def blocks(split: Split) -> Iterator[memoryview | Damage]:
    """Yields the intact batches of the split, in blocks of whole batches, and the damage between them, in file order.

    An incomplete batch at the end of the active segment ends the scan and is not damage, because an append may be in
    progress. If a batch has an impossible length, the scan finds nothing after this batch.
    """
    scan = opened(split, _scan_of)
    if scan is None:
        return
    with scan:
        while True:
            try:
                block = scan.sound(BLOCK_BYTES)
            except CorruptBatchError:
                yield Damage(scan.path, scan.position, None, REASONS[scan.damage])
                return
            if block is None:
                break
            yield block if len(block) else _bad_batch(scan)
        if scan.left and not split.segment.active:
            yield torn(scan.path, scan.position, scan.size)


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
