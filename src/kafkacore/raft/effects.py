"""The disk work that a replica requests: changes of the log, and reads that may have to wait for a device.

The modules with Raft's rules (`election`, `replication`, ...) request work and pass a callback. The driver does the
work, and the callback receives the result. So no rule waits for a disk. Appends and syncs are not in this module: an
append only writes to the page cache, and `syncs` tracks which records are durable. But an append that needs a new
segment waits for `BeginSegment`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.voter_log import voters_of
from kafkacore.raft.voters import VoterHistory, VoterSet


class Truncate(NamedTuple):
    """Removes the records from `end_offset` on."""

    end_offset: int

    def perform(self, log: RaftLog) -> None:
        log.truncate(self.end_offset)


class WritePart(NamedTuple):
    """Writes a part of a snapshot that this replica is downloading."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes

    def perform(self, log: RaftLog) -> None:
        log.write_snapshot(self.snapshot_id, self.position, self.data)


class Adopt(NamedTuple):
    """Completes a downloaded snapshot and replaces the log with it. The result is the new history of the voters, or a
    SnapshotError if the voters cannot be read."""

    snapshot_id: OffsetAndEpoch
    static: VoterSet

    def perform(self, log: RaftLog) -> VoterHistory:
        # If a crash occurs between these two steps, the node empties the log at its next start (`replaces_log`).
        log.finish_snapshot(self.snapshot_id)
        log.begin_at_snapshot(self.snapshot_id)
        return voters_of(log, self.static)


class BeginSegment(NamedTuple):
    """Waits for the segment that an append needs. This work does not count as a change of the log, so a leader
    continues to work meanwhile.
    """

    def perform(self, log: RaftLog) -> None:
        log.begin_segment()


class ReadRecords(NamedTuple):
    """Reads whole batches from `offset` on. The result is empty if the records were deleted after the request, because
    a snapshot covers them.
    """

    offset: int
    max_bytes: int

    def perform(self, log: RaftLog) -> bytes:
        try:
            return log.read(self.offset, self.max_bytes)
        except OSError:
            if self.offset < log.start_offset:
                return b""
            raise


class SnapshotPart(NamedTuple):
    size: int  # the size of the whole snapshot in bytes
    data: bytes


class ReadSnapshot(NamedTuple):
    """Reads a part of a snapshot. The result is None if the snapshot has been deleted since the request."""

    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int

    def perform(self, log: RaftLog) -> SnapshotPart | None:
        try:
            size = log.snapshot_size(self.snapshot_id)
            inside = 0 <= self.position < size
            data = log.read_snapshot(self.snapshot_id, self.position, self.max_bytes) if inside else b""
            return SnapshotPart(size, data)
        except (FileNotFoundError, KeyError):
            return None


Change = Truncate | WritePart | Adopt
Beside = ReadRecords | ReadSnapshot | BeginSegment


class Work(NamedTuple):
    """Disk work to perform. `effect.perform(log)` may block, and returns the result to pass to `done`. Only one change
    of the log runs at a time; other work may run in parallel.
    """

    number: int
    effect: Change | Beside


class Effects:
    """The disk work that the rules have requested and that is not done yet. While a change of the log is in progress,
    the replica must not read the log. A follower that waits for a new segment does not read the log either, and handles
    no message until it has appended the records that need the segment.
    """

    def __init__(self) -> None:
        self._number = 0
        self._asked: list[Work] = []
        self._after: dict[int, Callable[[Any], None]] = {}
        self._change: int | None = None

    @property
    def is_changing(self) -> bool:
        return self._change is not None

    def change(self, effect: Change | BeginSegment, after: Callable[[Any], None]) -> None:
        assert self._change is None, "one change of the log at a time"
        self._change = self._ask(effect, after)

    def beside(self, effect: Beside, after: Callable[[Any], None]) -> None:
        self._ask(effect, after)

    def _ask(self, effect: Change | Beside, after: Callable[[Any], None]) -> int:
        self._number += 1
        self._asked.append(Work(self._number, effect))
        self._after[self._number] = after
        return self._number

    def take(self) -> list[Work]:
        """Returns the work that the rules have requested since the last call."""
        asked, self._asked = self._asked, []
        return asked

    def done(self, number: int, result: Any) -> None:
        """Passes the result to the callback of the work. A change of the log counts as finished before that call, so
        the callback can request the next change.
        """
        if number == self._change:
            self._change = None
        self._after.pop(number)(result)
