"""The files of a log compared with a simple Python counterpart that follows Apache Kafka's LogSegment and
ProducerStateManager."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore._fast.wait.io import LogDirectory
from kafkacore._fast.world.environment import Environment, ManualClock
from kafkacore.storage import log_loader

NOW = 1_700_000_000_000
EPOCH = 6


@dataclass
class Sent:
    """A batch of producer 0, 1 or 2, which is idempotent, or a batch without a producer (-1)."""

    records: int
    value_bytes: int
    timestamp: int
    producer: int
    sequence: int = 0

    def encode(self) -> bytes:
        ids = {}
        if self.producer >= 0:
            ids = {"producer_id": self.producer, "producer_epoch": 1, "base_sequence": self.sequence}
        builder = RecordBatchBuilder(**ids)
        for _ in range(self.records):
            builder.append(timestamp=self.timestamp, key=None, value=b"x" * self.value_bytes)
        return builder.build()


@dataclass
class TwinSegment:
    base: int
    log: bytes = b""
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    greatest: tuple[int, int] = (-1, 0)
    since_entry: int = 0

    def add_time(self) -> None:
        if self.greatest[0] > (self.times[-1][0] if self.times else -1):
            self.times.append(self.greatest)


class Twin:
    def __init__(self, segment_bytes: int, interval: int) -> None:
        self.segment_bytes = segment_bytes
        self.interval = interval
        self.end = 0
        self.segments = [TwinSegment(0)]
        self.producers: dict[int, bytes] = {}
        self.snapshots: dict[int, set[bytes]] = {}

    def append(self, sent: Sent) -> None:
        raw = bytearray(sent.encode())
        struct.pack_into(">q", raw, 0, self.end)
        struct.pack_into(">i", raw, 12, EPOCH)
        last = self.end + sent.records - 1
        segment = self.segments[-1]
        if len(segment.log) > self.segment_bytes - len(raw):
            self.close()
            segment = TwinSegment(self.end)
            self.segments.append(segment)
        if sent.timestamp > segment.greatest[0]:
            segment.greatest = (sent.timestamp, last - segment.base)
        if segment.since_entry > self.interval:
            segment.offsets.append((last - segment.base, len(segment.log)))
            segment.add_time()
            segment.since_entry = 0
        segment.since_entry += len(raw)
        segment.log += raw
        self.end = last + 1
        if sent.producer >= 0:
            self.producers[sent.producer] = struct.pack(
                ">qhiqiqiq",
                sent.producer,
                1,
                sent.sequence + sent.records - 1,
                last,
                sent.records - 1,
                sent.timestamp,
                -1,
                -1,
            )

    def close(self) -> None:
        """Computes the files that a segment roll or a shutdown writes."""
        self.segments[-1].add_time()
        self.snapshots[self.end] = set(self.producers.values())

    def files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for segment in self.segments:
            name = f"{segment.base:020d}"
            found[f"{name}.log"] = segment.log
            found[f"{name}.index"] = b"".join(struct.pack(">ii", *entry) for entry in segment.offsets)
            found[f"{name}.timeindex"] = b"".join(struct.pack(">qi", *entry) for entry in segment.times)
        return found


def read_snapshot(data: bytes) -> set[bytes]:
    """Returns the set of entries in a producer snapshot."""
    version, crc, count = struct.unpack_from(">hIi", data)
    assert version == 1
    assert crc == checksum(data[6:])
    assert len(data) == 10 + 46 * count
    return {data[at : at + 46] for at in range(10, len(data), 46)}


@st.composite
def histories(draw: st.DrawFn) -> list[Sent]:
    sent = draw(
        st.lists(
            st.builds(
                Sent,
                records=st.integers(1, 4),
                value_bytes=st.integers(0, 300),
                timestamp=st.integers(NOW - 50, NOW + 50),
                producer=st.integers(-1, 2),
            ),
            min_size=1,
            max_size=40,
        )
    )
    following: dict[int, int] = {}
    for one in sent:
        one.sequence = following.get(one.producer, 0)
        following[one.producer] = one.sequence + one.records
    return sent


def stored(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def check(found: dict[str, bytes], twin: Twin, *, snapshots: bool) -> None:
    expected = twin.files()
    for name, data in expected.items():
        assert found[name] == data, name
    if snapshots:
        taken = {int(name[:20]): read_snapshot(data) for name, data in found.items() if name.endswith(".snapshot")}
        assert taken == twin.snapshots
    assert found["leader-epoch-checkpoint"] == b"0\n1\n%d 0\n" % EPOCH


@settings(max_examples=60)
@given(history=histories(), segment_bytes=st.integers(1600, 6000), interval=st.integers(0, 900))
def test_files_equal_the_twins_files_and_recovery_rebuilds_them(
    history: list[Sent], segment_bytes: int, interval: int
) -> None:
    with tempfile.TemporaryDirectory() as root:
        directory = LogDirectory(Environment(ManualClock(NOW)), root)
        options = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval, segment_ms=1 << 40)
        topic_id = Uuid.random()
        handle = PartitionHandle(directory, "t", 3, topic_id, options)
        handle.become_leader(1, EPOCH)
        twin = Twin(segment_bytes, interval)
        for sent in history:
            assert handle.append(sent.encode()).error == 0
            twin.append(sent)
        handle.shut()
        twin.close()
        path = Path(root) / "t-3"
        check(stored(path), twin, snapshots=True)
        assert (path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: %s" % str(topic_id).encode()

        # Recovery rebuilds all files that can be derived from the batches.
        for name in stored(path):
            if name.endswith((".index", ".timeindex", ".snapshot", "checkpoint")):
                (path / name).unlink()
        again = PartitionHandle(directory, "t", 3, topic_id, options)
        log_loader.load(again, str(path), clean=False)
        again.become_leader(1, EPOCH)
        assert again.end_offset == twin.end
        again.shut()
        check(stored(path), twin, snapshots=False)
        last = read_snapshot((path / f"{twin.end:020d}.snapshot").read_bytes())
        assert last == set(twin.producers.values())
        again.close()
        handle.close()
