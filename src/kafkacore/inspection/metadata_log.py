"""Reads the metadata log of a log directory: its snapshots, and the segments after the newest snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kafkacore._fast.record.batch import Batch, Batches, CorruptBatchError
from kafkacore._fast.record.batch_scan import REASONS, BatchScan
from kafkacore.protocol.messages import SnapshotFooterRecord, SnapshotHeaderRecord
from kafkacore.raft.control import control_records
from kafkacore.storage import names

_WHOLE: Final = 1 << 31  # larger than any batch
MAGIC_AT: Final = 16  # the position of the magic byte in a batch
MAGIC: Final = 2


def newest_files(directory: str) -> Iterator[tuple[str, int]]:
    """Yields the paths of the newest snapshot and of every segment. Each path comes with the first offset that counts
    in this file: 0 in the snapshot, and the snapshot's end offset in a segment."""
    found = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    snapshots = [parsed for parsed in map(names.parse_checkpoint_name, found) if parsed is not None]
    end = 0
    if snapshots:
        end, epoch = max(snapshots)
        yield os.path.join(directory, names.checkpoint_name(end, epoch)), 0
    for name in found:
        if name.endswith(names.LOG):
            yield os.path.join(directory, name), end


def whole_batches(path: str, start: int) -> Iterator[tuple[Batch, bytes]]:
    """Yields those batches of a file that contain `start` or a later offset, and their bytes.

    In a segment, the batches end where the node's next start will truncate the segment. In a snapshot, the batches end
    at the first damage, which `snapshot_problems` reports.
    """
    for _, last, _, data in sound_batches(path):
        if last >= start:
            yield next(Batches(data)), data


def sound_batches(path: str) -> Iterator[tuple[int, int, int, bytes]]:
    """Yields for each intact batch its base offset, its last offset, the byte where the next batch begins, and its
    bytes. Stops at the first batch that is incomplete, damaged or not of magic 2, because a metadata log contains no
    other batches."""
    with BatchScan(path) as scan:
        while True:
            try:
                offsets = scan.batch_at(scan.position, _WHOLE)
            except CorruptBatchError:
                return
            if offsets is None or scan.fault or (data := scan.data)[MAGIC_AT] != MAGIC:
                return
            yield *offsets, scan.position, data


def snapshot_problems(path: str) -> Iterator[tuple[str, int | None]]:
    """Yields each problem of a snapshot, and the byte at which it occurs. A snapshot must begin with a header record
    and end with a footer record (KIP-630). Raises CorruptBatchError, OSError."""
    first: object = None
    last: object = None
    with BatchScan(path) as scan:
        position = 0
        while scan.batch_at(position, scan.size) is not None:
            if scan.fault:
                yield REASONS[scan.fault], position
                return
            controls = [record for _, record in control_records(scan.data)]
            first = controls[0] if position == 0 and controls else first
            last = controls[-1] if controls else None
            position = scan.position
        if scan.left:
            yield f"the {scan.left} bytes at its end are not a whole batch", position
    if not isinstance(first, SnapshotHeaderRecord):
        yield "does not begin with the header of a snapshot", None
    if not isinstance(last, SnapshotFooterRecord):
        yield "does not end with the footer of a snapshot: it is not complete", None
