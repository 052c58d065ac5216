"""Each record type of both releases' tables is replayed, kept in the image, written to a snapshot, and read back.

The tests make records from the tables. A record type that is added later has no entry in SCENES (the records that must
come before it), so its tests fail until somebody adds an entry.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafkacore._fast.schema import tables
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkacore.metadata.records import RECORD_TYPES, RecordWriter, decode_record, record_class
from kafkacore.metadata.snapshot import KEPT, image_of, records_of
from kafkacore.protocol.features import METADATA_VERSIONS, MetadataVersion
from kafkacore.protocol.messages import (
    AccessControlEntryRecord,
    BeginTransactionRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from kafkacore.protocol.uuid import MIGRATING_DIRECTORY, Uuid

FILE = "metadata.metadata.jsonl"
HEADS = [head for release in (tables.CURRENT, tables.FORMER) for head in tables.heads(release, FILE)]
NAMES = sorted({head["name"] for head in HEADS})
LEVELS = (METADATA_VERSIONS[0], METADATA_VERSIONS[-1])


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


TOPIC = uuid(100)
TOPICS = [
    TopicRecord(name="t", topic_id=TOPIC),
    PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1], leader=1, leader_epoch=0,
                    partition_epoch=0, directories=[uuid(7), uuid(8)]),
]  # fmt: skip
WITH_ELR = [
    TOPICS[0],
    PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[], leader=-1, leader_epoch=0,
                    partition_epoch=0, directories=[uuid(7), uuid(8)], eligible_leader_replicas=[2],
                    last_known_elr=[1]),
]  # fmt: skip
BROKERS = [RegisterBrokerRecord(broker_id=1, broker_epoch=5, incarnation_id=uuid(1), log_dirs=[uuid(7)])]

# By record type: the records that must come before it, and the fields that must match these records. All other fields
# are random.
SCENES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "AbortTransactionRecord": ([BeginTransactionRecord(), *TOPICS], {}),
    "AccessControlEntryRecord": ([], {}),
    "BeginTransactionRecord": (TOPICS, {}),
    "BrokerRegistrationChangeRecord": (BROKERS, {"broker_id": 1, "broker_epoch": 5, "fenced": -1}),
    "ClearElrRecord": (WITH_ELR, {"topic_name": "t"}),
    "ClientQuotaRecord": ([], {"remove": False}),
    "ConfigRecord": ([], {}),
    "DelegationTokenRecord": ([], {}),
    "EndTransactionRecord": ([BeginTransactionRecord(), *TOPICS], {}),
    "FeatureLevelRecord": ([], {"name": "share.version", "feature_level": 1}),
    "FenceBrokerRecord": (BROKERS, {"id": 1, "epoch": 5}),
    "NoOpRecord": (TOPICS, {}),
    "PartitionChangeRecord": (TOPICS, {"topic_id": TOPIC, "partition_id": 0, "directories": [uuid(3), uuid(4)],
                                       "replicas": [2, 1], "leader_recovery_state": 1}),
    "PartitionRecord": (TOPICS, {"topic_id": TOPIC, "partition_id": 1, "directories": [uuid(3), uuid(4)],
                                 "replicas": [2, 1], "leader_recovery_state": 1}),
    "ProducerIdsRecord": ([], {}),
    "RegisterBrokerRecord": ([], {}),
    "RegisterControllerRecord": ([], {}),
    "RemoveAccessControlEntryRecord": ([AccessControlEntryRecord(id=uuid(3))], {"id": uuid(3)}),
    "RemoveDelegationTokenRecord": ([DelegationTokenRecord(token_id="x")], {"token_id": "x"}),
    "RemoveTopicRecord": (TOPICS, {"topic_id": TOPIC}),
    "RemoveUserScramCredentialRecord": ([UserScramCredentialRecord(name="u", mechanism=2)],
                                        {"name": "u", "mechanism": 2}),
    "TopicRecord": ([], {}),
    "UnfenceBrokerRecord": (BROKERS, {"id": 1, "epoch": 5}),
    "UnregisterBrokerRecord": (BROKERS, {"broker_id": 1, "broker_epoch": 5}),
    "UserScramCredentialRecord": ([], {}),
    "ZkMigrationStateRecord": ([], {}),
}  # fmt: skip

# Records that a snapshot contains unchanged, and records that remove other records. All other records change earlier
# ones.
STATE = {
    "ConfigRecord", "FeatureLevelRecord", "PartitionRecord", "ProducerIdsRecord", "RegisterBrokerRecord",
    "RegisterControllerRecord", "TopicRecord", *KEPT,
}  # fmt: skip
REMOVALS = {
    "AbortTransactionRecord", "RemoveAccessControlEntryRecord", "RemoveDelegationTokenRecord", "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord", "UnregisterBrokerRecord",
}  # fmt: skip
UNCHANGED = {"BeginTransactionRecord", "EndTransactionRecord", "NoOpRecord"}


def value(kind: str, chosen: random.Random, structs: dict[str, list[tables.Field]], struct: str, version: int) -> Any:
    if kind == "struct":
        return struct, fields(structs, struct, chosen, version)
    if kind == "bool":
        return chosen.random() < 0.5
    if kind == "float64":
        return chosen.randrange(1000) / 8
    if kind == "string":
        return f"s{chosen.randrange(10**6)}"
    if kind == "bytes":
        return chosen.randbytes(chosen.randrange(1, 40))
    if kind == "uuid":
        return Uuid(chosen.randbytes(16))
    return chosen.randrange(1, 100)


def fields(structs: dict[str, list[tables.Field]], struct: str, chosen: random.Random, version: int) -> dict[str, Any]:
    made = {}
    for field in structs[struct]:
        if version not in field.versions:
            continue
        if field.kind == "array":
            items = [
                value(field.element, chosen, structs, field.struct, version) for _ in range(chosen.randrange(1, 4))
            ]
            # These are compared as sets: directories, and features by their name.
            kept_order = field.element.startswith("int")
            made[field.name] = items if kept_order else sorted(items, key=bytes if field.element == "uuid" else str)
        else:
            made[field.name] = value(field.kind, chosen, structs, field.struct, version)
    return made


def build(owner: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Builds structs from the values that `value` returns for their fields."""

    def one(item: Any) -> Any:
        return getattr(owner, item[0])(**build(owner, item[1])) if isinstance(item, tuple) else item

    return {
        name: [one(each) for each in item] if isinstance(item, list) else one(item) for name, item in values.items()
    }


def class_of(name: str) -> Any:
    return record_class(next(key for key, each in RECORD_TYPES.items() if each == name))


def version_at(name: str, level: MetadataVersion) -> int:
    if name == "BrokerRegistrationChangeRecord":  # writers choose the lowest version that can express this record
        return 3 if level.cordoned_log_dirs_supported else 2
    return level.record_version(name)


def random_record(name: str, version: int, seed: int) -> Any:
    """Returns a record in which every field of this version has a random value."""
    made = class_of(name)
    structs = tables.message(name).structs()
    values = build(made, fields(structs, name, random.Random(seed), version))
    overrides = {field: told for field, told in SCENES[name][1].items() if field in values}
    return made(**{**values, **overrides})


def features(level: MetadataVersion) -> list[Any]:
    elr = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=int(level.elr_supported))
    return [FeatureLevelRecord(name="metadata.version", feature_level=level.level), elr]


def replay(image: MetadataImage, *records: Any) -> MetadataImage:
    edit = Edit(image)
    edit.replay_batch(records, image.offset + 1)
    return edit.freeze(image.offset + len(records), 1, 0)


def told(image: MetadataImage) -> dict[str, Any]:
    """Returns the content of an image without its row numbers and offsets."""
    return {
        "features": dict(image.features),
        "brokers": {key: each._replace(record_offset=0) for key, each in image.brokers.items()},
        "controllers": dict(image.controllers),
        "topics": {
            topic.name: (
                topic.topic_id,
                [image.partition_at(row)._replace(topic_row=0) for row in topic.partition_rows],
            )
            for topic in image.topics()
        },
        "configs": dict(image.configs.items()),
        "producer ids": image.next_producer_id,
        "kept": dict(image.kept.items()),
    }


def through_a_snapshot(image: MetadataImage) -> MetadataImage:
    writer = RecordWriter(image.metadata_version)
    return image_of([decode_record(writer.encode(each)) for each in records_of(image)], image.offset, 1, 0)


def test_every_record_type_is_known_by_its_number() -> None:
    assert {head["apiKey"]: head["name"] for head in HEADS} == RECORD_TYPES
    assert set(SCENES) == set(NAMES)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("name", NAMES)
def test_record_of_each_type_survives_a_snapshot(name: str, level: MetadataVersion) -> None:
    if name == "ClearElrRecord" and not level.elr_supported:
        assert level.record_version("PartitionRecord") < 2  # at this level there is no ELR to clear
        return
    for seed in range(20):
        before, _ = SCENES[name]
        record = random_record(name, version_at(name, level), seed)
        start = replay(EMPTY_IMAGE, *features(level))
        first = replay(start, *before)
        image = replay(first, record)
        # A snapshot does not contain an unfinished transaction.
        image = image if image.transaction is None else image.transaction.before
        again = through_a_snapshot(image)
        assert told(again) == told(image)
        if name in STATE:
            assert record in list(records_of(again)), record
        elif name in REMOVALS:
            assert told(again) == told(start)
        elif name in UNCHANGED:
            assert told(again) == told(first)
        else:
            CHANGES[name](record, image)


@pytest.mark.parametrize("name", NAMES)
def test_records_of_every_version_are_replayed(name: str) -> None:
    """A log may contain records of a level that a node no longer supports, if an upgrade has raised the level since."""
    lowest, highest = class_of(name).VERSIONS
    for version in range(lowest, highest + 1):
        written = random_record(name, version, 1).encode(version)
        number = class_of(name).API_KEY
        record = decode_record(bytes((1, number, version)) + written)
        start = replay(EMPTY_IMAGE, *features(METADATA_VERSIONS[-1]), *SCENES[name][0])
        image = replay(start, record)
        image = image if image.transaction is None else image.transaction.before
        assert told(through_a_snapshot(image)) == told(image), version
        if name in ("PartitionRecord", "PartitionChangeRecord"):
            row = image.partition(image.topic("t"), record.partition_id)
            # Before KIP-858, records have no directories.
            expected = tuple(record.directories) if record.directories else (MIGRATING_DIRECTORY,) * len(row.replicas)
            assert name == "PartitionChangeRecord" or row.directories == expected


def partition_changed(record: Any, image: MetadataImage) -> None:
    row = image.partition(image.topic("t"), 0)
    assert (row.leader, row.leader_epoch, row.partition_epoch) == (record.leader, 1, 1)
    assert (row.isr, row.replicas, row.directories) == tuple(
        map(tuple, (record.isr, record.replicas, record.directories))
    )
    assert (row.removing, row.adding) == (tuple(record.removing_replicas), tuple(record.adding_replicas))
    assert row.elr == tuple(record.eligible_leader_replicas or ())
    assert row.last_known_elr == tuple(record.last_known_elr or ())
    assert row.recovery_state == record.leader_recovery_state


def broker_changed(record: Any, image: MetadataImage) -> None:
    broker = image.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown) == (False, record.in_controlled_shutdown > 0)
    assert broker.directories == tuple(record.log_dirs)
    assert broker.cordoned_directories == (record.cordoned_log_dirs and tuple(record.cordoned_log_dirs))


def fenced(record: Any, image: MetadataImage) -> None:
    assert image.brokers[1].fenced is (record.NAME == "FenceBrokerRecord")


def elr_cleared(record: Any, image: MetadataImage) -> None:
    row = image.partition(image.topic("t"), 0)
    assert (row.elr, row.last_known_elr, row.partition_epoch) == ((), (), 1)


CHANGES = {
    "PartitionChangeRecord": partition_changed,
    "BrokerRegistrationChangeRecord": broker_changed,
    "FenceBrokerRecord": fenced,
    "UnfenceBrokerRecord": fenced,
    "ClearElrRecord": elr_cleared,
}
