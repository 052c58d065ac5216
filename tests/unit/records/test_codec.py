"""Compressed bodies in Kafka's framings. Other libraries can read our bodies, and we can read theirs. Limits apply, and
trailing bytes are refused."""

from __future__ import annotations

import gc
import gzip
import os
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec

import descriptors
from kafkacore._fast.codec.compression import Codec, CodecError
from kafkacore._fast.codec.context import live_contexts
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode

CODECS = ["gzip", "snappy", "lz4", "zstd"]
CORRUPT, TOO_LARGE, UNKNOWN, NO_FILE = -1, -2, -4, -6
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
RNG = random.Random(7)
TEXT = b"".join(b'{"user":%d,"action":"click"}\n' % RNG.randrange(1000) for _ in range(12000))
BODIES = {
    "empty": b"",
    "one byte": b"a",
    "short": b"hello, world",
    "text": TEXT,
    "random": RNG.randbytes(150_001),
    "zeros": bytes(400_000),
    "one block less one": TEXT[:32767],
    "one block": TEXT[:32768],
    "a chunk": TEXT[:131072],
    "a chunk and one": TEXT[:131073],
}


@pytest.fixture(autouse=True)
def _no_context_left() -> Iterator[None]:
    gc.collect()
    before = live_contexts()
    yield
    gc.collect()  # a caught exception and its frame refer to each other
    assert live_contexts() == before


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", BODIES)
def test_body_survives_a_round_trip(codec: str, name: str) -> None:
    both = Codec()
    packed = both.deflate(codec, BODIES[name])
    assert both.inflate(codec, packed) == BODIES[name]
    assert b"".join(both.chunks(codec, packed)) == BODIES[name]


@pytest.mark.parametrize("name", BODIES)
def test_other_libraries_read_our_bodies(name: str) -> None:
    ours = Codec()
    body = BODIES[name]
    assert gzip.decompress(ours.deflate("gzip", body)) == body
    assert bytes(cramjam.zstd.decompress(ours.deflate("zstd", body))) == body
    assert bytes(cramjam.lz4.decompress(ours.deflate("lz4", body))) == body
    assert unframe(ours.deflate("snappy", body)) == body


def unframe(stream: bytes) -> bytes:
    """Decodes the format of snappy-java block by block, with cramjam."""
    assert stream[:16] == XERIAL
    at, found = 16, b""
    while at < len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        block = bytes(cramjam.snappy.decompress_raw(stream[at + 4 : at + 4 + size]))
        assert len(block) <= 32768
        found += block
        at += 4 + size
    return found


@pytest.mark.parametrize("name", [n for n in BODIES if n != "empty"])
def test_codec_reads_bodies_of_other_libraries(name: str) -> None:
    ours, body = Codec(), BODIES[name]
    assert ours.inflate("gzip", aiokafka_codec.gzip_encode(body)) == body
    assert ours.inflate("lz4", aiokafka_codec.lz4_encode(body)) == body
    assert ours.inflate("zstd", aiokafka_codec.zstd_encode(body)) == body
    assert ours.inflate("snappy", aiokafka_codec.snappy_encode(body)) == body
    assert ours.inflate("snappy", bytes(cramjam.snappy.compress_raw(body))) == body


def test_lz4_frame_equals_the_frame_of_kafka() -> None:
    # An empty frame: the magic, the flags (version 1, independent blocks, nothing else), the block size (64 KiB), the
    # checksum of these two bytes, and the end mark.
    assert Codec().deflate("lz4", b"") == bytes.fromhex("04224d18 60 40 82 00000000")


def test_lz4_frame_is_refused_when_kafka_consumers_cannot_read_it() -> None:
    linked = cramjam.lz4.Compressor(block_linked=True)
    linked.compress(TEXT)
    with pytest.raises(CodecError, match="malformed"):
        Codec().inflate("lz4", bytes(linked.finish()))


def test_lz4_frame_with_a_wrong_header_checksum_is_refused() -> None:
    frame = bytearray(Codec().deflate("lz4", TEXT))
    frame[6] ^= 1
    with pytest.raises(CodecError):
        Codec().inflate("lz4", frame)


def test_several_members_and_frames_are_one_body() -> None:
    ours = Codec()
    for codec in ("gzip", "zstd", "snappy"):
        two = ours.deflate(codec, b"one ") + ours.deflate(codec, b"two")
        assert ours.inflate(codec, two) == b"one two"


def test_zstd_frame_without_content_size_is_read() -> None:
    compressor = cramjam.zstd.Compressor()
    compressor.compress(TEXT)
    frame = bytes(compressor.finish())
    assert frame[4] & 0xC0 == 0 and not frame[4] & 0x20, "the frame header must not contain a content size"
    assert Codec().inflate("zstd", frame) == TEXT


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("body", [b"hello", TEXT])
def test_body_cut_at_any_byte_is_corrupt(codec: str, body: bytes) -> None:
    ours = Codec()
    packed = ours.deflate(codec, body)
    step = max(1, len(packed) // 300)
    for size in range(0, len(packed), step):
        if codec == "snappy" and size == 16:
            continue  # a stream without blocks
        with pytest.raises(CodecError) as caught:
            ours.inflate(codec, packed[:size])
        assert caught.value.code == CORRUPT, size


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_end_are_corrupt(codec: str) -> None:
    ours = Codec()
    for tail in (b"\0", b"trailing", bytes(40)):
        with pytest.raises(CodecError) as caught:
            ours.inflate(codec, ours.deflate(codec, TEXT) + tail)
        assert caught.value.code == CORRUPT


@pytest.mark.parametrize("codec", CODECS)
def test_context_works_after_a_bad_body(codec: str) -> None:
    ours = Codec()
    packed = ours.deflate(codec, TEXT)
    for _ in range(3):
        with pytest.raises(CodecError):
            ours.inflate(codec, packed[: len(packed) // 2])
        assert ours.inflate(codec, packed) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_size_limit_is_exact(codec: str) -> None:
    packed = Codec().deflate(codec, TEXT)
    assert Codec(max_bytes=len(TEXT)).inflate(codec, packed) == TEXT
    with pytest.raises(CodecError) as caught:
        Codec(max_bytes=len(TEXT) - 1).inflate(codec, packed)
    assert caught.value.code == TOO_LARGE


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_bomb_is_stopped_by_its_ratio(codec: str) -> None:
    bomb = Codec(max_bytes=1 << 30).deflate(codec, bytes(64 << 20))
    strict = Codec(max_ratio=100, ratio_floor_bytes=1 << 20)
    with pytest.raises(CodecError) as caught:
        strict.inflate(codec, bomb)
    assert caught.value.code == TOO_LARGE
    zeros = bytes(1 << 20)
    assert strict.inflate(codec, Codec().deflate(codec, zeros)) == zeros, "the ratio must not matter for small sizes"


def test_snappy_block_is_refused_when_it_promises_too_much() -> None:
    promise = b"\xff\xff\xff\xff\x0f"  # announces 4 GiB
    with pytest.raises(CodecError) as caught:
        Codec().inflate("snappy", promise + b"\x00a")
    assert caught.value.code == CORRUPT
    large = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    with pytest.raises(CodecError) as caught:
        Codec(max_bytes=1000).inflate("snappy", large)
    assert caught.value.code == TOO_LARGE


@pytest.mark.parametrize(
    "block",
    [
        b"\x05\x09\x01",  # a copy before the first byte
        b"\x05\x00a\x01\x00",  # a copy with distance 0
        b"\x05\x00a\x01\x02",  # a copy from before the start
        b"\x02\x0cabcd",  # longer than announced
        b"\x08\x0cabcd",  # shorter than announced
        b"\x04\xf4\xff",  # the length of a literal is cut off
        b"\x04\x0cab",  # the bytes of a literal are cut off
        b"\x05\x00a\x02\x01",  # the distance of a copy is cut off
        b"\x80",
        b"\x80\x80\x80\x80\x80\x01",
    ],
)
def test_bad_snappy_blocks_are_refused(block: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        Codec().inflate("snappy", block)
    assert caught.value.code == CORRUPT


@pytest.mark.parametrize(
    ("codec", "levels"),
    [("gzip", [-1, 1, 9]), ("lz4", [1, 9, 17]), ("zstd", [-131072, -1, 3, 19, 22])],
)
def test_levels_of_kafka_are_accepted(codec: str, levels: list[int]) -> None:
    ours, body = Codec(), TEXT[:50000]
    sizes = []
    for level in levels:
        packed = ours.deflate(codec, body, level)
        assert ours.inflate(codec, packed) == body
        sizes.append(len(packed))
    # In Kafka, level 9 (the default) selects the fast lz4 compressor, and every other level the high one.
    if codec != "lz4":
        assert sizes[-1] < sizes[1]
    else:
        assert sizes[1] > sizes[0]
        assert sizes[1] == len(ours.deflate(codec, body))


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("zstd", -131073)],
)
def test_unknown_levels_are_refused(codec: str, level: int) -> None:
    with pytest.raises(CodecError) as caught:
        Codec().deflate(codec, TEXT, level)
    assert caught.value.code == UNKNOWN


def test_gzip_level_may_change_between_bodies() -> None:
    ours = Codec()
    small, fast = ours.deflate("gzip", TEXT, 9), ours.deflate("gzip", TEXT, 1)
    assert len(small) < len(fast)
    assert zlib.decompress(fast, 31) == zlib.decompress(small, 31) == TEXT


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(CodecError, match="codecs are none, gzip, snappy, lz4, zstd") as caught:
        Codec().inflate("brotli", b"")
    assert caught.value.code == UNKNOWN
    for number in (0, 5, 7, -1):
        with pytest.raises(CodecError):
            Codec().inflate(number, b"abc")


FALLBACK = """
from importlib.metadata import version
from kafkacore._fast.codec.compression import Codec, CodecError, codec_libraries, needs_gil
import gzip, cramjam
body = bytes(range(256)) * 2000
codec = Codec(max_bytes=len(body))
assert [needs_gil(name) for name in ("gzip", "snappy", "lz4", "zstd")] == [True, False, True, True]
for name in ("gzip", "snappy", "lz4", "zstd"):
    packed = codec.deflate(name, body)
    assert codec.inflate(name, packed) == body, name
    assert codec.inflate(name, codec.deflate(name, b"")) == b"", name
    for bad, code in ((packed[: len(packed) // 2], -1), (b"nonsense", -1), (codec.deflate(name, body + b"x"), -2)):
        try:
            codec.inflate(name, bad)
        except CodecError as error:
            assert error.code == code, (name, error.code, code)
        else:
            raise AssertionError(name)
assert gzip.decompress(codec.deflate("gzip", body, 9)) == body
assert codec.deflate("lz4", body)[4] & 0xE3 == 0x60
names = {(each.codec, each.name, each.path, each.is_fallback) for each in codec_libraries()}
assert names == {
    ("gzip", "cramjam", None, True), ("snappy", "kafkacore", None, True),
    ("lz4", "cramjam", None, True), ("zstd", "cramjam", None, True),
}
assert {each.version for each in codec_libraries()} == {version("cramjam"), version("kafkacore")}
print("ok")
"""


def run_script(script: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=dict(os.environ, **environment), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cramjam_takes_over_when_the_c_libraries_are_missing(tmp_path: Path) -> None:
    assert run_script(FALLBACK, KAFKACORE_CODEC_LIBS=str(tmp_path)) == "ok\n"


GZIP = """
import zlib
from importlib import import_module
from pathlib import Path
from kafkacore._fast.codec.compression import Codec, CodecError, codec_libraries, needs_gil
body = bytes(range(256)) * 2000
codec = Codec()
packed = codec.deflate("gzip", body)
assert zlib.decompress(packed, 31) == codec.inflate("gzip", packed) == body and not needs_gil("gzip")
try:
    codec.inflate("gzip", packed[:-1])
except CodecError as error:
    assert error.code == -1
else:
    raise AssertionError("a truncated body was read")
mapped = open("/proc/self/maps").read()
reader, writer = codec_libraries()[:2]
zlib_ng = import_module("zlib_ng.zlib_ng") if reader.name == "zlib-ng" else None
assert reader.version == (zlib_ng.ZLIBNG_RUNTIME_VERSION if zlib_ng else zlib.ZLIB_RUNTIME_VERSION)
assert (writer.name, writer.version, writer.is_fallback) == ("zlib", zlib.ZLIB_RUNTIME_VERSION, False)
assert Path(reader.path).exists() and Path(writer.path).exists()
print("zlib_ng" in mapped, reader.name, reader.is_fallback)
"""


def test_codec_reads_gzip_by_zlib_ng_and_by_zlib_when_zlib_ng_is_missing(tmp_path: Path) -> None:
    assert run_script(GZIP) == "True zlib-ng False\n"
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libz.so" in line}
    (tmp_path / "libz.so.1").symlink_to(mapped.pop())  # this process has mapped a libz.so, because it has imported zlib
    assert run_script(GZIP, KAFKACORE_CODEC_LIBS=str(tmp_path)) == "False zlib True\n"


SHORT_OF_FILES = """
import sys
from descriptors import no_free_descriptor
from kafkacore._fast.codec.compression import Codec, CodecError
from kafkacore._fast.record.batch import Batches
from kafkacore._fast.record.validator import Validator
codec, body, packed, plain, compressed = Codec(), *map(bytes.fromhex, sys.argv[2:])
name = sys.argv[1]
def refused(work, *arguments):
    try:
        return work(*arguments)
    except CodecError as error:
        return error.code
accepts = lambda batch: Validator(compression=name, timestamp_after_max_ms=1 << 62).accept(batch, 0, 0)
with no_free_descriptor():
    results = [refused(work, name, data) for work, data in ((codec.inflate, packed), (codec.deflate, body))]
    results += [refused(codec.chunks, name, packed), accepts(compressed).error, accepts(plain).error]
assert codec.inflate(name, packed) == codec.inflate(name, codec.deflate(name, body)) == body
for batch in (compressed, plain):
    (stored,) = Batches(accepts(batch).data)
    assert [bytes(record.value) for record in stored] == [b"a" * 1000]
print(results)
"""


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_codec_refuses_bodies_when_no_descriptor_is_free_to_open_its_library(codec: str) -> None:
    batches = []
    for each in ("none", codec):
        builder = RecordBatchBuilder(codec=each)
        builder.append(timestamp=1, key=None, value=b"a" * 1000)
        batches.append(bytes(builder.build()))
    given = [TEXT[:1000], Codec().deflate(codec, TEXT[:1000]), *batches]
    support = str(Path(descriptors.__file__).parent)
    printed = run_script(SHORT_OF_FILES, codec, *(each.hex() for each in given), PYTHONPATH=support)
    assert printed == f"{[NO_FILE] * 3 + [int(ErrorCode.KAFKA_STORAGE_ERROR)] * 2}\n"
