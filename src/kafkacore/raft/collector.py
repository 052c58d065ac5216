"""Changes wait here for the append before them, so that many changes share one write, one sync and one Fetch."""

from __future__ import annotations

from kafkacore.raft.log import RaftLog


class Collector:
    """Collects a leader's appends. While no append waits for its commit, a batch goes to the log at once. Otherwise
    batches collect until that append is committed, until the first of them has waited for `linger_ms`, or until they
    have `max_bytes`. In Apache Kafka controller.quorum.append.linger.ms makes every change wait (KIP-595); here it is
    only an upper bound."""

    def __init__(self, log: RaftLog, linger_ms: int, max_bytes: int) -> None:
        self._log = log
        self._linger_ms, self._max_bytes = linger_ms, max_bytes
        self._batches: list[bytes] = []
        self._bytes = 0
        self._end_offset = 0
        self.due_ms: int | None = None  # when the batches must go to the log; None while no batch waits

    @property
    def end_offset(self) -> int:
        """Where the next batch begins."""
        return self._end_offset if self._batches else self._log.end_offset

    def add(self, data: bytes, end_offset: int, high_watermark: int, now_ms: int) -> bool:
        """Takes a batch that ends at `end_offset`. Returns True when all waiting batches must go to the log now."""
        in_flight = high_watermark < self._log.end_offset
        self._batches.append(data)
        self._bytes += len(data)
        self._end_offset = end_offset
        if self.due_ms is None:
            self.due_ms = now_ms + self._linger_ms
        return not in_flight or self._linger_ms == 0 or self._bytes >= self._max_bytes

    def take(self) -> list[bytes]:
        """Removes and returns the waiting batches."""
        batches, self._batches = self._batches, []
        self._bytes, self.due_ms = 0, None
        return batches
