"""Checks another replica's response before this replica changes anything."""

from __future__ import annotations

from typing import Any, Final

from kafkacore._fast.record.batch import Batch, Batches
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import Message, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord
from kafkacore.raft import control
from kafkacore.raft.log import OffsetAndEpoch, RaftLog, replaces_log
from kafkacore.storage.quorum_state import LAST_EPOCH

NOBODY: Final = -1
# This limit leaves room for the offsets of the records that follow the snapshot.
MAX_SNAPSHOT_OFFSET: Final = (1 << 63) - (1 << 33)
MAX_SNAPSHOT_BATCH_BYTES: Final = 1 << 27
# A batch begins with its base offset and its length; the length counts only the bytes after these two fields.
_BATCH_LENGTH_END: Final = 12
_UNREADABLE: Final = (KafkaError, ValueError)  # Raised for batches, records, codecs and messages that cannot be read.


class ImpossibleAnswerError(Exception):
    """A response that no correct replica sends. The error message says what is impossible."""


def check_leader(leader_id: int, epoch: int) -> None:
    """Raises ImpossibleAnswerError for an impossible leader or epoch. The greatest epoch is also impossible: no correct
    replica enters it, because no later epoch could follow it."""
    if not (leader_id >= NOBODY and 0 <= epoch < LAST_EPOCH):
        raise ImpossibleAnswerError(f"leader {leader_id} in epoch {epoch}")


def check_divergence(theirs: OffsetAndEpoch, asked: OffsetAndEpoch) -> None:
    """Raises ImpossibleAnswerError unless the pair (diverging epoch, end offset) is below the pair (last epoch, end
    offset) of the follower's log."""
    if theirs.offset < 0 or (theirs.epoch, theirs.offset) >= (asked.epoch, asked.offset):
        raise ImpossibleAnswerError(f"a diverging epoch that ends at {theirs}, for a log that ends at {asked}")


def check_snapshot_id(offered: OffsetAndEpoch, log: RaftLog, epoch: int, high_watermark: int) -> None:
    """Raises ImpossibleAnswerError unless the snapshot makes the follower's log obsolete (`replaces_log`). A correct
    leader never offers any other snapshot.
    """
    possible = 0 <= offered.epoch <= epoch and high_watermark <= offered.offset <= MAX_SNAPSHOT_OFFSET
    if not possible or not replaces_log(offered, log):
        end = OffsetAndEpoch(log.end_offset, log.last_epoch)
        raise ImpossibleAnswerError(
            f"snapshot {offered} in epoch {epoch}, for a log that ends at {end} and is committed to {high_watermark}"
        )


def checked_records(data: bytes, log: RaftLog, epoch: int) -> bytes:
    """Returns the whole batches of `data`, which must continue the log. Leaves out an incomplete batch at the end,
    because the leader sends that batch again. Raises ImpossibleAnswerError."""
    offset, last_epoch = log.end_offset, log.last_epoch
    batches = Batches(data)
    try:
        for batch in batches:
            if not batch.crc_ok:
                raise ImpossibleAnswerError(f"a batch at offset {offset} whose checksum does not match")
            if batch.base_offset != offset or not last_epoch <= batch.partition_leader_epoch <= epoch:
                raise ImpossibleAnswerError(
                    f"a batch at offset {batch.base_offset} of epoch {batch.partition_leader_epoch}, where one at "
                    f"{offset} of an epoch from {last_epoch} to {epoch} follows"
                )
            if batch.next_offset <= offset:
                raise ImpossibleAnswerError(f"a batch at offset {offset} without offsets")
            if batch.is_control:
                _check_control(batch)
            offset, last_epoch = batch.next_offset, batch.partition_leader_epoch
    except _UNREADABLE as error:
        raise ImpossibleAnswerError(f"a batch at offset {offset} that cannot be read: {error}") from None
    return data[: batches.position]


def _check_control(batch: Batch) -> set[type[Message]]:
    """Returns the types of the batch's records. Raises ImpossibleAnswerError for an empty set of voters."""
    kinds = set()
    for offset, record in control.control_records(batch.data):
        kinds.add(type(record))
        voters: Any = record.voters if isinstance(record, VotersRecord) else None
        if voters is not None and not voters:
            raise ImpossibleAnswerError(f"an empty set of voters at offset {offset}")
    return kinds


class SnapshotCheck:
    """Checks the bytes of a snapshot while its parts arrive. Every checksum must match, the header must come first, and
    the footer must come last. The object keeps at most one batch in memory."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._position = 0
        self._begun = self._ended = False

    @property
    def is_whole(self) -> bool:
        return self._ended and not self._pending

    def take(self, part: bytes) -> None:
        """Checks the next part of the snapshot. Raises ImpossibleAnswerError."""
        self._pending += part
        at = 0
        while len(self._pending) - at >= _BATCH_LENGTH_END:
            size = _BATCH_LENGTH_END + int.from_bytes(self._pending[at + 8 : at + _BATCH_LENGTH_END], "big")
            if size > MAX_SNAPSHOT_BATCH_BYTES:
                raise ImpossibleAnswerError(f"a snapshot with a batch of {size} bytes at byte {self._position}")
            if len(self._pending) - at < size:
                break
            self._check(bytes(self._pending[at : at + size]))
            at += size
            self._position += size
        del self._pending[:at]

    def _check(self, data: bytes) -> None:
        try:
            if self._ended:
                raise ImpossibleAnswerError(f"a snapshot that continues after its footer, at byte {self._position}")
            for batch in Batches(data):
                if not batch.crc_ok:
                    raise ImpossibleAnswerError(f"a snapshot whose checksum does not match at byte {self._position}")
                kinds = _check_control(batch) if batch.is_control else ()
                if not self._begun and SnapshotHeaderRecord not in kinds:
                    raise ImpossibleAnswerError("a snapshot without a header")
                self._begun = True
                self._ended = SnapshotFooterRecord in kinds
        except _UNREADABLE as error:
            raise ImpossibleAnswerError(f"a snapshot that cannot be read at byte {self._position}: {error}") from None
