"""The requests that the data client has in flight, and the clock of their deadlines."""

import math
from types import SimpleNamespace

import pytest

from client_clock import ClientClock
from client_line import Line
from kafkacore.client.in_flight import InFlight, OwnTime


@pytest.fixture
def clock(monkeypatch):
    return ClientClock(monkeypatch)


@pytest.fixture
def flight(clock):
    """Yields `subject` with one request in flight to broker 1, its own time, and the lost requests."""
    lost, line, own = [], Line(), OwnTime()
    own.start()
    subject = InFlight("Fetch", own, lambda *each: lost.append(each))
    subject.send(1, line, None, 0, 10.0, "cargo")
    yield SimpleNamespace(subject=subject, own=own, line=line, lost=lost)
    line.close()


def test_own_time_stands_still_when_the_caller_pauses(clock):
    own = OwnTime()
    clock.skip(100)
    own.start()
    clock.skip(2)
    own.stop()
    clock.skip(100)
    assert own.now() == pytest.approx(2, abs=0.5)
    own.start()
    own.start()
    clock.skip(3)
    assert own.now() == pytest.approx(5, abs=0.5)


def test_request_is_given_up_when_its_time_is_over(flight, clock):
    flight.own.stop()
    clock.skip(100)
    flight.own.start()
    flight.subject.give_up()
    assert flight.lost == []
    clock.skip(11)
    flight.subject.give_up()
    ((node, error, cargo),) = flight.lost
    assert (node, str(error), cargo) == (1, "h:1 did not answer a Fetch in time", "cargo")
    assert 1 not in flight.subject


def test_request_is_given_up_when_the_client_closes_its_connection(flight):
    flight.line.close()
    flight.subject.give_up()
    ((node, error, cargo),) = flight.lost
    assert (node, cargo, len(flight.subject)) == (1, "cargo", 0)
    assert "the broker has left the cluster" in str(error)


def test_request_is_lost_when_the_broker_closes_its_connection(flight):
    flight.line.far.close()
    assert flight.subject.wait(math.inf) == [1]
    assert flight.subject.receive(1) is None
    assert [node for node, _, _ in flight.lost] == [1]
    assert len(flight.subject) == 0


def test_response_to_an_earlier_request_leaves_the_request_in_flight(flight):
    flight.line.far.send(bytes([7, 1]))
    assert flight.subject.receive(1) is None
    request, response = flight.subject.receive(1)
    assert (request.cargo, response) == ("cargo", "response")
    assert list(flight.subject.cargoes()) == []


def test_wait_ends_at_the_first_deadline_when_no_response_comes(flight, clock):
    clock.skip(9.95)
    assert flight.subject.wait(math.inf) == []
