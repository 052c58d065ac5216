"""Encodes and decodes metadata records in record batches. The value of a record begins with a frame of three unsigned
varints: the frame version, the record's type and the record's version. The body of the record follows.

A record is written in the version that the finalized metadata.version prescribes (KIP-631, KIP-778). So every node that
is allowed in the cluster can read the record.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from operator import sub
from typing import Any, Final

from kafkacore._fast.record.batch import Batch, RecordRows
from kafkacore.metadata.partition_records import ChangeRun, ColumnRun, PartitionRecords, PartitionRun, Record, Records
from kafkacore.protocol import messages
from kafkacore.protocol.errors import KafkaError, ProtocolError, UnsupportedVersionError
from kafkacore.protocol.features import MetadataVersion
from kafkacore.protocol.messages import Message
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import Work, finish_now

Value = bytes | RecordRows  # the value of one record, or rows that represent several records

FRAME_VERSION: Final = 1
_MAX_VARINT_BYTES: Final = 5
_MAX_VERSION: Final = 0x7FFF
_FRAME_BYTES: Final = 3  # the size of a frame whose three numbers are below 128, as in all frames so far
_PARTITION: Final = bytes((FRAME_VERSION, PartitionRun.API_KEY))
_CHANGE: Final = bytes((FRAME_VERSION, ChangeRun.API_KEY))
COLUMN_RUN_ROWS: Final = 1024  # if there are fewer changes, reading each of them costs less than importing numpy
COLUMN_RUN_SAMPLES: Final = 16

# Every record type of 4.3, keyed by the number in the frame.
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
    """Metadata cannot be read or applied. This node must stop."""


@cache
def record_class(api_key: int) -> type[Message]:
    """Returns the class of a record type. Raises MetadataError for a type that this release does not know."""
    try:
        made: type[Message] = messages.message_class(RECORD_TYPES[api_key])
    except KeyError:
        raise MetadataError(
            f"metadata record type {api_key} is not known: it was written by a newer release, upgrade this node"
        ) from None
    return made


def registration_change_version(record: Any) -> int:
    """Returns the lowest version that contains all fields of this BrokerRegistrationChangeRecord."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


class RecordWriter:
    """Encodes records in the versions that a given metadata.version prescribes."""

    def __init__(self, metadata_version: MetadataVersion) -> None:
        self.metadata_version = metadata_version
        self._frames: dict[type[Message], tuple[int, bytes]] = {}

    def encode(self, record: Message) -> bytes:
        """Returns the value of a record in a batch. Raises ProtocolError if the record sets a field that the record's
        version lacks."""
        frame = self._frames.get(type(record)) or self._frame(record)
        return record.encode(*frame)

    def encode_all(self, records: Records) -> list[Value]:
        """Returns the values of a batch. If several runs use the same columns, one native call encodes the columns."""
        return finish_now(self.encoding(records))

    def encoding(self, records: Records) -> Work[list[Value]]:
        """Encodes as `encode_all` does, but lets the event loop do other work between two records."""
        encoded: dict[int, tuple[bytes, array[int]]] = {}
        values: list[Value] = []
        for record in records:
            yield
            if isinstance(record, Message):
                values.append(self.encode(record))
                continue
            if isinstance(record, ChangeRun):
                values.append((*record.encode(*self._version_and_header(record)), 0, record.count))
                continue
            rows = encoded.get(id(record.columns))
            if rows is None:
                # PartitionRun or ColumnRun
                rows = record.columns.encode(*self._version_and_header(record))
                encoded[id(record.columns)] = rows
            values.append((*rows, record.first, record.first + record.count))
        return values

    def _frame(self, record: Message) -> tuple[int, bytes]:
        if record.NAME == "BrokerRegistrationChangeRecord":
            version = registration_change_version(record)
            return version, _header(record.API_KEY, version)
        made = self._frames[type(record)] = self._version_and_header(record)
        return made

    def _version_and_header(self, record: Record) -> tuple[int, bytes]:
        version = self.metadata_version.record_version(record.NAME)
        return version, _header(record.API_KEY, version)


def _header(api_key: int, version: int) -> bytes:
    # Each of the three numbers is below 128, so its unsigned varint is a single byte.
    return bytes((FRAME_VERSION, api_key, version))


def decode_record(value: bytes | memoryview | None) -> Message:
    """Decodes the value of a record. Raises MetadataError for a frame that this release does not know, and
    ProtocolError for a malformed body."""
    if value is not None and len(value) >= 3 and value[0] == FRAME_VERSION and value[1] < 0x80 and value[2] < 0x80:
        return _decoder(value[1])(value[3:], value[2])
    return decode_framed(value)[0]


def decode_framed(value: bytes | memoryview | None) -> tuple[Message, int]:
    """Returns the record and the version in which it was written. Raises the same errors as `decode_record`."""
    if value is None:
        raise MetadataError("a metadata record has no value")
    frame_version, at = _varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise MetadataError(f"metadata frame version {frame_version} is not known; {FRAME_VERSION} is known")
    api_key, at = _varint(value, at)
    version, at = _varint(value, at)
    if version > _MAX_VERSION:
        raise MetadataError(f"version {version} of metadata record type {api_key} cannot exist")
    return _decoder(api_key)(value[at:], version), version


def decode_batch(batch: Batch) -> list[Record]:
    """Returns the records of a batch. Most partition records are returned as runs. A run represents several records.
    Raises CorruptBatchError and InvalidRecordError. Also raises MetadataError, with a message that contains the batch's
    offset and the cause.
    """
    try:
        return _records_of(batch)
    except UnsupportedVersionError as error:
        why = f"{error}: it was written by a newer release, upgrade this node"
    except (MetadataError, ProtocolError) as error:
        why = str(error)
    raise MetadataError(f"the metadata batch at offset {batch.base_offset} cannot be read: {why}")


def _records_of(batch: Batch) -> list[Record]:
    view, starts, ends = batch.values()
    begin, end = min(starts, default=0), max(ends, default=0)
    if end - begin < len(view) // 2:
        # The view covers all batches of one read of the log. Cut it first, so that only this batch is copied.
        view = view[begin:end]
        starts, ends = (array("q", [at - begin for at in each]) for each in (starts, ends))
    data = bytes(view)  # Slicing a view takes three times as long.
    if len(starts) == 1 and data[starts[0] : starts[0] + len(_PARTITION)] != _PARTITION:
        return [decode_record(data[starts[0] : ends[0]])]  # most batches of a quiet cluster have one record
    if min(map(sub, ends, starts), default=0) >= _FRAME_BYTES:
        frames = [data[start : start + _FRAME_BYTES] for start in starts]
    else:
        frames = [data[start : min(end, start + _FRAME_BYTES)] for start, end in zip(starts, ends, strict=True)]
    usual = next((frame for frame in frames if _is_short(frame, _PARTITION)), None)
    columns, row = PartitionRecords(), 0
    if usual is not None:
        lie = [at for at, frame in enumerate(frames) if frame == usual]
        columns = PartitionRecords.decode(
            usual[2], data, array("q", [starts[at] + _FRAME_BYTES for at in lie]), array("q", [ends[at] for at in lie])
        )
    made: list[Record] = []
    at = 0
    for frame, alike in groupby(frames):
        end = at + len(list(alike))
        if frame == usual:
            made += _partition_runs(columns, row, row + end - at)
            row += end - at
        elif end - at > 1 and _is_short(frame, _CHANGE):
            made += _changes(frame[2], data, starts[at:end], ends[at:end])
        else:
            made += [decode_record(data[start:end]) for start, end in zip(starts[at:end], ends[at:end], strict=True)]
        at = end
    return made


def _is_short(frame: bytes, kind: bytes) -> bool:
    """Returns whether `frame` is the three-byte frame of a record of type `kind`."""
    return frame[:2] == kind and b"" < frame[2:] < b"\x80"


def _partition_runs(columns: PartitionRecords, row: int, end: int) -> Iterator[PartitionRun]:
    ids = bytes(columns.topic_ids[16 * row : 16 * end])
    if ids == ids[:16] * (end - row):  # all rows belong to one topic, which is the usual case
        yield PartitionRun(Uuid(ids[:16]), columns, row, end - row)
        return
    for topic_id, alike in groupby([ids[at : at + 16] for at in range(0, len(ids), 16)]):
        count = len(list(alike))
        yield PartitionRun(Uuid(topic_id), columns, row, count)
        row += count


def _changes(version: int, data: bytes, starts: array[int], ends: array[int]) -> Iterator[Record]:
    if len(starts) >= COLUMN_RUN_ROWS and _differ(data, starts, ends):
        from kafkacore.metadata.change_columns import ChangeColumns  # noqa: PLC0415 - loads numpy: some 100 ms

        at = array("q", [start + _FRAME_BYTES for start in starts])
        columns = ChangeColumns.decode(version, data, at, ends)
        if columns is not None:
            return iter([ColumnRun(columns, 0, len(columns))])
    return _change_runs(data, starts, ends)


def _differ(data: bytes, starts: array[int], ends: array[int]) -> bool:
    """Estimates from a few pairs of neighbouring records whether most neighbours differ. If they do, runs of equal
    changes would be too short to be useful.
    """
    behind = _FRAME_BYTES + ChangeRun.PARTITION_BYTES
    step = len(starts) // COLUMN_RUN_SAMPLES
    looks = range(0, len(starts) - 1, step)
    equal = sum(data[starts[at] + behind : ends[at]] == data[starts[at + 1] + behind : ends[at + 1]] for at in looks)
    return 2 * equal < len(looks)


def _change_runs(data: bytes, starts: array[int], ends: array[int]) -> Iterator[Record]:
    """Reads PartitionChangeRecords that all have the same version. Consecutive records that differ only in their
    partition number are decoded once.
    """
    first, behind = _FRAME_BYTES, _FRAME_BYTES + ChangeRun.PARTITION_BYTES
    at = 0
    for _, alike in groupby([data[start + behind : end] for start, end in zip(starts, ends, strict=True)]):
        record = decode_record(data[starts[at] : ends[at]])
        count = len(list(alike))
        if count == 1:
            yield record
        else:
            partitions = b"".join([data[start + first : start + behind] for start in starts[at : at + count]])
            yield ChangeRun(record, array("i", struct.unpack(f">{count}i", partitions)))
        at += count


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
