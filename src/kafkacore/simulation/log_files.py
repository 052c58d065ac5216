"""Reads the segments of one log from a simulated disk, with the checkers' own reader of batches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final

from kafkacore._fast.world.simulated_disk import SimulatedDisk
from kafkacore.simulation.checkers import batches
from kafkacore.simulation.checkers.observations import Entry

SUFFIX: Final = ".log"
CHECKPOINT: Final = ".checkpoint"


class _Segment:
    """The part of a segment file that was read: its entries, their size in bytes, and the header of its last batch,
    with the header's position. A later read compares the header with the file, to detect a truncation. This works
    because a header contains the leader epoch and a checksum of the records."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.voters: list[tuple[int, frozenset[int]]] = []
        self.size = 0
        self.last_at, self.last_header = 0, b""

    def read(self, size: int, part: Callable[[int, int], bytes]) -> None:
        """Reads what was added to a file, or the whole file if it was truncated. The file has `size` bytes. `part` gets
        a position and a number of bytes, and returns these bytes."""
        if size < self.size or part(self.last_at, len(self.last_header)) != self.last_header:
            self.entries, self.voters, self.size, self.last_at, self.last_header = [], [], 0, 0, b""
        if size == self.size:
            return
        data = part(self.size, size - self.size)
        found = batches.entries(data)
        if found:
            start, end = batches.last(data)
            self.entries += found
            self.voters += batches.voters(data)
            self.last_at, self.last_header = self.size + start, data[start : start + batches.HEADER_BYTES]
            self.size += end


def _part(data: bytes, at: int, size: int) -> bytes:
    return data[at : at + size]


class LogFiles:
    """The files of one log. `start` is the first offset in the log, and `end` is the offset after its last record. A
    log without a segment file begins at its newest snapshot."""

    def __init__(self, disk: SimulatedDisk, directory: str) -> None:
        self._disk, self._directory = disk, directory
        self._segments: dict[str, _Segment] = {}
        self._entries: list[Entry] = []
        self.start = self.end = 0
        self._epoch_at_start: int | None = 0
        self._synced: dict[str, _Segment] = {}  # the part of each segment file that a power cut leaves
        # Name of the newest snapshot, and the voters in it.
        self._snapshot: tuple[str, frozenset[int]] = ("", frozenset())

    def read(self) -> int | None:
        """Reads the files that have changed since the last call. Returns the first offset at which the log is
        different, or None if it has not changed."""
        try:
            names = sorted(name for name in self._disk.list(self._directory) if name.endswith((SUFFIX, CHECKPOINT)))
        except FileNotFoundError:
            names = []
        logs = [name for name in names if name.endswith(SUFFIX)]
        self._segments = {name: self._segments.get(name) or _Segment() for name in logs}
        entries: list[Entry] = []
        for name in logs:
            self._read_segment(name, self._segments[name])
            entries += self._segments[name].entries
        # Retention may delete only the first records of a file and keep the file. The checkers then regard the
        # beginning of that file as the start of the log.
        start = int(logs[0].removesuffix(SUFFIX)) if logs else 0
        changed = self._first_change(entries, start)
        self._entries, self.start = entries, start
        self.end = entries[-1].end if entries else start
        snapshots = [name.removesuffix(CHECKPOINT).split("-") for name in names if name.endswith(CHECKPOINT)]
        ids = {int(offset): int(epoch) for offset, epoch in snapshots if offset.isdigit()}
        self._epoch_at_start = 0 if start == 0 else ids.get(start)
        return changed

    def _read_segment(self, name: str, known: _Segment) -> None:
        path = f"{self._directory}/{name}"
        known.read(self._disk.size(path), lambda at, size: self._disk.read_part(path, at, size))

    def _first_change(self, entries: list[Entry], start: int) -> int | None:
        old = self._entries
        if start != self.start and (not old or start not in (old[0].base, *(entry.end for entry in old))):
            return start
        if entries == old:
            return None
        same = 0
        shift = bisect_left([entry.base for entry in old], entries[0].base) if entries else len(old)
        for one, other in zip(entries, old[shift:], strict=False):
            if one != other:
                break
            same += 1
        return entries[same - 1].end if same else start

    def entries_from(self, start: int) -> tuple[Entry, ...]:
        return tuple(self._entries[bisect_left([entry.base for entry in self._entries], start) :])

    def epoch_before(self, offset: int) -> int | None:
        ends = [entry.end for entry in self._entries]
        at = bisect_right(ends, offset) - 1
        if at >= 0 and ends[at] == offset:
            return self._entries[at].epoch
        return self._epoch_at_start if offset == self.start else None

    def voters(self) -> frozenset[int]:
        """Returns the voters in the last VotersRecord of the part of the log that was read. If that part has none,
        returns the voters in the newest snapshot. The set is empty if neither contains voters."""
        for name in sorted(self._segments, reverse=True):
            if found := self._segments[name].voters:
                return found[-1][1]
        names = [name for name in self._disk.list(self._directory) if name.endswith(CHECKPOINT)]
        newest = max(names, default="")
        if newest != self._snapshot[0]:
            found = batches.voters(self._disk.read(f"{self._directory}/{newest}"))
            self._snapshot = newest, found[-1][1] if found else frozenset()
        return self._snapshot[1]

    def synced_end(self) -> int:
        """Returns the end offset of the records that would survive a power cut at this moment. Records after a gap do
        not count."""
        end = 0
        try:
            names = sorted(name for name in self._disk.list(self._directory) if name.endswith(SUFFIX))
        except FileNotFoundError:
            return 0
        for number, name in enumerate(names):
            base = int(name.removesuffix(SUFFIX))
            if number == 0:
                end = base
            try:
                data = self._disk.synced(f"{self._directory}/{name}")
            except FileNotFoundError:
                break
            segment = self._synced.setdefault(name, _Segment())
            segment.read(len(data), partial(_part, data))
            found = segment.entries
            if not found and number:
                break
            if found and found[0].base == end:
                end = found[-1].end
        return end
