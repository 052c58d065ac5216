"""The two snapshots that `storage format` writes for the first start: bootstrap.checkpoint and the zero-offset
checkpoint.

Each file begins with a batch that holds a SnapshotHeader, and ends with a batch that holds a SnapshotFooter (KIP-630).
bootstrap.checkpoint is in every log directory. It holds the feature levels of a new cluster (KIP-778), which the first
active controller writes as its first records. The checkpoint at offset 0 is in the metadata log. It holds the
kraft.version and the voters of a quorum that keeps its voters in the metadata log (KIP-853).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkacore._fast.base.errors import ProtocolError
from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.record.batch import Batches, ControlRecordType, CorruptBatchError, RecordBatchBuilder
from kafkacore.config.addresses import Address
from kafkacore.protocol.features import KRAFT_VERSION, METADATA_VERSION
from kafkacore.protocol.messages import (
    FeatureLevelRecord,
    KRaftVersionRecord,
    Message,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kafkacore.runtime.files import OS_FILES, Files, replace
from kafkacore.storage.errors import MalformedFileError
from kafkacore.storage.names import PARTIAL, checkpoint_name, metadata_directory

NAME: Final = "bootstrap.checkpoint"
NO_LEVELS: Final = (
    "the metadata log is empty, and no bootstrap.checkpoint beside meta.properties has a metadata.version to begin "
    "with: restore that file, or remove meta.properties from the log directories and format them again"
)
_LEADER_EPOCH: Final = 0
_FRAME_VERSION: Final = 1
_RECORD_VERSION: Final = 0
_FRAME: Final = bytes((_FRAME_VERSION, FeatureLevelRecord.API_KEY, _RECORD_VERSION))
NOTHING_MORE: Final[tuple[Message, ...]] = ()


class InitialVoter(NamedTuple):
    """A voter of a new quorum. Contains the id of its metadata directory, and the address of its first controller
    listener."""

    node_id: int
    directory_id: Uuid
    address: Address


def encode_bootstrap(levels: Mapping[str, int], now_ms: int, more: Iterable[Message] = NOTHING_MORE) -> bytes:
    """Returns the content of bootstrap.checkpoint: metadata.version, the other features above level 0, and then the
    records in `more`.

    kraft.version is not among these records, because its record is a control record.
    """
    others = sorted(name for name, level in levels.items() if level and name not in (METADATA_VERSION, KRAFT_VERSION))
    builder = RecordBatchBuilder(base_offset=1, partition_leader_epoch=_LEADER_EPOCH)
    for name in (METADATA_VERSION, *others):
        record = FeatureLevelRecord(name=name, feature_level=levels[name])
        builder.append(now_ms, None, record.encode(_RECORD_VERSION, _FRAME))
    for each in more:
        builder.append(
            now_ms, None, each.encode(_RECORD_VERSION, bytes((_FRAME_VERSION, each.API_KEY, _RECORD_VERSION)))
        )
    header = _header(0, now_ms, last_contained_log_timestamp_ms=0)
    return header + builder.build() + _footer(1 + builder.record_count, now_ms)


def encode_voters_checkpoint(voters: Iterable[InitialVoter], listener: str, now_ms: int) -> bytes:
    """Returns the content of the checkpoint at offset 0. `listener` selects the address of each voter."""
    listed = [
        VotersRecord.Voter(
            voter_id=voter.node_id,
            voter_directory_id=voter.directory_id,
            endpoints=[VotersRecord.Endpoint(name=listener, host=voter.address.host, port=voter.address.port)],
            kraft_version_feature=VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        for voter in sorted(voters)
    ]
    version = (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=1))
    header = _header(
        0,
        now_ms,
        version,
        (ControlRecordType.KRAFT_VOTERS, VotersRecord(version=0, voters=listed)),
        last_contained_log_timestamp_ms=now_ms,
    )
    return header + _footer(3, now_ms)


def write_bootstrap(
    directory: str,
    levels: Mapping[str, int],
    now_ms: int,
    files: Files = OS_FILES,
    more: Iterable[Message] = NOTHING_MORE,
) -> None:
    """Writes bootstrap.checkpoint atomically and durably. Raises OSError."""
    replace(files, os.path.join(directory, NAME), encode_bootstrap(levels, now_ms, more))


def write_voters_checkpoint(
    directory: str, voters: Iterable[InitialVoter], listener: str, now_ms: int, files: Files = OS_FILES
) -> None:
    """Writes the checkpoint at offset 0 into the metadata log of a log directory, atomically and durably. Raises
    OSError."""
    into = metadata_directory(directory)
    files.make_directories(into)
    path = os.path.join(into, checkpoint_name(0, 0))
    files.write(path + PARTIAL, encode_voters_checkpoint(voters, listener, now_ms))
    files.rename(path + PARTIAL, path)
    files.sync_directory(into)
    files.sync_directory(directory)


def read_bootstrap(directory: str, files: Files = OS_FILES) -> list[bytes] | None:
    """Returns the first metadata records of a new cluster, framed as the metadata log stores them. Returns None if no
    file has such records.

    The records are feature levels, and other records that Kafka's tool wrote, such as SCRAM credentials. They are in
    bootstrap.checkpoint, or together with the voters in the checkpoint at offset 0 (KIP-1170). Raises
    MalformedFileError, OSError.
    """
    path = os.path.join(directory, NAME)
    try:
        records = _data_records(path, files.read(path))
    except FileNotFoundError:
        path = os.path.join(metadata_directory(directory), checkpoint_name(0, 0))
        try:
            records = _data_records(path, files.read(path))
        except FileNotFoundError:
            return None
        if not records:
            return None
    if not any(record.startswith(_FRAME) and _is_metadata_version(record) for record in records):
        raise MalformedFileError(
            path,
            "has no level of metadata.version, because the file is incomplete: copy the file from a directory that "
            "was formatted with the same --release-version and --feature",
        )
    return records


def _data_records(path: str, data: bytes) -> list[bytes]:
    records: list[bytes] = []
    try:
        for batch in Batches(data):
            if not batch.crc_ok:
                raise MalformedFileError(path, f"batch at offset {batch.base_offset} does not match its CRC")
            if not batch.is_control:
                records += [record.value or b"" for record in batch]
    except (CorruptBatchError, ProtocolError) as error:
        raise MalformedFileError(path, str(error)) from None
    return records


def _is_metadata_version(record: bytes) -> bool:
    return bool(FeatureLevelRecord.decode(record[len(_FRAME) :], _RECORD_VERSION).name == METADATA_VERSION)


def _header(
    offset: int, now_ms: int, *more: tuple[ControlRecordType, Message], last_contained_log_timestamp_ms: int
) -> bytes:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms)
    return _control_batch(offset, now_ms, (ControlRecordType.SNAPSHOT_HEADER, header), *more)


def _footer(offset: int, now_ms: int) -> bytes:
    return _control_batch(offset, now_ms, (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0)))


def _control_batch(offset: int, now_ms: int, *records: tuple[ControlRecordType, Message]) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=_LEADER_EPOCH, control=True)
    for kind, message in records:
        key = (0).to_bytes(2) + int(kind).to_bytes(2)
        builder.append(now_ms, key, message.encode(0))
    return builder.build()
