"""Writes requests as bytes, in versions that every peer supports, and reads the answers.

All versions are non-flexible: Metadata 1, CreateTopics 4, DeleteTopics 1, ListOffsets 3, Produce 7, Fetch 11.
"""

import socket
import struct

from wire import call, frame, receive, string

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
TIMEOUT_MS = 120_000
NO_ERROR, TOPIC_ALREADY_EXISTS = 0, 36


def array(items):
    items = list(items)
    return struct.pack(">i", len(items)) + b"".join(items)


def produce(topic, partition, batch, acks=-1):
    data = struct.pack(">i", len(batch)) + batch
    partitions = array([struct.pack(">i", partition) + data])
    body = struct.pack(">hhi", -1, acks, TIMEOUT_MS) + array([string(topic) + partitions])
    return frame(PRODUCE, 7, body)


def produce_to(topics, batch):
    """Returns one request with the same batch for many partitions. `topics` are (name, partition numbers) pairs."""
    data = struct.pack(">i", len(batch)) + batch
    asked = (string(name) + array(struct.pack(">i", index) + data for index in numbers) for name, numbers in topics)
    return frame(PRODUCE, 7, struct.pack(">hhi", -1, -1, TIMEOUT_MS) + array(asked))


def produce_to_all(topics, batch):
    """Returns one request with the same batch for every partition of many topics. `topics` are (name, partition count)
    pairs."""
    return produce_to([(name, range(count)) for name, count in topics], batch)


def produce_errors(answer):
    """Returns the topic, partition and error code of each partition of a Produce answer (without its
    correlation id)."""
    (topics,) = struct.unpack_from(">i", answer)
    position = 4
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", answer, position)
        name = answer[position + 2 : position + 2 + size].decode()
        (partitions,) = struct.unpack_from(">i", answer, position + 2 + size)
        position += 6 + size
        for _ in range(partitions):
            yield name, *struct.unpack_from(">ih", answer, position)
            position += 30


def unacknowledged(answer):
    """Returns how many partitions of a Produce answer (without its correlation id) have an error."""
    return sum(error != NO_ERROR for _, _, error in produce_errors(answer))


def produce_error_at(topic):
    """Returns the position of the first partition's error code in a Produce answer that starts with its
    correlation id."""
    return 4 + 4 + 2 + len(topic) + 4 + 4


def fetch(topic, partition, offset, most_bytes, wait_ms=500):
    asked = struct.pack(">iiqqi", partition, -1, offset, -1, most_bytes)
    head = struct.pack(">iiiibii", -1, wait_ms, 1, most_bytes, 0, 0, -1)
    return frame(FETCH, 11, head + array([string(topic) + array([asked])]) + array([]) + string(""))


def fetch_error_at(topic):
    return 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4


def metadata(*topics):
    return frame(METADATA, 1, array(map(string, topics)))


def create_topics(names, partitions, replicas=1):
    wanted = [string(name) + struct.pack(">ih", partitions, replicas) + array([]) + array([]) for name in names]
    return frame(CREATE_TOPICS, 4, array(wanted) + struct.pack(">ib", TIMEOUT_MS, 0))


def create(address, names, partitions, replicas=1):
    """Creates topics. Raises RuntimeError with the first error code that is not 0."""
    answer = call(address, create_topics(names, partitions, replicas), timeout_s=TIMEOUT_MS / 1000)
    position = 8
    for _ in names:
        (size,) = struct.unpack_from(">h", answer, position)
        (error, message_size) = struct.unpack_from(">hh", answer, position + 2 + size)
        if error not in (NO_ERROR, TOPIC_ALREADY_EXISTS):
            raise RuntimeError(f"CreateTopics: error {error} for {answer[position + 2 : position + 2 + size]!r}")
        position += 6 + size + max(0, message_size)


def delete(address, name):
    call(address, frame(DELETE_TOPICS, 1, array([string(name)]) + struct.pack(">i", TIMEOUT_MS)), timeout_s=60)


def list_offsets(topics, timestamp=-1):
    """Returns a ListOffsets request. `topics` maps names to numbers of partitions."""
    asked = (
        string(name) + array(struct.pack(">iq", index, timestamp) for index in range(count))
        for name, count in topics.items()
    )
    return frame(LIST_OFFSETS, 3, struct.pack(">ib", -1, 0) + array(asked))


def unserved(address, topics):
    """Returns the number of these partitions for which ListOffsets returns an error."""
    answer = call(address, list_offsets(topics), timeout_s=60)
    (count,) = struct.unpack_from(">i", answer, 4)
    position, wrong = 8, 0
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, position)
        (partitions,) = struct.unpack_from(">i", answer, position + 2 + size)
        position += 6 + size
        for _ in range(partitions):
            wrong += struct.unpack_from(">h", answer, position + 4)[0] != NO_ERROR
            position += 22
    return wrong


class Connection:
    """A connection on which the broker answers requests in order."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_MS / 1000)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request):
        self.socket.sendall(request)

    def receive(self):
        return receive(self.socket)[1]

    def close(self):
        self.socket.close()
