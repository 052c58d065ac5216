"""Compares the replicas of partitions, batch by batch, up to the lowest high watermark of a partition's replicas.

A replica is an iterator over its batches, from files or from Fetch responses. The batches of two replicas of a
partition are byte for byte the same. After compaction they may differ, because brokers clean at different times.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from kafkacore.storage import names
from kafkacore.storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpoint

_HEAD: Final = struct.Struct(">qi")  # base offset, and the number of bytes that follow
_LEAST_BYTES: Final = 61
PartitionId = tuple[str, int]


class Batch(NamedTuple):
    base_offset: int
    data: bytes | memoryview


class Compared(NamedTuple):
    """The result for one partition: the end offset of the comparison, how far the slowest replica is behind (None if
    the replicas could not be compared), and the difference, if any."""

    topic: str
    partition: int
    end: int
    lag: int | None
    difference: str | None


def batches_of_files(paths: Iterable[str]) -> Iterator[Batch]:
    """Yields the batches of segment files in order, as views of mapped files. Leaves out an incomplete batch at the
    end. A batch is valid until the next one is requested. Raises OSError."""
    for path in paths:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                at = 0
                while at + _LEAST_BYTES <= len(data):
                    base_offset, rest = _HEAD.unpack_from(data, at)
                    size = _HEAD.size + rest
                    if size < _LEAST_BYTES or at + size > len(data):
                        break
                    with data[at : at + size] as batch:
                        yield Batch(base_offset, batch)
                    at += size


def first_difference(replicas: Mapping[str, Iterator[Batch]], start: int, end: int) -> str | None:
    """Describes the first difference between the replicas from offset `start` up to, but not including, `end`. Returns
    None if the replicas are equal there. The keys of `replicas` are the names of the replicas."""
    first, *others = replicas
    for each in replicas[first]:
        if each.base_offset >= end:
            break
        if each.base_offset < start:
            continue
        for name in others:
            found = next((batch for batch in replicas[name] if batch.base_offset >= start), None)
            if found is None or found.base_offset >= end:
                return f"{name} has no batch at offset {each.base_offset}, but {first} has one"
            if found.base_offset != each.base_offset:
                return f"{name} has a batch at offset {found.base_offset}, where {first} has one at {each.base_offset}"
            if found.data != each.data:
                return f"the batch at offset {each.base_offset} differs between {first} and {name}"
    for name in others:
        found = next((batch for batch in replicas[name] if batch.base_offset >= start), None)
        if found is not None and found.base_offset < end:
            return f"{name} has a batch at offset {found.base_offset}, but {first} has none"
    return None


# --- directories ---


class Replica(NamedTuple):
    """The replica of a partition in one log directory."""

    log_dir: str
    segments: list[str]
    start: int
    high_watermark: int


def replicas_in(log_dir: str) -> dict[PartitionId, Replica]:
    """Returns the replicas in one log directory of a stopped broker. Raises OSError, and LogDirectoryError for a
    malformed checkpoint."""
    marks = OffsetCheckpoint(log_dir, REPLICATION_OFFSET).read()
    found = {}
    for name in sorted(os.listdir(log_dir)):
        parsed = names.parse_partition_directory(name)
        if parsed is None or parsed.kind != names.Kind.LIVE or parsed.topic == names.CLUSTER_METADATA_TOPIC:
            continue
        where = os.path.join(log_dir, name)
        segments = sorted(os.path.join(where, file) for file in os.listdir(where) if file.endswith(names.LOG))
        start = names.parse_file_name(os.path.basename(segments[0])) if segments else None
        partition = parsed.topic, parsed.partition
        found[partition] = Replica(log_dir, segments, start[0] if start else 0, marks.get(partition, 0))
    return found


def compare_directories(log_dirs: Sequence[str]) -> Iterator[Compared]:
    """Compares each partition that is in two or more of the directories. Each directory must belong to a different
    broker."""
    everywhere = {log_dir: replicas_in(log_dir) for log_dir in log_dirs}
    for partition in sorted({each for found in everywhere.values() for each in found}):
        replicas = [found[partition] for found in everywhere.values() if partition in found]
        if len(replicas) > 1:
            yield _compare(*partition, replicas)


def _compare(topic: str, index: int, replicas: Sequence[Replica]) -> Compared:
    marks = [each.high_watermark for each in replicas]
    start, end = max(each.start for each in replicas), min(marks)
    with ExitStack() as files:
        iterators: dict[str, Iterator[Batch]] = {}
        for each in replicas:
            made = batches_of_files(each.segments)
            files.callback(made.close)  # type: ignore[attr-defined]
            iterators[each.log_dir] = made
        difference = first_difference(iterators, start, end)
    return Compared(topic, index, end, max(marks) - end, difference)
