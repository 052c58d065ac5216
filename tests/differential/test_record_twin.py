"""The record codec and the validator, compared with Python counterparts on valid and broken input."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass

import cramjam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.codec.compression import Codec, CodecError
from kafkacore._fast.record.batch import Batches, CorruptBatchError, InvalidRecordError, RecordBatchBuilder
from kafkacore._fast.record.validator import Validator

NOW = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
QUICK = settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])


# --- the Python counterparts ----------------------------------------------------------------------------------------


class Malformed(Exception):
    """The counterpart cannot read these bytes as a record."""


@dataclass
class Plain:
    time_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise Malformed
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int = 32) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if raw >> bits:
                raise Malformed
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            if shift >= bits:
                raise Malformed

    def sized(self) -> bytes | None:
        size = self.varint()
        if size < -1:
            raise Malformed
        return None if size == -1 else self.take(size)


def plain_record(body: Cursor) -> Plain:
    size = body.varint()
    if size < 1:
        raise Malformed
    inner = Cursor(body.take(size))
    inner.take(1)
    found = Plain(inner.varint(64), inner.varint(), inner.sized(), inner.sized(), [])
    count = inner.varint()
    if count < 0 or count * 2 > len(inner.data) - inner.at:
        raise Malformed
    for _ in range(count):
        name = inner.sized()
        if name is None:
            raise Malformed
        found.headers.append((name, inner.sized()))
    if inner.at != len(inner.data):
        raise Malformed
    return found


def plain_inflate(codec: str, body: bytes) -> bytes:
    try:
        if codec == "gzip":
            return gzip.decompress(body)
        if codec == "lz4":
            return bytes(cramjam.lz4.decompress(body))
        if codec == "zstd":
            return bytes(cramjam.zstd.decompress(body))
        if codec == "snappy":
            found, at = b"", 16
            while at < len(body):
                (size,) = struct.unpack_from(">i", body, at)
                found += bytes(cramjam.snappy.decompress_raw(body[at + 4 : at + 4 + size]))
                at += 4 + size
            return found
    except (cramjam.DecompressionError, EOFError, OSError, struct.error) as error:
        raise Malformed from error
    return body


@dataclass
class Judged:
    error: int
    indexes: list[int]
    max_timestamp: int = 0
    max_index: int = 0


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def plain_verdict(data: bytes, codec: str, compacted: bool, before: int, after: int) -> Judged:
    """Returns whether the records of a batch are valid, or their error. The batch's header is valid."""
    (base_time,) = struct.unpack_from(">q", data, 27)
    (count,) = struct.unpack_from(">i", data, 57)
    indexes, error, greatest, greatest_index = [], 0, -1, -1
    try:
        body = Cursor(plain_inflate(codec, data[61:]))
        for index in range(count):
            record = plain_record(body)
            time = wrapped(base_time + record.time_delta)
            if time > greatest:
                greatest, greatest_index = time, index
            if record.offset_delta != index or (compacted and record.key is None):
                error = error or 87
                indexes.append(index)
            elif time != -1 and not NOW - before <= time <= NOW + after:
                error = 32
                indexes.append(index)
        if body.at != len(body.data):
            raise Malformed
    except Malformed:
        return Judged(87, [])
    return Judged(error, indexes[:16], greatest, greatest_index)


# --- input ---------------------------------------------------------------------------------------------------------

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3)
times = st.integers(NOW - 2000, NOW + 2000) | st.just(-1) | st.integers(0, 2**62)
rows = st.lists(st.tuples(times, maybe_bytes, maybe_bytes, headers), min_size=1, max_size=12)


def built(drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], codec: str) -> bytes:
    builder = RecordBatchBuilder(codec=codec)
    for timestamp, key, value, pairs in drawn:
        assert builder.append(timestamp, key, value, pairs)
    return builder.build()


def sealed(header: bytes, body: bytes, codec: str, count: int) -> bytes:
    stored = body if codec == "none" else Codec().deflate(codec, body)
    data = bytearray(header[:61] + stored)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, CODECS.index(codec))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, checksum(data[21:]))
    return bytes(data)


kinds = st.sampled_from(["set", "insert", "delete", "cut", "swap"])
mutations = st.lists(st.tuples(kinds, st.integers(0, 10**6), st.integers(0, 255), st.integers(1, 9)), max_size=3)
bounds = st.sampled_from([(0, 0), (1000, 1000), (2**63 - 1, 0), (2**63 - 1, 1000)])


def mutated(data: bytes, drawn: list[tuple[str, int, int, int]]) -> bytes:
    changed = bytearray(data)
    for kind, place, byte, size in drawn:
        at = place % (len(changed) + 1)
        if kind == "set" and at < len(changed):
            changed[at] = byte
        elif kind == "insert":
            changed[at:at] = bytes([byte]) * size
        elif kind == "delete":
            del changed[at : at + size]
        elif kind == "cut":
            del changed[at:]
        elif kind == "swap":
            changed[at : at + size] = changed[at : at + size][::-1]
    return bytes(changed)


# --- comparisons ----------------------------------------------------------------------------------------------------


@QUICK
@given(rows, st.sampled_from(CODECS))
def test_twin_reads_the_batches_of_the_builder(drawn: list, codec: str) -> None:
    data = built(drawn, codec)
    body = Cursor(plain_inflate(codec, data[61:]))
    base = struct.unpack_from(">q", data, 27)[0]
    for index, (timestamp, key, value, pairs) in enumerate(drawn):
        plain = plain_record(body)
        assert (wrapped(base + plain.time_delta), plain.offset_delta) == (timestamp, index)
        assert (plain.key, plain.value) == (key, value)
        assert plain.headers == [(name.encode(), item) for name, item in pairs]
    assert body.at == len(body.data)
    (batch,) = Batches(data)
    assert batch.crc_ok
    assert [(r.timestamp, r.key, r.value, r.headers) for r in batch] == [(t, k, v, h) for t, k, v, h in drawn]


@pytest.mark.parametrize("codec", CODECS)
@QUICK
@given(rows, mutations, st.integers(-1, 2), st.booleans(), bounds)
def test_validator_agrees_with_the_twin_on_broken_records(
    codec: str, drawn: list, changes: list, more: int, compacted: bool, within: tuple[int, int]
) -> None:
    before, after = within
    whole = built(drawn, "none")
    count = max(1, len(drawn) + more if changes else len(drawn))
    data = sealed(whole, mutated(whole[61:], changes), codec, count)
    twin = plain_verdict(data, codec, compacted, before, after)
    ours = Validator(compacted=compacted, timestamp_before_max_ms=before, timestamp_after_max_ms=after).check(data, NOW)
    assert ours.error == twin.error, (ours, twin)
    assert [index for index, _ in ours.record_errors] == twin.indexes
    if ours.error == 0:
        assert (ours.max_timestamp, ours.max_timestamp_index) == (twin.max_timestamp, twin.max_index)


@pytest.mark.parametrize("codec", CODECS[1:])
@QUICK
@given(rows, mutations)
def test_inflated_body_equals_the_twins_or_is_refused(codec: str, drawn: list, changes: list) -> None:
    """The test damages the batch after its compression. If both sides can decompress it, they must read the same
    records. Our codec may refuse a body that a more lenient library reads."""
    stored = mutated(built(drawn * 5, codec)[61:], changes)
    try:
        ours = Codec().inflate(codec, stored)
    except CodecError:
        return
    if codec == "snappy" and not stored.startswith(b"\x82SNAPPY\0"):
        assert ours == bytes(cramjam.snappy.decompress_raw(stored))
        return
    if codec == "snappy" and b"\x82SNAPPY\0" in stored[16:]:
        return  # the Python counterpart does not support concatenated streams
    assert ours == plain_inflate(codec, stored)


@QUICK
@given(rows, mutations, st.sampled_from(CODECS))
def test_iterating_broken_batches_ends_in_records_or_a_named_error(drawn: list, changes: list, codec: str) -> None:
    data = mutated(built(drawn, codec) * 2, changes)
    try:
        for batch in Batches(data):
            if batch.magic == 2:
                for record in batch:
                    assert record.key is None or isinstance(record.key, bytes)
                    assert isinstance(record.headers, list)
    except (CorruptBatchError, InvalidRecordError, CodecError):
        pass


def plain_snappy(block: bytes) -> bytes | None:
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError:
        return None


@QUICK
@given(st.binary(max_size=300) | st.text(alphabet="ab", max_size=3000).map(str.encode), mutations)
def test_snappy_blocks_agree_with_cramjam(body: bytes, changes: list) -> None:
    block = mutated(bytes(cramjam.snappy.compress_raw(body)), changes)
    theirs = plain_snappy(block)
    try:
        ours: bytes | None = Codec().inflate("snappy", block)
    except CodecError:
        ours = None
    assert ours == theirs
