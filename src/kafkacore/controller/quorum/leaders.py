"""Changes of partitions after a broker came, left, or lost a directory: one scan of the columns, one decision for equal
partitions of a topic, one record for each change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from kafkacore.controller.common.partition_change import Election, Rules, Target, change
from kafkacore.controller.quorum.decisions import Settings, min_isr, unclean_elections
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partition_records import ChangeRun, Record
from kafkacore.metadata.partitions import Partition, PartitionChunk, alike
from kafkacore.protocol.uuid import UNASSIGNED_DIRECTORY, Uuid

NO_BROKER: Final = -1


class LeaderChanges:
    """Elects for many partitions at once. `removed` is about to leave and `added` about to join (the image does not
    have that yet). `unclean` came back without a clean shutdown and may have lost records."""

    def __init__(
        self, image: MetadataImage, settings: Settings, *,
        removed: int = NO_BROKER, added: int = NO_BROKER, unclean: int = NO_BROKER,
    ) -> None:  # fmt: skip
        self._image, self._settings = image, settings
        self._removed, self._added, self._unclean = removed, added, unclean
        self._topic_rules: dict[int, tuple[int, bool]] = {}

    def records(self, rows: Iterable[int]) -> list[Record]:
        made: list[Record] = []
        for chunk, at, count in alike(self._image.partition_chunks, rows):
            for first, same in _of_one_kind(chunk, at, count):
                record = self._change(chunk.get(first))
                if record is not None:
                    made.append(record if same == 1 else ChangeRun(record, chunk.partition[first : first + same]))
        return made

    def _change(self, partition: Partition) -> Any | None:
        topic = self._image.topic_at(partition.topic_row)
        least, unclean_allowed = self.rules_of(partition, topic)
        target = Target(
            isr=[each for each in partition.isr if each not in (self._removed, self._unclean)],
            unclean_shutdown=frozenset([self._unclean]) if self._unclean != NO_BROKER else frozenset(),
            election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
        )
        return change(partition, topic.topic_id, target, self.rules(partition, least))

    def rules(self, partition: Partition, least_isr: int) -> Rules:
        def may_lead(broker_id: int) -> bool:
            return broker_id in partition.replicas and self._may_lead(broker_id, partition.directory(broker_id))

        return Rules(
            may_lead, lambda broker_id: default_directory(self._image, broker_id), least_isr, self._image.elr_enabled
        )

    def _may_lead(self, broker_id: int, directory: Uuid) -> bool:
        broker = self._image.brokers.get(broker_id)
        if broker is None or broker_id in (self._removed, self._unclean):
            return False
        return (broker_id == self._added or broker.active) and broker.has_online_directory(directory)

    def rules_of(self, partition: Partition, topic: Topic) -> tuple[int, bool]:
        """min.insync.replicas of a partition's topic, and whether it allows unclean elections."""
        known = self._topic_rules.get(partition.topic_row)
        if known is None:
            least = min_isr(self._image, self._settings, topic)
            known = least, unclean_elections(self._image, self._settings, topic.name)
            self._topic_rules[partition.topic_row] = known
        return known


def _of_one_kind(chunk: PartitionChunk, at: int, count: int) -> Iterator[tuple[int, int]]:
    """Splits equal rows by topic and by their rare fields. The decision for the first row then holds for all."""
    topics, recovery, rare = chunk.topic, chunk.recovery, chunk.rare
    kinds = [(topics[row], recovery[row], rare.get(row)) for row in range(at, at + count)]
    for _, same in groupby(kinds):
        count = len(list(same))
        yield at, count
        at += count


def default_directory(image: MetadataImage, broker_id: int) -> Uuid:
    """UNASSIGNED for a broker that is not registered."""
    broker = image.brokers.get(broker_id)
    return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory
