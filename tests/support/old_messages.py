"""Makes segments in the format of brokers before Kafka 0.11, with messages of magic 0 and 1, both uncompressed and
compressed."""

import struct

from aiokafka.record._crecords import LegacyRecordBatchBuilder

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}
NOW = 1_400_000_000_000


def entries(base_offset, magic, codec, count=3):
    """Returns the log entries of `count` messages. A compressed message set is a single entry with the offset of its
    last message, as brokers stored it."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=CODECS[codec], batch_size=1 << 20)
    for at in range(count):
        first = base_offset if codec == "none" or magic == 0 else 0
        builder.append(first + at, NOW + at, None if at % 2 else b"key", None if at == 2 else b"v\xff" * at)
    data = bytearray(builder.build())
    if codec != "none":
        struct.pack_into(">q", data, 0, base_offset + count - 1)
    return bytes(data)


def segment(base_offset=0):
    """Returns a segment with every magic and codec that Kafka reads. Leaves out lz4 with magic 0, because only Kafka
    implements its checksum."""
    data = b""
    for magic in (0, 1):
        for codec in CODECS:
            if (magic, codec) != (0, "lz4"):
                data += entries(base_offset, magic, codec)
                base_offset += 3
    return data
