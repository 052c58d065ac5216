"""Counts of a coordinator's work."""

from __future__ import annotations

from kafkacore.coordinator.journal import Journal


class CoordinatorMetrics:
    """The counts of one coordinator. They include the journals of partitions that the coordinator no longer leads."""

    def __init__(self) -> None:
        self.loads = 0
        self.load_ms = 0.0
        self.longest_load_ms = 0.0
        self.batches = 0
        self.records = 0
        self.size_bytes = 0

    def loaded(self, took_ms: float) -> None:
        self.loads += 1
        self.load_ms += took_ms
        self.longest_load_ms = max(self.longest_load_ms, took_ms)

    def add(self, journal: Journal) -> None:
        self.batches += journal.batches
        self.records += journal.records
        self.size_bytes += journal.size_bytes
