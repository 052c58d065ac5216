"""Counters and durations of one replica, for metrics (KIP-595). Times are monotonic milliseconds."""

from __future__ import annotations

from collections import deque
from typing import Final

from kafkacore.raft.roles import NOBODY, Candidate, Follower, Leader, Prospective, Role
from kafkacore.runtime.sampling import Recent

MAX_UNCOMMITTED: Final = 10_000  # The commit latency is measured for at most this many uncommitted batches.


class Measures:
    """The measurements of one replica. The driver reports events to this object. Any thread can read it."""

    def __init__(self, now_ms: int) -> None:
        self.commit_ms, self.election_ms = Recent(now_ms), Recent(now_ms)
        self.appended_records, self.fetched_records = Recent(now_ms), Recent(now_ms)
        self.new_leaders = 0
        self.loaded_snapshots = 0
        self.snapshot_bytes = 0  # size of the last snapshot that was written
        self.snapshot_ms = now_ms  # the time when that snapshot was written, or when this replica started
        self._appended: deque[tuple[int, int]] = deque()  # (last offset, time of the append) of each uncommitted batch
        self._election_began_ms: int | None = None
        self._leader = (0, NOBODY)

    def appended(self, count: int, last_offset: int, now_ms: int) -> None:
        """Counts an append that this replica makes as the leader."""
        self.appended_records.record(count, now_ms)
        if len(self._appended) < MAX_UNCOMMITTED:
            self._appended.append((last_offset, now_ms))

    def fetched(self, count: int, now_ms: int) -> None:
        """Counts records that this replica has fetched as a follower or observer."""
        self.fetched_records.record(count, now_ms)

    def turned(self, role: Role, epoch: int, leader_id: int, high_watermark: int, now_ms: int) -> None:
        """Stores the replica's state. The driver calls this after it has handled an event."""
        if isinstance(role, Leader):
            while self._appended and self._appended[0][0] < high_watermark:
                self.commit_ms.record(now_ms - self._appended.popleft()[1], now_ms)
        elif self._appended:
            self._appended.clear()
        if isinstance(role, Prospective | Candidate):
            if self._election_began_ms is None:
                self._election_began_ms = now_ms
        elif self._election_began_ms is not None and isinstance(role, Leader | Follower):
            self.election_ms.record(now_ms - self._election_began_ms, now_ms)
            self._election_began_ms = None
        if leader_id != NOBODY and (epoch, leader_id) != self._leader and isinstance(role, Leader | Follower):
            self._leader = epoch, leader_id
            self.new_leaders += 1

    def wrote_snapshot(self, size_bytes: int, now_ms: int) -> None:
        self.snapshot_bytes, self.snapshot_ms = size_bytes, now_ms
