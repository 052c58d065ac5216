"""Sets the roles (leader or follower) of many partitions. Makes one native call for each chunk of the
metadata image.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol

from kafkacore._fast.log.partition_handle import PartitionHandle, become_rows
from kafkacore.metadata.partitions import CHUNK_ROWS, NO_LEADER, PartitionChunk
from kafkacore.replication.fetchers import Follow


class Followers(Protocol):
    """Fetches the partitions that other brokers lead. The class Fetchers implements this interface."""

    def follow(self, partitions: Iterable[Follow]) -> None: ...
    def stop(self, partitions: Iterable[PartitionHandle]) -> None: ...


class _Batch:
    """Partitions whose rows are in one chunk."""

    __slots__ = ("handles", "min_isrs", "rows")

    def __init__(self) -> None:
        self.handles: list[PartitionHandle] = []
        self.rows = array("i")
        self.min_isrs = array("i")


class RoleChanges:
    """Collects partitions whose roles may have changed. `chunks` belong to the new metadata image. While this broker
    shuts down, it fetches only partitions whose ISR contains it.
    """

    def __init__(
        self, node_id: int, chunks: Sequence[PartitionChunk], followers: Followers | None, *, leaves: bool = False
    ) -> None:
        self._node_id = node_id
        self._chunks = chunks
        self._followers = followers
        self._leaves = leaves
        self._batches: dict[int, _Batch] = {}

    def add(self, row: int, handle: PartitionHandle, min_isr: int) -> None:
        """Adds a partition. `row` is the partition's row in the image, and `min_isr` is its topic's
        min.insync.replicas."""
        number, at = divmod(row, CHUNK_ROWS)
        batch = self._batch(number)
        batch.handles.append(handle)
        batch.rows.append(at)
        batch.min_isrs.append(min_isr)

    def add_run(self, first: int, handles: Sequence[PartitionHandle], min_isr: int) -> None:
        """Adds the partitions of consecutive rows, all within one chunk."""
        number, at = divmod(first, CHUNK_ROWS)
        batch = self._batch(number)
        batch.handles += handles
        batch.rows.extend(range(at, at + len(handles)))
        batch.min_isrs.extend([min_isr] * len(handles))

    def _batch(self, number: int) -> _Batch:
        found = self._batches.get(number)
        if found is None:
            found = self._batches[number] = _Batch()
        return found

    def carry_out(self) -> None:
        """Applies each partition's role. First stops fetching the partitions that this broker no longer follows. At the
        end, starts fetching the followed partitions from their leaders. If a partition already has newer epochs, it
        does not change.
        """
        here = (self._node_id, NO_LEADER)
        follows: list[Follow] = []
        for number, batch in self._batches.items():
            chunk, handles, rows = self._chunks[number], batch.handles, batch.rows
            epoch = chunk.leader_epoch
            stays = [chunk.leader[at] not in here for at in rows]
            if self._leaves:
                stays = [stay and self._node_id in chunk.isr_of(at) for at, stay in zip(rows, stays, strict=True)]
            if self._followers is not None:
                self._followers.stop([handle for handle, stay in zip(handles, stays, strict=True) if not stay])
            took = become_rows(
                handles, self._node_id, rows, batch.min_isrs, chunk.width, chunk.leader, epoch, chunk.partition_epoch,
                chunk.replicas, chunk.isr, chunk.recovery,
            )  # fmt: skip
            _mark_added(handles, rows, chunk, self._node_id)
            for handle, at, is_taken, stay in zip(handles, rows, took, stays, strict=True):
                if is_taken and stay:
                    follows.append(Follow(handle, chunk.leader[at], epoch[at]))
        self._batches.clear()
        if follows and self._followers is not None:
            self._followers.follow(follows)


def _mark_added(handles: Sequence[PartitionHandle], rows: Sequence[int], chunk: PartitionChunk, node_id: int) -> None:
    """Passes to each partition the replicas that a reassignment adds. A separate metric counts the bytes sent to those
    replicas.
    """
    for handle, at in zip(handles, rows, strict=True):
        adding = chunk.rare[at].adding if at in chunk.rare else ()
        if adding or handle.adds_replicas:
            handle.add_replicas(adding, node_id)
