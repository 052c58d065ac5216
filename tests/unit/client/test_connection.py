"""The data client's connection, on a socket pair, to a broker that does not answer."""

import fcntl
import resource
import socket
import time

import pytest

from kafkacore.client import connection as module
from kafkacore.client.connection import Connection
from kafkacore.client.in_flight import InFlight, OwnTime
from kafkacore.client.options import Options
from kafkacore.protocol.messages import MetadataRequest

TOO_LARGE_FOR_SELECT = 1024
VERSION = 12
SMALL = MetadataRequest(topics=[])
# A request that does not fit into the buffers of a socket.
LARGE = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 30_000) for _ in range(40)])


@pytest.fixture
def connected(monkeypatch):
    """Returns a function that makes a connection. The descriptor of its socket is at least `descriptor`."""
    ends = []

    def connect(descriptor=0):
        near, far = socket.socketpair()
        with near:
            ends.append(socket.socket(fileno=fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, descriptor)))
        ends.append(far)
        ends[-2].setblocking(False)
        monkeypatch.setattr(Connection, "_connect", lambda *_: ends[-2])
        monkeypatch.setattr(Connection, "_learn_versions", lambda *_: None)
        return Connection("h", 1, Options({}))

    yield connect
    for each in ends:
        each.close()


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("message", [SMALL, LARGE])
def test_connection_waits_until_the_deadline_when_its_descriptor_is_too_large_for_select(
    connected, many_descriptors, message
):
    subject = connected(TOO_LARGE_FOR_SELECT)
    with pytest.raises(TimeoutError, match="h:1 did not answer in time"):
        subject.ask(message, VERSION, time.monotonic() + 0.2)
    assert not subject.is_open


def test_requests_in_flight_are_awaited_when_a_descriptor_is_too_large_for_select(connected, many_descriptors):
    flight = InFlight("Metadata", OwnTime(), lambda *_: None)
    flight.send(1, connected(TOO_LARGE_FOR_SELECT), SMALL, VERSION, 10.0, "cargo")
    assert flight.wait(0.01) == []


def test_connection_is_closed_when_a_signal_interrupts_a_request_that_is_partly_sent(connected, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    subject = connected()
    monkeypatch.setattr(module, "wait_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        subject.send(LARGE, VERSION, time.monotonic() + 10)
    assert not subject.is_open
