"""Partitions that this node cannot coordinate: all partitions of `__transaction_state` and `__share_group_state`, and
each partition of `__consumer_offsets` that contains groups of new kinds (KIP-848, KIP-932, KIP-1071). If this broker
becomes the leader of such a partition, the transactions or groups in it stop working, and the node logs that."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kafkacore.metadata.image import MetadataImage
from kafkacore.storage.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

LOG: Final = logging.getLogger("kafkacore.server")
_RESULTS: Final = {
    TRANSACTIONS_TOPIC: "their transactional ids get a final error",
    SHARE_STATE_TOPIC: "their share groups get no records",
}


class Uncoordinated:
    """Belongs to the broker's loop. `led` contains the partitions of `__transaction_state` and `__share_group_state`
    that this broker leads. `elections` is a metric: it counts how often this broker became the leader of a partition
    that it cannot coordinate."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.led: frozenset[tuple[str, int]] = frozenset()
        self.elections = 0

    def apply(self, image: MetadataImage) -> None:
        """Logs the partitions that this broker began to lead with this metadata image."""
        led: set[tuple[str, int]] = set()
        for name in _RESULTS:
            topic = image.topic(name)
            if topic is not None:
                rows = enumerate(topic.partition_rows)
                led.update((name, i) for i, row in rows if row >= 0 and image.partition_at(row).leader == self._node_id)
        new = sorted(led - self.led)
        self.led = frozenset(led)
        self.elections += len(new)
        for name, result in _RESULTS.items():
            indexes = [index for topic, index in new if topic == name]
            if indexes:
                LOG.error(
                    "this broker leads partitions %s of %s, but it cannot coordinate them: %s; move the partitions to "
                    "brokers of Apache Kafka",
                    ", ".join(map(str, indexes)), name, result,
                )  # fmt: skip

    def found_groups(self, index: int, counts: Mapping[str, int]) -> None:
        """Logs groups that this broker cannot coordinate. Call this when this broker became the leader of a partition
        of `__consumer_offsets` and found such groups in it. `counts` has the number of groups of each kind."""
        self.elections += 1
        LOG.error(
            "this broker leads partition %d of %s with %s groups, but it coordinates classic groups only: the members "
            "of these groups get a final error; move the partition to a broker of Apache Kafka",
            index, OFFSETS_TOPIC, " and ".join(f"{counts[kind]} {kind}" for kind in sorted(counts)),
        )  # fmt: skip
