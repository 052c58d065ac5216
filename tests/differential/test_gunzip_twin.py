"""Our reader of gzip members compared with zlib. For any writer and any damage, both must return the same bytes, or
both must refuse the input."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from kafkacore._fast.codec.compression import Codec, CodecError

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
SIZES_BYTES = [0, 1, 3, 100, 5000, 40_000, 131_072, 200_000, 400_000]
STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]
FLUSHES = [zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]
CORRUPT = -1
OURS = Codec()


def trailer(body: bytes) -> bytes:
    return struct.pack("<II", zlib.crc32(body), len(body))


def some_body(rng: random.Random) -> bytes:
    size = rng.choice(SIZES_BYTES)
    words = [rng.randbytes(rng.randrange(1, 12)) for _ in range(300)]
    pattern = rng.randbytes(rng.randrange(1, 40))
    kinds = [
        lambda: rng.randbytes(size),
        lambda: b"".join(rng.choices(words, k=size // 6)),
        lambda: bytes([rng.randrange(256)]) * size,
        lambda: pattern * (size // len(pattern)),
        # Bytes that need codes of every length, up to the longest.
        lambda: bytes(rng.choices(range(256), weights=[1.5 ** -(i % 60) for i in range(256)], k=size)),
        lambda: b"".join(rng.choices([b"a", b"b" * rng.randrange(1, 300), rng.randbytes(5)], k=size // 50)),
    ]
    return rng.choice(kinds)()


def some_member(rng: random.Random, body: bytes) -> bytes:
    """Returns a gzip member such as other programs might write, with stored, fixed and dynamic blocks, small windows
    and flushes."""
    writer = zlib.compressobj(
        rng.randrange(10), zlib.DEFLATED, -rng.randrange(9, 16), rng.randrange(1, 10), rng.choice(STRATEGIES)
    )
    blocks, at = b"", 0
    while at < len(body):
        step = rng.randrange(1, len(body) + 1)
        blocks += writer.compress(body[at : at + step])
        at += step
        if rng.random() < 0.3:
            blocks += writer.flush(rng.choice(FLUSHES))
    return HEADER + blocks + writer.flush() + trailer(body)


def by_zlib(data: bytes) -> bytes | None:
    """Returns the output of zlib for consecutive gzip members, or None if zlib refuses them."""
    found = b""
    while True:
        reader = zlib.decompressobj(31)
        try:
            found += reader.decompress(data)
        except zlib.error:
            return None
        if not reader.eof:
            return None
        if not reader.unused_data:
            return found
        data = reader.unused_data


def by_us(data: bytes) -> bytes | None:
    try:
        return OURS.inflate("gzip", data)
    except CodecError as error:
        if error.code != CORRUPT:
            raise
        return None


@pytest.mark.parametrize("seed", range(40))
def test_members_of_any_zlib_settings_are_read(seed: int) -> None:
    rng = random.Random(seed)
    body = some_body(rng)
    member = some_member(rng, body)
    assert by_us(member) == body
    assert b"".join(OURS.chunks("gzip", member + member)) == body + body


@pytest.mark.parametrize("seed", range(40))
def test_broken_members_are_refused_like_zlib_refuses_them(seed: int) -> None:
    rng = random.Random(1000 + seed)
    member = some_member(rng, some_body(rng))
    for _ in range(20):
        broken = bytearray(member)
        for _flip in range(rng.randrange(1, 4)):
            near = 10 + 90 if rng.random() < 0.7 else len(broken)  # most rules apply to the first bytes of a block
            broken[rng.randrange(min(near, len(broken)))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del broken[rng.randrange(len(broken)) :]
        assert by_us(bytes(broken)) == by_zlib(bytes(broken))


# For each flag: the optional header field that the flag announces.
FIELDS = {4: struct.pack("<H", 5) + b"extra", 8: b"name\0", 16: b"a comment\0"}


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("chosen", range(8))
def test_members_with_optional_fields(chosen: int, checksum: bool) -> None:
    flags = (chosen << 2) | (2 if checksum else 0)
    fields = b"".join(field for bit, field in FIELDS.items() if flags & bit)
    head = HEADER[:3] + bytes([flags]) + HEADER[4:] + fields
    if checksum:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    rest = some_member(random.Random(1), b"")[10:]
    assert by_us(head + rest) == by_zlib(head + rest) == b""
    for size in range(len(head)):
        assert by_us(head[:size]) is None
    for at in range(len(head)):
        broken = bytearray(head)
        broken[at] ^= 0x20
        assert by_us(bytes(broken) + rest) == by_zlib(bytes(broken) + rest), at


@pytest.mark.parametrize("wrong", [0, 4])
def test_wrong_trailer_is_refused(wrong: int) -> None:
    member = bytearray(some_member(random.Random(2), b"text " * 50_000))
    member[len(member) - 8 + wrong] ^= 1
    assert by_us(bytes(member)) is None
