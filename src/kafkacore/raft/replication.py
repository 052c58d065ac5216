"""Replication: the leader's and the follower's side of Fetch, and the high watermark (KIP-595, 630, 1166)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkacore._fast.record.batch import Batches
from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import control, election, membership, messages
from kafkacore.raft.answer_checks import check_divergence, check_snapshot_id, checked_records
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.roles import NEVER, NOBODY, Destination, Follower, Leader, Progress, Unattached
from kafkacore.raft.voters import ReplicaKey, VoterSet

if TYPE_CHECKING:
    from kafkacore.raft.core import InFlight, Raft

OBSERVER_SESSION_MS: Final = 300_000
MAX_OBSERVERS: Final = 10_000  # more are served, but DescribeQuorum leaves them out
NO_OFFSET: Final = -1
MAX_PARKED_FETCHES: Final = 10_000  # one more is answered at once, empty


class RaftFault(Exception):
    """A state that cannot be while a majority of the voters keeps its disks. This replica stops rather than lose
    committed records."""


class Parked(NamedTuple):
    """A Fetch that waits for records or for a later high watermark than `high_watermark`."""

    token: Any
    request: Any
    deadline_ms: int
    high_watermark: int


def next_offset(data: bytes) -> int:
    """The offset after the last batch."""
    end = NO_OFFSET
    for batch in Batches(data):
        end = batch.next_offset
    return end


# --- the leader's side ---


def on_fetch(raft: Raft, token: Any, request: Any) -> None:
    asked = messages.only(request, request.topics, lambda each: each.partition)
    if asked is None:
        raft.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
        return
    if (
        request.max_wait_ms < 0
        or asked.fetch_offset < 0
        or asked.last_fetched_epoch < 0
        or asked.last_fetched_epoch > asked.current_leader_epoch
    ):
        _reply_error(raft, token, request, ErrorCode.INVALID_REQUEST)
        return
    known = asked.high_watermark if asked.high_watermark >= 0 else raft.high_watermark
    parked = Parked(token, request, raft.now_ms + request.max_wait_ms, known)
    if not _serve(raft, parked, request.max_wait_ms == 0):
        if len(raft.parked) < MAX_PARKED_FETCHES:
            raft.parked.append(parked)
        else:
            _serve(raft, parked, True)


def _reply_error(raft: Raft, token: Any, request: Any, error: ErrorCode) -> None:
    raft.reply(token, request, error_code=error, high_watermark=NO_OFFSET, log_start_offset=NO_OFFSET, records=b"")


def leader_only_error(raft: Raft, epoch: int) -> ErrorCode:
    if epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > raft.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(raft.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _serve(raft: Raft, parked: Parked, even_empty: bool) -> bool:
    """Answers a Fetch unless the answer would be empty. True when it was answered."""
    request = parked.request
    asked = request.topics[0].partitions[0]
    error = leader_only_error(raft, asked.current_leader_epoch)
    if error:
        _reply_error(raft, parked.token, request, error)
        return True
    role = raft.role
    assert isinstance(role, Leader)
    values: dict[str, Any] = {"records": b""}
    place = _place(raft, asked.fetch_offset, asked.last_fetched_epoch)
    if place is None:
        if asked.fetch_offset < raft.log.end_offset:
            values["records"] = raft.log.read(asked.fetch_offset, messages.bounded_bytes(request.max_bytes))
        _note_progress(raft, role, _replica(request, asked), asked.fetch_offset)
    else:
        values |= place
    committed = raft.high_watermark if is_known(raft, role) else NO_OFFSET
    if not (even_empty or values["records"] or place is not None or committed > parked.high_watermark):
        return False
    raft.reply(
        parked.token,
        request,
        error_code=ErrorCode.NONE,
        high_watermark=committed,
        last_stable_offset=committed,
        log_start_offset=raft.log.start_offset,
        **values,
    )
    return True


def _replica(request: Any, asked: Any) -> ReplicaKey:
    replica_id = request.replica_state.replica_id
    return ReplicaKey(request.replica_id if replica_id < 0 else replica_id, asked.replica_directory_id)


def _place(raft: Raft, offset: int, epoch: int) -> dict[str, Any] | None:
    """None where the fetching log is a part of ours. Else the fields to answer in place of records: a snapshot, or the
    offset where the logs part."""
    log = raft.log
    if log.start_offset == 0 and offset == 0 and epoch == 0:
        return None
    snapshots = log.snapshots()
    if snapshots and snapshots[-1].offset > 0 and log.start_offset > 0:
        oldest = next((each for each in snapshots if each.offset >= log.start_offset), snapshots[-1])
        if offset < log.start_offset or epoch < oldest.epoch or (offset == log.start_offset and epoch != oldest.epoch):
            wanted = snapshots[-1]
            return {"snapshot_id": classes.FetchResponse.SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch)}
    end = log.end_offset_for_epoch(epoch)
    if end.epoch != epoch or end.offset < offset:
        return {"diverging_epoch": classes.FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.offset)}
    return None


def _note_progress(raft: Raft, role: Leader, key: ReplicaKey, offset: int) -> None:
    if key.replica_id < 0 or key.replica_id == raft.me.replica_id:
        return
    progress = role.voters.get(key.replica_id)
    if progress is not None and progress.key.matches(key):
        progress.announced_until_ms = raft.now_ms + raft.config.fetch_timeout_ms
        election.heard_of_voter(raft, role, key.replica_id)
    else:
        progress = role.observers.get(key) or _new_observer(raft, role, key)
    _caught_up(raft, progress, offset)
    progress.last_fetch_ms = raft.now_ms
    progress.leader_end_at_last_fetch = raft.log.end_offset
    if offset > progress.end_offset:
        progress.end_offset = offset
        advance_high_watermark(raft)


def _new_observer(raft: Raft, role: Leader, key: ReplicaKey) -> Progress:
    progress = Progress(key)
    if len(role.observers) >= MAX_OBSERVERS:
        _forget_observers(raft, role)
    if len(role.observers) < MAX_OBSERVERS:
        role.observers[key] = progress
    return progress


def _forget_observers(raft: Raft, role: Leader) -> None:
    """Removes observers that have not fetched for OBSERVER_SESSION_MS."""
    for key in [key for key, seen in role.observers.items() if seen.last_fetch_ms + OBSERVER_SESSION_MS < raft.now_ms]:
        del role.observers[key]


def _caught_up(raft: Raft, progress: Progress, offset: int) -> None:
    """A replica was caught up at the time of a Fetch if it has reached the leader's end of that time."""
    if offset >= raft.log.end_offset:
        progress.last_caught_up_ms = raft.now_ms
    elif 0 <= progress.leader_end_at_last_fetch <= offset:
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)


def is_known(raft: Raft, role: Leader) -> bool:
    """A new leader knows the high watermark only after a record of its own epoch is committed (Raft 5.4.2)."""
    return raft.high_watermark > role.epoch_start_offset


def advance_high_watermark(raft: Raft) -> None:
    """Records on a majority of voters are committed. The leader counts only its own durable records."""
    role = raft.role
    if not isinstance(role, Leader):
        return
    refresh_voters(raft, role)
    ends = sorted(
        [
            raft.durable_offset if progress.key.replica_id == raft.me.replica_id else progress.end_offset
            for progress in role.voters.values()
        ],
        reverse=True,
    )
    committed = ends[len(ends) // 2]
    if committed > role.epoch_start_offset and committed > raft.high_watermark:
        raft.high_watermark = committed
        wake_parked(raft)
        membership.high_watermark_moved(raft, role)


def refresh_voters(raft: Raft, role: Leader) -> None:
    """Takes the last voter set in the log, committed or not."""
    latest: VoterSet = raft.voters.latest
    if len(latest) != len(role.voters) or any(progress.key not in latest for progress in role.voters.values()):
        known = {progress.key: progress for progress in (*role.observers.values(), *role.voters.values())}
        role.voters = {voter.key.replica_id: known.pop(voter.key, Progress(voter.key)) for voter in latest.voters()}
        # A replica that is no voter any more goes on fetching.
        role.observers = {key: progress for key, progress in known.items() if key != raft.me}
        role.fetched &= role.voters.keys()


def log_grew(raft: Raft) -> None:
    wake_parked(raft)


def wake_parked(raft: Raft) -> None:
    if raft.parked:
        waiting, raft.parked = raft.parked, []
        for parked in waiting:
            if not _serve(raft, parked, False):
                raft.parked.append(parked)


def expire_parked(raft: Raft) -> None:
    due = [parked for parked in raft.parked if parked.deadline_ms <= raft.now_ms]
    if due:
        raft.parked = [parked for parked in raft.parked if parked.deadline_ms > raft.now_ms]
        for parked in due:
            _serve(raft, parked, True)


def refuse_parked(raft: Raft) -> None:
    """This replica leads no more: the waiting replicas must find the new leader."""
    waiting, raft.parked = raft.parked, []
    for parked in waiting:
        _reply_error(raft, parked.token, parked.request, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def on_describe_quorum(raft: Raft, token: Any, request: Any) -> None:
    if messages.only(request, request.topics, lambda each: each.partition_index) is None:
        raft.answer(token, messages.describe_error(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return
    role = raft.role
    if not isinstance(role, Leader):
        raft.answer(token, messages.describe_error(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return
    refresh_voters(raft, role)
    _forget_observers(raft, role)
    voters = [_replica_state(raft, role.voters[replica_id]) for replica_id in sorted(role.voters)]
    observers = [_replica_state(raft, role.observers[key]) for key in sorted(role.observers)]
    committed = raft.high_watermark if is_known(raft, role) else NO_OFFSET
    leader = (raft.leader_id, raft.epoch)
    raft.answer(token, messages.describe_quorum(leader, committed, voters, observers, raft.voters.latest.voters()))


def _replica_state(raft: Raft, progress: Progress) -> Any:
    to_wall = raft.wall_ms() - raft.now_ms
    mine = progress.key.replica_id == raft.me.replica_id
    fetched, caught_up = (raft.now_ms, raft.now_ms) if mine else (progress.last_fetch_ms, progress.last_caught_up_ms)
    return classes.DescribeQuorumResponse.ReplicaState(
        replica_id=progress.key.replica_id,
        replica_directory_id=progress.key.directory_id,
        log_end_offset=raft.log.end_offset if mine else progress.end_offset,
        last_fetch_timestamp=NEVER if fetched == NEVER else fetched + to_wall,
        last_caught_up_timestamp=NEVER if caught_up == NEVER else caught_up + to_wall,
    )


# --- the follower's side ---


def fetch(raft: Raft) -> None:
    """Asks the leader for the next records. Without a leader it asks any voter, whose answer names the leader."""
    role = raft.role
    if isinstance(role, Follower) and raft.leader_endpoint is not None:
        to: Destination | None = Destination(raft.leader_id, *raft.leader_endpoint)
    elif raft.waits_for_answer:
        return
    else:
        to = raft.anybody()
    if to is None or not raft.can_send(to.node_id):
        return
    config = raft.config
    if isinstance(role, Follower) and role.download is not None:
        wanted = messages.fetch_snapshot(
            config.cluster_id,
            raft.me,
            raft.epoch,
            role.download,
            role.download_position,
            config.fetch_snapshot_max_bytes,
        )
        raft.send(to, wanted)
        return
    # The leader counts records below the fetch offset as stored here, so they must be durable first.
    wanted = messages.fetch(
        config.cluster_id, raft.me, raft.epoch, raft.end, raft.high_watermark, config.fetch_max_bytes
    )
    raft.send(to, wanted, after_sync=True)


def on_fetch_response(raft: Raft, sent: InFlight, response: Any) -> None:
    error, partition = messages.answered(response)
    if partition is None:
        _back_off(raft, sent)
        return
    leader_id, epoch = messages.leader_of(partition)
    if raft.hear(epoch, leader_id, messages.endpoint_of(response, leader_id)):
        return
    role = raft.role
    asked = sent.request.topics[0].partitions[0]
    if error or not isinstance(role, Follower) or asked.current_leader_epoch != raft.epoch:
        _back_off(raft, sent)
        if isinstance(role, Unattached) or error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            _leader_is_gone(raft, role, leader_id)
        return
    diverging, offered = partition.diverging_epoch, partition.snapshot_id
    if diverging.epoch >= 0:
        theirs = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
        check_divergence(theirs, OffsetAndEpoch(asked.fetch_offset, asked.last_fetched_epoch))
        _truncate(raft, theirs)
    elif offered.epoch >= 0 or offered.end_offset >= 0:
        snapshot_id = OffsetAndEpoch(offered.end_offset, offered.epoch)
        check_snapshot_id(snapshot_id, raft.log, raft.epoch, raft.high_watermark)
        role.begin_download(snapshot_id)
    else:
        if partition.records:
            _append(raft, checked_records(bytes(partition.records), raft.log, raft.epoch))
        learn_high_watermark(raft, partition.high_watermark)
    role.fetch_deadline_ms = raft.now_ms + raft.config.fetch_timeout_ms
    role.has_fetched = True


def _back_off(raft: Raft, sent: InFlight) -> None:
    raft._backoff_until[sent.to.node_id] = raft.now_ms + raft.config.retry_backoff_ms


def _leader_is_gone(raft: Raft, role: Any, leader_id: int) -> None:
    """An observer whose leader no longer leads asks the others. A voter waits for its timeout."""
    if isinstance(role, Follower) and not raft.is_voter and leader_id != raft.leader_id:
        raft.leader_id = NOBODY
        raft.become_unattached(raft.epoch)


def _truncate(raft: Raft, theirs: OffsetAndEpoch) -> None:
    mine = raft.log.end_offset_for_epoch(theirs.epoch)
    end = min(mine.offset, theirs.offset) if mine.epoch == theirs.epoch else mine.offset
    if end < raft.high_watermark:
        raise RaftFault(
            f"the leader of epoch {raft.epoch} has no record at {end}, but all below {raft.high_watermark} is "
            "committed: a majority of the voters has lost its disks"
        )
    if end < raft.log.end_offset:
        raft.log.truncate(end)
        raft.truncated()


def _append(raft: Raft, data: bytes) -> None:
    if data:
        raft.log.append(data)
        control.learn_voters(raft.voters, data)


def learn_high_watermark(raft: Raft, told: int) -> None:
    raft.high_watermark = max(raft.high_watermark, min(told, raft.log.end_offset))
