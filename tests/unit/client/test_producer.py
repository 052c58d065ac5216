"""A transactional producer after an error, and a producer whose topic gets a new partition."""

import threading
from types import SimpleNamespace

import pytest

from client_line import Line
from kafkacore._fast.base.errors import InvalidRecordError
from kafkacore.client.cluster import Cluster
from kafkacore.client.errors import RecordTooLarge
from kafkacore.client.options import Options
from kafkacore.client.producer import Producer


@pytest.fixture
def producer(monkeypatch):
    made = Producer(SimpleNamespace(broke=lambda *_: None), Options({"transactional.id": "t"}))
    ends = []
    transactions = SimpleNamespace(
        is_open=True, ids=(1, 0), renew=lambda: None, end=lambda commit: ends.append((commit, len(made._in_flight)))
    )
    monkeypatch.setattr(made, "_transactions", transactions)
    return SimpleNamespace(subject=made, ends=ends)


def test_abort_waits_for_the_requests_in_flight_when_another_broker_has_refused_a_batch(producer, monkeypatch):
    def refuse():
        raise RecordTooLarge("t-0: raise the topic's max.message.bytes")

    line = Line()
    producer.subject._in_flight.send(2, line, None, 0, 10.0, [("t", 1)])
    monkeypatch.setattr(producer.subject, "_ensure_ids", refuse)
    producer.subject._queued_bytes = 1
    with pytest.raises(RecordTooLarge):
        producer.subject.flush()
    answer = threading.Timer(0.05, line.far.send, (b"\x01",))
    answer.start()
    producer.subject.abort()
    answer.join()
    assert producer.ends == [(False, 0)]
    assert line.near.fileno() >= 0, "the response has arrived, so the connection is still usable"
    line.close()


@pytest.fixture
def growing(monkeypatch):
    """Returns a producer whose cluster answers that topic t has one partition, and from the second answer on two."""
    counts = [1]

    def answer(request, limit):
        partitions = [SimpleNamespace(partition_index=at, leader_id=1, leader_epoch=0) for at in range(counts[-1])]
        counts.append(2)
        topic = SimpleNamespace(name="t", topic_id=None, partitions=partitions, is_internal=False, error_code=0)
        return SimpleNamespace(brokers=[], topics=[topic])

    cluster = Cluster("h:1", Options({}))
    monkeypatch.setattr(cluster, "ask_any", answer)
    cluster.topic("t")
    return Producer(cluster, Options({}))


def rows(partition=None):
    pa = pytest.importorskip("pyarrow")
    value = pa.array([b"v"])
    if partition is None:
        return pa.record_batch({"value": value})
    return pa.record_batch({"value": value, "partition": pa.array([partition], pa.int32())})


@pytest.mark.parametrize(("argument", "column"), [(1, None), (None, 1)])
def test_rows_are_encoded_for_a_partition_when_it_was_added_since_the_last_metadata(growing, argument, column):
    (made,) = growing.encode("t", argument, rows(column))
    assert (made.partition, made.records) == (1, 1)


def test_row_is_refused_when_new_metadata_lacks_its_partition_too(growing):
    with pytest.raises(InvalidRecordError, match="row 0 has a partition that is not from 0 to 1"):
        growing.encode("t", None, rows(2))
    with pytest.raises(InvalidRecordError, match="row 0 has a partition that is not from 0 to 1"):
        growing.encode("t", None, rows(-1))
