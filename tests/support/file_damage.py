"""Chooses places where a file may be damaged, according to the file's content, and lists the kinds of damage."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkacore._fast.record.batch import Batches

# Fields of a record batch's header, and of the first record of an uncompressed batch.
BATCH_FIELDS = {
    "base offset": (0, 8), "length": (8, 4), "leader epoch": (12, 4), "magic": (16, 1), "crc": (17, 4),
    "attributes": (21, 2), "last offset delta": (23, 4), "base timestamp": (27, 8), "max timestamp": (35, 8),
    "producer id": (43, 8), "producer epoch": (51, 2), "base sequence": (53, 4), "record count": (57, 4),
    "record length": (61, 1), "record": (62, 8), "middle": (80, 1),
}  # fmt: skip
SNAPSHOT_FIELDS = {
    "version": (0, 2), "crc": (2, 4), "count": (6, 4), "producer id": (10, 8), "epoch": (18, 2),
    "last sequence": (20, 4), "last offset": (24, 8), "delta": (32, 4), "timestamp": (36, 8),
}  # fmt: skip
ENTRY_FIELDS = {
    "index": (8, ((0, 4), (4, 4))),
    "timeindex": (12, ((0, 8), (8, 4))),
    "txnindex": (34, ((0, 2), (2, 8), (10, 8), (18, 8), (26, 8))),
}
RUNS = (1, 16, 61, 512)
SHARES = (0.0, 0.3, 0.6, 1.0)


class Place(NamedTuple):
    what: str
    offset: int
    size: int


def places(name: str, data: bytes) -> list[Place]:
    """Returns places of each kind in a file with this name. Every kind occurs at least once, and batches and entries
    occur more often."""
    suffix = name.rsplit(".", 1)[-1]
    if suffix in ("log", "checkpoint") and data[16:17] == b"\x02":
        found = list(_in_batches(data))
    elif suffix in ENTRY_FIELDS:
        found = list(_in_entries(data, *ENTRY_FIELDS[suffix]))
    elif suffix == "snapshot":
        found = [Place(what, *where) for what, where in SNAPSHOT_FIELDS.items()]
    else:
        found = list(_in_lines(data))
    return [place for place in found if place.offset + place.size <= len(data)]


def _in_batches(data: bytes) -> Iterator[Place]:
    batches = Batches(data)
    position, starts = 0, []
    for batch in batches:
        starts.append((position, batch.size_bytes))
        position = batches.position
    for number, (start, size) in enumerate(starts):
        fields = (
            BATCH_FIELDS if number in (0, len(starts) // 2, len(starts) - 1) else {"length": (8, 4), "crc": (17, 4)}
        )
        for what, (offset, width) in fields.items():
            if offset + width <= size:
                yield Place(f"batch {number}, {what}", start + offset, width)
        yield Place(f"batch {number}, last byte", start + size - 1, 1)


def _in_entries(data: bytes, size: int, fields: tuple[tuple[int, int], ...]) -> Iterator[Place]:
    count = len(data) // size
    for number in sorted({0, 1, count // 2, count - 1} & set(range(count))):
        for offset, width in fields:
            yield Place(f"entry {number}, byte {offset}", number * size + offset, width)


def _in_lines(data: bytes) -> Iterator[Place]:
    at = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        for share in SHARES:
            yield Place(f"line {number}, {share:.0%}", at + min(int(len(line) * share), len(line) - 1), 1)
        at += len(line)


class Damage(NamedTuple):
    """A damaged copy of a file. `at` is the position of the first changed byte."""

    place: Place
    how: str
    at: int
    data: bytes


def damages(name: str, data: bytes, rng: random.Random) -> Iterator[Damage]:
    """Yields every kind of damage at every place. The order has no meaning."""
    for place in places(name, data):
        for how, changed in _ways(place, data, rng):
            if changed != data:
                first = next((i for i, (a, b) in enumerate(zip(data, changed, strict=False)) if a != b), None)
                yield Damage(place, how, min(len(data), len(changed)) if first is None else first, changed)
    for how, tail in (("zeros behind", bytes(100)), ("noise behind", rng.randbytes(100))):
        yield Damage(Place("end", len(data), 0), how, len(data), data + tail)


def _ways(place: Place, data: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    _, at, size = place
    bit = rng.randrange(size * 8)
    flipped = bytearray(data)
    flipped[at + bit // 8] ^= 1 << bit % 8
    yield f"bit {bit} flipped", bytes(flipped)
    for how, filling in (
        ("zeros", b"\0" * size),
        ("ones", b"\xff" * size),
        ("greatest", b"\x7f" + b"\xff" * (size - 1)),
    ):
        yield how, data[:at] + filling + data[at + size :]
    if size in (1, 2, 4, 8):
        for step in (-1, 1, 100):
            value = int.from_bytes(data[at : at + size]) + step
            yield f"{step:+}", data[:at] + (value % (1 << size * 8)).to_bytes(size) + data[at + size :]
    for run in RUNS:
        yield f"{run} bytes zero", data[:at] + bytes(min(run, len(data) - at)) + data[at + run :]
        yield f"{run} bytes twice", data[: at + run] + data[at : at + run] + data[at + run :]
        yield f"{run} bytes gone", data[:at] + data[at + run :]
    yield "cut off", data[:at]
    yield "other bytes", data[:at] + rng.randbytes(size) + data[at + size :]


def batch_starts(data: bytes) -> list[tuple[int, int]]:
    """Returns the position and the base offset of each batch."""
    found, position = [], 0
    while position + 12 <= len(data):
        base, size = struct.unpack_from(">qi", data, position)
        found.append((position, base))
        position += 12 + size
    return found
