"""Records of clients and commits of groups: what was acknowledged stays, and a read repeats."""

from __future__ import annotations

from typing import ClassVar

from kafkacore.simulation.checkers.observations import (
    CommitAcknowledged,
    CommitFetched,
    LogSurvived,
    RecordAcknowledged,
    RecordRead,
)
from kafkacore.simulation.checkers.violation import Checker


class OneRecordForEachOffset(Checker):
    """An offset holds the same record in every acknowledgement, in every read and at the end."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], tuple[bytes, str]] = {}

    def acknowledged(self, seen: RecordAcknowledged) -> None:
        self._same(seen.log, seen.offset, seen.value, "acknowledged")

    def read(self, seen: RecordRead) -> None:
        self._same(seen.log, seen.offset, seen.value, "read")

    def survived(self, seen: LogSurvived) -> None:
        for offset, value in seen.records.items():
            self._same(seen.log, offset, value, "kept")

    def _same(self, log: str, offset: int, value: bytes, how: str) -> None:
        known, known_how = self._records.setdefault((log, offset), (value, how))
        if known != value:
            raise self.broken(f"offset {offset} of {log} was {known!r} when {known_how}, and {value!r} when {how}")

    sees: ClassVar = {RecordAcknowledged: acknowledged, RecordRead: read, LogSurvived: survived}


class AcknowledgedRecordsStay(Checker):
    """A record that was acknowledged after a sync, or that was read below the high watermark of a log that syncs each
    record, is there at the end."""

    def __init__(self) -> None:
        self._records: dict[str, dict[int, bytes]] = {}

    def stored(self, seen: RecordAcknowledged | RecordRead) -> None:
        self._records.setdefault(seen.log, {})[seen.offset] = seen.value

    def survived(self, seen: LogSurvived) -> None:
        for offset, value in sorted(self._records.get(seen.log, {}).items()):
            if seen.records.get(offset) != value:
                raise self.broken(f"{seen.log} has lost {value!r} at offset {offset}")

    sees: ClassVar = {RecordAcknowledged: stored, RecordRead: stored, LogSurvived: survived}


class CommitsNeverGoBack(Checker):
    """A group's committed offset is never below one whose commit was acknowledged, and never one that nobody sent."""

    def __init__(self) -> None:
        self._acknowledged: dict[tuple[str, str], int] = {}

    def acknowledged(self, seen: CommitAcknowledged) -> None:
        key = (seen.group, seen.log)
        self._acknowledged[key] = max(seen.offset, self._acknowledged.get(key, -1))

    def fetched(self, seen: CommitFetched) -> None:
        if not seen.floor <= seen.offset <= seen.ceiling:
            raise self.broken(
                f"group {seen.group} has committed {seen.offset} of {seen.log}; {seen.floor} was acknowledged before, "
                f"and {seen.ceiling} was the last that was sent"
            )

    sees: ClassVar = {CommitAcknowledged: acknowledged, CommitFetched: fetched}
