"""Verifies a segment and its indexes.

The segment is read once, in blocks. A block is a set of columns, one for each field of the batch headers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import REASONS, ROW, BatchScan
from kafkacore._fast.record.record_scan import RecordScan
from kafkacore.inspection.report import Report
from kafkacore.inspection.segments import base_offset_of
from kafkacore.inspection.verify_index import IndexVerifier, OffsetIndexVerifier, TimeIndexVerifier
from kafkacore.storage import names

Rows = npt.NDArray[np.void]
Numbers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

MAX_TOLD: Final = 10  # the number of problems of one kind that are shown for a block; the others are only counted
LAST_RELATIVE_OFFSET: Final = (1 << 31) - 1
_NOTHING: Final = -1


class SegmentVerifier:
    """Verifies one segment and its indexes.

    `suffixes` names the files whose problems are reported. The log itself is read in any case. With `records`, every
    batch is decompressed and decoded. Offsets below `complete_from` may be missing.
    """

    complete_from = 0

    def __init__(self, path: str, suffixes: set[str], report: Report, *, records: bool) -> None:
        """Opens the files. Raises MalformedFileError, OSError."""
        self.path = path
        self.base_offset = base_offset_of(path)
        self.next_offset = self.base_offset
        self._records, self._report = records, report
        self._told = names.LOG in suffixes
        self._epoch = _NOTHING
        self._greatest_timestamp = _NOTHING
        self._sound = True
        stem = path.removesuffix(names.LOG)
        self._indexes: list[IndexVerifier] = []
        if names.OFFSET_INDEX in suffixes:
            self._indexes.append(OffsetIndexVerifier(stem + names.OFFSET_INDEX, self.base_offset, report))
        if names.TIME_INDEX in suffixes:
            self._indexes.append(TimeIndexVerifier(stem + names.TIME_INDEX, self.base_offset, report))

    def run(self) -> None:
        """Runs the verification. Raises OSError."""
        with (RecordScan if self._records else BatchScan)(self.path) as scan:
            try:
                while block := scan.rows():
                    self._block(np.frombuffer(block, dtype=ROW))
            except CorruptBatchError:
                self._problem(REASONS[scan.damage], position=scan.position, offset=self.next_offset)
            else:
                if scan.left:
                    told = f"{scan.left} bytes at its end are not a whole batch"
                    self._problem(told, position=scan.position, offset=self.next_offset)
            for index in self._indexes:
                if self._sound:
                    index.end(scan.position)
                else:
                    told = f"was not compared with {self.path}, which is damaged"
                    self._report.remark("unverified", f"{index.path}: {told}", file=index.path)

    def follows(self, before: SegmentVerifier) -> None:
        """Reports a problem if this segment does not begin where the segment `before` ends."""
        if self.base_offset < before.next_offset:
            told = f"begins inside {before.path}, which ends at offset {before.next_offset}"
            self._problem(told, offset=self.base_offset)
        elif self.base_offset > max(before.next_offset, self.complete_from):
            told = f"offsets from {before.next_offset} on are missing: {before.path} ends there"
            self._problem(told, offset=self.base_offset)

    def _problem(self, problem: str, *, position: int | None = None, offset: int | None = None) -> None:
        self._sound = False
        if self._told:
            self._report.problem(self.path, problem, position=position, offset=offset)

    def _block(self, rows: Rows) -> None:
        base, last = rows["base_offset"], rows["last_offset"]
        old = rows["magic"] < 2
        before = np.concatenate(([self.next_offset - 1], last[:-1]))
        for code in np.unique(rows["fault"][rows["fault"] != 0]):
            self._tell(rows, rows["fault"] == code, lambda _, code=int(code): REASONS[code])
        self._tell(
            rows,
            rows["magic"] > 2,
            lambda at: f"its magic byte is {rows['magic'][at]}, but 2 is the greatest that is known",
        )
        self._tell(rows, last < base, lambda at: f"it ends at offset {last[at]}, before it begins")
        # A compressed message set of an old format is stored with its last offset. Only the messages inside it contain
        # the first offset.
        back = np.where(old, last <= before, base <= before)
        self._tell(rows, back, lambda at: f"it begins at or before offset {before[at]}, where the batch before it ends")
        self._tell_missing(rows, before)
        far = last - self.base_offset > LAST_RELATIVE_OFFSET
        self._tell(rows, far, lambda _: f"it is too far from the segment's base offset {self.base_offset}")
        self._tell_epochs(rows)
        if self._sound:
            seen = np.maximum.accumulate(np.concatenate(([self._greatest_timestamp], rows["max_timestamp"])))
            for index in self._indexes:
                index.block(rows, seen[:-1])
            self._greatest_timestamp = int(seen[-1])
        self.next_offset = int(last[-1]) + 1

    def _tell_missing(self, rows: Rows, before: Numbers) -> None:
        base, last = rows["base_offset"], rows["last_offset"]
        whole = rows["magic"] >= 2
        gap = whole & (base > before + 1) & (base > self.complete_from)
        self._tell(rows, gap, lambda at: f"offsets {before[at] + 1} to {base[at] - 1} before it are missing")
        count = rows["record_count"]
        thin = whole & (rows["fault"] == 0) & (count != last - base + 1) & (last >= self.complete_from)
        self._tell(
            rows, thin, lambda at: f"it contains {count[at]} records, but its offsets are {base[at]} to {last[at]}"
        )

    def _tell_epochs(self, rows: Rows) -> None:
        epochs = np.where(rows["magic"] >= 2, rows["partition_leader_epoch"], _NOTHING)
        highest = np.maximum.accumulate(np.concatenate(([self._epoch], epochs)))
        lower = (epochs >= 0) & (epochs < highest[:-1])
        self._tell(rows, lower, lambda at: f"its leader epoch {epochs[at]} follows the later {highest[at]}")
        self._epoch = int(highest[-1])

    def _tell(self, rows: Rows, which: Marks, problem: Any) -> None:
        found = which.nonzero()[0]
        for at in found[:MAX_TOLD]:
            self._problem(problem(at), position=int(rows["position"][at]), offset=int(rows["base_offset"][at]))
        if len(found) > MAX_TOLD:
            first = int(rows["base_offset"][found[MAX_TOLD]])
            self._problem(f"{len(found) - MAX_TOLD} more batches from here on have the same problem", offset=first)
