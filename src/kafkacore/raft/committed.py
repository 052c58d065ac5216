"""Committed metadata as the driver hands it to its listeners: each batch once and in order, or a snapshot in their
place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


class Listener(Protocol):
    """Called on the driver's loop. An error in a listener ends the node: it must not go on with metadata that it could
    not apply."""

    def on_batch(self, batch: CommittedBatch) -> None: ...
    def on_snapshot(self, records: Iterable[Message], offset: int, epoch: int, timestamp_ms: int) -> None:
        """All metadata up to `offset`; it replaces everything that came before."""

    def on_leading(self, epoch: int) -> None:
        """This replica leads, and the listener has every batch from before its epoch."""

    def on_following(self, epoch: int) -> None:
        """This replica does not lead."""
