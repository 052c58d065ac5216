"""Verifies that the indexes of a segment lead each look-up to the batch where the look-up must begin.

Only the properties that a look-up needs are checked, so the indexes of every release pass. An entry of an offset index
must point to the start of a batch that begins at or before the entry's offset. An entry of a time index must name a
batch whose greatest timestamp is the timestamp of the entry. No earlier batch may have a greater timestamp.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from kafkacore._fast.log.index_files import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, offset_entries, time_entries
from kafkacore.inspection.report import Report

Rows = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]

# The number of wrong entries of one kind that are shown for a block of the log; the others are only counted.
MAX_TOLD: Final = 10


class IndexVerifier(Protocol):
    path: str

    def block(self, rows: Rows, seen: Numbers) -> None:
        """Checks the entries for the next batches of the log. `seen` contains the greatest timestamp before each of
        these batches."""

    def end(self, size_bytes: int) -> None:
        """Ends the check. The log has `size_bytes` bytes."""


class OffsetIndexVerifier:
    """Compares an offset index with an undamaged log. `block` and `end` report problems and raise nothing."""

    def __init__(self, path: str, base_offset: int, report: Report) -> None:
        """Reads the index. Raises OSError."""
        self.path = path
        self._report = report
        offsets, positions = offset_entries(_entries(path, OFFSET_ENTRY_SIZE, report), base_offset)
        self._offsets, self._positions = np.asarray(offsets, np.int64), np.asarray(positions, np.int64)
        whole = _growing(path, OFFSET_ENTRY_SIZE, (self._offsets, self._positions), report)
        self._offsets, self._positions = self._offsets[:whole], self._positions[:whole]
        self._next = 0

    def block(self, rows: Rows, seen: Numbers) -> None:
        del seen
        end = int(rows["position"][-1]) + int(rows["size_bytes"][-1])
        until = int(self._positions.searchsorted(end))
        mine = slice(self._next, until)
        at = rows["position"].searchsorted(self._positions[mine])
        at = np.minimum(at, len(rows) - 1)  # an entry may point into the last batch
        begins = rows["position"][at] == self._positions[mine]
        behind = begins & (rows["base_offset"][at] > self._offsets[mine])
        self._tell(~begins, "where no batch begins")
        self._tell(behind, "where a later batch begins")
        self._next = until

    def end(self, size_bytes: int) -> None:
        self._tell(np.ones(len(self._positions) - self._next, bool), f"but the log ends at byte {size_bytes}")

    def _tell(self, wrong: Any, what: str) -> None:
        _tell_entries(self.path, OFFSET_ENTRY_SIZE, wrong, self._next, self._offsets,
                      lambda at: f"points to byte {self._positions[at]} of the log, {what}", self._report)  # fmt: skip


class TimeIndexVerifier:
    """Compares a time index with an undamaged log. `block` and `end` report problems and raise nothing."""

    def __init__(self, path: str, base_offset: int, report: Report) -> None:
        """Reads the index. Raises OSError."""
        self.path = path
        self._report = report
        timestamps, offsets = time_entries(_entries(path, TIME_ENTRY_SIZE, report), base_offset)
        self._timestamps, self._offsets = np.asarray(timestamps, np.int64), np.asarray(offsets, np.int64)
        whole = _growing(path, TIME_ENTRY_SIZE, (self._timestamps, self._offsets), report)
        self._timestamps, self._offsets = self._timestamps[:whole], self._offsets[:whole]
        self._next = 0

    def block(self, rows: Rows, seen: Numbers) -> None:
        until = int(self._offsets.searchsorted(int(rows["last_offset"][-1]), "right"))
        mine = slice(self._next, until)
        timestamps = self._timestamps[mine]
        at = rows["last_offset"].searchsorted(self._offsets[mine])
        missing = (rows["magic"][at] >= 2) & (rows["base_offset"][at] > self._offsets[mine])
        self._tell(missing, "names an offset that the log does not have")
        in_log = rows["max_timestamp"][at]
        wrong = ~missing & (in_log != timestamps)
        self._tell(wrong, "names a batch with another greatest timestamp")
        self._tell(~missing & ~wrong & (seen[at] > timestamps), "has later records before it")
        self._next = until

    def end(self, size_bytes: int) -> None:
        self._tell(np.ones(len(self._offsets) - self._next, bool), f"is after the end of the log at byte {size_bytes}")

    def _tell(self, wrong: Any, what: str) -> None:
        _tell_entries(self.path, TIME_ENTRY_SIZE, wrong, self._next, self._offsets,
                      lambda at: f"with timestamp {self._timestamps[at]} {what}", self._report)  # fmt: skip


def _entries(path: str, entry_bytes: int, report: Report) -> bytes:
    """Returns the whole entries of a file. Leaves out preallocated space for more entries, which consists of zeros."""
    with open(path, "rb") as file:
        data = file.read()
    rest = len(data) % entry_bytes
    if rest:
        report.problem(path, f"{rest} bytes at its end are not a whole entry", position=len(data) - rest)
    used = len(data.rstrip(b"\0"))
    return data[: min(len(data) - rest, -(-used // entry_bytes) * entry_bytes)]


def _growing(path: str, entry_bytes: int, columns: tuple[Numbers, Numbers], report: Report) -> int:
    """Returns the number of entries, from the beginning, in which both columns grow. Reports the first entry in which a
    column does not grow."""
    grows = (np.diff(columns[0]) > 0) & (np.diff(columns[1]) > 0)
    if bool(grows.all()):
        return len(columns[0])
    at = int(grows.argmin()) + 1
    report.problem(path, "its entry is not greater than the one before", position=at * entry_bytes)
    return at


def _tell_entries(
    path: str, entry_bytes: int, wrong: Any, first: int, offsets: Numbers, what: Any, report: Report
) -> None:
    found = wrong.nonzero()[0] + first
    for at in found[:MAX_TOLD]:
        report.problem(path, f"its entry {what(at)}", position=int(at) * entry_bytes, offset=int(offsets[at]))
    if len(found) > MAX_TOLD:
        more = found[MAX_TOLD]
        told = f"{len(found) - MAX_TOLD} more entries from here on have the same problem"
        report.problem(path, told, position=int(more) * entry_bytes, offset=int(offsets[more]))
