"""Reads the headers and the values of record batches, and the voters in control records, from plain bytes.

Only checkers use this reader. It follows the formats in KIP-98 and KIP-853, and shares no code with the code that
writes logs. It stops at an incomplete batch.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from kafkacore.simulation.checkers.observations import Entry

# A header contains the base offset, length, partition leader epoch, magic, CRC-32C, attributes and last offset delta.
_HEADER: Final = struct.Struct(">qiibIhi")
_PRODUCER: Final = struct.Struct(">qhi")  # the producer's id and epoch, and the sequence number of the first record
_PRODUCER_AT: Final = 43
_BEFORE_LENGTH: Final = 12
HEADER_BYTES: Final = 61
_CONTROL: Final = 0x20
_KRAFT_VOTERS: Final = 6
_MAGIC: Final = 2


def entries(data: bytes) -> list[Entry]:
    found = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, length, epoch, magic, _crc, _attributes, last_delta = _HEADER.unpack_from(data, at)
        end = at + _BEFORE_LENGTH + length
        if magic != _MAGIC or end > len(data) or length <= 0:
            break
        producer = _PRODUCER.unpack_from(data, at + _PRODUCER_AT)
        found.append(Entry(base, base + last_delta + 1, epoch, zlib.crc32(data[at:end]), *producer))
        at = end
    return found


def values(data: bytes) -> list[tuple[int, bytes | None]]:
    """Returns the offset and the value of each record in uncompressed batches. Control batches are left out. Raises
    IndexError if a batch is damaged."""
    found: list[tuple[int, bytes | None]] = []
    for base, control, records in _batches(data):
        if not control:
            found += [(base + delta, value) for delta, _, value in _records(records)]
    return found


def voters(data: bytes) -> list[tuple[int, frozenset[int]]]:
    """Returns the offset of each VotersRecord, and the voter ids in that record."""
    found = []
    for base, control, records in _batches(data):
        if control:
            for delta, key, value in _records(records):
                if key is not None and len(key) == 4 and struct.unpack(">hh", key)[1] == _KRAFT_VOTERS and value:
                    found.append((base + delta, _voter_ids(value)))
    return found


def _batches(data: bytes) -> list[tuple[int, bool, bytes]]:
    found = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, length, _, magic, _, attributes, _ = _HEADER.unpack_from(data, at)
        end = at + _BEFORE_LENGTH + length
        if magic != _MAGIC or end > len(data) or length <= 0:
            break
        found.append((base, bool(attributes & _CONTROL), data[at + HEADER_BYTES : end]))
        at = end
    return found


def _records(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    at = 0
    while at < len(data):
        length, at = _zigzag(data, at)
        end = at + length
        at += 1  # attributes
        _, at = _zigzag(data, at)
        delta, at = _zigzag(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        if not at <= end <= len(data):
            raise IndexError("a record ends beyond its batch")
        found.append((delta, key, value))
        at = end
    return found


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _zigzag(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _voter_ids(value: bytes) -> frozenset[int]:
    """Reads a VotersRecord: a version (int16), followed by a compact array of voters."""
    count, at = _unsigned(value, 2)
    ids = []
    for _ in range(count - 1):
        ids.append(struct.unpack_from(">i", value, at)[0])
        at += 4 + 16
        endpoints, at = _unsigned(value, at)
        for _ in range(endpoints - 1):
            for _ in range(2):
                length, at = _unsigned(value, at)
                at += length - 1
            at = _skip_tags(value, at + 2)
        at = _skip_tags(value, at + 4)  # skip the tagged fields of the version range of kraft.version
        at = _skip_tags(value, at)
    return frozenset(ids)


def _skip_tags(value: bytes, at: int) -> int:
    count, at = _unsigned(value, at)
    for _ in range(count):
        _, at = _unsigned(value, at)
        length, at = _unsigned(value, at)
        at += length
    return at


def last(data: bytes) -> tuple[int, int]:
    """Returns the start and the end of the last complete batch in `data`, or (0, 0) if the first batch is
    incomplete."""
    start = at = 0
    while at + HEADER_BYTES <= len(data):
        _, length, _, magic, *_ = _HEADER.unpack_from(data, at)
        end = at + _BEFORE_LENGTH + length
        if magic != _MAGIC or end > len(data) or length <= 0:
            break
        start, at = at, end
    return start, at
