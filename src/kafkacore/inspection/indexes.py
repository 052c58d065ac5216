"""Dumps offset and time indexes, and compares their entries with the log beside them, as kafka-dump-log does."""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import Final, NamedTuple

from kafkacore._fast.log.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, offset_entries, time_entries
from kafkacore._fast.record.batch import Batches
from kafkacore._fast.record.batch_scan import BatchScan
from kafkacore.inspection.report import Report
from kafkacore.inspection.segments import base_offset_of
from kafkacore.storage import names
from kafkacore.storage.errors import MalformedFileError

DEFAULT_MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
_WHOLE: Final = (1 << 31) - 1
NO_TIMESTAMP: Final = -1


class IndexOptions(NamedTuple):
    """The options for indexes. `sanity_only` makes only the checks with which a broker decides whether to rebuild an
    index. `verify_only` prints no lines for the entries."""

    sanity_only: bool = False
    verify_only: bool = False
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES


def dump_offset_index(path: str, options: IndexOptions, report: Report) -> None:
    """Dumps an offset index. Raises MalformedFileError, CorruptBatchError, OSError."""
    base_offset = base_offset_of(path)
    data = _read(path)
    offsets, positions = offset_entries(data, base_offset)
    if not offsets:
        report.entry("index", f"{path} is empty.", file=path, entries=0)
        return
    if options.sanity_only:
        _check_offset_index(path, data, base_offset, offsets[-1])
        report.entry("sane", f"{path} passed sanity check.", file=path)
        return
    mismatches: dict[int, int] = {}
    with BatchScan(_beside(path, names.LOG)) as log:
        for number, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
            # After a crash, the file can end with preallocated zeros, which look like entries of the base offset.
            if offset == base_offset and number > 0:
                break
            found = log.batch_at(position, options.max_message_bytes)
            if found is None:
                raise MalformedFileError(
                    path,
                    f"offset {offset}: byte {position} of the log is not the start of a whole batch of at most "
                    f"{options.max_message_bytes} bytes",
                )
            if found[1] != offset:
                mismatches[offset] = found[1]
            if not options.verify_only:
                report.entry("offset", f"offset: {offset} position: {position}", offset=offset, position=position)
    if mismatches and not report.as_json:
        report.remark("mismatches", f"Mismatches in :{os.path.abspath(path)}")
    for offset, in_log in sorted(mismatches.items(), reverse=True):
        told = f"  Index offset: {offset}, log offset: {in_log}"
        report.remark("mismatch", told, file=path, indexOffset=offset, logOffset=in_log)


def dump_time_index(path: str, options: IndexOptions, findings: TimeFindings, report: Report) -> None:
    """Dumps a time index. Raises MalformedFileError, CorruptBatchError, OSError."""
    base_offset = base_offset_of(path)
    data = _read(path)
    timestamps, offsets = time_entries(data, base_offset)
    if options.sanity_only:
        _check_time_index(path, data, base_offset, list(zip(timestamps, offsets, strict=True)))
        report.entry("sane", f"{path} passed sanity check.", file=path)
        return
    index_path = _beside(path, names.OFFSET_INDEX)
    index = _PositionIndex(_read(index_path), base_offset)
    before = NO_TIMESTAMP
    with BatchScan(_beside(path, names.LOG)) as log:
        for number, (timestamp, offset) in enumerate(zip(timestamps, offsets, strict=True)):
            if offset == base_offset and number > 0:
                break
            in_log = _batch_that_ends(log, index.floor(offset), offset)
            if in_log is None or in_log[0] != offset:
                findings.not_found.setdefault(path, []).append((offset, -1 if in_log is None else in_log[0]))
            else:
                if in_log[1] != timestamp:
                    findings.mismatched.setdefault(path, []).append((timestamp, in_log[1]))
                if before >= timestamp:
                    findings.out_of_order.setdefault(path, []).append((timestamp, before))
            if not options.verify_only:
                told = f"timestamp: {timestamp} offset: {offset}"
                report.entry("timestamp", told, timestamp=timestamp, offset=offset)
            before = timestamp


class TimeFindings:
    """The problems of all time indexes. They are reported by kind, after all files."""

    def __init__(self) -> None:
        self.mismatched: dict[str, list[tuple[int, int]]] = {}
        self.out_of_order: dict[str, list[tuple[int, int]]] = {}
        self.not_found: dict[str, list[tuple[int, int]]] = {}

    def tell(self, report: Report) -> None:
        for found, title, line, kind, other in (
            (self.mismatched, "Found timestamp mismatch in :", "  Index timestamp: {}, log timestamp: {}", "mismatch",
             "logTimestamp"),
            (self.out_of_order, "Found out of order timestamp in :",
             "  Index timestamp: {}, Previously indexed timestamp: {}", "outOfOrder", "previousTimestamp"),
        ):  # fmt: skip
            for path, pairs in found.items():
                if not report.as_json:
                    report.remark("title", f"{title}{os.path.abspath(path)}")
                for mine, its in pairs:
                    report.remark(kind, line.format(mine, its), file=path, indexTimestamp=mine, **{other: its})
        for path, pairs in self.not_found.items():
            if not report.as_json:
                report.remark("title", f"The following indexed offsets are not found in :{os.path.abspath(path)}")
            for offset, in_log in pairs:
                told = f"Indexed offset: {offset}, found log offset: {in_log}"
                report.remark("notFound", told, file=path, indexOffset=offset, logOffset=in_log)


class _PositionIndex:
    def __init__(self, data: bytes, base_offset: int) -> None:
        self._offsets, self._positions = offset_entries(data, base_offset)

    def floor(self, offset: int) -> int:
        """Returns the position of the batch that contains `offset`, or of an earlier batch."""
        at = bisect_right(self._offsets, offset)
        return self._positions[at - 1] if at else 0


def _batch_that_ends(log: BatchScan, position: int, offset: int) -> tuple[int, int] | None:
    """Returns the last offset and the greatest timestamp of the first batch, from `position` on, that ends at or after
    `offset`. Returns None if the log ends before `offset`."""
    found = log.batch_at(position, _WHOLE)
    while found is not None and found[1] < offset:
        found = log.batch_at(log.position, _WHOLE)
    if found is None:
        return None
    return found[1], _greatest_timestamp(log.data)


def _greatest_timestamp(data: bytes) -> int:
    batch = next(Batches(data))
    if batch.magic < 2:
        return batch.max_timestamp
    found = batch.find_max_timestamp()
    return NO_TIMESTAMP if found is None else found[1]


def _check_offset_index(path: str, data: bytes, base_offset: int, last_offset: int) -> None:
    """Makes the checks of OffsetIndex.sanityCheck. Raises MalformedFileError."""
    if last_offset < base_offset:
        raise MalformedFileError(path, f"its last offset {last_offset} is below the base offset {base_offset}")
    _check_length(path, data, OFFSET_ENTRY_SIZE)


def _check_time_index(path: str, data: bytes, base_offset: int, entries: list[tuple[int, int]]) -> None:
    """Makes the checks of TimeIndex.sanityCheck. Raises MalformedFileError."""
    if entries and entries[-1][0] < entries[0][0]:
        raise MalformedFileError(path, f"its last timestamp {entries[-1][0]} is below the first one {entries[0][0]}")
    if entries and entries[-1][1] < base_offset:
        raise MalformedFileError(path, f"its last offset {entries[-1][1]} is below the base offset {base_offset}")
    _check_length(path, data, TIME_ENTRY_SIZE)


def _check_length(path: str, data: bytes, entry_bytes: int) -> None:
    if len(data) % entry_bytes:
        raise MalformedFileError(path, f"has {len(data)} bytes, which is not a multiple of an entry's {entry_bytes}")


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _beside(path: str, suffix: str) -> str:
    return f"{path[: len(path) - len(os.path.basename(path))]}{os.path.basename(path).split('.', 1)[0]}{suffix}"
