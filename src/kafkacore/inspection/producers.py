"""Dumps producer snapshots and transaction indexes, entry by entry, as kafka-dump-log shows them."""

from __future__ import annotations

import struct
from typing import Final

from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.log.index_files import ABORTED_ENTRY_SIZE, aborted_transactions, producer_entries
from kafkacore.inspection.report import Report
from kafkacore.storage.errors import MalformedFileError

_INDEX_VERSION: Final = 0
_VERSION_BYTES: Final = _INDEX_VERSION.to_bytes(2)
_SNAPSHOT_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")  # version, checksum of the remaining bytes, number of entries
_CHECKED_FROM: Final = 6
_FIRST_ENTRY: Final = _HEAD.size


def dump_producers(path: str, report: Report) -> None:
    """Dumps a producer snapshot. Raises MalformedFileError, OSError."""
    for producer_id, epoch, coordinator_epoch, transaction, last_timestamp, batch in read_producers(path):
        open_since = "OptionalLong.empty" if transaction < 0 else f"OptionalLong[{transaction}]"
        text = (
            f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
            f"currentTxnFirstOffset: {open_since} lastTimestamp: {last_timestamp}"
        )
        fields: dict[str, int | None] = {
            "producerId": producer_id,
            "producerEpoch": epoch,
            "coordinatorEpoch": coordinator_epoch,
            "currentTxnFirstOffset": None if transaction < 0 else transaction,
            "lastTimestamp": last_timestamp,
        }
        if batch is not None:
            first_sequence, last_sequence, first_offset, last_offset, timestamp = batch
            last = {
                "firstSequence": first_sequence,
                "lastSequence": last_sequence,
                "lastOffset": last_offset,
                "offsetDelta": last_offset - first_offset,
                "timestamp": timestamp,
            }
            text += "".join(f" {name}: {value}" for name, value in last.items())
            fields |= last
        report.entry("producer", text, **fields)


def read_producers(path: str) -> list[tuple[int, int, int, int, int, tuple[int, int, int, int, int] | None]]:
    """Returns the entries in the form of `producer_entries`. Raises MalformedFileError, OSError."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return producer_entries(data)
    except ValueError:
        raise MalformedFileError(path, _what_is_wrong(data)) from None


def _what_is_wrong(data: bytes) -> str:
    if len(data) < _FIRST_ENTRY:
        return f"has {len(data)} bytes, but the shortest producer snapshot has {_FIRST_ENTRY}"
    version, told, count = _HEAD.unpack_from(data)
    found = checksum(data[_CHECKED_FROM:])
    if version != _SNAPSHOT_VERSION:
        return f"is a producer snapshot of version {version}, but only version {_SNAPSHOT_VERSION} is known"
    if found != told:
        return f"contains the checksum {told}, but the checksum of its content is {found}"
    return f"has {len(data) - _FIRST_ENTRY} bytes of entries, but should have {count} entries"


def dump_aborted(path: str, report: Report) -> None:
    """Dumps a transaction index. After the valid entries, raises MalformedFileError if a malformed entry follows.
    Raises OSError."""
    with open(path, "rb") as file:
        data = file.read()
    last = len(data) - ABORTED_ENTRY_SIZE + 1
    sound = next((at for at in range(0, last, ABORTED_ENTRY_SIZE) if data[at : at + 2] != _VERSION_BYTES), len(data))
    _tell_aborted(aborted_transactions(data[:sound]), report)
    if sound < len(data):
        raise MalformedFileError(path, f"byte {sound}: an entry of a version other than {_INDEX_VERSION}")


def _tell_aborted(entries: list[tuple[int, int, int, int]], report: Report) -> None:
    for producer_id, first_offset, last_offset, last_stable_offset in entries:
        fields = {
            "version": _INDEX_VERSION,
            "producerId": producer_id,
            "firstOffset": first_offset,
            "lastOffset": last_offset,
            "lastStableOffset": last_stable_offset,
        }
        report.entry("aborted", " ".join(f"{name}: {value}" for name, value in fields.items()), **fields)


def read_aborted(path: str) -> tuple[list[tuple[int, int, int, int]], int]:
    """Returns the valid entries of a transaction index, and the size of the file. The size shows whether the last entry
    is incomplete.

    Raises MalformedFileError, OSError.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        return aborted_transactions(data), len(data)
    except ValueError as error:
        raise MalformedFileError(path, str(error)) from None
