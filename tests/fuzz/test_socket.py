"""Invalid bytes sent to a running node. The node continues, its memory stays limited, and other clients notice nothing.

KAFKACORE_FUZZ_SECONDS limits the time. KAFKACORE_SEED repeats the bytes that are sent, but not the races between
threads.
"""

import os
import socket
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from mutator import Mutator
from processes import rss_bytes, wait_until
from seeds import SEED
from wire import frame, receive

CORPUS = Path(__file__).parent / "corpus"
SECONDS = float(os.environ.get("KAFKACORE_FUZZ_SECONDS", "10"))
CONNECTIONS = 8
REQUESTS_PER_CONNECTION = 20
ANSWER_TIMEOUT_S = 0.02
# Valid requests may leave connections, fetch sessions and topics in memory. A leak would occupy more than this.
RSS_GROWTH_BYTES = 96 << 20


class Canary:
    """A producer and a consumer whose connections stay open while other clients misbehave."""

    def __init__(self, bootstrap):
        self.errors = []
        settings = {"bootstrap.servers": bootstrap, "error_cb": self.errors.append}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("canary", 1, 1)])["canary"].result(30)
        self.producer = Producer({**settings, "linger.ms": 0, "enable.idempotence": True})
        self.consumer = Consumer({**settings, "group.id": "unused", "enable.auto.commit": False})
        self.consumer.assign([TopicPartition("canary", 0, 0)])
        self.sent = 0

    def sings(self):
        """Sends one record. Fails if the record does not arrive, arrives changed, or a connection was lost."""
        value = b"canary %d" % self.sent
        self.producer.produce("canary", value, partition=0)
        assert self.producer.flush(20) == 0, f"no acknowledgement, KAFKACORE_SEED={SEED}"
        message = self.consumer.poll(20)
        assert message is not None, f"the record did not arrive, KAFKACORE_SEED={SEED}"
        assert (message.error(), message.offset(), message.value()) == (None, self.sent, value), (
            f"KAFKACORE_SEED={SEED}"
        )
        assert not self.errors, f"{self.errors}, KAFKACORE_SEED={SEED}"
        self.sent += 1

    def close(self):
        self.consumer.close()


def address(broker):
    host, port = broker.bootstrap.rsplit(":", 1)
    return host, int(port)


@pytest.fixture
def target(fresh_broker):
    return fresh_broker({"connections.max.idle.ms": "30000", "auto.create.topics.enable": "false"})


@pytest.fixture
def canary(target):
    bird = Canary(target.bootstrap)
    yield bird
    bird.close()


def misbehave(mutator, where):
    """Opens several connections and sends mostly invalid requests. Reads the answers without checking them."""
    open_now = []
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(where, timeout=5)
        connection.settimeout(ANSWER_TIMEOUT_S)
        open_now.append(connection)
    for _ in range(REQUESTS_PER_CONNECTION):
        for connection in open_now:
            try:
                connection.sendall(mutator.sound() if mutator.random.random() < 0.1 else mutator.request())
                if mutator.random.random() < 0.2:
                    connection.recv(65536)
                if mutator.random.random() < 0.02:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                # The broker has closed the connection, as it should, so the rest cannot be sent.
                continue
    for connection in open_now:
        connection.close()
    return CONNECTIONS * REQUESTS_PER_CONNECTION


@pytest.mark.timeout(SECONDS + 100)
def test_mutated_dialogues_do_not_disturb_other_clients(target, canary):
    mutator = Mutator(CORPUS, SEED)
    canary.sings()
    misbehave(mutator, address(target))
    before = rss_bytes(target.pid)
    sent, deadline = 0, time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        sent += misbehave(mutator, address(target))
        canary.sings()
        grown = rss_bytes(target.pid) - before
        if target.ours:
            assert grown < RSS_GROWTH_BYTES, f"{grown >> 20} MiB more after {sent} requests, KAFKACORE_SEED={SEED}"
    print(f"{sent} requests in {SECONDS} s, {canary.sent} canary records, KAFKACORE_SEED={SEED}")
    assert target.child.alive()
    assert not target.ours or "Traceback" not in target.log.read_text(errors="replace"), target.child.tail()


def answered_or_closed(connection):
    """Returns the bytes of the next answer, or b"" if the broker has closed the connection."""
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


REFUSED = {
    "a negative length": struct.pack(">i", -1),
    "a length of 2 GiB": struct.pack(">i", 0x7FFFFFFF) + b"x" * 100,
    "a length over socket.request.max.bytes": struct.pack(">i", 104857601) + b"x" * 100,
    "an empty frame": struct.pack(">i", 0),
    "a frame shorter than a header": struct.pack(">i", 3) + b"abc",
    "an unknown API": frame(999, 0, b""),
    "a negative API": frame(-5, 0, b""),
    "a version of Produce that nobody knows": frame(0, 99, b""),
    "a client id longer than the frame": struct.pack(">ihhih", 10, 18, 0, 1, 30000),
    "a count of topics beyond the frame": frame(3, 1, struct.pack(">i", 0x7FFFFFFF)),
    "a body cut in the middle": frame(3, 1, struct.pack(">ih", 1, 10) + b"abc"),
    "noise of honest length": struct.pack(">i", 255 * 8) + bytes(range(1, 256)) * 8,
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
}


@pytest.fixture(scope="module")
def target_of_module(request, tmp_path_factory):
    from brokers import APACHE, ApacheKafka, Node

    peer = request.config.getoption("--peer")
    directory = tmp_path_factory.mktemp("refused")
    broker = ApacheKafka(peer, directory / peer) if peer in APACHE else Node(directory / "node")
    yield broker
    broker.stop()


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_request_closes_only_its_own_connection(target_of_module, name):
    with (
        socket.create_connection(address(target_of_module), timeout=10) as bystander,
        socket.create_connection(address(target_of_module), timeout=10) as connection,
    ):
        connection.sendall(REFUSED[name])
        assert answered_or_closed(connection) == b""
        bystander.sendall(frame(18, 0, b"", correlation_id=7))
        assert receive(bystander)[0] == 7
    assert target_of_module.child.alive()


def test_unknown_version_of_api_versions_gets_error_35_in_a_version_0_body(target_of_module):
    with socket.create_connection(address(target_of_module), timeout=10) as connection:
        # From version 3 on, a request header ends with tagged fields. The zero byte says that there are none.
        connection.sendall(frame(18, 99, b"\0", correlation_id=9))
        correlation_id, body = receive(connection)
        assert correlation_id == 9
        error, count = struct.unpack(">hi", body[:6])
        assert error == 35
        # KIP-511: the answer contains the supported versions of ApiVersions itself, so that the client can try again.
        ranges = [struct.unpack(">hhh", body[6 + 6 * n : 12 + 6 * n]) for n in range(count)]
        assert 18 in {key for key, _, _ in ranges}
        # The broker keeps the connection open.
        connection.sendall(frame(18, 0, b"", correlation_id=10))
        assert receive(connection)[0] == 10


def test_frame_that_arrives_byte_by_byte_is_answered(target_of_module):
    with socket.create_connection(address(target_of_module), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in frame(18, 0, b"", correlation_id=11):
            connection.send(bytes([octet]))
        assert receive(connection)[0] == 11


def test_peer_that_disconnects_within_a_frame_leaks_nothing(target_of_module):
    def connections():
        return sum(1 for _ in Path(f"/proc/{target_of_module.pid}/fd").iterdir())

    before = connections()
    for _ in range(50):
        with socket.create_connection(address(target_of_module), timeout=10) as connection:
            connection.sendall(frame(3, 1, struct.pack(">i", 0))[:7])
    # In the meantime, Apache Kafka may open a few files of its own.
    wait_until(lambda: connections() <= before + 5, 20, "the broker to close the sockets of disconnected clients")


def test_half_closed_connection_gets_its_answer_or_ends(target_of_module):
    with socket.create_connection(address(target_of_module), timeout=10) as connection:
        connection.sendall(frame(18, 0, b"", correlation_id=12))
        connection.shutdown(socket.SHUT_WR)
        answer = answered_or_closed(connection)
        assert answer == b"" or struct.unpack(">i", answer[4:8])[0] == 12
