"""A transactional producer after an error."""

import threading
from types import SimpleNamespace

import pytest

from client_line import Line
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
