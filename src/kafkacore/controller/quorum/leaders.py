"""Partitions after a broker came, left, or lost a directory: one scan of the columns, one record for each that
changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkacore.controller.common.partition_change import Election, Rules, Target, change
from kafkacore.controller.quorum.decisions import Settings, min_isr, unclean_elections
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partitions import Partition
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import UNASSIGNED_DIRECTORY, Uuid

NO_BROKER: Final = -1


class LeaderChanges:
    """Elects for many partitions at once. `removed` is on its way out, `added` on its way in (the image does not say so
    yet), `unclean` came back without having said good-bye and may have lost records."""

    def __init__(
        self, image: MetadataImage, settings: Settings, *,
        removed: int = NO_BROKER, added: int = NO_BROKER, unclean: int = NO_BROKER,
    ) -> None:  # fmt: skip
        self._image, self._settings = image, settings
        self._removed, self._added, self._unclean = removed, added, unclean
        self._topic_rules: dict[int, tuple[int, bool]] = {}

    def records(self, rows: Iterable[int]) -> list[Message]:
        made = []
        leaving = (self._removed, self._unclean)
        for row in rows:
            partition = self._image.partition_at(row)
            topic = self._image.topic_at(partition.topic_row)
            least, unclean_allowed = self._rules_of(partition, topic)
            target = Target(
                isr=[each for each in partition.isr if each not in leaving],
                unclean_shutdown=frozenset([self._unclean]) if self._unclean != NO_BROKER else frozenset(),
                election=Election.UNCLEAN if unclean_allowed else Election.ONLINE,
            )
            record = change(partition, topic.topic_id, target, self.rules(partition, least))
            if record is not None:
                made.append(record)
        return made

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

    def _rules_of(self, partition: Partition, topic: Topic) -> tuple[int, bool]:
        known = self._topic_rules.get(partition.topic_row)
        if known is None:
            least = min_isr(self._image, self._settings, topic)
            known = least, unclean_elections(self._image, self._settings, topic.name)
            self._topic_rules[partition.topic_row] = known
        return known


def default_directory(image: MetadataImage, broker_id: int) -> Uuid:
    """Of a broker that is not registered nothing is known."""
    broker = image.brokers.get(broker_id)
    return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory
