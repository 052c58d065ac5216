"""The records of `__consumer_offsets`, in the versions that Apache Kafka 4.3 writes.

A key consists of the number of its kind, in two bytes, and a struct. A value consists of the number of its version, in
two bytes, and a struct. `_fast.hot.offset_records` writes the records of each partition of a commit.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, NamedTuple

from kafkacore._fast.hot import offset_records
from kafkacore.protocol.errors import ProtocolError, UnsupportedVersionError
from kafkacore.protocol.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from kafkacore.protocol.uuid import ZERO

LEGACY_OFFSET_COMMIT: Final = 0  # the version of the key before KAFKA-1000, with the fields of OFFSET_COMMIT
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2

NO_EXPIRE_TIMESTAMP: Final = -1
GROUP_METADATA_VERSION: Final = 3
OFFSET_VALUE_VERSION: Final = 3

_SHORT: Final = Layout(">h")
_INT: Final = Layout(">i")
_MOST_RECORD_OVERHEAD: Final = 32  # bytes; more than a record takes for its lengths, deltas and attributes


class CommittedOffset(NamedTuple):
    """A committed offset. `expire_timestamp` is -1 if the client did not set the retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_EXPIRE_TIMESTAMP
    topic_id: bytes = ZERO


def kind_of(key: bytes) -> int:
    """Returns the kind of a record. Raises ProtocolError for a key that is too short to contain a kind."""
    if len(key) < _SHORT.size:
        raise ProtocolError("the key of a record of __consumer_offsets must have at least two bytes")
    kind: int = _SHORT.unpack_from(key)[0]
    return kind


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _SHORT.pack(OFFSET_COMMIT) + _string(group_id) + _string(topic) + _INT.pack(partition)


def tombstone_bytes(group_id: str, topic: str) -> int:
    """Returns an upper limit of the bytes that the tombstone of one offset takes in a batch."""
    return len(offset_key(group_id, topic, 0)) + _MOST_RECORD_OVERHEAD


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Returns the group, topic and partition of a key. Raises ProtocolError."""
    read = OffsetCommitKey.decode(key[2:], 0)
    return read.group, read.topic, read.partition


def read_offset(value: bytes) -> CommittedOffset:
    """Decodes the value of an offset's record. Raises ProtocolError, UnsupportedVersionError."""
    plain = offset_records.read_offset(value)
    if plain is not None:
        return CommittedOffset(*plain)
    version = value_version(value)
    read = OffsetCommitValue.decode(value[2:], version)
    return CommittedOffset(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, read.topic_id
    )


def offset_value(offset: CommittedOffset) -> bytes:
    """Encodes an offset without a topic id, in a version that every coordinator can read."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp,
    )
    return _SHORT.pack(OFFSET_VALUE_VERSION) + value.encode(OFFSET_VALUE_VERSION)


def group_key(group_id: str) -> bytes:
    return _SHORT.pack(GROUP_METADATA) + _string(group_id)


def read_group_key(key: bytes) -> str:
    """Returns the group id of a key. Raises ProtocolError."""
    return GroupMetadataKey.decode(key[2:], 0).group


def group_value(value: GroupMetadataValue) -> bytes:
    return _SHORT.pack(GROUP_METADATA_VERSION) + value.encode(GROUP_METADATA_VERSION)


def read_group(value: bytes) -> GroupMetadataValue:
    """Decodes the value of a group's record. Raises ProtocolError, UnsupportedVersionError."""
    return GroupMetadataValue.decode(value[2:], value_version(value))


def value_version(value: bytes) -> int:
    """Returns the version of a value. Raises ProtocolError."""
    if len(value) < _SHORT.size:
        raise ProtocolError("the value of a record of __consumer_offsets must have at least two bytes, or be null")
    version: int = _SHORT.unpack_from(value)[0]
    return version


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise UnsupportedVersionError(
            f"{text[:40]!r}... has {len(encoded)} bytes, which is too long for a record of a group"
        )
    return _SHORT.pack(len(encoded)) + encoded
