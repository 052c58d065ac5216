"""For the partitions that this broker leads, counts how many are in each replica state. Kafka's metrics show these
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.partitions import GONE, NOTHING_RARE, PartitionChunk


class LedPartition(NamedTuple):
    """A partition that this broker leads. `replicas` omits the replicas that a reassignment is still adding.
    `is_reassigning` says whether a reassignment is in progress.
    """

    topic: str
    partition: int
    replicas: int
    in_sync: int
    min_isr: int
    is_reassigning: bool

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < self.replicas

    @property
    def is_under_min_isr(self) -> bool:
        return self.in_sync < self.min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return self.in_sync == self.min_isr


@dataclass(slots=True)
class ReplicaCounts:
    """The values of Kafka's metrics UnderReplicatedPartitions, UnderMinIsrPartitionCount, AtMinIsrPartitionCount and
    ReassigningPartitions."""

    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0


def led(image: MetadataImage, node_id: int, min_isr_of: Callable[[str], int]) -> Iterator[LedPartition]:
    """Yields the partitions that this broker leads. `min_isr_of` returns a topic's min.insync.replicas. As in Kafka,
    that value is limited to the number of replicas.
    """
    topics: dict[int, tuple[str, int]] = {}  # by the topic's row in the image: its name and min.insync.replicas
    for chunk in image.partition_chunks:
        if node_id not in chunk.leader:
            continue
        for at, leader in enumerate(chunk.leader):
            topic_row = chunk.topic[at]
            if leader != node_id or topic_row == GONE:
                continue
            topic = topics.get(topic_row)
            if topic is None:
                name = image.topic_at(topic_row).name
                topic = topics[topic_row] = name, min_isr_of(name)
            yield _led(chunk, at, *topic)


def count(partitions: Iterable[LedPartition]) -> ReplicaCounts:
    counts = ReplicaCounts()
    for each in partitions:
        counts.under_replicated += each.is_under_replicated
        counts.under_min_isr += each.is_under_min_isr
        counts.at_min_isr += each.is_at_min_isr
        counts.reassigning += each.is_reassigning
    return counts


def _led(chunk: PartitionChunk, at: int, topic: str, min_isr: int) -> LedPartition:
    first, end = at * chunk.width, (at + 1) * chunk.width
    replicas = chunk.width - chunk.replicas[first:end].count(-1)
    in_sync = chunk.width - chunk.isr[first:end].count(-1)
    rare = chunk.rare.get(at, NOTHING_RARE) if chunk.rare else NOTHING_RARE
    reassigning = bool(rare.adding or rare.removing)
    least = min(min_isr, replicas)
    return LedPartition(topic, chunk.partition[at], replicas - len(rare.adding), in_sync, least, reassigning)
