"""What is committed, as those who apply it are given it: batches in order, each exactly once, or a snapshot in their
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
    """Called on the driver's loop. An error in it ends the node: it must not go on with metadata it could not apply."""

    def on_batch(self, batch: CommittedBatch) -> None: ...
    def on_snapshot(self, records: Iterable[Message], offset: int, epoch: int, timestamp_ms: int) -> None:
        """All up to `offset`, in place of what was given before."""

    def on_leading(self, epoch: int) -> None:
        """This replica leads and everything from before its epoch was given."""

    def on_following(self, epoch: int) -> None:
        """This replica does not lead."""
