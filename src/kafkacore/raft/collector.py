"""Lets a leader's appends share one write, one sync and one Fetch."""

from __future__ import annotations

from collections import deque

from kafkacore.raft.log import RaftLog


class Collector:
    """Collects a leader's appends. While no append waits for its commit, a batch goes to the log immediately. Otherwise
    the collector keeps batches until the waiting append is committed, the first batch has waited for `linger_ms`, or
    the batches have `max_bytes`. In Apache Kafka, controller.quorum.append.linger.ms delays every append (KIP-595).
    Here this setting is only an upper bound."""

    def __init__(self, log: RaftLog, linger_ms: int, max_bytes: int) -> None:
        self._log = log
        self._linger_ms, self._max_bytes = linger_ms, max_bytes
        self._batches: deque[bytes] = deque()
        self._bytes = 0
        self._end_offset = 0
        self.due_ms: int | None = None  # when the collected batches must go to the log; None if there are none

    @property
    def end_offset(self) -> int:
        """The offset at which the next batch begins."""
        return self._end_offset if self._batches else self._log.end_offset

    def add(self, data: bytes, end_offset: int, high_watermark: int, now_ms: int) -> bool:
        """Adds a batch that ends at `end_offset`. Returns True if all collected batches must go to the log now."""
        in_flight = high_watermark < self._log.end_offset
        self._batches.append(data)
        self._bytes += len(data)
        self._end_offset = end_offset
        if self.due_ms is None:
            self.due_ms = now_ms + self._linger_ms
        return not in_flight or self._linger_ms == 0 or self._bytes >= self._max_bytes

    @property
    def first(self) -> bytes | None:
        """Returns the batch that must be written to the log next, or None if no batch waits."""
        return self._batches[0] if self._batches else None

    def remove_first(self) -> None:
        self._bytes -= len(self._batches.popleft())
        if not self._batches:
            self.due_ms = None

    def clear(self) -> None:
        self._batches.clear()
        self._bytes, self.due_ms = 0, None
