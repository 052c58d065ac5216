"""The contents of a metadata image as plain data, for comparison."""

from __future__ import annotations

from typing import Final

from kafkacore.metadata.image import MetadataImage

# Indexes in `rest`, the tuple of a partition's other fields.
LEADER_EPOCH: Final = 0
REMOVING: Final = 3
ADDING: Final = 4


def contents_of(image: MetadataImage) -> dict[str, object]:
    """Returns the image as plain dictionaries. A broker is (epoch, is fenced). A partition is (leader, rest, replicas,
    ISR), where `rest` is a tuple of its other fields."""
    topics = {topic.name: topic for topic in image.topics()}
    partitions = {}
    for topic in topics.values():
        for index, row in enumerate(topic.partition_rows):
            if row >= 0:
                found = image.partition_at(row)
                rest = (
                    found.leader_epoch, found.partition_epoch, found.recovery_state, tuple(found.removing),
                    tuple(found.adding), tuple(found.elr), tuple(map(str, found.directories)),
                )  # fmt: skip
                partitions[topic.name, index] = (found.leader, rest, tuple(found.replicas), tuple(found.isr))
    return {
        "brokers": {each.broker_id: (each.epoch, each.fenced) for each in image.brokers.values()},
        "registrations": {
            each.broker_id: (str(each.incarnation_id), str(each.endpoints), each.rack, each.in_controlled_shutdown)
            for each in image.brokers.values()
        },
        "features": dict(image.features),
        "topics": {name: str(topic.topic_id) for name, topic in topics.items()},
        "partitions": partitions,
        "configs": {str(key): dict(values) for key, values in image.configs.items()},
        "producers": str(image.next_producer_id),
    }
