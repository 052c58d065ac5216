"""Checkers of a quorum's logs: they match, and committed entries are never lost (sections 5.3 and 5.4 of the Raft
paper). An entry is one batch."""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar

from kafkacore.simulation.checkers.observations import (
    Delivered,
    Entry,
    HighWatermark,
    Leads,
    LogSeen,
    OnDisk,
    Started,
    VotersAre,
)
from kafkacore.simulation.checkers.violation import Checker


class LogMatching(Checker):
    """If two logs have an entry with the same end and epoch, they are equal up to that entry.

    By induction it is enough to check two things. First, an entry with the same end and epoch has the same bytes in
    both logs. Second, the entry before it has the same epoch in both logs.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, int, int | None, int]] = {}

    def log(self, seen: LogSeen) -> None:
        before, at, epoch = seen.before, seen.start, seen.before
        for entry in seen.entries:
            if entry.base != at:
                raise self.broken(
                    f"the log of node {seen.node} has an entry at {entry.base} after one that ends at {at}"
                )
            if epoch is not None and entry.epoch < epoch:
                raise self.broken(
                    f"the log of node {seen.node} goes back, at {at}, from epoch {epoch} to epoch {entry.epoch}"
                )
            self._entry(seen.node, entry, before)
            at, epoch, before = entry.end, entry.epoch, entry.epoch

    def _entry(self, node: int, entry: Entry, before: int | None) -> None:
        key = (entry.end, entry.epoch)
        known = self._known.get(key)
        if known is None:
            self._known[key] = (entry.base, entry.digest, before, node)
            return
        base, digest, other_before, other = known
        same = base == entry.base and digest == entry.digest
        if not same or (None not in (before, other_before) and before != other_before):
            raise self.broken(
                f"nodes {other} and {node} differ at {entry.base}, in or before the entry of epoch {entry.epoch} that "
                f"ends at {entry.end}"
            )
        if other_before is None:
            self._known[key] = (base, digest, before, other)

    sees: ClassVar = {LogSeen: log}


class NodeLog:
    """A checker's own copy of a node's log."""

    def __init__(self) -> None:
        self.start = 0
        self.ends: list[int] = []
        self.entries: list[Entry] = []
        self.disk_end = 0
        self.life = 0
        self.high_watermark = 0

    def replace_from(self, start: int, before: int | None, entries: tuple[Entry, ...]) -> None:
        keep = bisect_left(self.ends, start + 1)
        # If no stored entry has the end offset `start` and the epoch `before`, the node has replaced older records by a
        # snapshot. So the stored entries are dropped.
        if keep and (self.ends[keep - 1] != start or before not in (None, self.entries[keep - 1].epoch)):
            keep = 0
        if keep == 0:
            self.start = start
        del self.ends[keep:], self.entries[keep:]
        self.entries += entries
        self.ends += [entry.end for entry in entries]

    def ending_at(self, end: int) -> Entry | None:
        place = bisect_left(self.ends, end)
        return self.entries[place] if place < len(self.ends) and self.ends[place] == end else None

    def between(self, start: int, end: int) -> list[Entry]:
        return self.entries[bisect_left(self.ends, start + 1) : bisect_left(self.ends, end + 1)]


class CommittedStays(Checker):
    """If a node regards an entry as committed, every node has the same entry at this offset, and each later leader has
    the entry in its log (state machine safety, leader completeness). A leader commits only up to an entry of its own
    epoch, which must be on the disks of a majority of the voters. The high watermark of a node never decreases while
    the node runs."""

    def __init__(self) -> None:
        self._logs: dict[int, NodeLog] = {}
        self._voters: frozenset[int] = frozenset()
        self._committed: dict[int, Entry] = {}
        # Each pair is an end offset, and the epoch of the leader that committed the entries below this offset.
        self._commit_epochs: list[tuple[int, int]] = []

    def _log(self, node: int) -> NodeLog:
        return self._logs.setdefault(node, NodeLog())

    def voters(self, seen: VotersAre) -> None:
        self._voters = seen.nodes

    def started(self, seen: Started) -> None:
        log = self._log(seen.node)
        log.life, log.high_watermark, log.disk_end = seen.life, 0, seen.end

    def log(self, seen: LogSeen) -> None:
        log = self._log(seen.node)
        log.replace_from(seen.start, seen.before, seen.entries)
        end = log.ends[-1] if log.ends else log.start
        if end < log.high_watermark:
            raise self.broken(f"node {seen.node} cut its log to {end}, below its high watermark {log.high_watermark}")
        for entry in log.between(seen.start, log.high_watermark):
            self._agrees(seen.node, entry)

    def on_disk(self, seen: OnDisk) -> None:
        self._log(seen.node).disk_end = seen.end

    def high_watermark(self, seen: HighWatermark) -> None:
        log = self._log(seen.node)
        if seen.life == log.life and seen.offset < log.high_watermark:
            raise self.broken(
                f"the high watermark of node {seen.node} went back from {log.high_watermark} to {seen.offset}"
            )
        start, log.high_watermark = log.high_watermark, seen.offset
        if seen.offset > start:
            self._commits(seen.node, log, start, seen)

    def _commits(self, node: int, log: NodeLog, start: int, seen: HighWatermark) -> None:
        last = log.ending_at(seen.offset)
        if last is None and seen.offset > log.start:
            raise self.broken(f"node {node} commits up to {seen.offset}, but none of its batches ends there")
        if seen.epoch >= 0 and last is not None and last.end not in self._committed:
            self._rests_on_majority(node, last, seen.epoch)
        for entry in log.between(start, seen.offset):
            self._agrees(node, entry)
        if seen.epoch >= 0:
            self._commit_epochs.append((seen.offset, seen.epoch))

    def _rests_on_majority(self, node: int, last: Entry, epoch: int) -> None:
        if last.epoch != epoch:
            raise self.broken(
                f"node {node} leads epoch {epoch} and commits up to {last.end}, which is the end of an entry "
                f"of epoch {last.epoch} (Raft 5.4.2)"
            )
        holders = [
            voter
            for voter in sorted(self._voters)
            if self._log(voter).disk_end >= last.end and self._log(voter).ending_at(last.end) == last
        ]
        if self._voters and len(holders) <= len(self._voters) // 2:
            raise self.broken(
                f"node {node} commits up to {last.end} in epoch {epoch}, but of voters {sorted(self._voters)} only "
                f"{holders} have it on disk"
            )

    def _agrees(self, node: int, entry: Entry) -> None:
        known = self._committed.setdefault(entry.end, entry)
        if known != entry:
            raise self.broken(f"{known} is committed, but node {node} has {entry} in its place")

    def delivered(self, seen: Delivered) -> None:
        for entry in seen.entries:
            known = self._committed.get(entry.end)
            if known is None:
                raise self.broken(f"node {seen.node} delivered {entry}, which no leader has committed")
            if known != entry:
                raise self.broken(f"{known} is committed, but node {seen.node} delivered {entry}")

    def leads(self, seen: Leads) -> None:
        """Checks that the log of a new leader holds every entry that leaders of earlier epochs have committed."""
        log = self._log(seen.node)
        end = max((end for end, epoch in self._commit_epochs if epoch < seen.epoch), default=0)
        self._commit_epochs = [(end, seen.epoch - 1), *(each for each in self._commit_epochs if each[1] >= seen.epoch)]
        for entry_end, entry in self._committed.items():
            if log.start < entry_end <= end and log.ending_at(entry_end) != entry:
                raise self.broken(
                    f"node {seen.node} leads epoch {seen.epoch} without {entry}, which was committed before"
                )

    sees: ClassVar = {
        VotersAre: voters,
        Started: started,
        LogSeen: log,
        OnDisk: on_disk,
        HighWatermark: high_watermark,
        Delivered: delivered,
        Leads: leads,
    }


class DeliveredInOrder(Checker):
    """A node passes every committed entry to its state machine, once and in order. A snapshot may take the place of the
    first entries."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, int, str], int] = {}

    def delivered(self, seen: Delivered) -> None:
        for entry in seen.entries:
            key = (seen.node, seen.life, seen.to)
            end = self._ends.get(key)
            if end is not None and entry.base < end:
                raise self.broken(f"node {seen.node} delivered {entry.base} again after {end}")
            self._ends[key] = entry.end

    sees: ClassVar = {Delivered: delivered}
