"""`dump-log --verify`: checks whether the files of a log are valid, each by itself and all of them together."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from kafkacore._fast.base.errors import KafkaError, ProtocolError
from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.log.index_files import ABORTED_ENTRY_SIZE
from kafkacore.inspection.compacted import EVERYWHERE, CompactedLogs
from kafkacore.inspection.dump import KNOWN, check_regular, ignore_unknown, suffix_of
from kafkacore.inspection.metadata_log import snapshot_problems
from kafkacore.inspection.producers import read_aborted, read_producers
from kafkacore.inspection.report import Report
from kafkacore.inspection.segments import base_offset_of
from kafkacore.inspection.verify_segment import SegmentVerifier
from kafkacore.storage import names
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError, reason

_OF_A_SEGMENT: Final = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX)


class VerifyOptions(NamedTuple):
    """The options of --verify. `records` decompresses and decodes every batch. `compacted` accepts missing offsets in
    every log."""

    records: bool = False
    compacted: bool = False


def verify_files(paths: Iterable[str], options: VerifyOptions, report: Report) -> None:
    """Reports every problem with its file, byte and offset, and then the number of problems.

    Reads each segment once, together with those of its indexes that `paths` contains. The segments of a directory must
    follow each other without a gap.
    """
    given = list(paths)
    compacted = CompactedLogs(report)
    followed: dict[str, SegmentVerifier] = {}  # maps each directory to its last verified segment
    for stem, files in sorted(_by_segment(given).items()):
        try:
            for suffix in (names.LOG, *files):
                check_regular(stem + suffix)
            directory = os.path.dirname(stem)
            segment = SegmentVerifier(f"{stem}{names.LOG}", files, report, records=options.records)
            segment.complete_from = EVERYWHERE if options.compacted else compacted.complete_from(directory)
            segment.run()
            before = followed.get(directory)
            if before is not None and names.LOG in files:
                segment.follows(before)
            followed[directory] = segment
        except (LogDirectoryError, OSError) as error:
            _tell(f"{stem}{names.LOG}", error, report)
    for path in given:
        try:
            _verify_alone(path, report)
        except (KafkaError, ProtocolError, CodecError, LogDirectoryError, OSError) as error:
            _tell(path, error, report)
    verified = sum(suffix_of(path) in KNOWN for path in given)
    found = _counted(report.problems, "problem") if report.problems else "no problem"
    report.entry("verified", f"{_counted(verified, 'file')}, {found} found", files=verified, problems=report.problems)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _tell(path: str, error: Exception, report: Report) -> None:
    if isinstance(error, OSError) and error.filename is not None:
        path = str(error.filename)  # the error may concern an index, which is read together with its segment
    report.problem(path, reason(error).removeprefix(f"{path}: "))


def _by_segment(paths: Iterable[str]) -> dict[str, set[str]]:
    """Returns the given files of segments. The keys are the paths without a suffix, and the values are the suffixes."""
    found: dict[str, set[str]] = {}
    for path in paths:
        if suffix_of(path) in _OF_A_SEGMENT:
            found.setdefault(path.removesuffix(suffix_of(path)), set()).add(suffix_of(path))
    return found


def _verify_alone(path: str, report: Report) -> None:
    suffix = suffix_of(path)
    if suffix not in _OF_A_SEGMENT:
        check_regular(path)
    if suffix == names.CHECKPOINT:
        for problem, position in snapshot_problems(path):
            report.problem(path, problem, position=position)
    elif suffix == names.PRODUCER_SNAPSHOT:
        _verify_producers(path)
    elif suffix == names.TRANSACTION_INDEX:
        _verify_aborted(path, report)
    elif suffix not in KNOWN:
        ignore_unknown(path, report)


def _verify_producers(path: str) -> None:
    ids = [entry[0] for entry in read_producers(path)]
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if ids.count(each) > 1)
        raise MalformedFileError(path, f"has producer id {twice} twice")


def _verify_aborted(path: str, report: Report) -> None:
    base_offset = base_offset_of(path)
    entries, size = read_aborted(path)
    left = size % ABORTED_ENTRY_SIZE
    if left:
        report.problem(path, f"{left} bytes at its end are not a whole entry", position=size - left)
    for number, (_, first_offset, last_offset, _) in enumerate(entries):
        if first_offset > last_offset or last_offset < base_offset:
            problem = f"a transaction from offset {first_offset} to {last_offset} did not end in this segment"
            report.problem(path, problem, position=number * ABORTED_ENTRY_SIZE, offset=last_offset)
    for number, (one, other) in enumerate(pairwise(entries)):
        if other[2] <= one[2]:
            problem = f"a transaction that ended at {other[2]} follows one that ended at {one[2]}"
            report.problem(path, problem, position=(number + 1) * ABORTED_ENTRY_SIZE, offset=other[2])
