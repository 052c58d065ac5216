"""Snapshots of the metadata log: a header and a footer around batches of records (KIP-630).

The file is `<end offset>-<epoch>.checkpoint`. While the file is being made or downloaded, its name ends in `.part`; a
rename completes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Final

from kafkacore._fast.record.batch import DEFAULT_LIMIT_BYTES, Batch, Batches, CorruptBatchError, RecordBatchBuilder
from kafkacore.protocol.messages import KRaftVersionRecord, Message, SnapshotFooterRecord, SnapshotHeaderRecord
from kafkacore.raft import control
from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.voters import VoterHistory
from kafkacore.runtime import open_files
from kafkacore.runtime.files import Files
from kafkacore.storage.errors import LogDirectoryError
from kafkacore.storage.names import CHECKPOINT, PARTIAL, checkpoint_name, parse_checkpoint_name

BATCH_RECORDS: Final = 1000
RECORD_OVERHEAD: Final = 100  # a batch with one record has at most this many bytes besides the record's value
NO_TIMESTAMP: Final = -1
READ_BYTES: Final = 1 << 20
PART_BYTES: Final = 1 << 18
DELETED: Final = ".deleted"


class SnapshotFiles:
    """The snapshots in the directory of a metadata log. Methods that write can block on the disk and raise OSError."""

    def __init__(self, directory: str, files: Files) -> None:
        self._directory, self._files = directory, files
        self._ids = sorted(self._survey())

    def _survey(self) -> Iterator[OffsetAndEpoch]:
        for name in self._files.list(self._directory):
            parsed = parse_checkpoint_name(name)
            if parsed is not None:
                yield OffsetAndEpoch(*parsed)
            elif name.endswith((CHECKPOINT + PARTIAL, CHECKPOINT + DELETED)):
                # A crash interrupted the snapshot's creation, download or deletion.
                self._files.unlink(os.path.join(self._directory, name))

    def ids(self) -> list[OffsetAndEpoch]:
        return self._ids

    def _path(self, snapshot_id: OffsetAndEpoch) -> str:
        return os.path.join(self._directory, checkpoint_name(*snapshot_id))

    def size(self, snapshot_id: OffsetAndEpoch) -> int:
        return self._files.size(self._path(snapshot_id))

    def read(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        return open_files.finish(self._files.read_part, self._path(snapshot_id), position, max_bytes)

    def write(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        open_files.finish(self._files.write_part, self._path(snapshot_id) + PARTIAL, position, data)

    def finish(self, snapshot_id: OffsetAndEpoch) -> None:
        path = self._path(snapshot_id)
        open_files.finish(self._files.sync, path + PARTIAL)
        self._files.rename(path + PARTIAL, path)
        open_files.finish(self._files.sync_directory, self._directory)
        if snapshot_id not in self._ids:
            self._ids = sorted([*self._ids, snapshot_id])

    def abandon(self, snapshot_id: OffsetAndEpoch) -> None:
        """Removes the parts of a snapshot that will not be finished."""
        with contextlib.suppress(FileNotFoundError):  # no part was written
            self._files.unlink(self._path(snapshot_id) + PARTIAL)

    def delete(self, snapshot_id: OffsetAndEpoch) -> None:
        self._ids = [each for each in self._ids if each != snapshot_id]
        self._files.unlink(self._path(snapshot_id))


class SnapshotError(LogDirectoryError):
    """A snapshot is damaged or incomplete. The records may still exist on another replica, or in an older snapshot and
    the log."""

    def __init__(self, snapshot_id: OffsetAndEpoch, problem: str) -> None:
        super().__init__(
            f"snapshot {checkpoint_name(*snapshot_id)} of the metadata log {problem}; restore it, or move it away if "
            "an older snapshot and the records after it exist, or give this controller a new directory so "
            "that it fetches the log from others"
        )


def read_batches(log: RaftLog, snapshot_id: OffsetAndEpoch) -> Iterator[Batch]:
    """Reads a snapshot in parts, and yields its batches of records. Raises SnapshotError."""
    complete = False
    for batch in checked_batches(log, snapshot_id):
        if batch.is_control:
            complete = any(isinstance(each, SnapshotFooterRecord) for _, each in control.control_records(batch.data))
        else:
            yield batch
    if not complete:
        raise SnapshotError(snapshot_id, "has no footer: it is not complete")


def read_parts(log: RaftLog, snapshot_id: OffsetAndEpoch) -> Iterator[list[Batch]]:
    """Yields the same batches as `read_batches`, grouped into parts of at least PART_BYTES. Each step blocks."""
    part: list[Batch] = []
    size = 0
    for batch in read_batches(log, snapshot_id):
        part.append(batch)
        size += batch.size_bytes
        if size >= PART_BYTES:
            yield part
            part, size = [], 0
    yield part


def read_timestamp(log: RaftLog, snapshot_id: OffsetAndEpoch) -> int:
    """Returns the time of the last record in a snapshot, in milliseconds. Returns NO_TIMESTAMP if the snapshot's header
    does not contain this time. Raises SnapshotError."""
    for batch in checked_batches(log, snapshot_id):
        for _, record in control.control_records(batch.data):
            if isinstance(record, SnapshotHeaderRecord):
                told: int = record.last_contained_log_timestamp
                return told
        break
    return NO_TIMESTAMP


def checked_batches(log: RaftLog, snapshot_id: OffsetAndEpoch) -> Iterator[Batch]:
    """Reads batches in parts. Checks the checksum of each batch before yielding it. Raises SnapshotError."""
    size = log.snapshot_size(snapshot_id)
    position, wanted = 0, READ_BYTES
    while position < size:
        batches = Batches(log.read_snapshot(snapshot_id, position, wanted))
        whole = 0  # number of bytes in the batches yielded so far
        try:
            for batch in batches:
                if not batch.crc_ok:
                    raise SnapshotError(snapshot_id, f"is damaged in the batch at byte {position + whole}")
                whole = batches.position
                yield batch
        except CorruptBatchError as error:
            raise SnapshotError(snapshot_id, f"is damaged at byte {position + whole}: {error}") from None
        if batches.position == 0:
            # The read ended before the end of the first batch.
            if position + wanted >= size:
                raise SnapshotError(snapshot_id, f"is cut off at byte {position}")
            wanted *= 2
            continue
        position += batches.position
        wanted = READ_BYTES


def snapshot_parts(
    snapshot_id: OffsetAndEpoch, values: Iterable[bytes], voters: VoterHistory, last_timestamp_ms: int, now_ms: int
) -> Iterator[bytes]:
    """Yields the bytes of a snapshot in parts that consist of whole batches. `values` are the framed records. The
    offsets in the snapshot begin at 0.
    """
    head: list[Message] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp_ms)]
    if voters.kraft_version > 0:
        head += [KRaftVersionRecord(version=0, kraft_version=voters.kraft_version), voters.latest.to_record()]
    yield control.control_batch(head, 0, snapshot_id.epoch, now_ms)
    offset = len(head)
    source = iter(values)
    value = next(source, None)
    while value is not None:
        # The first record always fits, so a large record gets a batch of its own.
        limit = max(DEFAULT_LIMIT_BYTES, len(value) + RECORD_OVERHEAD)
        builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=snapshot_id.epoch, limit_bytes=limit)
        while value is not None and builder.record_count < BATCH_RECORDS and builder.append(now_ms, None, value):
            value = next(source, None)
        offset += builder.record_count
        yield builder.build()
    yield control.control_batch([SnapshotFooterRecord(version=0)], offset, snapshot_id.epoch, now_ms)
