"""A native data plane (the network layer) without a node: one processor, one log directory, a table of partitions, and
the wire protocol."""

import contextlib
import os
import socket
import struct

import pytest

from kafkacore._fast.hot import fetch, produce
from kafkacore._fast.hot.fetch_session import FetchSessionCache
from kafkacore._fast.hot.state import HotState, publish_table
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.partition_table import Table
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.plane.acceptor import NativeAcceptor
from kafkacore._fast.plane.plane import NativePlane
from kafkacore._fast.plane.processor import NativeProcessor
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment
from kafkacore.protocol import apis
from kafkacore.protocol import messages as m
from kafkacore.protocol.uuid import Uuid

NOW_MS = 1_700_000_000_000
WAIT_SECONDS = 60  # long enough for a busy machine


def framed(body):
    return struct.pack(">i", len(body)) + body


class Client:
    """A client connection that sends and receives message objects."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def send(self, request, version):
        self.send_together([request], version)
        return self.correlation_id

    def send_together(self, requests, version):
        """Sends these requests at once, so that the processor reads them in one turn."""
        frames = []
        for request in requests:
            self.correlation_id += 1
            frames.append(framed(apis.encode_request(version, self.correlation_id, "test", request)))
        self.socket.sendall(b"".join(frames))

    def send_frame(self, body):
        self.socket.sendall(framed(body))

    def read(self, count):
        got = bytearray()
        while len(got) < count:
            part = self.socket.recv(count - len(got))
            if not part:
                raise ConnectionError("the other side closed")
            got += part
        return bytes(got)

    def receive(self, response_class, version):
        """Receives one answer. Returns the correlation id and the message."""
        frame = self.read(struct.unpack(">i", self.read(4))[0])
        head = 5 if version >= {"ProduceResponse": 9, "FetchResponse": 12}[response_class.__name__] else 4
        return struct.unpack(">i", frame[:4])[0], response_class.decode(frame[head:], version)

    def produce(self, request, version=12):
        self.send(request, version)
        return self.receive(m.ProduceResponse, version)[1]

    def fetch(self, request, version=12):
        self.send(request, version)
        return self.receive(m.FetchResponse, version)[1]

    def is_closed(self):
        """Waits until the plane closes the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()


class DataPlane:
    """A plane (the network layer) with the topic "t" of `partitions` partitions. Node 1 leads them in epoch 0, with the
    logs in a separate directory."""

    def __init__(self, path, partitions=3, clock=None, leader_quota=None, **settings):
        self.path = path
        self.environment = Environment(clock)
        self.plane = NativePlane("data", self.environment, ring_capacity=16, memory_bytes=128 << 20, half_closed_ms=50)
        self.sessions = FetchSessionCache(100, 1)
        self.quota = leader_quota
        self.hot = HotState(self.sessions, leader_quota=leader_quota)
        self.plane.install(0, produce.api(self.hot))
        self.plane.install(1, fetch.api(self.hot))
        self.plane.set_apis([(0, 3, 13, 9), (1, 4, 18, 12)])
        self.directory = LogDirectory(self.environment, str(path))
        self.topic_id = Uuid(os.urandom(16))
        self.partitions = [
            PartitionHandle(self.directory, "t", i, self.topic_id, LogSettings(**settings)) for i in range(partitions)
        ]
        for partition in self.partitions:
            partition.become_leader(1, 0)
        publish_table(self.plane, Table().changed([("t", self.topic_id, self.partitions)]))
        self.processor = NativeProcessor("test-net", self.environment)
        self.processor.serve(self.plane)
        self.acceptor = NativeAcceptor("test-accept")
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.acceptor.add(self.plane, self.listener.fileno(), 0)
        self.port = self.listener.getsockname()[1]
        self.clients = []

    def client(self):
        client = Client(self.port)
        self.clients.append(client)
        return client

    def produce_request(self, *batches, partition=0, acks=-1, version=12, timeout_ms=1000):
        """Returns a Produce request for one topic. `batches` go to `partition`, `partition` + 1 and so on."""
        topic = m.ProduceRequest.TopicProduceData(
            partition_data=[
                m.ProduceRequest.PartitionProduceData(index=partition + i, records=batch)
                for i, batch in enumerate(batches)
            ]
        )
        self.name(topic, version >= 13, "name")
        return m.ProduceRequest(transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[topic])

    def fetch_request(self, offsets, version=12, partition_max_bytes=1 << 20, **fields):
        """Returns a Fetch request. `offsets` maps partition indexes to fetch offsets."""
        topic = m.FetchRequest.FetchTopic(
            partitions=[
                m.FetchRequest.FetchPartition(
                    partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
                for index, offset in offsets.items()
            ]
        )
        self.name(topic, version >= 13, "topic")
        fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, "session_epoch": -1, **fields}
        return m.FetchRequest(topics=[topic] if offsets else [], **fields)

    def name(self, topic, by_id, field):
        if by_id:
            topic.topic_id = self.topic_id
        else:
            setattr(topic, field, "t")

    def close(self):
        for client in self.clients:
            client.close()
        self.plane.start_draining()
        self.acceptor.stop()
        self.processor.stop()
        self.listener.close()
        for partition in self.partitions:
            partition.close()
        self.directory.close()


def make_batch(count=1, value_bytes=100, **fields):
    builder = RecordBatchBuilder(**fields)
    for i in range(count):
        builder.append(timestamp=NOW_MS, key=b"k%d" % i, value=os.urandom(value_bytes))
    return bytes(builder.build())


@pytest.fixture
def batch():
    return make_batch


@pytest.fixture
def open_plane(tmp_path):
    with contextlib.ExitStack() as stack:

        def make(**settings):
            path = tmp_path / f"log{len(os.listdir(tmp_path))}"
            path.mkdir()
            plane = DataPlane(path, **{"timestamp_after_max_ms": 1 << 62, **settings})
            stack.callback(plane.close)
            return plane

        yield make
    assert (produce.live(), fetch.live()) == (0, 0)


@pytest.fixture
def data_plane(open_plane):
    return open_plane()


@pytest.fixture
def client(data_plane):
    return data_plane.client()
