"""The recorder, which stores the requests of clients and decodes them on demand."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer

from kafkacore.testing import Broker, recorder
from kafkacore.testing.lookup import UnknownName
from kafkacore.testing.recorder import NothingRecorded, RequestNotSeen

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def broker():
    with Broker(topics=["t"], record=True) as made:
        yield made


def test_request_is_kept_with_its_answer(broker) -> None:
    before_ms = broker.clock.now_ms
    broker.produce("t", "value", key="key")
    [request] = broker.requests.of("Produce")
    assert (request.api, request.version, request.client_id) == ("Produce", 12, "kafkacore.testing")
    assert (request.topics, request.error, request.answered, request.fault) == (["t"], None, True, None)
    assert before_ms <= request.received_ms <= broker.clock.now_ms
    assert request.took_ms > 0
    assert request.body.acks == -1
    assert request.body.topic_data[0].partition_data[0].index == 0
    assert request.response.responses[0].partition_responses[0].base_offset == 0


def test_error_has_its_name_and_an_ordered_fault_is_marked(broker) -> None:
    with broker.refuse("Produce", error="NOT_ENOUGH_REPLICAS", times=1), pytest.raises(Exception, match="replicas"):
        broker.produce("t", "x")
    request = broker.requests.of("Produce")[-1]
    assert request.error == "NOT_ENOUGH_REPLICAS"
    assert request.fault == "refuse Produce with NOT_ENOUGH_REPLICAS"
    with broker.drop("Fetch"), pytest.raises(ConnectionError):
        broker.consume("t")
    dropped = broker.requests.of("Fetch")[0]
    assert (dropped.answered, dropped.response, dropped.error) == (True, None, None)
    assert "no answer" in repr(dropped)


def test_every_request_of_a_real_client_is_recorded(broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "app", "enable.idempotence": True})
    producer.produce("t", b"x")
    assert producer.flush(10) == 0
    seen = {each.api for each in broker.requests if each.client_id == "app"}
    assert {"ApiVersions", "Metadata", "InitProducerId", "Produce"} <= seen
    for each in broker.requests:
        assert each.body is not None
        assert each.response is not None or not each.answered


def test_wait_for_returns_when_the_request_arrives(broker) -> None:
    producing = threading.Timer(0.05, lambda: [broker.produce("t", value) for value in ("x", "y")])
    producing.start()
    assert broker.requests.wait_for("Produce", topic="t", answered=True).error is None
    assert broker.requests.wait_for("Produce", count=2).number > 1
    producing.join()
    assert broker.requests.wait_for("Produce", where=lambda each: each.body.acks == -1)


def test_error_for_a_missing_request_shows_the_others(broker) -> None:
    broker.produce("t", "x")
    with pytest.raises(RequestNotSeen) as caught:
        broker.requests.wait_for("Fetch", topic="t", client_id="app", timeout_seconds=0.01)
    told = str(caught.value)
    assert told.startswith("no Fetch of client 'app' of topic 't' arrived within 0.01 s. These requests arrived: ")
    assert "1 Produce" in told
    assert "Produce v12 of 'kafkacore.testing' for t, answered well after" in told
    with pytest.raises(UnknownName, match="do you mean Heartbeat"):
        broker.requests.of("Hartbeat")


def test_broker_without_a_recorder_says_how_to_get_one() -> None:
    with Broker(topics=["t"]) as broker:
        broker.produce("t", "x")
        with pytest.raises(NothingRecorded, match=r"Broker\(record=True\)"):
            broker.requests.of("Produce")
        plane = broker.node.broker.plane
        with broker.requests.recording() as requests:
            assert plane._answer is not plane._handlers
            broker.produce("t", "y")
            assert len(requests.of("Produce")) == 1
        assert plane._answer is plane._handlers
        broker.produce("t", "z")
        assert len(broker.requests.of("Produce")) == 1


def test_old_requests_are_forgotten(broker, monkeypatch) -> None:
    monkeypatch.setattr(recorder, "MAX_REQUESTS", 3)
    for number in range(5):
        broker.produce("t", str(number))
    assert [each.number for each in broker.requests][-1] - broker.requests[0].number == 2
    monkeypatch.setattr(recorder, "MAX_BYTES", 2000)
    broker.produce("t", "x" * 5000)
    assert [each.api for each in broker.requests] == ["Produce"]
    broker.requests.clear()
    assert len(broker.requests) == 0


def test_requests_are_shown_one_per_line(broker) -> None:
    broker.produce("t", "x")
    lines = broker.requests.show().splitlines()
    assert len(lines) == len(broker.requests)
    assert lines[0].startswith("#1 ApiVersions v")
