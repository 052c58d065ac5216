"""Committed metadata in the form that listeners of the driver get: each batch once and in order, or a snapshot that
replaces all earlier batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kafkacore.protocol.messages import Message


class CommittedBatch(NamedTuple):
    """A batch of committed records. `records` contains the metadata records, and is empty for a batch of control
    records."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[Message]
    size_bytes: int


class SnapshotLoad(Protocol):
    """Receives the records of a snapshot in parts. The listener gets the next batch only after `finish`. After an
    error, the listener gets nothing more."""

    def take(self, records: Sequence[Message]) -> None: ...
    def finish(self) -> None:
        """Finishes the load. The driver calls this after the last records of the snapshot."""


class NothingToLoad:
    """Ignores the records of a snapshot, for a listener that does not need them. `finish` only calls `then`."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self._then = then

    def take(self, records: Sequence[Message]) -> None:
        """Ignores the records."""

    def finish(self) -> None:
        self._then()


class Listener(Protocol):
    """Receives committed metadata. Called on the driver's loop. An error in a listener stops the node, because the node
    must not continue with metadata that it could not apply."""

    def on_batch(self, batch: CommittedBatch) -> None: ...
    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> SnapshotLoad:
        """Called before the parts of a snapshot: all metadata up to `offset` follows, and replaces everything that came
        before."""

    def on_leading(self, epoch: int) -> None:
        """Called when this replica leads and the listener has received every batch of earlier epochs."""

    def on_following(self, epoch: int) -> None:
        """Called when this replica does not lead."""
