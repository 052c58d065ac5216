"""FetchSnapshot: a leader sends its snapshot, and a follower that is too far behind takes it (KIP-630)."""

from __future__ import annotations

from typing import Any

from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import messages
from kafkacore.raft.answer_checks import ImpossibleAnswerError
from kafkacore.raft.election import Elections
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.replica import Replica
from kafkacore.raft.replication import Replication
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import Follower, Leader


class Transfers:
    """Both sides of FetchSnapshot."""

    def __init__(self, replica: Replica, elections: Elections, replication: Replication) -> None:
        self._replica, self._elections, self._replication = replica, elections, replication

    def on_fetch_snapshot(self, token: Any, request: Any) -> None:
        replica = self._replica
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            replica.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
            return
        asked = messages.only(request, request.topics, lambda each: each.partition)
        if asked is None:
            replica.reply(token, request, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        error = self._replication.leader_only_error(asked.current_leader_epoch)
        if error:
            replica.reply(token, request, error_code=error)
            return
        wanted = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        # The checkpoint at offset 0 is not sent: the first leader wrote its records to the log (KIP-853).
        if wanted.offset == 0 or wanted not in replica.log.snapshots():
            replica.reply(token, request, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
            return
        size = replica.log.snapshot_size(wanted)
        if not 0 <= asked.position < size:
            replica.reply(token, request, error_code=ErrorCode.POSITION_OUT_OF_RANGE)
            return
        role = replica.role
        assert isinstance(role, Leader)
        if request.replica_id in role.voters:
            self._elections.heard_of_voter(role, request.replica_id)
        replica.reply(
            token,
            request,
            error_code=ErrorCode.NONE,
            snapshot_id=classes.FetchSnapshotResponse.SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch),
            size=size,
            position=asked.position,
            unaligned_records=replica.log.read_snapshot(
                wanted, asked.position, messages.bounded_bytes(request.max_bytes)
            ),
        )

    def on_fetch_snapshot_response(self, sent: InFlight, response: Any) -> None:
        replica = self._replica
        error, partition = messages.answered(response)
        role = replica.role
        if partition is not None:
            leader_id, epoch = messages.leader_of(partition)
            if replica.hear(epoch, leader_id, messages.endpoint_of(response, leader_id)):
                return
        if not isinstance(role, Follower) or role.download is None:
            return
        if error or partition is None:
            # The leader may have a newer snapshot now: the next Fetch names it.
            role.download = None
            replica.back_off(sent)
            return
        data = _checked_part(role, role.download, partition)
        role.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
        replica.log.write_snapshot(role.download, role.download_position, data)
        role.download_position += len(data)
        if role.download_position == partition.size:
            snapshot_id, role.download = role.download, None
            # A crash between these two leaves a log that the next start empties (`replaces_log`).
            replica.log.finish_snapshot(snapshot_id)
            replica.log.begin_at_snapshot(snapshot_id)
            replica.snapshot_loaded(snapshot_id)


def _checked_part(role: Follower, wanted: OffsetAndEpoch, partition: Any) -> bytes:
    """The bytes of the part that was asked for; with the last one the snapshot is whole. Raises
    ImpossibleAnswerError."""
    named = OffsetAndEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    position, size = partition.position, partition.size
    data = bytes(partition.unaligned_records or b"")
    end = position + len(data)
    if named != wanted or position != role.download_position or not position < end <= size:
        raise ImpossibleAnswerError(
            f"bytes {position} to {end} of {size} of snapshot {named}, where byte {role.download_position} of {wanted} "
            "was asked for"
        )
    role.download_check.take(data)
    if end == size and not role.download_check.is_whole:
        raise ImpossibleAnswerError(f"a snapshot that ends without its footer, at byte {end}")
    return data
