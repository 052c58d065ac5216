"""FetchSnapshot: if a follower needs records that the leader has already deleted, it downloads the leader's snapshot
(KIP-630)."""

from __future__ import annotations

from typing import Any

from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import messages
from kafkacore.raft.answer_checks import ImpossibleAnswerError
from kafkacore.raft.effects import Adopt, ReadSnapshot, SnapshotPart, WritePart
from kafkacore.raft.election import Elections
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.replica import Replica
from kafkacore.raft.replication import Replication
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import Follower, Leader
from kafkacore.raft.voters import ReplicaKey, VoterHistory


class Transfers:
    """The leader's and the follower's side of FetchSnapshot."""

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
        # A leader does not send the checkpoint at offset 0, because the first leader has written the checkpoint's
        # records to the log (KIP-853).
        if wanted.offset == 0 or wanted not in replica.log.snapshots():
            replica.reply(token, request, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
            return
        role = replica.role
        assert isinstance(role, Leader)
        self._elections.heard_of_voter(role, ReplicaKey(request.replica_id, asked.replica_directory_id))
        read = ReadSnapshot(wanted, asked.position, messages.bounded_bytes(request.max_bytes))
        replica.effects.beside(read, lambda part: self._send_part(token, request, wanted, part))

    def _send_part(self, token: Any, request: Any, wanted: OffsetAndEpoch, part: SnapshotPart | None) -> None:
        replica = self._replica
        asked = request.topics[0].partitions[0]
        # This replica may have lost its leadership during the read.
        error = self._replication.leader_only_error(asked.current_leader_epoch)
        if not error and part is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if not error and part is not None and not 0 <= asked.position < part.size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error or part is None:
            replica.reply(token, request, error_code=error)
            return
        replica.reply(
            token,
            request,
            error_code=ErrorCode.NONE,
            snapshot_id=classes.FetchSnapshotResponse.SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch),
            size=part.size,
            position=asked.position,
            unaligned_records=part.data,
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
            # The leader may have a newer snapshot by now. The response to the next Fetch then contains the id of that
            # snapshot.
            role.download = None
            replica.back_off(sent)
            return
        data = _checked_part(role, role.download, partition)
        write = WritePart(role.download, role.download_position, data)
        replica.effects.change(write, lambda _: self._part_written(role, write, partition.size))

    def _part_written(self, role: Follower, written: WritePart, size: int) -> None:
        replica = self._replica
        role.fetch_deadline_ms = replica.fetch_deadline()
        role.download_position += len(written.data)
        if role.download_position == size:
            role.download = None
            adopt = Adopt(written.snapshot_id, replica.config.voters)
            replica.effects.change(adopt, lambda voters: self._adopted(role, written.snapshot_id, voters))

    def _adopted(self, role: Follower, snapshot_id: OffsetAndEpoch, voters: VoterHistory) -> None:
        replica = self._replica
        role.fetch_deadline_ms = replica.fetch_deadline()
        replica.snapshot_loaded(snapshot_id, voters)


def _checked_part(role: Follower, wanted: OffsetAndEpoch, partition: Any) -> bytes:
    """Checks and returns the bytes of the requested part. If it is the last part, the snapshot must be complete. Raises
    ImpossibleAnswerError.
    """
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
