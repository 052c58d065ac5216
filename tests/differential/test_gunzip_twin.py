"""Our reader of gzip beside zlib's: the same bytes, and the same bodies refused, whatever wrote or broke them."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from kafkacore._fast.compression import Codec, CodecError

HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
SIZES_BYTES = [0, 1, 3, 100, 5000, 40_000, 131_072, 200_000, 400_000]
STRATEGIES = [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE, zlib.Z_FIXED]
FLUSHES = [zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH]
ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]  # of the precode's sizes
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
        # Codes of every length up to the longest.
        lambda: bytes(rng.choices(range(256), weights=[1.5 ** -(i % 60) for i in range(256)], k=size)),
        lambda: b"".join(rng.choices([b"a", b"b" * rng.randrange(1, 300), rng.randbytes(5)], k=size // 50)),
    ]
    return rng.choice(kinds)()


def some_member(rng: random.Random, body: bytes) -> bytes:
    """As any writer may have it: stored, fixed and dynamic blocks, small windows, flushes between."""
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
    """What zlib makes of members that follow one another, None where it refuses them."""
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
def test_what_zlib_writes_in_any_way_is_read(seed: int) -> None:
    rng = random.Random(seed)
    body = some_body(rng)
    member = some_member(rng, body)
    assert by_us(member) == body
    assert b"".join(OURS.chunks("gzip", member + member)) == body + body


@pytest.mark.parametrize("seed", range(40))
def test_what_is_broken_is_refused_as_zlib_does(seed: int) -> None:
    rng = random.Random(1000 + seed)
    member = some_member(rng, some_body(rng))
    for _ in range(20):
        broken = bytearray(member)
        for _flip in range(rng.randrange(1, 4)):
            near = 10 + 90 if rng.random() < 0.7 else len(broken)  # the blocks' heads hold most of the rules
            broken[rng.randrange(min(near, len(broken)))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del broken[rng.randrange(len(broken)) :]
        assert by_us(bytes(broken)) == by_zlib(bytes(broken))


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_random_bits_are_judged_as_zlib_does(seed: int) -> None:
    """Behind a stored block that gives every distance something to reach; whole ones get the trailer that they need."""
    rng = random.Random(2000 + seed)
    stored = rng.randbytes(32768)
    before = b"\0" + struct.pack("<HH", 32768, 32767) + stored
    whole = 0
    for _ in range(200):
        bits = rng.randbytes(rng.choice([4, 20, 60, 300]))
        blocks = before + bytes([bits[0] & 0xF8 | rng.choice([1, 3, 3, 2, 5])]) + bits[1:]
        reader = zlib.decompressobj(-15)
        try:
            body = reader.decompress(blocks)
        except zlib.error:
            assert by_us(HEADER + blocks) is None
            continue
        if reader.eof:
            blocks = blocks[: len(blocks) - len(reader.unused_data)]
            whole += 1
        assert by_us(HEADER + blocks + trailer(body)) == (
            body if reader.eof else by_zlib(HEADER + blocks + trailer(body))
        )
    assert whole


def codes(sizes: list[int]) -> dict[int, tuple[int, int]]:
    """Symbol to (code, its bits), canonical (RFC 1951, 3.2.2)."""
    given, code, before = {}, 0, 0
    for size, symbol in sorted((size, symbol) for symbol, size in enumerate(sizes) if size):
        code <<= size - before
        given[symbol] = (code, size)
        code, before = code + 1, size
    return given


class Bits:
    def __init__(self) -> None:
        self.value, self.count = 0, 0

    def put(self, value: int, count: int) -> None:
        self.value |= value << self.count
        self.count += count

    def put_code(self, code: tuple[int, int]) -> None:
        value, count = code
        self.put(int(f"{value:0{count}b}"[::-1], 2), count)

    def bytes(self) -> bytes:
        return self.value.to_bytes((self.count + 7) // 8, "little")


def dynamic_block(litlen: list[int], distance: list[int], symbols: list[int]) -> bytes:
    """One last block with these code sizes, written by a precode of 16 codes of 4 bits; a symbol ~n is distance n."""
    bits = Bits()
    bits.put(5, 3)
    bits.put(len(litlen) - 257, 5)
    bits.put(len(distance) - 1, 5)
    bits.put(15, 4)
    for symbol in ORDER:
        bits.put(4 if symbol < 16 else 0, 3)
    precode = codes([4] * 16)
    for size in litlen + distance:
        bits.put_code(precode[size])
    for symbol in symbols:
        bits.put_code(codes(litlen)[symbol] if symbol >= 0 else codes(distance)[~symbol])
    return bits.bytes()


ZERO_AND_END = [1] + [0] * 255 + [1]
ZERO_END_AND_3 = [1] + [0] * 255 + [2, 2]


@pytest.mark.parametrize(
    ("litlen", "distance", "symbols", "body", "right"),
    [
        (ZERO_AND_END, [0], [0, 0, 256], b"\0\0", True),  # no distance code at all
        (ZERO_AND_END, [1], [0, 256], b"\0", True),  # one of one bit
        (ZERO_AND_END, [2], [0, 256], b"\0", False),  # one of two bits is incomplete
        (ZERO_AND_END, [1, 1, 1], [0, 256], b"\0", False),  # too many
        ([0] * 256 + [1], [0], [256], b"", True),  # nothing but the end
        ([0] * 256 + [2], [0], [256], b"", False),
        ([1, 2] + [0] * 254 + [3], [0], [0, 256], b"\0", False),  # incomplete
        ([1, 2] + [0] * 254 + [2] + [0] * 29, [0], [0, 256], b"\0", True),  # 286 symbols, and one too many
        ([1, 2] + [0] * 254 + [2] + [0] * 30, [0], [0, 256], b"\0", False),
        (ZERO_AND_END, [4] * 2 + [5] * 28, [0, 256], b"\0", True),  # 30 distances, and one too many
        (ZERO_AND_END, [4] + [5] * 30, [0, 256], b"\0", False),
        ([*range(1, 15), 15] + [0] * 241 + [15], [0], [*range(15), 256], bytes(range(15)), True),  # the longest codes
        (ZERO_END_AND_3, [1], [0, 257, ~0, 256], b"\0" * 4, True),
        (ZERO_END_AND_3, [1], [257, ~0, 256], b"\0" * 3, False),  # from before the first byte
        (ZERO_END_AND_3, [1, 1], [0, 257, ~1, 256], b"\0" * 4, False),
        (ZERO_END_AND_3, [0] * 29 + [1, 1], [0, 257, ~30, 256], b"\0" * 4, False),
    ],
)
def test_sets_of_codes(litlen: list[int], distance: list[int], symbols: list[int], body: bytes, right: bool) -> None:
    """`body`: what a reader that asked less would make of it."""
    member = HEADER + dynamic_block(litlen, distance, symbols) + trailer(body)
    assert by_us(member) == by_zlib(member) == (body if right else None)


@pytest.mark.parametrize(("zeros", "right"), [(11, True), (12, False), (138, False)])
def test_sizes_that_repeat_beyond_the_last_code(zeros: int, right: bool) -> None:
    """257 + 11 codes, of which the last 11 are zeros in one repeat."""
    precode = codes([1, 2] + [0] * 16 + [2])
    bits = Bits()
    for value, count in ((5, 3), (0, 5), (10, 5), (14, 4)):
        bits.put(value, count)
    for symbol in ORDER[:18]:
        bits.put(precode[symbol][1] if symbol in precode else 0, 3)
    bits.put_code(precode[1])
    for repeat in (138, 117):
        bits.put_code(precode[18])
        bits.put(repeat - 11, 7)
    bits.put_code(precode[1])
    bits.put_code(precode[18])
    bits.put(zeros - 11, 7)
    bits.put_code((0, 1))  # the literal 0, and the end
    bits.put_code((1, 1))
    member = HEADER + bits.bytes() + trailer(b"\0")
    assert by_us(member) == by_zlib(member) == (b"\0" if right else None)


FIELDS = {4: struct.pack("<H", 5) + b"extra", 8: b"name\0", 16: b"a comment\0"}  # by their flags


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
def test_a_trailer_that_lies_is_refused(wrong: int) -> None:
    member = bytearray(some_member(random.Random(2), b"text " * 50_000))
    member[len(member) - 8 + wrong] ^= 1
    assert by_us(bytes(member)) is None
