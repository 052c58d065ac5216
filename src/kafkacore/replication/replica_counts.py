"""Counts partitions that this broker leads by the state of their replicas, for Kafka's metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import GONE, NOTHING_RARE, PartitionChunk


@dataclass(slots=True)
class ReplicaCounts:
    """Kafka's UnderReplicatedPartitions, UnderMinIsrPartitionCount, AtMinIsrPartitionCount, ReassigningPartitions."""

    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0


def count(image: MetadataImage, node_id: int, min_isr_of: Callable[[str], int]) -> ReplicaCounts:
    """`min_isr_of` gives a topic's min.insync.replicas. The number of replicas limits it, as in Kafka."""
    counts = ReplicaCounts()
    min_isrs: dict[int, int] = {}  # by topic row
    for chunk in image.partition_chunks:
        if node_id not in chunk.leader:
            continue
        for at, leader in enumerate(chunk.leader):
            topic_row = chunk.topic[at]
            if leader != node_id or topic_row == GONE:
                continue
            min_isr = min_isrs.get(topic_row)
            if min_isr is None:
                min_isr = min_isrs[topic_row] = min_isr_of(image.topic_at(topic_row).name)
            _count_row(counts, chunk, at, min_isr)
    return counts


def _count_row(counts: ReplicaCounts, chunk: PartitionChunk, at: int, min_isr: int) -> None:
    first, end = at * chunk.width, (at + 1) * chunk.width
    replicas = chunk.width - chunk.replicas[first:end].count(-1)
    in_sync = chunk.width - chunk.isr[first:end].count(-1)
    rare = chunk.rare.get(at, NOTHING_RARE) if chunk.rare else NOTHING_RARE
    least = min(min_isr, replicas)
    # A replica that a reassignment is still adding does not count as missing.
    counts.under_replicated += in_sync < replicas - len(rare.adding)
    counts.under_min_isr += in_sync < least
    counts.at_min_isr += in_sync == least
    counts.reassigning += bool(rare.adding or rare.removing)
