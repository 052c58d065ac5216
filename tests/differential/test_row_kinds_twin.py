"""Decisions about many partitions, computed in columns, compared with the same decisions computed partition by
partition. The test compares the records, their bytes, the decoded records, and the partitions after the replay."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from kafkacore._fast.record.batch import Batches
from kafkacore.config import BrokerConfig
from kafkacore.controller.quorum import elections, leaders, reassignments
from kafkacore.controller.quorum.decisions import MIN_IN_SYNC_REPLICAS, UNCLEAN_ELECTION, Settings, topic_values
from kafkacore.controller.quorum.leaders import LeaderChanges
from kafkacore.metadata import partitions as columns_module
from kafkacore.metadata import records as records_module
from kafkacore.metadata.edit import Edit
from kafkacore.metadata.image import EMPTY_IMAGE, TOPIC, MetadataImage
from kafkacore.metadata.partition_records import ChangeRun, ColumnRun, Record, parted, record_count
from kafkacore.metadata.partitions import rows_with_isr
from kafkacore.metadata.records import MetadataError, RecordWriter, decode_batch
from kafkacore.metadata.snapshot import records_of
from kafkacore.protocol.features import metadata_version
from kafkacore.protocol.messages import (
    AlterPartitionReassignmentsRequest,
    ConfigRecord,
    ElectLeadersRequest,
    FeatureLevelRecord,
    Message,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kafkacore.protocol.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kafkacore.raft import control
from kafkacore.runtime.slices import finish_now
from seeds import SEED

BROKERS = (1, 2, 3, 4, 5, 70_000)  # the last id is too large for a table that is indexed by broker id
TOPICS, PARTITIONS = 60, 5
# With the last four seeds, decisions once differed: ELRs were not sorted, or the leader depended on the order of
# removed replicas.
SEEDS = (*range(SEED, SEED + 60), 2006, 4041, 4058, 5018)
CONFIG = BrokerConfig(
    {
        "process.roles": "controller",
        "node.id": "100",
        "controller.quorum.voters": "100@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        "log.dirs": "/nowhere",
    }
)


def uuid(number: int) -> Uuid:
    return Uuid((1000 + number).to_bytes(16, "big"))


def own_directories(broker: int) -> list[Uuid]:
    return [uuid(10_000 + 10 * broker + at) for at in range(1 + broker % 3)]


def directory(random: Random, broker: int) -> Uuid:
    odd = [MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY, uuid(7)]
    return random.choice(odd) if random.random() < 0.2 else random.choice(own_directories(broker))


def cluster(random: Random, level: int, elr: bool) -> MetadataImage:
    edit = Edit(EMPTY_IMAGE)
    edit.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    if elr:
        edit.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    for broker in BROKERS:
        edit.replay(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=broker,
                incarnation_id=uuid(broker),
                fenced=random.random() < 0.3,
                in_controlled_shutdown=random.random() < 0.1,
                log_dirs=own_directories(broker),
            )
        )
    most = random.choice((1, 3, 3, 6))
    for topic in range(TOPICS):
        edit.replay(TopicRecord(name=f"t{topic}", topic_id=uuid(topic)))
        for name, values in ((MIN_IN_SYNC_REPLICAS, ("1", "2", "3", "9")), (UNCLEAN_ELECTION, ("true", "false"))):
            if random.random() < 0.3:
                value = random.choice(values)
                edit.replay(ConfigRecord(resource_type=TOPIC, resource_name=f"t{topic}", name=name, value=value))
        for partition in range(random.randint(1, PARTITIONS)):
            edit.replay(partition_record(random, topic, partition, most, elr))
        if topic % 9 == 8:
            edit.replay(RemoveTopicRecord(topic_id=uuid(topic - 4)))
    return edit.freeze(100, 1, 0)


def partition_record(random: Random, topic: int, partition: int, most: int, elr: bool) -> Any:
    replicas = random.sample(BROKERS, random.randint(1, most))
    isr = random.sample(replicas, random.randint(0 if elr else 1, len(replicas)))
    rest = [each for each in replicas if each not in isr]
    record = PartitionRecord(
        topic_id=uuid(topic), partition_id=partition, replicas=replicas, isr=isr,
        leader=random.choice([*isr, -1]) if random.random() < 0.9 else -1,
        leader_recovery_state=random.random() < 0.2, leader_epoch=random.randint(0, 9),
        partition_epoch=random.randint(0, 9), directories=[directory(random, each) for each in replicas],
    )  # fmt: skip
    if elr and random.random() < 0.5:
        record.eligible_leader_replicas = random.sample(rest, random.randint(0, len(rest)))
        record.last_known_elr = random.sample(replicas, 1) if random.random() < 0.4 else []
    if random.random() < 0.1:
        record.removing_replicas = replicas[:1]
    return record


def decision(random: Random, root: MetadataImage) -> LeaderChanges:
    kind = random.choice(("removed", "removed", "added", "unclean"))
    some = random.sample(BROKERS, random.randint(1, 3) if kind == "removed" else 1)
    return LeaderChanges(root, Settings("c", CONFIG, Random(1)), **{kind: set(some)})


def expanded(records: list[Record]) -> list[Message]:
    made: list[Message] = []
    for record in records:
        if isinstance(record, ColumnRun):
            made += [record.columns.record(at) for at in range(record.first, record.first + record.count)]
        elif isinstance(record, ChangeRun):
            for partition in record.partitions:
                copied = PartitionChangeRecord.decode(record.record.encode(2), 2)
                copied.partition_id = partition
                made.append(copied)
        else:
            assert isinstance(record, Message)
            made.append(record)
    return made


def key(record: Any) -> Any:
    return bytes(record.topic_id), record.partition_id


def written(root: MetadataImage, records: list[Record]) -> bytes:
    writer = RecordWriter(root.metadata_version)
    data = b""
    at = root.offset + 1
    for part in parted(records, 37):
        batch = control.data_batch(writer.encode_all(part), at, 1, 0, 1 << 20)
        assert batch is not None
        at += record_count(part)
        data += batch
    return data


def replayed(root: MetadataImage, records: list[Record], *, decided_here: bool) -> MetadataImage:
    edit = Edit(root, decided_here=decided_here)
    edit.replay_batch(records, root.offset + 1)
    return edit.freeze(root.offset + record_count(records), 1, 0)


@pytest.mark.parametrize("elr", [False, True])
def test_decision_in_columns_equals_the_decisions_one_by_one(monkeypatch: pytest.MonkeyPatch, elr: bool) -> None:
    monkeypatch.setattr(records_module, "COLUMN_RUN_ROWS", 2)
    monkeypatch.setattr(records_module, "COLUMN_RUN_SAMPLES", 2)
    in_columns = 0
    for seed in SEEDS:
        random = Random(seed)
        root = cluster(random, 30 if elr else random.choice((21, 30)), elr)
        decide = decision(random, root)
        every = [row for topic in root.topics() for row in topic.partition_rows if row >= 0]
        rows = sorted(random.sample(every, random.randint(0, len(every))))
        twin = expanded([record for row in rows for record in decide.records([row])])
        made = decide.in_columns(rows)
        in_columns += sum(each.count for each in made if isinstance(each, ColumnRun))
        assert sorted(map(key, expanded(made))) == sorted(map(key, twin)), seed
        for one, other in zip(sorted(expanded(made), key=key), sorted(twin, key=key), strict=True):
            assert one == other, seed
        decoded = [each for batch in Batches(written(root, made)) for each in decode_batch(batch)]
        assert expanded(decoded) == expanded(made), seed
        wanted = list(records_of(replayed(root, twin, decided_here=False)))
        for records, here in ((made, True), (made, False), (decoded, False)):
            assert list(records_of(replayed(root, records, decided_here=here))) == wanted, seed
    assert in_columns > 2000


def test_rows_are_found_alike_in_large_and_small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEED, SEED + 10):
        root = cluster(Random(seed), 30, False)
        small = [list(rows_with_isr(root.partition_chunks, *some)) for some in ((1,), (2, 70_000), BROKERS)]
        with monkeypatch.context() as patched:
            patched.setattr(columns_module, "VECTOR_ROWS", 0)
            large = [list(rows_with_isr(root.partition_chunks, *some)) for some in ((1,), (2, 70_000), BROKERS)]
        assert small == large and all(small)


def test_decision_continues_in_columns_when_too_many_partitions_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "MAX_SINGLE_DECISIONS", 5)
    root = cluster(Random(3), 30, False)
    decide = LeaderChanges(root, Settings("c", CONFIG, Random(1)), removed={1, 2})
    rows = rows_with_isr(root.partition_chunks, 1, 2)
    made = decide.records(rows)
    assert any(isinstance(each, ColumnRun) for each in made)
    twin = [record for row in rows for record in decide.records([row])]
    assert sorted(map(key, expanded(made))) == sorted(map(key, expanded(twin)))


def test_columns_are_replayed_in_order_when_a_partition_changes_twice() -> None:
    root = cluster(Random(3), 30, False)
    topic = next(root.topics())
    told = [
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, leader=leader, isr=[leader])
        for leader in (2, 3, 1)
    ]
    writer = RecordWriter(metadata_version(30))
    values = [writer.encode(each) for each in told]
    ends = [len(each) for each in values]
    from kafkacore.metadata.change_columns import ChangeColumns

    starts = [sum(ends[:at]) + 3 for at in range(len(ends))]
    columns = ChangeColumns.decode(
        2, b"".join(values), array("q", starts), array("q", [sum(ends[: at + 1]) for at in range(len(ends))])
    )
    assert columns is not None
    after = replayed(root, [ColumnRun(columns, 0, 3)], decided_here=False).partition(topic, 0)
    assert after is not None and (after.leader, after.isr) == (1, (1,))


def test_columns_about_a_missing_partition_or_beyond_the_last_epoch_are_refused() -> None:
    root = cluster(Random(3), 30, False)
    decide = LeaderChanges(root, Settings("c", CONFIG, Random(1)), removed={1})
    (run,) = [each for each in decide.in_columns(rows_with_isr(root.partition_chunks, 1)) if type(each) is ColumnRun]
    with pytest.raises(MetadataError, match="does not exist"):
        replayed(EMPTY_IMAGE, [run], decided_here=False)
    topic = root.topic_by_id(run.columns.topic_id(0))
    assert topic is not None
    partition = int(run.columns.partition[0])
    edit = Edit(root)
    last = PartitionRecord(
        topic_id=topic.topic_id, partition_id=partition, replicas=[1], isr=[1], leader=1,
        leader_epoch=2**31 - 1, partition_epoch=2**31 - 1, directories=own_directories(1)[:1],
    )  # fmt: skip
    edit.replay(last)
    with pytest.raises(MetadataError, match="no epoch after its last"):
        replayed(edit.freeze(101, 1, 0), [run], decided_here=False)


def asked_moves(random: Random, root: MetadataImage) -> Any:
    """Returns a request that reassigns most partitions: to other brokers, to fewer or more brokers, to the current
    brokers in the same or in another order, to invalid brokers, or back."""
    made = AlterPartitionReassignmentsRequest
    topics = []
    for topic in root.topics():
        partitions = []
        for partition, row in enumerate(topic.partition_rows):
            if row < 0 or random.random() < 0.1:
                continue
            had = root.partition_at(row).replicas
            replicas: list[int] | None = random.choice(
                (
                    random.sample(BROKERS, len(had)),
                    random.sample(had, len(had)),
                    random.sample(BROKERS, random.randint(1, len(BROKERS))),
                    random.sample(had, random.randint(1, len(had))),
                    [*had[1:], random.choice((*BROKERS, 99))],
                    list(had),
                )
            )
            replicas = None if random.random() < 0.05 else replicas
            partitions.append(made.ReassignablePartition(partition_index=partition, replicas=replicas))
        partitions.append(made.ReassignablePartition(partition_index=1000, replicas=[1]))
        topics.append(made.ReassignableTopic(name=topic.name, partitions=partitions))
    topics.append(made.ReassignableTopic(name="absent", partitions=[made.ReassignablePartition(replicas=[1])]))
    random.shuffle(topics)
    return made(topics=topics, allow_replication_factor_change=random.random() < 0.7)


def asked_elections(random: Random, root: MetadataImage) -> Any:
    made = ElectLeadersRequest
    kind = random.randrange(2)
    if random.random() < 0.5:
        return made(election_type=kind, topic_partitions=None)
    topics = [
        made.TopicPartitions(topic=topic.name, partitions=random.sample(range(-1, 6), 5)) for topic in root.topics()
    ]
    return made(election_type=kind, topic_partitions=[*topics, made.TopicPartitions(topic="absent", partitions=[0])])


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize(
    ("module", "name", "asked"),
    [(reassignments, "Reassignment", asked_moves), (elections, "LeaderElection", asked_elections)],
)
def test_request_for_many_partitions_in_columns_equals_the_one_decided_one_by_one(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, asked: Any, elr: bool
) -> None:
    monkeypatch.setattr(records_module, "COLUMN_RUN_ROWS", 2)
    monkeypatch.setattr(records_module, "COLUMN_RUN_SAMPLES", 2)
    in_columns = 0
    for seed in SEEDS:
        random = Random(seed)
        root = cluster(random, 30 if elr else random.choice((21, 30)), elr)
        request = asked(random, root)

        def decided(most: int, root: MetadataImage = root, request: Any = request) -> Any:
            monkeypatch.setattr(module, "MAX_SINGLE_DECISIONS", most)
            return finish_now(getattr(module, name)(root, Settings("c", CONFIG, Random(1))).decide(request))

        twin, made = decided(1 << 30), decided(0)
        assert made.response == twin.response, seed
        in_columns += sum(each.count for each in made.records if isinstance(each, ColumnRun))
        for one, other in zip(
            sorted(expanded(made.records), key=key), sorted(expanded(twin.records), key=key), strict=True
        ):
            assert one == other, seed
        decoded = [each for batch in Batches(written(root, made.records)) for each in decode_batch(batch)]
        assert expanded(decoded) == expanded(made.records), seed
        wanted = list(records_of(replayed(root, twin.records, decided_here=False)))
        for records, here in ((made.records, True), (made.records, False), (decoded, False)):
            assert list(records_of(replayed(root, records, decided_here=here))) == wanted, seed
    assert in_columns > 1000


def test_settings_are_read_once_and_only_of_topics_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = Edit(EMPTY_IMAGE)
    random = Random(1)
    for topic, name in enumerate(("retention.ms", UNCLEAN_ELECTION, MIN_IN_SYNC_REPLICAS)):
        edit.replay(TopicRecord(name=f"t{topic}", topic_id=uuid(topic)))
        edit.replay(ConfigRecord(resource_type=TOPIC, resource_name=f"t{topic}", name=name, value="true"))
        edit.replay(partition_record(random, topic, 0, 3, elr=False))
    read: list[Any] = []

    def values(*arguments: Any) -> Any:
        read.append(topic_values(*arguments))
        return read[-1]

    monkeypatch.setattr(leaders, "topic_values", values)
    changes = LeaderChanges(edit.freeze(100, 1, 0), Settings("c", CONFIG, Random(1)), removed={1})
    for _ in range(3):  # a large decision does this once for each slice
        changes.by_kind(range(3))
    assert read == [(False, {"t1": True})]
