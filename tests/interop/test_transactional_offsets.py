"""Offsets that a group commits within a transaction. Our broker coordinates the group, and Apache Kafka's broker
coordinates the transaction. The tests also send invalid requests to the coordinators of both kinds, which must give the
same answers."""

from functools import partial
from itertools import count as numbers

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from asking import ask
from brokers import APACHE
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from kafkacore.server.coordinator_keys import java_hash
from processes import wait_until
from quorums import OURS
from replicated import ReplicatedCluster

pytestmark = pytest.mark.timeout(240)
OUR_BROKER, COORDINATOR = 101, 102
COUNT = 60
COORDINATED = OUR_BROKER, COORDINATOR  # the brokers that lead the partitions of __consumer_offsets
MEMBER_VERSION = 3  # the first version of TxnOffsetCommit with a member id


@pytest.fixture(scope="module", params=APACHE)
def cluster(request, tools_of_either, tmp_path_factory):
    cluster = ReplicatedCluster(
        tmp_path_factory.mktemp("cluster"),
        controllers={1: OURS},
        brokers={OUR_BROKER: OURS, COORDINATOR: request.param},
        tools=tools_of_either,
        settings={"offsets.topic.num.partitions": str(len(COORDINATED))},
    )
    try:
        cluster.start(".".join(APACHE[request.param].split(".")[:2]))
        cluster.create("__transaction_state", [[COORDINATOR]], cleanup_policy="compact")
        cluster.create("__consumer_offsets", [[each] for each in COORDINATED], cleanup_policy="compact")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def topics(cluster, request):
    name = f"t-{abs(hash(request.node.name)) % 10**8}"
    for each in ("in", "out"):
        cluster.create(f"{name}-{each}", [[OUR_BROKER], [COORDINATOR]])
    return f"{name}-in", f"{name}-out"


def group_at(coordinator, name):
    """Returns the name of a group that this broker coordinates."""
    names = (f"{name}-{number}" for number in numbers())
    return next(each for each in names if COORDINATED[java_hash(each) % len(COORDINATED)] == coordinator)


def consumer_of(cluster, group, topic):
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    return consumer


def producer_of(cluster, name):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    return producer


def committed(cluster, group, topic):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        return [each.offset for each in consumer.committed([TopicPartition(topic, i) for i in range(2)], 30)]
    finally:
        consumer.close()


def carry(consumer, producer, target, count, *, commits):
    """Runs one transaction that copies `count` records and commits the group's offsets."""
    producer.begin_transaction()
    left = count
    while left:
        for message in consumer.consume(left, 30):
            assert message.error() is None
            producer.produce(target, message.value(), partition=message.partition())
            left -= 1
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
    if commits:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def test_every_record_is_carried_on_once_when_a_transaction_aborts_and_its_worker_is_replaced(cluster, topics):
    source, target = topics
    writer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(COUNT):
        writer.produce(source, b"%d" % number, partition=number % 2)
    assert writer.flush(60) == 0
    group = group_at(OUR_BROKER, source)
    first, producer = consumer_of(cluster, group, source), producer_of(cluster, source)
    carry(first, producer, target, 20, commits=True)
    done = committed(cluster, group, source)
    assert sum(each for each in done if each > 0) == 20
    carry(first, producer, target, 20, commits=False)
    assert committed(cluster, group, source) == done, "an aborted transaction must not commit an offset"
    first.close()
    second = consumer_of(cluster, group, source)
    carry(second, producer_of(cluster, source), target, COUNT - 20, commits=True)
    wait_until(lambda: committed(cluster, group, source) == [COUNT // 2] * 2, what="all offsets are committed")
    second.close()
    reader = consumer_of(cluster, f"read-{source}", target)
    values = []
    while len(values) < COUNT:
        values += [int(each.value()) for each in reader.consume(COUNT, 5)]
    assert sorted(values) == list(range(COUNT))
    assert not reader.consume(1, 2), "a record was copied twice"
    reader.close()


def test_member_of_an_older_generation_commits_nothing(cluster, topics):
    source, _ = topics
    group = group_at(OUR_BROKER, source)
    older, producer = consumer_of(cluster, group, source), producer_of(cluster, source)
    wait_until(lambda: older.poll(0.1) or older.assignment(), what="the first member has its partitions")
    stale = older.consumer_group_metadata()
    older.close()
    newer = consumer_of(cluster, group, source)
    wait_until(lambda: newer.poll(0.1) or newer.assignment(), what="the second member has its partitions")
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 7)], stale, 60)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(60)
    assert committed(cluster, group, source) == [-1001, -1001]
    newer.close()


class Transaction:
    """A transaction that commits offsets of a group. The test sends each request separately."""

    def __init__(self, cluster, group, name, *, adds=True):
        self.cluster, self.group = cluster, group
        self.send = partial(ask, cluster.addresses[COORDINATOR])

        def begun():
            made = self.send(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 3)
            return made if not made.error_code else None

        made = wait_until(begun, what="a producer id")
        self.fields = {"transactional_id": name, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        if adds:
            added = self.send(AddOffsetsToTxnRequest(group_id=group, **self.fields), 3)
            assert not added.error_code, added

    def commit_offset(self, coordinator, topic, partition=0, metadata="", **wrong):
        """Sends TxnOffsetCommit. `wrong` replaces some of its fields. Returns the error."""
        made = TxnOffsetCommitRequest
        offset = made.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=7, committed_metadata=metadata
        )
        topics = [made.TxnOffsetCommitRequestTopic(name=topic, partitions=[offset])]
        request = made(**{"group_id": self.group} | self.fields | wrong, topics=topics)
        answer = ask(self.cluster.addresses[coordinator], request, MEMBER_VERSION)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, committed):
        answer = self.send(EndTxnRequest(committed=committed, **self.fields), 3)
        assert not answer.error_code, answer


def records_of(cluster, coordinator):
    return len(cluster.read_records(coordinator, "__consumer_offsets", COORDINATED.index(coordinator)))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"metadata": "x" * 5000}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        # The group does not exist. The coordinator of 3.9 checks the member before the group's generation.
        ({"generation_id": 3, "member_id": "nobody"}, ErrorCode.ILLEGAL_GENERATION),
        ({"transactional_id": "nobody"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"producer_id": 10**6}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, dict) else each.name,
)
def test_bad_commit_is_refused_alike_and_changes_nothing(cluster, topics, wrong, expected):
    source, _ = topics
    for coordinator in COORDINATED:
        group = group_at(coordinator, source)
        transaction = Transaction(cluster, group, group)
        before = records_of(cluster, coordinator)
        found = transaction.commit_offset(coordinator, **{"topic": source} | wrong)
        if (cluster.brokers[coordinator].kind, expected) == ("apache-3.9", ErrorCode.ILLEGAL_GENERATION):
            expected = ErrorCode.UNKNOWN_MEMBER_ID
        assert (coordinator, found) == (coordinator, expected)
        assert records_of(cluster, coordinator) == before
        assert transaction.commit_offset(coordinator, source) == ErrorCode.NONE
        transaction.end(committed=True)
        wait_until(lambda group=group: committed(cluster, group, source)[0] == 7, what="the valid commit")


@pytest.mark.parametrize("by", [-1, 1], ids=["older", "newer"])
def test_commit_of_another_epoch_is_refused_alike(cluster, topics, by):
    source, _ = topics
    found = []
    for coordinator in COORDINATED:
        group = group_at(coordinator, source)
        Transaction(cluster, group, group, adds=False)
        transaction = Transaction(cluster, group, group)
        before = records_of(cluster, coordinator)
        epoch = transaction.fields["producer_epoch"] + by
        found.append(transaction.commit_offset(coordinator, source, producer_epoch=epoch))
        assert records_of(cluster, coordinator) == before
        transaction.end(committed=True)
        assert committed(cluster, group, source)[0] < 0
    assert found[0] == found[1] != ErrorCode.NONE


def test_commit_without_a_transaction_is_refused_alike(cluster, topics):
    source, _ = topics
    found = []
    for coordinator in COORDINATED:
        group = group_at(coordinator, source)
        before = records_of(cluster, coordinator)
        found.append(Transaction(cluster, group, group, adds=False).commit_offset(coordinator, source))
        assert records_of(cluster, coordinator) == before
    assert found[0] == found[1] != ErrorCode.NONE


def test_commit_of_a_stranger_to_a_group_with_members_is_refused_alike(cluster, topics):
    source, _ = topics
    for coordinator in COORDINATED:
        group = group_at(coordinator, source)
        consumer = consumer_of(cluster, group, source)
        wait_until(lambda consumer=consumer: consumer.poll(0.1) or consumer.assignment(), what="a member")
        member = {"generation_id": 1, "member_id": consumer.memberid()}
        transaction = Transaction(cluster, group, group)
        before = records_of(cluster, coordinator)
        asked = [
            member | {"member_id": "nobody"},
            member | {"generation_id": 9},
            member | {"group_instance_id": "nobody"},
            {"member_id": consumer.memberid()},
        ]
        assert [transaction.commit_offset(coordinator, source, **each) for each in asked] == [
            ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
        ]  # fmt: skip
        assert records_of(cluster, coordinator) == before
        assert transaction.commit_offset(coordinator, source, **member) == ErrorCode.NONE
        transaction.end(committed=False)
        consumer.close()
        assert committed(cluster, group, source)[0] < 0
