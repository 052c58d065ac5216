"""Dumps files for `kafkacore dump-log` in the given order, each file with the reader for its kind."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kafkacore._fast.base.errors import KafkaError, ProtocolError
from kafkacore._fast.codec.compression import CodecError
from kafkacore.inspection import indexes, producers, segments
from kafkacore.inspection.indexes import IndexOptions, TimeFindings
from kafkacore.inspection.report import Report
from kafkacore.inspection.segments import RecordOptions
from kafkacore.storage import names
from kafkacore.storage.errors import LogDirectoryError, MalformedFileError, reason

BATCHES: Final = (names.LOG, names.CHECKPOINT)
KNOWN: Final = (*BATCHES, names.OFFSET_INDEX, names.TIME_INDEX, names.PRODUCER_SNAPSHOT, names.TRANSACTION_INDEX)


class DumpOptions(NamedTuple):
    """The options for records and for indexes."""

    records: RecordOptions = RecordOptions()
    indexes: IndexOptions = IndexOptions()


def expand(paths: Iterable[str]) -> Iterator[str]:
    """Yields the paths. Replaces each directory by the files of the logs in it and below it, in sorted order. Raises
    OSError."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        below = [os.path.join(path, name) for name in sorted(os.listdir(path))]
        yield from expand(each for each in below if _is_directory_below(each) or suffix_of(each) in KNOWN)


def _is_directory_below(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # a link could lead back to a parent directory


def suffix_of(path: str) -> str:
    """Returns the suffix of the file name, such as `.log`. It is empty if the name has no suffix."""
    name = os.path.basename(path)
    return name[name.rfind(".") :] if "." in name else ""


def dump_files(paths: Iterable[str], options: DumpOptions, report: Report) -> None:
    """Dumps each file. Reports an unreadable file as a problem, and continues with the next file.

    Raises BrokenPipeError if the reader of the output has closed the pipe.
    """
    findings = TimeFindings()
    for path in paths:
        report.entry("file", f"Dumping {path}", file=path)
        try:
            _dump(path, options, findings, report)
        except BrokenPipeError:
            raise
        except (KafkaError, ProtocolError, CodecError, LogDirectoryError, OSError) as error:
            report.problem(path, reason(error).removeprefix(f"{path}: "))
    findings.tell(report)


def _dump(path: str, options: DumpOptions, findings: TimeFindings, report: Report) -> None:
    check_regular(path)
    suffix = suffix_of(path)
    if suffix in BATCHES:
        segments.dump_batches(path, options.records, report)
    elif suffix == names.OFFSET_INDEX:
        indexes.dump_offset_index(path, options.indexes, report)
    elif suffix == names.TIME_INDEX:
        indexes.dump_time_index(path, options.indexes, findings, report)
    elif suffix == names.PRODUCER_SNAPSHOT:
        producers.dump_producers(path, report)
    elif suffix == names.TRANSACTION_INDEX:
        producers.dump_aborted(path, report)
    else:
        ignore_unknown(path, report)


def check_regular(path: str) -> None:
    """Raises MalformedFileError for a pipe, a socket or a device, because reading from it could block or never end.
    Raises OSError."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory"}
        what = kinds.get(stat.S_IFMT(mode), "a device")
        raise MalformedFileError(path, f"is {what}; copy its contents to a regular file")


def ignore_unknown(path: str, report: Report) -> None:
    """Adds a remark about a file of an unknown kind. Raises OSError if the file does not exist, so that a mistyped path
    is not reported as valid."""
    os.stat(path)
    report.remark("unknown", f"Ignoring unknown file {path}", file=path)
