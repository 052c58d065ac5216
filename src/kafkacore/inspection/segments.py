"""Dumps segments and snapshots, batch by batch and record by record, as kafka-dump-log shows them."""

from __future__ import annotations

import os
from array import array
from typing import Final, NamedTuple

from kafkacore._fast.record.batch import Record
from kafkacore._fast.record.describe import CONTENTS, DECODED, JSON, METADATA, RECORDS, TEXT, Description
from kafkacore.inspection.decoders import CONTROL_TYPE, Decoded, Decoder, control_content
from kafkacore.inspection.report import Report, compact
from kafkacore.storage import names
from kafkacore.storage.bootstrap import NAME as BOOTSTRAP
from kafkacore.storage.errors import MalformedFileError

WHOLE_FILE: Final = -1
# An index entry contains the distance of an offset from the base offset. This distance is below 2^31.
MAX_BASE_OFFSET: Final = (1 << 63) - (1 << 31)
_WITH_COLON: Final = frozenset({"LeaderChange"})  # kafka-dump-log writes the other names without a colon


class RecordOptions(NamedTuple):
    """The options for records. `records` shows a line for each record. `contents` shows keys and values as text, and
    `decoder` shows them decoded. `skip_metadata` leaves out the other fields of records. The dump stops after
    `max_bytes` of the file."""

    records: bool = False
    contents: bool = False
    skip_metadata: bool = False
    decoder: Decoder | None = None
    max_bytes: int = WHOLE_FILE

    def flags(self) -> int:
        shown = 0
        if self.records or self.contents or self.decoder is not None:
            shown |= RECORDS | (0 if self.skip_metadata else METADATA)
        if self.decoder is not None:
            shown |= DECODED
        elif self.contents:
            shown |= CONTENTS
        return shown


def dump_batches(path: str, options: RecordOptions, report: Report) -> None:
    """Dumps the batches of a file. At damage, first dumps the readable part, and then raises MalformedFileError,
    CorruptBatchError, CodecError, InvalidRecordError or OSError."""
    _tell_name(path, report)
    with Description(path, JSON if report.as_json else TEXT, options.flags(), options.max_bytes) as description:
        for lines in description:
            report.write(lines)
            if description.is_taken:
                _dump_records(description, options, report)
        if description.left and options.max_bytes == WHOLE_FILE:
            found = f"Found {description.left} invalid bytes at the end of {os.path.basename(path)}"
            report.entry("trailing", found, file=path, position=description.position, bytes=description.left)
        tell_gaps(path, description.gap_pairs, report)


def _dump_records(description: Description, options: RecordOptions, report: Report) -> None:
    for record, line in description.records():
        if description.is_control:
            report.write(_control_line(record, line, as_json=report.as_json))
        elif options.decoder is not None:
            report.write(_decoded_line(line, options.decoder(record), options, as_json=report.as_json))


def base_offset_of(path: str) -> int:
    """Returns the offset in the name of a log's file. Raises MalformedFileError."""
    stem = os.path.basename(path).split(".", 1)[0]
    if not (stem.isascii() and stem.isdigit() and int(stem) <= MAX_BASE_OFFSET):
        raise MalformedFileError(path, "has no offset as its name, but all files of a log do")
    return int(stem)


def tell_gaps(path: str, pairs: bytes, report: Report) -> None:
    """Reports records whose offsets do not follow each other directly. A compacted log has many such records."""
    if not pairs:
        return
    numbers = array("q", pairs)
    found = dict(zip(numbers[::2], numbers[1::2], strict=True))
    if not report.as_json:
        report.remark("gaps", f"Non-consecutive offsets in {os.path.abspath(path)}")
    for before, after in sorted(found.items()):
        report.remark("gap", f"  {before} is followed by {after}", file=path, offset=before, next_offset=after)


def _tell_name(path: str, report: Report) -> None:
    name = os.path.basename(path)
    if name.endswith(names.CHECKPOINT):
        _tell_snapshot(path, name, report)
    else:
        offset = base_offset_of(path)
        report.entry("segment", f"Log starting offset: {offset}", file=path, baseOffset=offset)


def _tell_snapshot(path: str, name: str, report: Report) -> None:
    if name == BOOTSTRAP:
        report.entry("bootstrap", "KRaft bootstrap snapshot", file=path)
        return
    snapshot = names.parse_checkpoint_name(name)
    if snapshot is None:
        raise MalformedFileError(path, "is not named by an end offset and an epoch, as snapshots are")
    end_offset, epoch = snapshot
    told = f"Snapshot end offset: {end_offset}, epoch: {epoch}"
    report.entry("snapshot", told, file=path, endOffset=end_offset, epoch=epoch)


def _control_line(record: Record, line: bytes, *, as_json: bool) -> bytes:
    name, content = control_content(record)
    if as_json:
        return b'%b,"%b":%b}\n' % (line, name.encode(), compact(content).encode())
    if name == CONTROL_TYPE:
        return b"%b controlType: UNKNOWN(%d)\n" % (line, content)
    colon = ":" if name in _WITH_COLON else ""
    return line + f" {name}{colon} {compact(content)}\n".encode()


def _decoded_line(line: bytes, decoded: Decoded, options: RecordOptions, *, as_json: bool) -> bytes:
    fields = [(name, content) for name, content in zip(("key", "payload"), decoded, strict=True) if content is not None]
    if as_json:
        shown = "".join(f',"{name}":{compact(content)}' for name, content in fields)
        return line + shown.encode() + b"}\n"
    words = [f"{name}: {content if isinstance(content, str) else compact(content)}" for name, content in fields]
    indent = ["|"] if options.skip_metadata and words else [""]
    return line + " ".join(indent + words if words else words).encode() + b"\n"
