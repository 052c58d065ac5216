"""Control records of the metadata log: the leader of an epoch, the header and footer of a snapshot, and the voters.

The key of a control record is a version and a type, 16 bits each (KIP-595, KIP-630, KIP-853). Batches of control
records have the control bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kafkacore._fast.record.batch import Batches, ControlRecordType, Record, RecordBatchBuilder, RecordRows
from kafkacore.protocol.messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    Message,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kafkacore.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

Value = bytes | RecordRows  # the value of one record, or rows that encode to the values of several records

NO_OFFSET: Final = -1
MAX_BATCH_BYTES: Final = (
    8 << 20
)  # the default of internal.metadata.max.batch.size.in.bytes, and the limit of KafkaRaftClient

_CLASSES: Final[dict[int, type[Message]]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
_TYPES: Final = {made.NAME: kind for kind, made in _CLASSES.items()}


def control_batch(records: Sequence[Message], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """Returns one batch of control records. Each record has the newest version in its message table. Raises ValueError
    if the batch would be larger than `MAX_BATCH_BYTES`."""
    builder = RecordBatchBuilder(
        base_offset=base_offset, partition_leader_epoch=epoch, control=True, limit_bytes=MAX_BATCH_BYTES
    )
    for record in records:
        # The record's own version field says which version to write.
        version: int = getattr(record, "version")  # noqa: B009 - messages are typed by their tables
        key = (0).to_bytes(2, "big") + int(_TYPES[record.NAME]).to_bytes(2, "big")
        if not builder.append(timestamp_ms, key, record.encode(version)):
            raise ValueError(f"a control batch with {record.NAME} would be larger than {MAX_BATCH_BYTES} bytes")
    return builder.build()


def data_batch(
    values: Iterable[Value], base_offset: int, epoch: int, timestamp_ms: int, max_bytes: int = MAX_BATCH_BYTES
) -> bytes | None:
    """Returns one batch with these records. Returns None if the batch would be larger than `max_bytes`."""
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=epoch, limit_bytes=max_bytes)
    for value in values:
        if isinstance(value, bytes):
            fits = builder.append(timestamp_ms, None, value)
        else:
            fits = builder.append_rows(timestamp_ms, *value)
        if not fits:
            return None
    return builder.build()


def next_offset(data: bytes) -> int:
    """Returns the offset after the last batch."""
    end = NO_OFFSET
    for batch in Batches(data):
        end = batch.next_offset
    return end


def control_records(data: bytes | memoryview) -> Iterator[tuple[int, Message]]:
    """Yields the offset and content of each control record in the batches. Skips types of records that are not known
    here, as Kafka does."""
    for batch in Batches(data):
        if not batch.is_control:
            continue
        for record in batch:
            made = control_message(record)
            if made is not None:
                yield record.offset, made


def control_message(record: Record) -> Message | None:
    """Returns the content of a control record, or None for a record type that the metadata log does not use. Raises
    ProtocolError.
    """
    made = _CLASSES.get(-1 if record.control_type is None else record.control_type)
    if made is None:
        return None
    value = record.value or b"\0\0"
    return made.decode(value, min(int.from_bytes(value[:2], "big"), made.VERSIONS[1]))


def learn_voters(history: VoterHistory, data: bytes | memoryview, at: int | None = None) -> None:
    """Adds to the history the voters and the kraft.version that these batches contain. For batches of a snapshot, `at`
    is the offset under which the history stores these values.
    """
    for offset, record in control_records(data):
        where = offset if at is None else at
        if isinstance(record, VotersRecord):
            history.set_voters(where, VoterSet.from_record(record))
        elif isinstance(record, KRaftVersionRecord):
            history.set_version(where, record.kraft_version)


def leader_change(leader: int, voters: Iterable[ReplicaKey], granting: Iterable[ReplicaKey]) -> Any:
    """Returns the LeaderChange record, the first record of every epoch. Its version is 0, the only version that Kafka
    reads and writes.
    """
    made = LeaderChangeMessage.Voter
    return LeaderChangeMessage(
        version=0,
        leader_id=leader,
        voters=[made(voter_id=key.replica_id) for key in sorted(voters)],
        granting_voters=[made(voter_id=key.replica_id) for key in sorted(granting)],
    )


def start_of_epoch(history: VoterHistory, change: Any, leader: Voter) -> list[Message]:
    """Returns the first records of an epoch. The first record is the leader change. Records of kraft.version and of
    the voters follow in two cases: the log does not contain the voters, because they are only in the checkpoint at
    offset 0; or the leader has new endpoints (KIP-853)."""
    records: list[Message] = [change]
    moved = leader.endpoints and history.latest.get(leader.key.replica_id) != leader
    if history.kraft_version > 0 and (moved or not history.in_log):
        voters = history.latest.with_voter(leader) if moved else history.latest
        records += [KRaftVersionRecord(version=0, kraft_version=history.kraft_version), voters.to_record()]
    return records
