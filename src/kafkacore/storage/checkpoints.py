"""Checkpoint files: a line with the version, a line with the number of entries, and a line for each entry.

`OffsetCheckpoint` is the format of recovery-point-offset-checkpoint, log-start-offset-checkpoint,
replication-offset-checkpoint and cleaner-offset-checkpoint. `LeaderEpochCheckpoint` is the format of
leader-epoch-checkpoint (KIP-101).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final

from kafkacore.runtime.files import OS_FILES, Files, replace
from kafkacore.storage.errors import MalformedFileError

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET: Final = "replication-offset-checkpoint"
CLEANER_OFFSET: Final = "cleaner-offset-checkpoint"
OFFSETS: Final = (RECOVERY_POINT, LOG_START_OFFSET, REPLICATION_OFFSET, CLEANER_OFFSET)
LEADER_EPOCH: Final = "leader-epoch-checkpoint"
_VERSION: Final = "0"
_MAX_EPOCH: Final = (1 << 31) - 1
_MAX_OFFSET: Final = (1 << 63) - 1
_MOST_DIGITS: Final = 20


class OffsetCheckpoint:
    """A checkpoint of offsets by topic and partition. `name` is one of the constants above, and `directory` is a log
    directory."""

    def __init__(self, directory: str, name: str, files: Files = OS_FILES) -> None:
        self.path = os.path.join(directory, name)
        self._files = files

    def read(self) -> dict[tuple[str, int], int]:
        """Returns the offsets by topic and partition. Returns an empty mapping if the file does not exist. Raises
        MalformedFileError, OSError."""
        offsets: dict[tuple[str, int], int] = {}
        for line in _read_entries(self._files, self.path):
            fields = line.split()
            if len(fields) != 3:
                raise MalformedFileError(self.path, f"line {line!r} is not a topic, a partition and an offset")
            partition, offset = _numbers(self.path, line, fields[1:])
            offsets[fields[0], partition] = offset
        return offsets

    def write(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Writes the offsets atomically and durably. Raises OSError."""
        lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
        replace(self._files, self.path, _encode(len(offsets), lines))


class LeaderEpochCheckpoint:
    """A checkpoint of the start offsets of the leader epochs in a partition's log, oldest first. `directory` is the
    directory of the partition."""

    def __init__(self, directory: str, files: Files = OS_FILES) -> None:
        self.path = os.path.join(directory, LEADER_EPOCH)
        self._files = files

    def read(self) -> list[tuple[int, int]]:
        """Returns the epochs and their start offsets. The list is empty if the file does not exist. Raises
        MalformedFileError, OSError."""
        entries: list[tuple[int, int]] = []
        for line in _read_entries(self._files, self.path):
            fields = line.split(" ")
            if len(fields) != 2:
                raise MalformedFileError(self.path, f"line {line!r} is not an epoch and an offset")
            epoch, offset = _numbers(self.path, line, fields)
            if not (0 <= epoch <= _MAX_EPOCH and 0 <= offset <= _MAX_OFFSET):
                raise MalformedFileError(self.path, f"line {line!r} has an epoch or an offset out of range")
            entries.append((epoch, offset))
        return entries

    def write(self, entries: Iterable[tuple[int, int]]) -> None:
        """Writes the epochs and their start offsets atomically and durably. Raises OSError."""
        lines = [f"{epoch} {offset}" for epoch, offset in entries]
        replace(self._files, self.path, _encode(len(lines), lines))


def _encode(count: int, lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(count), *lines)).encode()


def _read_entries(files: Files, path: str) -> list[str]:
    """Returns the lines of the entries. Returns no lines if the file ends before the line with the number of entries,
    because Kafka creates the file before it writes to it."""
    try:
        text = files.read(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise MalformedFileError(path, "is not text in UTF-8") from None
    lines = text.removesuffix("\n").replace("\r\n", "\n").split("\n")
    if lines in ([""], [_VERSION]):
        return []
    if lines[0] != _VERSION:
        raise MalformedFileError(path, f"has version {lines[0]!r}, but only version {_VERSION} is known")
    (count,) = _numbers(path, lines[1], lines[1:2])
    if count != len(lines) - 2:
        raise MalformedFileError(path, f"should have {count} entries, but has {len(lines) - 2}")
    return lines[2:]


def _numbers(path: str, line: str, fields: list[str]) -> list[int]:
    """Returns the fields of a line as numbers. Raises MalformedFileError if a field is not a 64-bit integer."""
    for field in fields:
        # int() raises its own error for thousands of digits.
        is_number = field.isascii() and field.removeprefix("-").isdigit() and len(field) <= _MOST_DIGITS
        if not is_number or abs(int(field)) > _MAX_OFFSET:
            raise MalformedFileError(path, f"line {line!r} does not contain the expected numbers")
    return [int(field) for field in fields]
