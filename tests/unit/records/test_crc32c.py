"""CRC-32C and CRC-32: published test vectors, every implementation for this processor, and continued and combined
checksums."""

from __future__ import annotations

import random
import zlib

import pytest

from kafkacore._fast.base.crc32c import checksum, combine, implementation, implementations

# From RFC 3720, appendix B.4, and the check value from the CRC catalogue.
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]
LENGTHS = [*range(70), 127, 255, 256, 257, 319, 320, 511, 767, 768, 769, 1000, 4096, 12287, 12288, 12289, 20011, 70000]


def bitwise(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("name", sorted(implementations()))
@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_crc32c_matches_the_published_vectors(name: str, data: bytes, expected: int) -> None:
    assert implementations()[name](data, 0) == expected


def test_table_follows_the_definition() -> None:
    rng = random.Random(1)
    table = implementations()["table"]
    for length in (0, 1, 7, 8, 9, 63, 200):
        data, seed = rng.randbytes(length), rng.getrandbits(32)
        assert table(data, seed) == bitwise(data, seed)


@pytest.mark.parametrize("name", sorted(implementations()))
def test_every_implementation_agrees_at_every_length_and_alignment(name: str) -> None:
    rng = random.Random(2)
    way, table = implementations()[name], implementations()["table"]
    block = rng.randbytes(70100)
    for length in LENGTHS:
        start, seed = rng.randrange(0, 64), rng.getrandbits(32)
        data = memoryview(block)[start : start + length]
        assert way(data, seed) == table(data, seed), (length, start)


@pytest.mark.parametrize("name", sorted(implementations(ieee=True)))
def test_every_implementation_of_crc32_agrees_with_zlib(name: str) -> None:
    rng = random.Random(4)
    way = implementations(ieee=True)[name]
    block = rng.randbytes(70100)
    assert way(b"123456789", 0) == 0xCBF43926  # the check value from the CRC catalogue
    for length in LENGTHS:
        start, seed = rng.randrange(0, 64), rng.getrandbits(32)
        data = memoryview(block)[start : start + length]
        assert way(data, seed) == zlib.crc32(data, seed), (length, start)


def test_best_implementation_is_chosen() -> None:
    assert implementation() == next(iter(implementations()))


def test_checksums_continue_and_join() -> None:
    rng = random.Random(3)
    for _ in range(200):
        data = rng.randbytes(rng.randrange(1, 5000))
        cut = rng.randrange(len(data) + 1)
        first, second = data[:cut], data[cut:]
        assert checksum(second, checksum(first)) == checksum(data)
        assert combine(checksum(first), checksum(second), len(second)) == checksum(data)


def test_checksums_join_over_more_than_the_order_of_x() -> None:
    # The second part is so long that the exponent exceeds 2^31, and x^(2^31) equals x.
    zeros, length = checksum(bytes(1 << 20)), 1 << 20
    while length < 1 << 33:
        zeros, length = combine(zeros, zeros, length), length * 2
    here = checksum(b"abc")
    whole = combine(here, zeros, length)
    half = length // 2
    half_zeros = checksum(bytes(1 << 20))
    reached = 1 << 20
    while reached < half:
        half_zeros, reached = combine(half_zeros, half_zeros, reached), reached * 2
    assert combine(combine(here, half_zeros, half), half_zeros, half) == whole


def test_checksum_takes_any_contiguous_buffer() -> None:
    assert checksum(bytearray(b"123456789")) == checksum(memoryview(b"0123456789")[1:]) == 0xE3069283
    with pytest.raises(BufferError):
        checksum(memoryview(b"0123456789")[::2])
    with pytest.raises(TypeError):
        checksum("text")  # type: ignore[arg-type]
