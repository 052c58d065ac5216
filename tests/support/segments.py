"""Reads Apache Kafka's segment files with only the struct module, independently of our own readers."""

import struct
from dataclasses import dataclass
from pathlib import Path

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class StoredBatch:
    """The header of a record batch v2 in a file, and the CRC-32C computed from the bytes that the checksum covers."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    computed_crc: int

    @property
    def codec(self):
        return CODECS[self.attributes & 7]

    @property
    def log_append_time(self):
        return bool(self.attributes & 8)


def table():
    entries = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901
        entries.append(value)
    return entries


TABLE = table()


def crc32c(data):
    value = 0xFFFFFFFF
    for octet in data:
        value = TABLE[(value ^ octet) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def segments(log_dir, topic, partition=0):
    """Returns the paths of a partition's segment files, oldest first."""
    return sorted(Path(log_dir).joinpath(f"{topic}-{partition}").glob("*.log"))


def batches(path):
    """Returns all batches in a segment file. Raises ValueError if the file contains anything but whole batches of magic
    2."""
    data = Path(path).read_bytes()
    position, found = 0, []
    while position < len(data):
        if position + HEADER.size > len(data):
            raise ValueError(f"{path}: {len(data) - position} stray bytes at {position}")
        fields = HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if fields[3] != 2 or end > len(data):
            raise ValueError(f"{path}: no whole batch of magic 2 at {position}")
        found.append(StoredBatch(*fields[:1], 12 + fields[1], *fields[2:], crc32c(data[position + 21 : end])))
        position = end
    return found


def partition_batches(log_dir, topic, partition=0):
    return [batch for path in segments(log_dir, topic, partition) for batch in batches(path)]
