"""Producer snapshots and transaction indexes, entry by entry, as kafka-dump-log shows them."""

from __future__ import annotations

from kafkacore._fast.sidecar import aborted_transactions, producer_entries
from kafkacore.inspection.report import Report
from kafkacore.storage.errors import MalformedFileError

_INDEX_VERSION = 0


def dump_producers(path: str, report: Report) -> None:
    """A file that is damaged is said to be so, as Kafka does. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        entries = producer_entries(data)
    except ValueError as error:
        report.problem(path, str(error))
        return
    for producer_id, epoch, coordinator_epoch, transaction, last_timestamp, batch in entries:
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


def dump_aborted(path: str, report: Report) -> None:
    """Raises MalformedFileError, OSError."""
    for producer_id, first_offset, last_offset, last_stable_offset in read_aborted(path)[0]:
        fields = {
            "version": _INDEX_VERSION,
            "producerId": producer_id,
            "firstOffset": first_offset,
            "lastOffset": last_offset,
            "lastStableOffset": last_stable_offset,
        }
        report.entry("aborted", " ".join(f"{name}: {value}" for name, value in fields.items()), **fields)


def read_aborted(path: str) -> tuple[list[tuple[int, int, int, int]], int]:
    """The entries of a transaction index, and how many bytes the file has: the last entry may be cut off. Raises
    MalformedFileError, OSError.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        return aborted_transactions(data), len(data)
    except ValueError as error:
        raise MalformedFileError(path, str(error)) from None
