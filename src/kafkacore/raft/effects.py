"""Work that a replica asks of its disk: changes of the log, and reads that may have to wait for a device.

A rule asks for work and names a callback, which gets the result when the owner of the disk reports it. So no rule waits
for a disk. Appends and syncs are no effects: an append goes to the page cache, and `syncs` knows which records are
durable.
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
    """Writes a part of a snapshot that this replica downloads."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes

    def perform(self, log: RaftLog) -> None:
        log.write_snapshot(self.snapshot_id, self.position, self.data)


class Adopt(NamedTuple):
    """Completes a downloaded snapshot and replaces the log with it. The result is the voter set from then on, or a
    SnapshotError when the voters cannot be read."""

    snapshot_id: OffsetAndEpoch
    static: VoterSet

    def perform(self, log: RaftLog) -> VoterHistory:
        # After a crash between these two steps the next start empties the log (`replaces_log`).
        log.finish_snapshot(self.snapshot_id)
        log.begin_at_snapshot(self.snapshot_id)
        return voters_of(log, self.static)


class ReadRecords(NamedTuple):
    """Reads whole batches from `offset` on. The result is empty when a trim has removed the records meanwhile."""

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
    size: int  # of the whole snapshot
    data: bytes


class ReadSnapshot(NamedTuple):
    """Reads a part of a snapshot. The result is None when the snapshot was deleted meanwhile."""

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
Read = ReadRecords | ReadSnapshot


class Work(NamedTuple):
    """`effect.perform(log)` may block, and returns the result for `done`. One change runs at a time; reads may run
    beside it."""

    number: int
    effect: Change | Read


class Effects:
    """The effects that the rules have asked for and that are not done yet. While a change of the log is under way, its
    replica must not look at the log."""

    def __init__(self) -> None:
        self._number = 0
        self._asked: list[Work] = []
        self._after: dict[int, Callable[[Any], None]] = {}
        self._change: int | None = None

    @property
    def is_changing(self) -> bool:
        return self._change is not None

    def change(self, effect: Change, after: Callable[[Any], None]) -> None:
        assert self._change is None, "one change of the log at a time"
        self._change = self._ask(effect, after)

    def read(self, effect: Read, after: Callable[[Any], None]) -> None:
        self._ask(effect, after)

    def _ask(self, effect: Change | Read, after: Callable[[Any], None]) -> int:
        self._number += 1
        self._asked.append(Work(self._number, effect))
        self._after[self._number] = after
        return self._number

    def take(self) -> list[Work]:
        """The work that the rules have asked for since the last call."""
        asked, self._asked = self._asked, []
        return asked

    def done(self, number: int, result: Any) -> None:
        """Passes the result to the callback. The change is no longer under way by then, so the callback may ask for the
        next one."""
        if number == self._change:
            self._change = None
        self._after.pop(number)(result)
