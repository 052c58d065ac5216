"""Reads the voters from a log and its snapshot when a node starts."""

from __future__ import annotations

from kafkacore.raft import control, messages
from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.snapshots import SnapshotError, checked_batches
from kafkacore.raft.voters import BEFORE_LOG, VoterHistory, VoterSet


def voters_of(log: RaftLog, static: VoterSet) -> VoterHistory:
    """Reads the voters from the beginning of the latest snapshot and the records that follow it. Blocks. Raises
    SnapshotError, OSError. A damaged checkpoint at offset 0 is not an error if the log also has the voters."""
    history = VoterHistory(static)
    damage: SnapshotError | None = None
    snapshots = log.snapshots()
    latest = snapshots[-1] if snapshots else None
    if latest is not None:
        try:
            _learn_from_head(history, log, latest)
        except SnapshotError as error:
            damage = error
    # A snapshot begins with the voter set that is valid at the snapshot's end, so earlier records need not be read.
    offset = max(log.start_offset, latest.offset if latest else 0)
    while offset < log.end_offset:
        data = log.read(offset, messages.FETCH_MAX_BYTES)
        control.learn_voters(history, data)
        offset = control.next_offset(data)
    if damage is not None and latest is not None and (latest.offset > 0 or not history.in_log):
        raise damage
    return history


def _learn_from_head(history: VoterHistory, log: RaftLog, snapshot_id: OffsetAndEpoch) -> None:
    """Reads the control records with the voters, which come before every other record of a snapshot (KIP-853)."""
    empty = True
    for batch in checked_batches(log, snapshot_id):
        empty = False
        if not batch.is_control:
            break
        control.learn_voters(history, batch.data, snapshot_id.offset - 1 if snapshot_id.offset else BEFORE_LOG)
    if empty:
        raise SnapshotError(snapshot_id, "is empty")
