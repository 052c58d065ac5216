"""Reads metadata images from files: a snapshot, a segment, or a metadata log with its snapshots. Takes no lock.

Damage in a file is reported as a finding, and the image shows the state before the damage. The image also contains
records that are not committed, because the files do not show which records are committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from kafkacore._fast.base.errors import KafkaError, ProtocolError
from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.record.batch import Batch, Batches, CorruptBatchError
from kafkacore._fast.record.batch_scan import REASONS, BatchScan
from kafkacore.inspection.findings import Findings
from kafkacore.inspection.metadata_log import MAGIC, MAGIC_AT
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.publishing import MetadataPublisher
from kafkacore.metadata.records import decode_batch
from kafkacore.protocol.messages import SnapshotFooterRecord, SnapshotHeaderRecord
from kafkacore.raft.control import control_records
from kafkacore.storage import names
from kafkacore.storage.errors import LogDirectoryError

ATTEMPTS: Final = 5  # attempts to read a directory: a running node may delete a file after this code has listed it
_WHOLE: Final = 1 << 31  # larger than any batch
_UNREADABLE: Final = (KafkaError, ProtocolError, CodecError)


class UnreachableOffsetError(LogDirectoryError):
    """The files do not contain the state at the requested offset."""


class Snapshot(NamedTuple):
    """A snapshot file. It contains the state after all records below `end`."""

    end: int
    epoch: int
    path: str


class _Damage(Exception):
    pass


def load(path: str, at_offset: int | None = None) -> tuple[MetadataImage, Findings]:
    """Reads the image from a file, from a metadata log's directory, or from the log directory that contains the
    metadata log.

    With `at_offset`, the image shows the state after the last batch that ends at or before this offset. Findings name
    the file, the byte and the offset of damage. Raises UnreachableOffsetError, LogDirectoryError, OSError.
    """
    for attempt in range(ATTEMPTS):
        findings = Findings()
        try:
            if not os.path.isdir(path):
                return _load_file(path, at_offset, findings), findings
            inner = names.metadata_directory(path)
            return _load_directory(inner if os.path.isdir(inner) else path, at_offset, findings), findings
        except FileNotFoundError:
            if attempt == ATTEMPTS - 1 or not os.path.exists(path):
                raise
    raise AssertionError


# --- a single file ---------------------------------------------------------------------------------------------------


def _load_file(path: str, at_offset: int | None, findings: Findings) -> MetadataImage:
    parsed = names.parse_checkpoint_name(os.path.basename(path))
    if parsed is not None:
        snapshot = Snapshot(*parsed, path)
        if at_offset is not None and at_offset != snapshot.end - 1:
            raise UnreachableOffsetError(f"{path} contains the state at offset {snapshot.end - 1} only")
        return _read_snapshot(snapshot, findings)[0]
    replay = _Replay(MetadataPublisher(), findings, at_offset)
    replay.add_file(path, last=True)
    if replay.next_offset == 0 and not replay.ended and os.path.getsize(path):
        raise LogDirectoryError(f"{path}: contains no whole batch, so it is neither a snapshot nor a segment")
    return replay.image


# --- a metadata log --------------------------------------------------------------------------------------------------


def _load_directory(directory: str, at_offset: int | None, findings: Findings) -> MetadataImage:
    found = sorted(os.listdir(directory))
    snapshots = [
        Snapshot(*parsed, os.path.join(directory, name))
        for name in found
        if (parsed := names.parse_checkpoint_name(name)) is not None
    ]
    segments = [
        (base[0], os.path.join(directory, name))
        for name in found
        if (base := names.parse_file_name(name)) is not None and base[1] == names.LOG
    ]
    if not snapshots and not segments:
        raise LogDirectoryError(f"{directory}: there is neither a snapshot nor a segment of a metadata log")
    # The checkpoint at offset 0 contains only the kraft.version and the first voters. The first leader also writes
    # these records to the log.
    publisher = _start([each for each in snapshots if each.end > 0], segments, at_offset, findings)
    replay = _Replay(publisher, findings, at_offset)
    for number, (_, path) in enumerate(segments):
        end = segments[number + 1][0] if number + 1 < len(segments) else None
        if (end is None or end > replay.next_offset) and not replay.ended:
            replay.add_file(path, last=end is None)
    if at_offset is not None and not replay.ended and replay.next_offset <= at_offset:
        raise UnreachableOffsetError(f"{directory}: the metadata log ends at offset {replay.next_offset - 1}")
    return replay.image


def _start(
    snapshots: list[Snapshot], segments: list[tuple[int, str]], at_offset: int | None, findings: Findings
) -> MetadataPublisher:
    """Returns the state at which the replay of the log begins: the newest intact snapshot, or the start of the log. If
    neither exists, returns the readable part of a damaged snapshot."""
    start = min((base for base, _ in segments), default=None if snapshots else 0)
    near = [each for each in reversed(snapshots) if at_offset is None or each.end - 1 <= at_offset]
    partial: MetadataImage | None = None
    for snapshot in near:
        image, whole = _read_snapshot(snapshot, findings)
        if whole:
            return _published(image)
        partial = partial or image
        if start is None or start > snapshot.end:
            break  # the records after an older snapshot no longer exist
    if start == 0:
        return MetadataPublisher()
    if partial is not None:
        findings.problems.append("no other snapshot or log can replace the snapshot: only its readable part is shown")
        return _published(partial)
    oldest = min((each.end - 1 for each in snapshots), default=start)
    raise UnreachableOffsetError(
        f"the state at offset {at_offset} no longer exists: the oldest available state is at {oldest}"
    )


def _published(image: MetadataImage) -> MetadataPublisher:
    publisher = MetadataPublisher()
    publisher.adopt(image, None)
    return publisher


def _read_snapshot(snapshot: Snapshot, findings: Findings) -> tuple[MetadataImage, bool]:
    """Returns the image of a snapshot, and whether the snapshot file is complete."""
    edit, timestamp_ms, complete = Edit(EMPTY_IMAGE), -1, False
    whole = True
    try:
        for position, batch, data in _batches(snapshot.path, torn=None):
            try:
                if not batch.is_control:
                    edit.replay_batch(decode_batch(batch), snapshot.end - 1)
                    continue
                for _, record in control_records(data):
                    if isinstance(record, SnapshotHeaderRecord):
                        timestamp_ms = record.last_contained_log_timestamp
                    complete = isinstance(record, SnapshotFooterRecord)
            except _UNREADABLE as error:
                raise _Damage(f"{snapshot.path}: byte {position}: {error}") from None
        if not complete:
            raise _Damage(f"{snapshot.path}: does not end with the footer of a snapshot: it is not complete")
    except _Damage as damage:
        findings.problems.append(str(damage))
        whole = False
    return edit.freeze(snapshot.end - 1, snapshot.epoch, timestamp_ms), whole


class _Replay:
    """Replays segments onto a state, until it meets damage or reaches `at_offset`."""

    def __init__(self, publisher: MetadataPublisher, findings: Findings, at_offset: int | None) -> None:
        self._publisher, self._findings, self._at_offset = publisher, findings, at_offset
        self.next_offset = publisher.applied_offset + 1
        self.ended = False

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    def add_file(self, path: str, *, last: bool) -> None:
        """Replays a file. The `last` file may end with an incomplete batch, if a node has crashed or is writing."""
        torn = self._findings.remarks if last else None
        try:
            for position, batch, _ in _batches(path, torn):
                if batch.next_offset > self.next_offset and not self._add(path, position, batch):
                    return
        except _Damage as damage:
            self.ended = True
            self._findings.problems.append(
                f"{damage}; the state before it is shown, at offset {self._publisher.image.offset}"
            )

    def _add(self, path: str, position: int, batch: Batch) -> bool:
        """Replays one batch. Returns False when the state at `at_offset` is reached."""
        place = f"{path}: byte {position}: offset {batch.base_offset}"
        if self._at_offset is not None and batch.last_offset > self._at_offset:
            self.ended = True
            if batch.base_offset <= self._at_offset:
                self._findings.remarks.append(
                    f"offset {self._at_offset} is inside the batch from {batch.base_offset} to {batch.last_offset}, "
                    f"which takes effect as a whole: the state at offset {self._publisher.image.offset} is shown"
                )
            return False
        if batch.base_offset > self.next_offset and self.next_offset > 0:
            raise _Damage(f"{place}: the records from offset {self.next_offset} on are missing")
        epoch, timestamp_ms = batch.partition_leader_epoch, batch.max_timestamp
        try:
            if batch.is_control:
                self._publisher.skip(batch.last_offset, epoch, timestamp_ms)
            else:
                self._publisher.apply(decode_batch(batch), batch.base_offset, epoch, timestamp_ms)
        except _UNREADABLE as error:
            raise _Damage(f"{place}: {error}") from None
        self.next_offset = batch.next_offset
        return True


def _batches(path: str, torn: list[str] | None) -> Iterator[tuple[int, Batch, bytes]]:
    """Yields the intact batches of a file with their positions. An incomplete batch at the end becomes a remark in
    `torn`. If `torn` is None, such a batch is damage. Raises _Damage, OSError."""
    offset = 0
    with BatchScan(path) as scan:
        while True:
            position = scan.position
            try:
                found = scan.batch_at(position, _WHOLE)
            except CorruptBatchError:
                raise _Damage(f"{path}: byte {scan.position}: offset {offset}: {REASONS[scan.damage]}") from None
            if found is None:
                break
            if scan.fault:
                raise _Damage(f"{path}: byte {position}: offset {found[0]}: {REASONS[scan.fault]}")
            data = scan.data
            if data[MAGIC_AT] != MAGIC:
                raise _Damage(f"{path}: byte {position}: offset {found[0]}: the magic byte is not {MAGIC}")
            yield position, next(Batches(data)), data
            offset = found[1] + 1
        if scan.left:
            told = f"{path}: byte {scan.position}: offset {offset}: the last {scan.left} bytes are not a whole batch"
            if torn is None:
                raise _Damage(told)
            torn.append(told)
