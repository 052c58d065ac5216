"""Counts the controller's work, for metrics (KIP-631)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkacore.metadata.delta import MetadataDelta
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import CHUNK_ROWS, NO_LEADER, PartitionChunk
from kafkacore.runtime.sampling import Distribution

FEW_ROWS: Final = 1000  # if more partitions than this have changed, numpy searches for the elections


class Counts:
    """The controller's loop changes the counts. Any thread can read them."""

    def __init__(self) -> None:
        self.started = 0  # decisions that were started
        self.timed_out = 0  # decisions that were not committed within their request's timeout
        self.late_heartbeats = 0
        self.computing_ms = Distribution()
        self.unclean_elections = 0  # elections of leaders that were in neither the ISR nor the ELR
        self.elections_from_elr = 0

    def leaders_changed(self, before: MetadataImage, after: MetadataImage, delta: MetadataDelta) -> None:
        """Counts the elections between the images `before` and `after`."""
        for row in delta.partition_rows if delta.most_rows <= FEW_ROWS else _candidates(before, after):
            number, index = divmod(row, CHUNK_ROWS)
            if number < len(before.partition_chunks) and index < len(before.partition_chunks[number]):
                self._count(before.partition_chunks[number], after.partition_chunks[number], index)

    def _count(self, old: PartitionChunk, new: PartitionChunk, index: int) -> None:
        leader = new.leader[index]
        same = (old.topic[index], old.partition[index]) == (new.topic[index], new.partition[index])
        if leader in (NO_LEADER, old.leader[index]) or not same or leader in old.isr_of(index):
            return
        rare = old.rare.get(index)
        if rare is not None and leader in rare.elr:
            self.elections_from_elr += 1
        else:
            self.unclean_elections += 1


def _candidates(before: MetadataImage, after: MetadataImage) -> Iterator[int]:
    """Yields the rows of the partitions whose new leader was not in the ISR. Skips the chunks of rows that both images
    share, because these chunks have not changed."""
    import numpy as np  # noqa: PLC0415 - takes some 100 ms; large changes have loaded it already

    for number, (old, new) in enumerate(zip(before.partition_chunks, after.partition_chunks, strict=False)):
        if old is new or not len(old):
            continue
        leaders = np.frombuffer(new.leader, np.int32)[: len(old)]
        rows = np.flatnonzero((leaders != np.frombuffer(old.leader, np.int32)) & (leaders != NO_LEADER))
        leaders, isr = leaders[rows], np.frombuffer(old.isr, np.int32)
        outside = np.ones(len(rows), bool)
        for place in range(old.width):
            outside &= isr[place :: old.width][rows] != leaders
        for index in rows[outside].tolist():
            yield number * CHUNK_ROWS + index
