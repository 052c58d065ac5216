"""The largest requests that Kafka's protocol allows, and an honest client that measures how long the broker makes it
wait while the broker serves such requests."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol import apis, messages
from kafkacore.protocol.messages import (
    CreateTopicsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    ProduceRequest,
)
from processes import thread_files, wait_until
from wire import receive

ANSWER_TIMEOUT_S = 50
NOW_MS = 1_700_000_000_000
NO_PRODUCER = -1
GROUP = 0
UNKNOWN_TAG = 10_000


class Question(NamedTuple):
    """A request and the API version in which a client sends it."""

    request: Any
    version: int

    def frame(self, correlation_id: int = 1) -> bytes:
        encoded = apis.encode_request(self.version, correlation_id, "load", self.request)
        return struct.pack(">i", len(encoded)) + encoded

    def decode(self, payload: bytes) -> Any:
        """Decodes a response, given without its correlation id."""
        key = self.request.API_KEY
        kind = getattr(messages, type(self.request).__name__.removesuffix("Request") + "Response")
        return kind.decode(payload[len(apis.response_header(key, self.version, 1)) - 4 :], self.version)


class Line:
    """One connection to a broker."""

    def __init__(self, address: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, question: Question) -> Any:
        self.send(question.frame())
        return question.decode(self.receive())

    def send(self, frames: bytes) -> None:
        self.socket.sendall(frames)

    def receive(self) -> bytes:
        """Returns the next response without its correlation id."""
        return receive(self.socket)[1]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attack(address: str, question: Question, honest: HonestClient | None = None) -> Any:
    """Sends one request on a separate connection, and returns the response. Encoding and decoding block the threads of
    the `honest` client, so `honest` checks its waits after the request is encoded and before the response is
    decoded."""
    frame = question.frame()
    if honest is not None:
        honest.forget()
    with Line(address) as line:
        line.send(frame)
        payload = line.receive()
    if honest is not None:
        honest.check()
    return question.decode(payload)


class HonestClient:
    """Repeats small requests and measures how long each of them waits. Each kind of request has its own connection and
    thread.

    The thread that attacks the broker only sends bytes that were encoded earlier, and decodes the received bytes later.
    So it hardly disturbs the threads of this client.
    """

    BASELINE_ROUNDS = 60
    PAUSE_S = 0.004
    LEAST_BOUND_S = 0.25
    BASELINES = 20  # the longest allowed wait, as a multiple of the 99th percentile of the baseline

    def __init__(self, address: str, pid: int, questions: Mapping[str, Question]) -> None:
        self.pid = pid
        self.askers = [Asker(name, Line(address), question.frame()) for name, question in questions.items()]
        self.bounds_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        for asker in self.askers:
            asker.thread.start()
        self.go_on(self.BASELINE_ROUNDS)
        for asker in self.askers:
            baseline_s = percentile(asker.waits_s, 0.99)
            self.bounds_s[asker.name] = max(self.LEAST_BOUND_S, self.BASELINES * baseline_s)
        self.forget()
        return self

    def go_on(self, rounds: int) -> None:
        """Waits until the broker has answered each kind of request `rounds` more times."""
        goals = [(asker, len(asker.waits_s) + rounds) for asker in self.askers]

        def done() -> bool:
            for asker in self.askers:
                if asker.failure is not None:
                    raise asker.failure
            return all(len(asker.waits_s) >= goal for asker, goal in goals)

        wait_until(done, ANSWER_TIMEOUT_S, f"{rounds} more answers to each request of an honest client")

    def forget(self) -> None:
        for asker in self.askers:
            asker.waits_s = []
        self.before = processor_times(self.pid)

    def crowding(self) -> float:
        """Returns the factor by which waiting for a processor slowed down the node's threads since `forget`; 1 if they
        never waited."""
        ran, waited = (now - before for now, before in zip(processor_times(self.pid), self.before, strict=True))
        return 1 + waited / max(ran, 1)

    def worst_s(self) -> dict[str, float]:
        """Returns the longest wait of each kind of request, including the request in flight."""
        self.go_on(2)
        return {asker.name: max(asker.waits_s) for asker in self.askers}

    def check(self) -> None:
        """Fails if any request waited longer than its bound. The bound assumes that the node never shares its
        processor, so the check multiplies it by `crowding`."""
        worst_s, crowding = self.worst_s(), self.crowding()
        slow = [
            f"{name}: {worst_s[name] * 1000:.0f} ms, more than {crowding:.1f} * {bound_s * 1000:.0f} ms"
            for name, bound_s in self.bounds_s.items()
            if worst_s[name] > crowding * bound_s
        ]
        assert not slow, f"an honest client waited too long: {slow}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for asker in self.askers:
            asker.ended.set()
        for asker in self.askers:
            asker.thread.join(ANSWER_TIMEOUT_S)
            asker.line.close()


class Asker:
    """A thread of an honest client that repeats one kind of request."""

    def __init__(self, name: str, line: Line, frame: bytes) -> None:
        self.name, self.line, self.frame = name, line, frame
        self.waits_s: list[float] = []
        self.failure: OSError | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"asks {name}", daemon=True)

    def run(self) -> None:
        try:
            while not self.ended.wait(HonestClient.PAUSE_S):
                began_s = time.perf_counter()
                self.line.send(self.frame)
                self.line.receive()
                self.waits_s.append(time.perf_counter() - began_s)
        except OSError as error:
            self.failure = error


def processor_times(pid: int) -> tuple[int, int]:
    """Returns how many nanoseconds the threads of a process have run, and how many nanoseconds they could have run but
    waited for a processor."""
    ran = waited = 0
    for (times,) in thread_files(pid, "schedstat"):
        one = times.split()
        ran, waited = ran + int(one[0]), waited + int(one[1])
    return ran, waited


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# --- requests of an honest client ---


def batch(value: bytes = b"v", codec: str = "none", producer_id: int = NO_PRODUCER) -> bytes:
    idempotent = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    builder = RecordBatchBuilder(codec=codec, limit_bytes=len(value) + 200, **idempotent)
    assert builder.append(NOW_MS, None, value)
    return bytes(builder.build())


def produce(topic: str, batches: Iterable[tuple[int, bytes]]) -> Question:
    """Returns a Produce request that writes each batch to a different partition of the topic."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in batches]
    return Question(
        ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
        ),
        9,
    )


def metadata(*topics: str) -> Question:
    return Question(
        MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        ),
        9,
    )


def find_coordinators(keys: Iterable[str]) -> Question:
    return Question(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=list(keys)), 4)


def try_topic(name: str) -> Question:
    """Returns a CreateTopics request that asks the controller to validate a topic without creating it."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return Question(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True), 7)


def fetch(topics: Mapping[str, Iterable[int]], max_wait_ms: int) -> Question:
    """Returns a Fetch request outside any session, which reads from the first offset."""
    asked = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[FetchRequest.FetchPartition(partition=each, partition_max_bytes=1 << 20) for each in indexes],
        )
        for name, indexes in topics.items()
    ]
    return Question(
        FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=asked), 12
    )


def padded(question: Question, size_bytes: int) -> bytes:
    """Returns the frame of the request with an unknown tagged field at its end. Receivers skip such a field
    (KIP-482)."""
    payload = question.frame()[4:]
    assert payload.endswith(b"\0"), "the message must end with an empty list of tagged fields"
    tagged = b"\1" + unsigned_varint(UNKNOWN_TAG) + unsigned_varint(size_bytes) + bytes(size_bytes)
    payload = payload[:-1] + tagged
    return struct.pack(">i", len(payload)) + payload


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
