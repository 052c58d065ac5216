"""How a metadata record lies in a record batch: frame version, type and version as unsigned varints, then the record.

A record is written at the version that the finalised metadata.version prescribes (KIP-631, KIP-778), so that every node
that may run in the cluster can read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kafkacore._fast.batch import Batch, RecordRows
from kafkacore.metadata.partition_records import PartitionRecords, PartitionRun, Records
from kafkacore.protocol import messages
from kafkacore.protocol.errors import KafkaError, ProtocolError, UnsupportedVersionError
from kafkacore.protocol.features import MetadataVersion
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import Uuid

Value = bytes | RecordRows  # one record's, or those of several

FRAME_VERSION: Final = 1
_MAX_VARINT_BYTES: Final = 5
_MAX_VERSION: Final = 0x7FFF
_FRAME_BYTES: Final = 3  # where each of its three numbers is below 128, as they all are so far
_PARTITION: Final = bytes((FRAME_VERSION, PartitionRun.API_KEY))

# Every record type of 4.3, by the number in its frame.
RECORD_TYPES: Final = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}


class MetadataError(KafkaError):
    """Metadata that cannot be read or applied: this node must not go on as if it had been."""


@cache
def record_class(api_key: int) -> type[Message]:
    """The class of a record type. Raises MetadataError for one that this release does not know."""
    try:
        made: type[Message] = messages.message_class(RECORD_TYPES[api_key])
    except KeyError:
        raise MetadataError(
            f"metadata record type {api_key} is not known: it was written by a newer release, upgrade this node"
        ) from None
    return made


def registration_change_version(record: Any) -> int:
    """The lowest version that holds what a BrokerRegistrationChangeRecord says."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


class RecordWriter:
    """Encodes records at the versions of one metadata.version."""

    def __init__(self, metadata_version: MetadataVersion) -> None:
        self.metadata_version = metadata_version
        self._frames: dict[type[Message], tuple[int, bytes]] = {}

    def encode(self, record: Message) -> bytes:
        """A record's value in its batch. Raises ProtocolError when the version has no place for what the record
        says."""
        frame = self._frames.get(type(record)) or self._frame(record)
        return record.encode(*frame)

    def encode_all(self, records: Records) -> list[Value]:
        """The values of a batch. Columns that runs share are encoded once, by one native call."""
        encoded: dict[int, tuple[bytes, array[int]]] = {}
        values: list[Value] = []
        for record in records:
            if not isinstance(record, PartitionRun):
                values.append(self.encode(record))
                continue
            rows = encoded.get(id(record.columns))
            if rows is None:
                version = self.metadata_version.record_version(record.NAME)
                rows = record.columns.encode(version, _header(record.API_KEY, version))
                encoded[id(record.columns)] = rows
            values.append((*rows, record.first, record.first + record.count))
        return values

    def _frame(self, record: Message) -> tuple[int, bytes]:
        if record.NAME == "BrokerRegistrationChangeRecord":
            version = registration_change_version(record)
            return version, _header(record.API_KEY, version)
        version = self.metadata_version.record_version(record.NAME)
        made = self._frames[type(record)] = version, _header(record.API_KEY, version)
        return made


def _header(api_key: int, version: int) -> bytes:
    # All three are below 128, where an unsigned varint is one byte.
    return bytes((FRAME_VERSION, api_key, version))


def decode_record(value: bytes | memoryview | None) -> Message:
    """Raises MetadataError for a frame that is no record of a release we know, ProtocolError for a broken body."""
    if value is not None and len(value) >= 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        return _decoder(value[1])(value[3:], value[2])
    return decode_framed(value)[0]


def decode_framed(value: bytes | memoryview | None) -> tuple[Message, int]:
    """The record, and the version that it was written at. Raises as `decode_record` does."""
    if value is None:
        raise MetadataError("a metadata record has no value")
    frame_version, at = _varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise MetadataError(f"metadata frame version {frame_version} is not known; {FRAME_VERSION} is")
    api_key, at = _varint(value, at)
    version, at = _varint(value, at)
    if version > _MAX_VERSION:
        raise MetadataError(f"version {version} of metadata record type {api_key} is none that there can be")
    return _decoder(api_key)(value[at:], version), version


def decode_batch(batch: Batch) -> list[Message | PartitionRun]:
    """A batch's records, those of partitions in columns. Raises MetadataError that names the record and the batch's
    offset, CorruptBatchError, InvalidRecordError."""
    try:
        return _records_of(batch)
    except UnsupportedVersionError as error:
        why = f"{error}: it was written by a newer release, upgrade this node"
    except (MetadataError, ProtocolError) as error:
        why = str(error)
    raise MetadataError(f"the metadata batch at offset {batch.base_offset} cannot be read: {why}")


def _records_of(batch: Batch) -> list[Message | PartitionRun]:
    data, starts, ends = batch.values()
    spans = list(zip(starts, ends, strict=True))
    frames = [bytes(data[start : min(end, start + _FRAME_BYTES)]) for start, end in spans]
    usual = next((frame for frame in frames if frame[:2] == _PARTITION and frame[2:] < b"\x80" and frame[2:]), None)
    if usual is None:
        return [decode_record(data[start:end]) for start, end in spans]
    lie = [at for at, frame in enumerate(frames) if frame == usual]
    columns = PartitionRecords.decode(
        usual[2], data, array("q", [starts[at] + _FRAME_BYTES for at in lie]), array("q", [ends[at] for at in lie])
    )
    made: list[Message | PartitionRun] = []
    row, run = 0, None
    for (start, end), frame in zip(spans, frames, strict=True):
        if frame != usual:
            made.append(decode_record(data[start:end]))
            run = None
            continue
        topic_id = bytes(columns.topic_ids[16 * row : 16 * row + 16])
        if run is None or run.topic_id != topic_id:
            run = PartitionRun(Uuid(topic_id), columns, row, 0)
            made.append(run)
        run.count += 1
        row += 1
    return made


@cache
def _decoder(api_key: int) -> Callable[[bytes | memoryview, int], Message]:
    return record_class(api_key).decode


def _varint(value: bytes | memoryview, at: int) -> tuple[int, int]:
    result = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(value):
            break
        byte = value[at + index]
        result |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return result, at + index + 1
    raise MetadataError("the frame of a metadata record is cut off")
