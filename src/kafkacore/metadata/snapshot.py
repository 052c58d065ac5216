"""The smallest set of records that rebuilds an image, in the order of Kafka's snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage, Topic
from kafkacore.metadata.partition_records import Record
from kafkacore.metadata.partitions import Partition
from kafkacore.protocol.features import METADATA_VERSION
from kafkacore.protocol.messages import (
    ConfigRecord,
    FeatureLevelRecord,
    Message,
    PartitionRecord,
    TopicRecord,
)

# As in Kafka, the records in `image.kept` are written at three positions: after the features, after the configs, and at
# the end.
_WITH_FEATURES: Final = ("ZkMigrationStateRecord",)
_WITH_CONFIGS: Final = ("ClientQuotaRecord",)
_AT_THE_END: Final = ("AccessControlEntryRecord", "UserScramCredentialRecord", "DelegationTokenRecord")
KEPT: Final = (*_WITH_FEATURES, *_WITH_CONFIGS, *_AT_THE_END)


def records_of(image: MetadataImage) -> Iterator[Message]:
    """Yields every record of a snapshot, one at a time, so that a large image can be written in parts."""
    yield from _features(image)
    yield from _kept(image, _WITH_FEATURES)
    version = image.metadata_version
    registration_version = version.record_version("RegisterBrokerRecord")
    for broker_id in sorted(image.brokers):
        yield image.brokers[broker_id].to_record(registration_version)
    for controller_id in sorted(image.controllers):
        yield image.controllers[controller_id].to_record()
    # While the ELR feature is off, the stored ELRs are not updated. So a snapshot omits them, as in Kafka (KIP-966).
    elr = version.elr_supported and image.elr_enabled
    for topic in image.topics():
        yield from topic_records(image, topic, elr)
    for (resource_type, name), values in sorted(image.configs.items(), key=lambda item: item[0]):
        for key in sorted(values):
            yield ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=values[key])
    yield from _kept(image, _WITH_CONFIGS)
    if image.next_producer_id is not None:
        yield image.next_producer_id
    yield from _kept(image, _AT_THE_END)


def image_of(records: Iterable[Record], offset: int, epoch: int, timestamp_ms: int) -> MetadataImage:
    """Returns the image that the records of a snapshot describe."""
    made: list[MetadataImage] = []
    load = ImageLoad(offset, epoch, timestamp_ms, made.append)
    load.take(records)
    load.finish()
    return made[0]


class ImageLoad:
    """Builds an image from the records of a snapshot, which arrive in parts. `loaded` is called with the finished
    image.
    """

    def __init__(self, offset: int, epoch: int, timestamp_ms: int, loaded: Callable[[MetadataImage], None]) -> None:
        self._edit = Edit(EMPTY_IMAGE)
        self._place = offset, epoch, timestamp_ms
        self._loaded = loaded

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            self._edit.replay(record, self._place[0])

    def finish(self) -> None:
        self._loaded(self._edit.freeze(*self._place))


def topic_records(image: MetadataImage, topic: Topic, elr: bool) -> Iterator[Message]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for row in topic.partition_rows:
        if row >= 0:
            yield partition_record(topic, image.partition_at(row), elr)


def partition_record(topic: Topic, row: Partition, elr: bool) -> Message:
    record = PartitionRecord(
        partition_id=row.partition,
        topic_id=topic.topic_id,
        replicas=list(row.replicas),
        isr=list(row.isr),
        removing_replicas=list(row.removing),
        adding_replicas=list(row.adding),
        leader=row.leader,
        leader_recovery_state=row.recovery_state,
        leader_epoch=row.leader_epoch,
        partition_epoch=row.partition_epoch,
        directories=list(row.directories),
    )
    # Empty lists are omitted, as in Kafka.
    if elr and row.elr:
        record.eligible_leader_replicas = list(row.elr)
    if elr and row.last_known_elr:
        record.last_known_elr = list(row.last_known_elr)
    return record


def _features(image: MetadataImage) -> Iterator[Message]:
    # metadata.version comes first, because a reader needs it to read everything else.
    names = sorted(image.features, key=lambda name: (name != METADATA_VERSION, name))
    for name in names:
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def _kept(image: MetadataImage, kinds: tuple[str, ...]) -> Iterator[Message]:
    for kind in kinds:
        found = [item for item in image.kept.items() if item[0][0] == kind]
        # Sorted by key, so that equal images produce equal snapshots.
        for _, record in sorted(found, key=lambda item: repr(item[0])):
            yield record
