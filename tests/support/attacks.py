"""Requests that Kafka's protocol allows and that are as large as a client can make them, and an honest client that
measures how long it waits while the broker serves them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
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
from processes import wait_until
from wire import receive

ANSWER_TIMEOUT_S = 50
NOW_MS = 1_700_000_000_000
NO_PRODUCER = -1
GROUP = 0
UNKNOWN_TAG = 10_000


class Question(NamedTuple):
    """A request and the version that it is sent in."""

    request: Any
    version: int

    def frame(self, correlation_id: int = 1) -> bytes:
        encoded = apis.encode_request(self.version, correlation_id, "load", self.request)
        return struct.pack(">i", len(encoded)) + encoded

    def decode(self, payload: bytes) -> Any:
        """The response that follows a correlation id."""
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
        """The next response without its correlation id."""
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
    """The answer to one request, on a connection of its own. `honest` checks its waits between the encoding and the
    decoding, which keep its threads from running."""
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
    """Asks small questions, each over and over on a connection and a thread of its own, and measures the waits.

    The attacker's thread only sends bytes made before and receives bytes decoded after, so that all these threads
    hardly disturb each other.
    """

    BASELINE_ROUNDS = 60
    PAUSE_S = 0.004
    LEAST_BOUND_S = 0.25
    BASELINES = 20  # a wait may be this many times the baseline's 99th percentile

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
        """Waits until each question was answered so many more times."""
        goals = [(asker, len(asker.waits_s) + rounds) for asker in self.askers]

        def done() -> bool:
            for asker in self.askers:
                if asker.failure is not None:
                    raise asker.failure
            return all(len(asker.waits_s) >= goal for asker, goal in goals)

        wait_until(done, ANSWER_TIMEOUT_S, f"{rounds} answers to an honest client")

    def forget(self) -> None:
        for asker in self.askers:
            asker.waits_s = []
        self.before = processor_times(self.pid)

    def crowding(self) -> float:
        """By which factor the node's threads were slower since `forget` because they waited for a processor; 1 when
        they never waited."""
        ran, waited = (now - before for now, before in zip(processor_times(self.pid), self.before, strict=True))
        return 1 + waited / max(ran, 1)

    def worst_s(self) -> dict[str, float]:
        """The longest wait for each question, the one under way among them."""
        self.go_on(2)
        return {asker.name: max(asker.waits_s) for asker in self.askers}

    def check(self) -> None:
        """Fails when a question waited longer than its bound, which is for a node that shares no processor."""
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
    """One question of an honest client."""

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
    """How many nanoseconds the threads of a process ran, and how many they waited for a processor although they could
    run."""
    ran = waited = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            one = (task / "schedstat").read_text().split()
            ran, waited = ran + int(one[0]), waited + int(one[1])
    return ran, waited


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


# --- what an honest client asks ---


def batch(value: bytes = b"v", codec: str = "none", producer_id: int = NO_PRODUCER) -> bytes:
    idempotent = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    builder = RecordBatchBuilder(codec=codec, limit_bytes=len(value) + 200, **idempotent)
    assert builder.append(NOW_MS, None, value)
    return bytes(builder.build())


def produce(topic: str, batches: Iterable[tuple[int, bytes]]) -> Question:
    """Each batch for a partition of the topic."""
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
    """A topic that the controller checks and does not make."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return Question(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True), 7)


def fetch(topics: Mapping[str, Iterable[int]], max_wait_ms: int) -> Question:
    """A Fetch outside any session, from the first offset."""
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
    """The question's frame with an unknown tagged field at its end, which readers skip (KIP-482)."""
    payload = question.frame()[4:]
    assert payload.endswith(b"\0"), "the message ends without tagged fields"
    tagged = b"\1" + unsigned_varint(UNKNOWN_TAG) + unsigned_varint(size_bytes) + bytes(size_bytes)
    payload = payload[:-1] + tagged
    return struct.pack(">i", len(payload)) + payload


def unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
