"""Sound record batches of every codec and shape, and ways to break them that reach behind length and checksum."""

from __future__ import annotations

import random
import struct

from kafkacore._fast.batch import RecordBatchBuilder
from kafkacore._fast.compression import Codec
from kafkacore._fast.crc32c import checksum

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
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3, 8])):
        at = rng.randrange(len(changed) + 1) if rng.random() < 0.6 else rng.randrange(min(len(changed), 80) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del changed[at:]
        elif kind == 1:
            changed[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif kind == 2:
            del changed[at : at + rng.randrange(1, 20)]
        elif kind == 3:
            changed[at : at + 1] = bytes([rng.choice([0, 1, 0x7F, 0x80, 0xFF])])
        elif kind == 4:
            changed[at : at + 4] = struct.pack(">i", rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), len(changed)]))
        else:
            changed[at : at + 1] = bytes([rng.randrange(256)])
    if rng.random() < 0.7 and len(changed) > 61:  # past length and checksum, to what lies behind them
        return sealed(changed)
    return bytes(changed)


def sealed(data: bytearray) -> bytes:
    """With the length and checksum that the bytes should have."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    data[16] = 2
    struct.pack_into(">I", data, 17, checksum(data[21:]))
    return bytes(data)


def broken_within(rng: random.Random, data: bytes, codec: Codec) -> bytes:
    """Its records are broken before they are compressed."""
    name = CODECS[data[22] & 7]
    body = data[61:] if name == "none" else codec.inflate(name, data[61:])
    body = broken(rng, bytes(61) + body)[61:]
    return sealed(bytearray(data[:61] + (body if name == "none" else codec.deflate(name, body))))
