"""Valid record batches of every codec and shape, and ways to break them. The broken batches still pass the checks of
length and checksum."""

from __future__ import annotations

import random
import struct

from kafkacore._fast.base.crc32c import checksum
from kafkacore._fast.codec.compression import Codec
from kafkacore._fast.record.batch import RecordBatchBuilder
from mutated_bytes import mutated

HEADER_BYTES = 61
NOW = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def sound_batches() -> list[bytes]:
    rng = random.Random(1)
    found = []
    for codec in CODECS:
        for count, size in ((1, 0), (1, 40), (5, 30), (60, 100), (3, 30000)):
            builder = RecordBatchBuilder(codec=codec)
            for i in range(count):
                headers = [("name", b"value"), ("", None)][: rng.randrange(3)]
                key = rng.choice([None, b"", b"key", bytes(200)])
                builder.append(NOW + i, key, rng.randbytes(8) * (size // 8), headers)
            found.append(builder.build())
    return found


def broken(rng: random.Random, data: bytes) -> bytes:
    """Returns a broken batch. In most cases its length and checksum are correct, so that readers parse the rest of the
    batch."""
    changed = mutated(rng, data, [data])
    return sealed(changed) if rng.random() < 0.7 and len(changed) > HEADER_BYTES else bytes(changed)


def sealed(data: bytearray) -> bytes:
    """Returns the batch with a corrected length and checksum."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    data[16] = 2
    struct.pack_into(">I", data, 17, checksum(data[21:]))
    return bytes(data)


def broken_within(rng: random.Random, data: bytes, codec: Codec) -> bytes:
    """Returns a batch whose records were broken before their compression."""
    name = CODECS[data[22] & 7]
    body = data[61:] if name == "none" else codec.inflate(name, data[61:])
    body = bytes(mutated(rng, body, [body]))
    return sealed(bytearray(data[:61] + (body if name == "none" else codec.deflate(name, body))))


def resealed(data: bytes | bytearray) -> bytes:
    """Corrects the checksum of each batch, up to the first batch whose length does not lead to another batch."""
    changed, at = bytearray(data), 0
    while len(changed) - at > HEADER_BYTES:
        left = len(changed) - at
        (length,) = struct.unpack_from(">i", changed, at + 8)
        size = length + 12 if HEADER_BYTES <= length + 12 <= left else left
        changed[at : at + size] = sealed(changed[at : at + size])
        at += size
    return bytes(changed)
