"""The workload for tests with a disk that loses writes. It makes a node write every kind of file, records when the node
answered what, and checks which data must survive a power cut."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from dialogue import Dialogue
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.uuid import Uuid
from processes import wait_until

# The files are small, so that even a short run creates, seals, snapshots, checkpoints and deletes many of them.
OVERRIDES = [
    "internal.metadata.log.segment.bytes=3000",
    "metadata.log.max.record.bytes.between.snapshots=2500",
    "metadata.max.retention.bytes=5000",
    "log.initial.task.delay.ms=0",
    "log.flush.offset.checkpoint.interval.ms=100",
    "log.flush.start.offset.checkpoint.interval.ms=100",
    "replica.high.watermark.checkpoint.interval.ms=100",
    "log.retention.check.interval.ms=200",
    "log.segment.delete.delay.ms=100",
]
SEGMENTS = {"internal_segment_bytes": "2500", "index_interval_bytes": "0", "retention_ms": "-1"}
RECORDS_A_BATCH = 2
ALL = 1 << 62
PATIENCE_S = 5.0
# The records have the present time, because the node forgets a producer that has been silent for a day.
FIRST_TIMESTAMP_MS = time.time_ns() // 1_000_000


def value(topic: str, offset: int) -> bytes:
    """Returns the value of the record at this offset, which is the same in each run."""
    return b"%s:%d:" % (topic.encode(), offset) + bytes([65 + offset % 26]) * (offset * 37 % 500)


def batch(topic: str, first: int, producer_id: int = -1, sequence: int = -1) -> bytes:
    epoch = 0 if producer_id >= 0 else -1
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    for offset in range(first, first + RECORDS_A_BATCH):
        builder.append(timestamp=FIRST_TIMESTAMP_MS + offset, key=None, value=value(topic, offset))
    return builder.build()


class Sent(NamedTuple):
    """The last acknowledged batch of an idempotent producer."""

    producer_id: int
    sequence: int
    offset: int


class Known:
    """A client's knowledge at some moment: which requests the node has acknowledged, and which are still unanswered."""

    def __init__(self) -> None:
        self.topics: dict[str, Uuid] = {}
        self.leaving: set[str] = set()
        self.gone: set[Uuid] = set()
        self.promised: dict[str, int] = {}  # by topic: all records below this offset must survive
        self.written: dict[str, int] = {}  # by topic: the end of all acknowledged records; a power cut may lose some
        self.cut_below: dict[str, int] = {}  # by topic: the offset of the DeleteRecords requests
        self.producer_id = -1  # the highest producer id that the node has assigned
        self.last: dict[str, Sent] = {}
        self.quorum_epoch = -1
        self.properties: bytes | None = None  # the content of meta.properties without comments


Fact = Callable[[Known], None]


class Workload:
    """Sends the requests of the workload. `clock` returns the size of the journal. `facts` holds what the client has
    learned and when, in order."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.facts: list[tuple[int, Fact]] = []
        self.ends: dict[str, int] = {}

    def know(self, fact: Fact) -> None:
        self.facts.append((self.clock(), fact))

    def known_at(self, end: int) -> Known:
        known = Known()
        for when, fact in self.facts:
            if when <= end:
                fact(known)
        return known

    # --- steps ---

    def create(self, node: Dialogue, topic: str, **configs: str) -> None:
        if "retention_bytes" in configs:
            self.know(lambda known: known.cut_below.__setitem__(topic, ALL))
        topic_id = node.create(topic, **SEGMENTS, **configs).topic_id  # type: ignore[attr-defined]
        self.know(lambda known: known.topics.__setitem__(topic, topic_id))

    def delete(self, node: Dialogue, topic: str) -> None:
        def leaving(known: Known) -> None:
            known.leaving.add(topic)
            known.promised.pop(topic, None)

        def gone(known: Known) -> None:
            known.gone.add(known.topics.pop(topic))
            known.leaving.discard(topic)

        self.know(leaving)
        node.delete(topic)
        self.know(gone)
        self.ends.pop(topic, None)

    def produce(self, node: Dialogue, topic: str, count: int, *, promised: bool, producer_id: int = -1) -> None:
        sequence = 0 if producer_id >= 0 else -1
        for _ in range(count):
            first = self.ends.get(topic, 0)
            told = node.produce(topic, batch(topic, first, producer_id, sequence))
            assert told == (0, first), (topic, told, first)
            self.ends[topic] = end = first + RECORDS_A_BATCH
            sent = Sent(producer_id, sequence, first)
            self.know(lambda known, end=end, sent=sent: _acknowledged(known, topic, end, sent, promised))  # type: ignore[misc]
            sequence += RECORDS_A_BATCH if producer_id >= 0 else 0

    def producer_ids(self, node: Dialogue, count: int) -> int:
        given = max(node.producer_id() for _ in range(count))
        self.know(lambda known: setattr(known, "producer_id", max(known.producer_id, given)))
        return given

    def delete_records(self, node: Dialogue, topic: str, offset: int) -> None:
        self.know(lambda known: known.cut_below.__setitem__(topic, offset))
        told = node.delete_records(topic, offset)
        assert told == (0, offset), told

    def stopped_in_order(self) -> None:
        """Notes that the node has stopped in order, so that everything acknowledged is on disk."""
        ends = dict(self.ends)
        self.know(lambda known: known.promised.update(ends))

    def note(self, **values: Any) -> None:
        self.know(lambda known: known.__dict__.update(values))


def _acknowledged(known: Known, topic: str, end: int, sent: Sent, promised: bool) -> None:
    known.written[topic] = end
    if promised:
        known.promised[topic] = end
        if sent.producer_id >= 0:
            known.last[topic] = sent
    else:
        known.last.pop(topic, None)


# --- checks ---


def check_topics(node: Dialogue, known: Known) -> None:
    found = {name: topic_id for name, (topic_id, _) in node.topics().items()}
    for name, topic_id in known.topics.items():
        if name not in known.leaving:
            assert found.get(name) == topic_id, f"topic {name} has id {found.get(name)} instead of {topic_id}"
    assert not known.gone.intersection(found.values()), "a deleted topic exists again"


def check_records(node: Dialogue, topic: str, known: Known) -> int:
    """Checks that the records are whole, in order and without a gap, and that no record is missing that must survive.
    Returns the end offset of the log."""
    least = known.promised.get(topic, 0)
    with contextlib.suppress(TimeoutError):  # a node shows recovered records only after it has synced them
        wait_until(lambda: node.offset(topic, -1) >= least, PATIENCE_S)
    end = node.offset(topic, -1)
    assert end >= least, f"{topic} ends at {end}, but all records below {least} must survive"
    found = node.records(topic)
    start = found[0][0] if found else end
    assert start <= known.cut_below.get(topic, 0), f"{topic} begins at {start}"
    assert [offset for offset, _ in found] == list(range(start, end)), f"{topic} has a gap from {start} to {end}"
    wrong = [offset for offset, content in found if content != value(topic, offset)]
    assert not wrong, f"{topic} has wrong records at {wrong[:5]}"
    return end


def check_goes_on(node: Dialogue, topic: str, end: int, known: Known) -> None:
    """Checks that the next append gets the offset `end`, and that a batch which a producer repeats gets its first
    offset again."""
    last = known.last.get(topic)
    if last is not None and last.offset >= known.cut_below.get(topic, 0):
        again = node.produce(topic, batch(topic, last.offset, last.producer_id, last.sequence))
        assert again == (0, last.offset), f"{topic}: a batch at {last.offset} was repeated, and the answer is {again}"
    assert node.produce(topic, batch(topic, end)) == (0, end)


def check(node: Dialogue, known: Known) -> None:
    check_topics(node, known)
    for topic in node.topics():
        check_goes_on(node, topic, check_records(node, topic, known), known)
    given = node.producer_id()
    assert given > known.producer_id, f"producer id {given} is not above {known.producer_id}"
