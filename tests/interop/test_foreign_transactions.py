"""Transactions that Apache Kafka coordinates, on partitions that our broker leads. Our leader asks the coordinator
before it appends a transaction's first batch (KIP-890). The coordinator's markers end the transactions (KIP-98)."""

import struct
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from asking import ask
from brokers import APACHE
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ListOffsetsRequest, ProduceRequest, WriteTxnMarkersRequest
from processes import wait_until
from quorums import OURS
from replicated import ReplicatedCluster

pytestmark = pytest.mark.timeout(180)
OUR_BROKER, COORDINATOR = 101, 102
UNCOMMITTED, COMMITTED = 0, 1
LATEST = -1


@pytest.fixture(scope="module", params=APACHE)
def cluster(request, tools_of_either, tmp_path_factory):
    """Starts a controller of ours, a broker of ours that leads topic `t`, and a broker of Apache Kafka that coordinates
    transactions."""
    cluster = ReplicatedCluster(
        tmp_path_factory.mktemp("cluster"),
        controllers={1: OURS},
        brokers={OUR_BROKER: OURS, COORDINATOR: request.param},
        tools=tools_of_either,
        settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
    )
    try:
        cluster.start(".".join(APACHE[request.param].split(".")[:2]))
        cluster.create("__transaction_state", [[COORDINATOR]], cleanup_policy="compact")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def topic(cluster, request):
    name = f"t-{abs(hash(request.node.name)) % 10**8}"
    cluster.create(name, [[OUR_BROKER], [OUR_BROKER], [COORDINATOR]])
    return name


def transactional(cluster, name, **options):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0} | options)
    producer.init_transactions(60)
    return producer


def write(producer, topic, *values, partitions=(0, 1, 2)):
    for partition in partitions:
        for value in values:
            producer.produce(topic, value, partition=partition)


def read(cluster, topic, partition, isolation="read_committed"):
    """Returns the values that a consumer with this isolation level sees, up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    try:
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, 30)
        consumer.assign([place])
        values, deadline = [], time.monotonic() + 30
        while consumer.position([place])[0].offset < end:
            assert time.monotonic() < deadline, f"read {values}, but the end is {end}"
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value())
        return values
    finally:
        consumer.close()


def end_offset(cluster, topic, partition, isolation):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    answer = ask(cluster.addresses[OUR_BROKER], request, 7).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.offset


def wait_stable(cluster, topic, partition, offset):
    """Waits until the markers are written. The coordinator answers its producer before it writes them."""
    wait_until(
        lambda: end_offset(cluster, topic, partition, COMMITTED) == offset,
        30,
        f"last stable offset {offset} of {topic}-{partition}",
        lambda: f"it is {end_offset(cluster, topic, partition, COMMITTED)}\n{cluster.seen()}",
    )


def test_consumer_reads_what_was_committed_and_nothing_that_was_aborted(cluster, topic):
    producer = transactional(cluster, topic)
    for number in range(6):
        producer.begin_transaction()
        write(producer, topic, b"%d.0" % number, b"%d.1" % number)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    expected = [b"%d.%d" % (number, i) for number in (0, 2, 4) for i in (0, 1)]
    # In each partition, a transaction has two records and a marker.
    wait_stable(cluster, topic, 0, 18)
    wait_stable(cluster, topic, 1, 18)
    for partition in range(3):
        assert read(cluster, topic, partition) == expected
    assert end_offset(cluster, topic, 0, UNCOMMITTED) == 18


def test_last_stable_offset_waits_for_an_open_transaction(cluster, topic):
    producer = transactional(cluster, topic)
    producer.begin_transaction()
    write(producer, topic, b"open", partitions=[0])
    producer.flush(30)
    assert (end_offset(cluster, topic, 0, COMMITTED), end_offset(cluster, topic, 0, UNCOMMITTED)) == (0, 1)
    producer.commit_transaction(60)
    wait_stable(cluster, topic, 0, 2)


def test_newer_producer_of_a_transactional_id_fences_the_older_one(cluster, topic):
    older = transactional(cluster, topic)
    older.begin_transaction()
    write(older, topic, b"older", partitions=[0])
    older.flush(30)
    newer = transactional(cluster, topic)
    newer.begin_transaction()
    write(newer, topic, b"newer", partitions=[0])
    newer.commit_transaction(60)
    wait_stable(cluster, topic, 0, 4)
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        older.commit_transaction(30)
    assert read(cluster, topic, 0) == [b"newer"]


def test_transaction_that_its_producer_left_open_is_aborted_in_time(cluster, topic):
    producer = transactional(cluster, topic, **{"transaction.timeout.ms": 1500})
    producer.begin_transaction()
    write(producer, topic, b"left", partitions=[0])
    producer.flush(30)
    wait_stable(cluster, topic, 0, 2)
    assert read(cluster, topic, 0) == []


def batch(producer_id, epoch=0, sequence=0):
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    builder.append(1_700_000_000_000, None, b"v")
    return bytes(builder.build())


@pytest.mark.parametrize("version", [9, 12])
def test_batch_without_an_open_transaction_is_refused_and_leaves_the_log_alone(cluster, topic, version):
    """If the leader appended the batch, its transaction would never end."""
    data = ProduceRequest.PartitionProduceData(index=0, records=batch(producer_id=77))
    request = ProduceRequest(
        transactional_id=f"nobody-{topic}",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = ask(cluster.addresses[OUR_BROKER], request, version).responses[0].partition_responses[0]
    assert ErrorCode(answer.error_code) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end_offset(cluster, topic, 0, UNCOMMITTED) == 0


def markers(topic, *ends):
    """Returns a WriteTxnMarkers request. Each end is (partition, producer id, producer epoch, coordinator epoch)."""
    made = WriteTxnMarkersRequest
    return made(
        markers=[
            made.WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=True,
                topics=[made.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
                coordinator_epoch=coordinator_epoch,
            )
            for partition, producer_id, epoch, coordinator_epoch in ends
        ]
    )


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_fenced_one_by_one(cluster, topic, version):
    def told(*ends):
        answer = ask(cluster.addresses[OUR_BROKER], markers(topic, *ends), version)
        return {
            (each.partition_index, marker.producer_id): ErrorCode(each.error_code).name
            for marker in answer.markers
            for part in marker.topics
            for each in part.partitions
        }

    assert told((0, 900, 3, 5), (1, 901, 0, 5)) == {(0, 900): "NONE", (1, 901): "NONE"}
    assert told((0, 900, 2, 5), (1, 901, 1, 4), (2, 902, 0, 5), (9, 903, 0, 5)) == {
        (0, 900): "INVALID_PRODUCER_EPOCH",
        (1, 901): "TRANSACTION_COORDINATOR_FENCED",
        (2, 902): "NOT_LEADER_OR_FOLLOWER",
        (9, 903): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert end_offset(cluster, topic, 0, COMMITTED) == 1
    log = cluster.brokers[OUR_BROKER].batches(topic, 0)[0]
    # The key of a control record contains its version and its type. The value contains a version and the coordinator's
    # epoch.
    assert struct.pack(">hh", 0, 1) in log
    assert struct.pack(">hi", 0, 5) in log
