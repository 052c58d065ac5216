"""Finds committed records that a metadata log has lost. A node refuses to start with such a log."""

from __future__ import annotations

import os

from kafkacore.inspection.metadata_log import sound_batches
from kafkacore.raft.commit_mark import CommitMark
from kafkacore.raft.file_log import NO_SNAPSHOT
from kafkacore.runtime.files import OS_FILES
from kafkacore.storage import names
from kafkacore.storage.log_loader import damage_text


def lost_records(directory: str) -> list[str]:
    """Returns at most one problem: the message with which a node would refuse to start with this log. Raises
    OSError."""
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
    """Returns the end of the sequence of whole batches: its offset, its file, and its position in the file."""
    end, path, position = segments[0] if segments else 0, directory, 0
    for base in segments:
        if base != end:
            break
        path, position = _path(directory, base), 0
        for first, last, behind, _ in sound_batches(path):
            if first != end:
                break
            end, position = last + 1, behind
        if position < os.path.getsize(path):  # a starting node discards all segments after bytes that are not a batch
            break
    return end, path, position


def _path(directory: str, base_offset: int) -> str:
    return os.path.join(directory, names.file_name(base_offset, names.LOG))
