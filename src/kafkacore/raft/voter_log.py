"""The voters that a log and its snapshot hold, for a start."""

from __future__ import annotations

from kafkacore.raft import control, messages
from kafkacore.raft.log import RaftLog
from kafkacore.raft.snapshots import SnapshotError, checked_batches
from kafkacore.raft.voters import BEFORE_LOG, VoterHistory, VoterSet


def voters_of(log: RaftLog, static: VoterSet) -> VoterHistory:
    """Raises SnapshotError. The checkpoint at offset 0 may be damaged when the log has the voters too."""
    history = VoterHistory(static)
    damage: SnapshotError | None = None
    snapshots = log.snapshots()
    if snapshots:
        last, empty = snapshots[-1].offset - 1, True
        try:
            for batch in checked_batches(log, snapshots[-1]):
                empty = False
                if batch.is_control:
                    control.learn_voters(history, batch.data, BEFORE_LOG if last < 0 else last)
            if empty:
                raise SnapshotError(snapshots[-1], "is empty")
        except SnapshotError as error:
            damage = error
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, messages.FETCH_MAX_BYTES)
        control.learn_voters(history, data)
        offset = control.next_offset(data)
    if damage is not None and (snapshots[-1].offset > 0 or not history.in_log):
        raise damage
    return history
