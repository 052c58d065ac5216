"""The driver's part of the exactly-once sink, without Spark: a second driver, a batch that takes too long, and a topic
of markers that gets more partitions."""

import time
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from kafkacore.client import EARLIEST, LATEST, Client, Producer, Range
from kafkacore.spark import exactly_once
from kafkacore.spark.errors import ExactlyOnceError
from kafkacore.spark.exactly_once import ExactlyOnceWriter
from kafkacore.spark.markers import Markers
from kafkacore.spark.options import sink_options
from topic_filling import Topics

SCHEMA = StructType([StructField("value", BinaryType())])
VALUES = [b"one", b"two", b"three"]
ABORT_MS = 200  # how often the broker looks for transactions that take too long


@pytest.fixture(scope="module")
def broker(apache_kafka):
    return apache_kafka(
        "apache-4.3", {"transaction.abort.timed.out.transaction.cleanup.interval.ms": str(ABORT_MS)}
    ).bootstrap


@pytest.fixture
def topics(broker, topic_name):
    return Topics(broker, topic_name)


@pytest.fixture
def batch(monkeypatch, topics, tmp_path):
    """Returns a batch of a query, staged by a task."""
    monkeypatch.setattr(exactly_once, "ids_of_task", lambda: (topics.prefix, "0"))
    return StagedBatch(topics, tmp_path)


class StagedBatch:
    def __init__(self, topics, directory):
        self.topics, self.directory = topics, directory
        self.target, self.markers = topics.create(2), topics.create(1, {"cleanup.policy": "compact"})
        rows = pa.RecordBatch.from_pydict({"value": pa.array(VALUES, pa.binary())})
        self.message = self.driver().write(iter([rows]))

    def driver(self, **options):
        """Returns the writer of a driver of this query."""
        given = {
            "kafka.bootstrap.servers": self.topics.bootstrap, "topic": self.target, "exactlyOnce": "true",
            "stagingLocation": str(self.directory), "markerTopic": self.markers, **options,
        }  # fmt: skip
        return ExactlyOnceWriter(sink_options(given, streaming=True), SCHEMA)

    def commit(self, **options):
        self.driver(**options).commit_staged([self.message], 0)

    def written(self):
        """Returns the values that a read_committed reader sees."""
        with Client(self.topics.bootstrap, {}) as client:
            both = [(self.target, partition) for partition in range(2)]
            first, end = (client.offsets(dict.fromkeys(both, bound), "read_committed") for bound in (EARLIEST, LATEST))
            ranges = [Range(*each, first[each].offset, end[each].offset) for each in both]
            return sorted(
                value.as_py()
                for rows in client.read(ranges, ("value",), "read_committed")
                for value in pa.record_batch(rows).column("value")
            )


@pytest.mark.parametrize("point", ["send_encoded", "commit"])
def test_older_driver_is_fenced_when_a_newer_one_has_committed_the_batch(batch, monkeypatch, point):
    original = getattr(Producer, point)

    def goes_on_late(producer, *arguments):
        monkeypatch.setattr(Producer, point, original)
        batch.commit()  # meanwhile, another driver of the query runs the whole batch
        return original(producer, *arguments)

    monkeypatch.setattr(Producer, point, goes_on_late)
    with pytest.raises(
        ExactlyOnceError,
        match=r"batch 0 of query .* may not be committed: .*a newer producer uses the transactional id",
    ):
        batch.commit()
    assert batch.written() == sorted(VALUES)
    batch.commit()  # a third driver finds the marker
    assert batch.written() == sorted(VALUES)


def test_batch_error_names_the_timeout_when_the_transaction_takes_too_long(batch, monkeypatch):
    original = Producer.commit

    def is_late(producer):
        producer.flush()
        time.sleep(1.0 + 10 * ABORT_MS / 1000)  # nothing shows when the broker has aborted the transaction
        original(producer)

    monkeypatch.setattr(Producer, "commit", is_late)
    with pytest.raises(ExactlyOnceError, match=r"after \d s of the 1 s of kafka\.transaction\.timeout\.ms"):
        batch.commit(**{"kafka.transaction.timeout.ms": "1000"})
    assert batch.written() == []
    monkeypatch.setattr(Producer, "commit", original)
    batch.commit()
    assert batch.written() == sorted(VALUES)


def test_consumers_do_not_wait_for_a_transaction_when_the_driver_cannot_read_a_staged_file(batch, monkeypatch):
    original = Producer.send_encoded
    monkeypatch.setattr(
        Producer, "send_encoded", lambda producer, batches: (original(producer, batches), producer.flush())[0]
    )
    gone = replace(batch.message, file="gone")
    with pytest.raises(ExactlyOnceError, match="the driver cannot read the staged file"):
        batch.driver().commit_staged([batch.message, gone], 0)
    with Client(batch.topics.bootstrap, {}) as client:
        wanted = dict.fromkeys([(batch.target, 0), (batch.target, 1)], LATEST)
        assert client.offsets(wanted, "read_committed") == client.offsets(wanted, "read_uncommitted")
    assert batch.written() == []
    batch.commit()
    assert batch.written() == sorted(VALUES)


def test_commit_removes_the_directory_of_a_batch_when_no_task_had_rows(batch, monkeypatch, tmp_path):
    query = tmp_path / batch.topics.prefix
    monkeypatch.setattr(exactly_once, "ids_of_task", lambda: (query.name, "1"))
    driver = batch.driver()
    message = driver.write(iter([]))
    assert sorted(path.name for path in query.iterdir()) == ["0", "1"]
    driver.commit([message, None], 1)
    assert [path.name for path in query.iterdir()] == ["0"]
    assert batch.written() == []


def test_batch_error_names_the_marker_topic_when_it_does_not_exist(batch):
    with pytest.raises(ExactlyOnceError, match="no-such-topic"):
        batch.commit(markerTopic="no-such-topic")
    assert batch.written() == []


def test_marker_is_found_when_its_topic_gets_more_partitions(topics):
    name = topics.create(1, {"cleanup.policy": "compact"})
    queries = ["a", "b", "c", "d"]
    with Client(topics.bootstrap, {}) as client:
        for query in queries:
            sender = client.producer({"transactional.id": f"{name}-{query}"})
            sender.begin()
            Markers(client, name, query).send(sender, 7)
            sender.commit()
    topics.add_partitions(name, 3)
    with Client(topics.bootstrap, {}) as client:
        assert [Markers(client, name, query).last() for query in queries] == [7, 7, 7, 7]
