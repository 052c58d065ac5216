"""The producer of the data client with our node. It writes Arrow batches, which the test reads back."""

from __future__ import annotations

import pickle
import time
from collections import defaultdict

import pytest

from client_clock import ClientClock
from kafkacore._fast.columns.record_encoder import murmur2
from kafkacore.client import (
    LATEST,
    Client,
    OptionError,
    PartitionMissing,
    Range,
    RecordTooLarge,
    TopicMissing,
    Unreachable,
)
from kafkacore.client.producer import Producer
from kafkacore.testing import Broker

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytestmark = pytest.mark.timeout(60)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def broker():
    with Broker(topics={"one": 1, "eight": 8}) as made:
        yield made


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap, {"default.api.timeout.ms": "10000"}) as made:
        yield made


def whole(client, topic):
    """Returns all rows of a topic, by partition."""
    partitions = client.topics([topic])[topic].partitions
    ends = client.offsets({(topic, each): LATEST for each in partitions})
    found = defaultdict(list)
    ranges = [Range(topic, each, 0, ends[topic, each].offset) for each in partitions]
    for rows in client.read(ranges):
        for row in pa.record_batch(rows).to_pylist():
            found[row["partition"]].append(row)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_read_back_as_they_were_written(broker, client, codec):
    topic = broker.create_topic(f"back-{codec}")
    keys = [None if i % 5 == 0 else b"k%d" % i for i in range(5000)]
    values = [None if i % 7 == 0 else b"%d" % i * 20 for i in range(5000)]
    headers = [[{"key": "n", "value": b"%d" % i}] if i % 2 else None for i in range(5000)]
    columns = pa.record_batch({"key": keys, "value": values, "headers": pa.array(headers, HEADERS)})
    with client.producer({"compression.type": codec, "batch.size": "20000"}) as producer:
        assert producer.send(topic, None, columns) == 5000
        producer.send(topic, 0, columns.slice(0, 10))
        producer.flush()
        assert producer.sent == 5010
    rows = whole(client, topic)[0]
    expected = list(zip(keys + keys[:10], values + values[:10], headers + headers[:10], strict=True))
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == expected
    assert abs(rows[0]["timestamp"].timestamp() - time.time()) < 60


def test_keys_choose_partitions_as_kafka_does_and_order_holds(broker, client):
    topic = broker.create_topic("keyed", 8)
    keys = [b"key-%d" % (i % 100) for i in range(20_000)]
    columns = pa.record_batch({"key": keys, "value": [b"%d" % i for i in range(20_000)]})
    with client.producer({"batch.size": "5000"}) as producer:
        producer.send(topic, None, columns)
    found = whole(client, topic)
    assert sum(map(len, found.values())) == 20_000
    for partition, rows in found.items():
        assert {(murmur2(row["key"]) & 0x7FFFFFFF) % 8 for row in rows} == {partition}
        numbers = [int(row["value"]) for row in rows]
        assert numbers == sorted(numbers)


def test_topics_and_partitions_come_from_columns_when_there_are_some(broker, client):
    for topic in ("first", "second"):
        broker.create_topic(topic, 2)
    columns = pa.record_batch(
        {
            "value": ["a", "b", "c"], "topic": ["first", "second", "first"],
            "partition": pa.array([1, 0, 0], pa.int32()),
        }
    )  # fmt: skip
    with client.producer() as producer:
        producer.send(None, None, columns)
    first, second = whole(client, "first"), whole(client, "second")
    assert {each: [row["value"] for row in rows] for each, rows in first.items()} == {1: [b"a"], 0: [b"c"]}
    assert {each: [row["value"] for row in rows] for each, rows in second.items()} == {0: [b"b"]}


def test_nothing_is_doubled_when_answers_are_lost(broker, client):
    topic = broker.create_topic("retried")
    values = [b"%d" % i for i in range(3000)]
    for error in ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER"):
        broker.refuse("Produce", error=error, times=2)
    with client.producer({"batch.size": "4000", "retry.backoff.ms": "10"}) as producer:
        producer.send(topic, None, pa.record_batch({"value": values}))
    assert [row["value"] for row in whole(client, topic)[0]] == values


def test_encoded_batches_can_be_sent_by_another_producer(broker, client):
    topic = broker.create_topic("staged")
    with client.producer() as producer:
        staged = producer.encode(topic, None, pa.record_batch({"value": [b"1", b"2"]}))
    assert [(each.topic, each.partition, each.records) for each in staged] == [(topic, 0, 2)]
    with Client(broker.bootstrap) as other, other.producer() as producer:
        producer.send_encoded(pickle.loads(pickle.dumps(staged)))
    assert [row["value"] for row in whole(client, topic)[0]] == [b"1", b"2"]


def test_rows_and_topics_are_named_when_they_cannot_be_sent(broker, client):
    small = broker.create_topic("small", configs={"max.message.bytes": 1000})
    columns = pa.record_batch({"value": [bytes(2000)]})
    with (
        pytest.raises(RecordTooLarge, match=r"small-0: .*: raise the topic's max.message.bytes"),
        client.producer() as producer,
    ):
        producer.send(small, None, columns)
        producer.flush()
    with client.producer({"max.request.size": "1500"}) as producer:
        with pytest.raises(RecordTooLarge, match="topic one: row 0 is larger than 1500 bytes"):
            producer.send("one", None, columns)
        with pytest.raises(TopicMissing, match="topic none does not exist"):
            producer.send("none", None, columns)
        with pytest.raises(PartitionMissing, match="topic one has 1 partitions"):
            producer.send("one", 3, columns)
        with pytest.raises(ValueError, match="no topic is given"):
            producer.send(None, None, columns)


def test_batches_are_halved_until_the_topic_takes_them(broker, client):
    topic = broker.create_topic("halved", configs={"max.message.bytes": 2000})
    values = [b"%d" % i * 20 for i in range(500)]
    headers = pa.array([[{"key": "h", "value": b"%d" % i}] for i in range(500)], HEADERS)
    with client.producer() as producer:
        producer.send(topic, 0, pa.record_batch({"value": values, "headers": headers}))
        producer.send(topic, 0, pa.record_batch({"value": [b"last"]}))
    rows = whole(client, topic)[0]
    assert [row["value"] for row in rows] == [*values, b"last"]
    assert rows[7]["headers"] == [{"key": "h", "value": b"7"}]


def test_a_batch_that_nobody_acknowledges_fails_in_time(broker, client):
    topic = broker.create_topic("refused")
    options = {"delivery.timeout.ms": "500", "retry.backoff.ms": "20"}
    with (
        broker.refuse("Produce", error="NOT_ENOUGH_REPLICAS"),
        pytest.raises(Unreachable, match="refused-0: 1 records were not acknowledged within"),
        client.producer(options) as producer,
    ):
        producer.send(topic, None, pa.record_batch({"value": [b"v"]}))
        producer.flush()


def test_batches_are_acknowledged_when_the_caller_needs_longer_than_every_timeout_for_the_next_one(
    broker, client, monkeypatch
):
    clock = ClientClock(monkeypatch)
    topic = broker.create_topic("slowly")
    with client.producer() as producer:
        for value in (b"1", b"2", b"3"):
            producer.send(topic, 0, pa.record_batch({"value": [value]}))
            clock.skip(200)
    assert [row["value"] for row in whole(client, topic)[0]] == [b"1", b"2", b"3"]


def test_batch_is_sent_again_when_its_backoff_ends_before_the_producer_begins_to_wait(broker, client, monkeypatch):
    clock = ClientClock(monkeypatch)
    topic = broker.create_topic("late")
    pause_s = Producer._pause_s
    monkeypatch.setattr(Producer, "_pause_s", lambda producer: (clock.skip(0.5), pause_s(producer))[1])
    broker.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    with client.producer({"retry.backoff.ms": "200", "delivery.timeout.ms": "30000"}) as producer:
        producer.send(topic, 0, pa.record_batch({"value": [b"1"]}))
        producer.flush()
    assert [row["value"] for row in whole(client, topic)[0]] == [b"1"]


def test_batches_are_acknowledged_when_the_client_closes_a_connection_that_has_a_request_under_way(broker, client):
    topic = broker.create_topic("left")
    with client.producer() as producer:
        for value in (b"1", b"2", b"3"):
            producer.send(topic, 0, pa.record_batch({"value": [value]}))
            client.close()  # as it does with the connection of a broker that has left the cluster
    assert [row["value"] for row in whole(client, topic)[0]] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("options", [{"acks": "1"}, {"enable.idempotence": "false"}])
def test_producers_that_are_not_idempotent_are_refused(client, options):
    with pytest.raises(OptionError, match="the producer is always idempotent"):
        client.producer(options)
