"""The data client with our node: reads as Arrow batches, routing, sessions and errors."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from client_clock import ClientClock
from kafkacore.client import (
    EARLIEST,
    LATEST,
    Client,
    OffsetOutOfRange,
    OptionError,
    PartitionMissing,
    Range,
    TopicMissing,
    TopicRecreated,
    Unreachable,
)
from kafkacore.client.connection import Connection
from kafkacore.client.options import Options
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.protocol.uuid import Uuid
from kafkacore.testing import Broker

pc = pytest.importorskip("pyarrow.compute", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(60)
NOW = 1_700_000_000_000
QUICK = {"default.api.timeout.ms": "4000", "request.timeout.ms": "2000"}
IMPATIENT = {"default.api.timeout.ms": "700", "fetch.max.wait.ms": "50"}


def table(rows):
    return pa.Table.from_batches([pa.record_batch(each) for each in rows])


def fill(broker, topic, count, *, partition=0, codec="none", value=100):
    """Produces `count` records with librdkafka. The value of each record contains its number."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5})
    for i in range(count):
        producer.produce(
            topic, b"%d" % i + bytes(value), key=b"k%d" % i, partition=partition, timestamp=NOW + i,
            headers=[("n", b"%d" % i)] if i % 3 == 0 else None,
        )  # fmt: skip
        if i % 5000 == 0:
            producer.poll(0)
    assert producer.flush(20) == 0


def recreate(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(10)
    broker.create_topic(topic)


@pytest.fixture(scope="module")
def broker():
    with Broker(topics={"plain": 1, "many": 8, "empty": 1}) as made:
        fill(made, "plain", 30_000)
        yield made


@pytest.fixture
def client(broker):
    with Client(broker.bootstrap) as made:
        yield made


def test_partition_is_read_end_to_end_when_its_range_is_the_whole_log(client):
    end = client.offsets({("plain", 0): LATEST})["plain", 0].offset
    assert end == 30_000
    found = table(client.read([Range("plain", 0, 0, end)]))
    assert found.column("offset").to_pylist() == list(range(end))
    assert found.column("key").to_pylist() == [b"k%d" % i for i in range(end)]
    assert found.column("value").to_pylist() == [b"%d" % i + bytes(100) for i in range(end)]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [(NOW + i) * 1000 for i in range(end)]
    assert found.column("headers").slice(3, 2).to_pylist() == [[{"key": "n", "value": b"3"}], None]
    assert set(found.column("topic").to_pylist()) == {"plain"}


def test_ranges_of_one_partition_are_each_read_when_they_overlap(client):
    found = table(client.read([Range("plain", 0, 5, 9), Range("plain", 0, 7, 7), Range("plain", 0, 8, 12)], ["offset"]))
    assert found.column("offset").to_pylist() == [5, 6, 7, 8, 8, 9, 10, 11]


def test_partitions_are_read_in_one_session_when_they_share_a_leader(broker, client):
    for partition, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        fill(broker, "many", 1000, partition=partition, codec=codec)
    ranges = [Range("many", partition, 0, 1000) for partition in range(5)]
    found = table(client.read(ranges, ["partition", "offset", "value"], max_rows=300))
    for partition in range(5):
        mine = found.filter(pc.equal(found.column("partition"), partition))
        assert mine.column("offset").to_pylist() == list(range(1000))
        assert mine.column("value").to_pylist() == [b"%d" % i + bytes(100) for i in range(1000)]


def test_partitions_take_turns_when_the_broker_has_no_session_and_one_fills_the_response():
    configs = {"max.incremental.fetch.session.cache.slots": 0}
    with Broker(topics={"t": 3}, configs=configs) as other, Client(other.bootstrap, {"fetch.max.bytes": "1"}) as client:
        for partition in 3 * (0, 1, 2):
            fill(other, "t", 1, partition=partition)
        ranges = [Range("t", partition, 0, 3) for partition in range(3)]
        found = table(client.read(ranges, ["partition"], max_rows=1))
        assert not other.node.broker.context.fetch_sessions
    assert found.column("partition").to_pylist()[:3] == [0, 1, 2]


def test_small_ranges_need_little_memory_when_there_are_many(client):
    def resident_bytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    reading = client.read([Range("missing" * 30, partition, 0, 10) for partition in range(1000)])
    assert resident_bytes() - before < 100 << 20  # a decoder for full batches needs 2 MB for such a name
    reading.close()


def test_records_larger_than_a_fetch_are_read(broker):
    with Broker(topics={"big": 1}, configs={"message.max.bytes": 4 << 20}) as other:
        producer = Producer({"bootstrap.servers": other.bootstrap, "message.max.bytes": 4 << 20})
        for i in range(3):
            producer.produce("big", bytes([i]) * (2 << 20), partition=0)
        assert producer.flush(20) == 0
        with Client(other.bootstrap, {"max.partition.fetch.bytes": "1000", "fetch.max.bytes": "1000"}) as client:
            batches = [pa.record_batch(each) for each in client.read([Range("big", 0, 0, 3)], max_bytes=1 << 20)]
        assert [batch.num_rows for batch in batches] == [1, 1, 1]
        assert [batch.column("value")[0].as_py()[:1] for batch in batches] == [b"\0", b"\1", b"\2"]


def test_offsets_by_time_match_the_log(client):
    asked = {("plain", 0): NOW + 77, ("empty", 0): EARLIEST}
    found = client.offsets(asked)
    assert (found["plain", 0].offset, found["plain", 0].timestamp) == (77, NOW + 77)
    assert found["empty", 0].offset == 0
    assert client.offsets({("plain", 0): NOW + 10**9})["plain", 0].offset == -1


def test_topics_tell_their_ids_and_leaders(client):
    found = client.topics(["plain", "many"])
    assert found["plain"].id != found["many"].id
    assert sorted(found["many"].partitions) == list(range(8))
    assert {each.leader for each in found["many"].partitions.values()} != {-1}
    assert {"plain", "many", "empty"} <= client.topics().keys()


def test_missing_topics_and_partitions_are_named(broker):
    with Client(broker.bootstrap, QUICK) as client:
        with pytest.raises(TopicMissing, match="topic none does not exist"):
            list(client.read([Range("none", 0, 0, 1)]))
        with pytest.raises(PartitionMissing, match="topic plain has 1 partitions, so it has no partition 4"):
            client.offsets({("plain", 4): LATEST})


def test_offsets_out_of_range_are_named_or_passed_over():
    broker_topic = f"deleted{time.monotonic_ns()}"
    with Broker(topics={broker_topic: 1}) as other:
        fill(other, broker_topic, 100)
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        for future in admin.delete_records([TopicPartition(broker_topic, 0, 40)]).values():
            future.result(10)
        with Client(other.bootstrap) as client:
            with pytest.raises(OffsetOutOfRange, match="from offset 10 to 50 are not all there: the log has 40 to 100"):
                list(client.read([Range(broker_topic, 0, 10, 50)]))
            lost = []
            found = table(client.read([Range(broker_topic, 0, 10, 50)], ["offset"], on_lost=lost.append))
            assert found.column("offset").to_pylist() == list(range(40, 50))
            assert [(each.offset, each.log_start, each.log_end) for each in lost] == [(10, 40, 100)]
            with pytest.raises(OffsetOutOfRange, match="from offset 200"):
                list(client.read([Range(broker_topic, 0, 200, 300)]))


def test_a_recreated_topic_is_recognised_by_its_id():
    with Broker(topics={"again": 1}) as broker, Client(broker.bootstrap, QUICK) as client:
        fill(broker, "again", 10)
        before = client.topics(["again"])["again"].id
        recreate(broker, "again")
        fill(broker, "again", 10)
        with pytest.raises(TopicRecreated, match="deleted and created again") as raised:
            list(client.read([Range("again", 0, 0, 10, before)]))
        assert (raised.value.expected, raised.value.found) == (before, client.topics(["again"])["again"].id)
        assert raised.value.found != before


def test_a_recreated_topic_is_read_when_the_client_still_knows_the_old_one():
    with Broker(topics={"t": 1}) as other, Client(other.bootstrap) as client:
        fill(other, "t", 3)
        assert table(client.read([Range("t", 0, 0, 3, client.topics(["t"])["t"].id)])).num_rows == 3
        recreate(other, "t")
        fill(other, "t", 5)
        with Client(other.bootstrap) as another:
            new = another.topics(["t"])["t"].id
        assert table(client.read([Range("t", 0, 0, 5, new)])).num_rows == 5


def test_nothing_is_lost_when_the_brokers_do_not_know_a_topic_for_longer_than_a_few_looks(broker):
    lost = []
    with (
        broker.refuse("Metadata", error="UNKNOWN_TOPIC_OR_PARTITION", topic="plain", times=12) as fault,
        Client(broker.bootstrap, {"retry.backoff.ms": "10", "retry.backoff.max.ms": "20"}) as client,
    ):
        assert table(client.read([Range("plain", 0, 0, 100)], ["offset"], on_lost=lost.append)).num_rows == 100
        assert fault.hits == 12
    assert lost == []


def test_remaining_ranges_are_read_when_others_are_gone_and_the_caller_accepts_losses(broker):
    old = Uuid.random()
    ranges = [
        Range("none", 0, 0, 1), Range("plain", 4, 0, 1), Range("plain", 4, 1, 2), Range("empty", 0, 0, 1, old),
        Range("plain", 0, 0, 100),
    ]  # fmt: skip
    lost = []
    with Client(broker.bootstrap, IMPATIENT) as client:
        assert table(client.read(ranges, ["offset"], on_lost=lost.append)).num_rows == 100
        new = client.topics(["empty"])["empty"].id
    assert {str(each) for each in lost} == {
        "topic none does not exist",
        "topic plain has 1 partitions, so it has no partition 4",
        f"topic empty was deleted and created again: its id was {old} and is {new} now",
    }
    assert len(lost) == 3


def test_reading_goes_on_when_a_leader_refuses_a_while():
    with Broker(topics={"moved": 1}) as broker:
        fill(broker, "moved", 100)
        broker.refuse("Fetch", error="NOT_LEADER_OR_FOLLOWER", times=3)
        with Client(broker.bootstrap) as client:
            assert table(client.read([Range("moved", 0, 0, 100)], ["offset"])).num_rows == 100


def test_range_is_out_of_range_when_the_log_ends_before_it_and_no_record_comes(broker):
    with (
        Client(broker.bootstrap, IMPATIENT) as client,
        pytest.raises(OffsetOutOfRange, match=r"empty-0: the records from offset 0 to 5 .* the log has 0 to 0"),
    ):
        list(client.read([Range("empty", 0, 0, 5)]))


def test_remaining_ranges_are_read_when_one_ends_beyond_its_log_and_the_caller_accepts_losses(broker):
    ranges = [Range("plain", 0, 29_990, 30_010), Range("empty", 0, 0, 5), Range("plain", 0, 5, 9)]
    lost = []
    with Client(broker.bootstrap, IMPATIENT) as client:
        found = table(client.read(ranges, ["topic", "offset"], on_lost=lost.append))
    assert found.column("offset").to_pylist() == [*range(29_990, 30_000), *range(5, 9)]
    assert sorted((each.topic, each.offset, each.end, each.log_end) for each in lost) == [
        ("empty", 0, 5, 0), ("plain", 30_000, 30_010, 30_000)
    ]  # fmt: skip


def test_read_fails_with_its_place_when_the_leader_answers_no_fetch_and_has_the_records(broker):
    lost = []
    with (
        broker.refuse("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="plain"),
        Client(broker.bootstrap, IMPATIENT) as client,
        pytest.raises(Unreachable, match=r"plain-0: no record came from offset 0 for 0.7 s, and the range ends at 5: "),
    ):
        list(client.read([Range("plain", 0, 0, 5)], on_lost=lost.append))
    assert lost == []


def test_read_goes_on_when_the_caller_takes_longer_than_every_timeout_for_its_rows(broker, monkeypatch):
    clock = ClientClock(monkeypatch)
    with Client(broker.bootstrap, {"max.partition.fetch.bytes": "100000"}) as client:
        found = 0
        for rows in client.read([Range("plain", 0, 0, 30_000)], ["offset"], max_rows=1000):
            found += rows.num_rows
            clock.skip(200)
    assert found == 30_000


def test_read_succeeds_when_the_caller_begins_it_later_than_every_timeout(broker, monkeypatch):
    clock = ClientClock(monkeypatch)
    with Client(broker.bootstrap) as client:
        reading = client.read([Range("plain", 0, 0, 100)], ["offset"])
        clock.skip(200)
        assert table(reading).num_rows == 100


def test_read_goes_on_when_the_client_closes_a_connection_that_has_a_request_under_way(broker):
    with Client(broker.bootstrap, {"max.partition.fetch.bytes": "100000"}) as client:
        reading = client.read([Range("plain", 0, 0, 30_000)], ["offset"], max_rows=1000)
        found = next(reading).num_rows
        client.close()  # as it does with the connection of a broker that has left the cluster
        assert found + sum(rows.num_rows for rows in reading) == 30_000


def test_an_abandoned_read_leaves_the_client_usable(client):
    reading = client.read([Range("plain", 0, 0, 30_000)], max_rows=10)
    assert next(reading).num_rows == 10
    reading.close()
    assert table(client.read([Range("plain", 0, 100, 110)], ["offset"])).column("offset").to_pylist() == list(
        range(100, 110)
    )


def test_reads_share_a_connection_when_each_ends_at_its_range():
    with Broker(topics={"t": 1}, record=True) as other, Client(other.bootstrap, {"client.id": "mine"}) as client:
        fill(other, "t", 100)
        for start in (0, 50, 50):
            assert table(client.read([Range("t", 0, start, start + 30)])).num_rows == 30
        mine = [each.api for each in other.requests if each.client_id == "mine"]
    assert mine.count("ApiVersions") == 1
    assert mine.count("Fetch") == 3


def test_reads_share_a_session_when_they_share_a_connection():
    with Broker(topics={"t": 2}) as other, Client(other.bootstrap) as client:
        for partition in (0, 1):
            fill(other, "t", 100, partition=partition)
        # The last range is read again from an offset at which the session already is.
        for partition, start in ((0, 0), (1, 10), (0, 40), (0, 40)):
            found = table(client.read([Range("t", partition, start, start + 30)], ["partition", "offset"]))
            assert set(found.column("partition").to_pylist()) == {partition}
            assert found.column("offset").to_pylist() == list(range(start, start + 30))
            assert len(other.node.broker.context.fetch_sessions) == 1


def test_answer_is_kept_when_another_request_is_asked_meanwhile(broker):
    host, port = broker.bootstrap.split(":")
    connection, deadline = Connection(host, int(port), Options({})), time.monotonic() + 10
    try:
        first = connection.send(MetadataRequest(topics=[]), 12, deadline)
        assert connection.ask(MetadataRequest(topics=None), 12, deadline).topics
        assert connection.has_buffered
        assert connection.receive().correlation_id == first
        assert connection.receive() is None
        assert not connection.has_buffered
    finally:
        connection.close()


def test_brokers_out_of_reach_are_an_error_in_time():
    started = time.monotonic()
    servers = "127.0.0.1:1,localhost:2"
    with (
        Client(servers, {"default.api.timeout.ms": "500"}) as client,
        pytest.raises(Unreachable, match="cannot be reached"),
    ):
        client.topics()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fetch.max.bytes": "many"}, "fetch.max.bytes is 'many', but must be a number from 1"),
        ({"isolation.level": "dirty"}, "one of read_uncommitted, read_committed"),
        ({"value.deserializer": "x"}, "value.deserializer is not supported: values are bytes"),
        ({"ssl.keystore.type": "JKS"}, "must be one of PEM"),
        ({"sasl.client.callback.handler.class": "x"}, "not supported"),
    ],
)
def test_error_names_the_option_when_a_value_is_wrong(options, message):
    with pytest.raises(OptionError, match=message):
        Client("localhost:9092", options)


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:0", "localhost:x", ":1"])
def test_bootstrap_servers_need_host_and_port(servers):
    with pytest.raises(OptionError, match="must have host:port"):
        Client(servers)
