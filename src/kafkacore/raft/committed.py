"""Committed metadata as the driver hands it to its listeners: each batch once and in order, or a snapshot in place of
the batches before its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from kafkacore.protocol.messages import Message


class CommittedBatch(NamedTuple):
    """`records` are metadata records; a batch of control records has none."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[Message]
    size_bytes: int


class SnapshotLoad(Protocol):
    """Takes the records of a snapshot in parts. The listener gets no batch before `finish`, and nothing at all after an
    error."""

    def take(self, records: Sequence[Message]) -> None: ...
    def finish(self) -> None:
        """All records of the snapshot have been taken."""


class NothingToLoad:
    """For a listener that does not need the records: it calls `then` at the end."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self._then = then

    def take(self, records: Sequence[Message]) -> None:
        """Ignores them: only `finish` matters."""

    def finish(self) -> None:
        self._then()


class Listener(Protocol):
    """Called on the driver's loop. An error in a listener ends the node: it must not go on with metadata that it could
    not apply."""

    def on_batch(self, batch: CommittedBatch) -> None: ...
    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> SnapshotLoad:
        """All metadata up to `offset` follows; it replaces everything that came before."""

    def on_leading(self, epoch: int) -> None:
        """This replica leads, and the listener has every batch from before its epoch."""

    def on_following(self, epoch: int) -> None:
        """This replica does not lead."""
