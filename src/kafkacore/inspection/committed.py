"""Finds committed records that a metadata log has lost: a start refuses such a log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kafkacore._fast.record.batch import CorruptBatchError
from kafkacore._fast.record.batch_scan import BatchScan
from kafkacore.raft.commit_mark import CommitMark
from kafkacore.raft.file_log import NO_SNAPSHOT
from kafkacore.runtime.files import OS_FILES
from kafkacore.storage import names
from kafkacore.storage.log_loader import damage_text

_WHOLE: Final = 1 << 31  # larger than any batch


def lost_records(directory: str) -> list[str]:
    """At most one problem, in the words with which a start refuses the log. Raises OSError."""
    listed = sorted(os.listdir(directory))
    segments = [parsed[0] for parsed in map(names.parse_file_name, listed) if parsed and parsed[1] == names.LOG]
    snapshots = [parsed[0] for parsed in map(names.parse_checkpoint_name, listed) if parsed is not None]
    newest = max(snapshots, default=0)
    if segments and segments[0] > newest:
        return [f"{_path(directory, segments[0])}: {NO_SNAPSHOT.format(segments[0], newest)}"]
    mark = CommitMark(directory, OS_FILES)
    end, path, position = _whole_until(directory, segments)
    if end >= mark.offset:
        return []
    return [str(mark.refuse(path, damage_text(position, end)))]


def _whole_until(directory: str, segments: list[int]) -> tuple[int, str, int]:
    """The offset below which whole batches follow each other, the last file with such a batch, and the byte where they
    end in it."""
    end, path, position = segments[0] if segments else 0, directory, 0
    for base in segments:
        if base != end:
            break
        path, position = _path(directory, base), 0
        for first, last, behind in _sound_batches(path):
            if first != end:
                break
            end, position = last + 1, behind
        if position < os.path.getsize(path):  # a start gives up all segments behind bytes that are no batch
            break
    return end, path, position


def _sound_batches(path: str) -> Iterator[tuple[int, int, int]]:
    """The base and last offset of each sound batch, and the byte where the next one begins."""
    with BatchScan(path) as scan:
        while True:
            try:
                offsets = scan.batch_at(scan.position, _WHOLE)
            except CorruptBatchError:
                return
            if offsets is None or scan.fault:
                return
            yield *offsets, scan.position


def _path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, names.file_name(base_offset, names.LOG))
