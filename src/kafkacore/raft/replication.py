"""Replication: the leader's and the follower's side of Fetch, and the high watermark (KIP-595, KIP-630, KIP-1166)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import control, messages
from kafkacore.raft.answer_checks import check_divergence, check_snapshot_id, checked_records
from kafkacore.raft.control import NO_OFFSET
from kafkacore.raft.effects import BeginSegment, ReadRecords, Truncate
from kafkacore.raft.election import Elections
from kafkacore.raft.log import OffsetAndEpoch
from kafkacore.raft.replica import Replica
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import NEVER, Destination, Follower, Leader, Progress, Role, Unattached
from kafkacore.raft.voters import ReplicaKey, VoterSet

OBSERVER_SESSION_MS: Final = 300_000
MAX_OBSERVERS: Final = 10_000  # DescribeQuorum lists at most this many observers. The leader serves all observers.
MAX_PARKED_FETCHES: Final = 10_000  # If this many Fetches wait already, a further Fetch gets an empty response at once.


class RaftFault(Exception):
    """A state that is impossible while a majority of the voters keeps its disks. This replica stops, so that it does
    not lose committed records.
    """


class Parked(NamedTuple):
    """A Fetch that waits for new records, or until the leader's high watermark is above `high_watermark`."""

    token: Any
    request: Any
    deadline_ms: int
    high_watermark: int


def _fetching(request: Any, asked: Any) -> ReplicaKey:
    replica_id = request.replica_state.replica_id
    return ReplicaKey(request.replica_id if replica_id < 0 else replica_id, asked.replica_directory_id)


class Replication:
    """Both sides of Fetch. After the high watermark advances, `on_commit(leader)` is called, where `leader` is the
    Leader state object.
    """

    def __init__(self, replica: Replica, elections: Elections, on_commit: Callable[[Leader], None]) -> None:
        self._replica, self._elections, self._on_commit = replica, elections, on_commit
        self._parked: list[Parked] = []

    # --- leader ---

    def on_fetch(self, token: Any, request: Any) -> None:
        replica = self._replica
        asked = replica.asked(token, request, "partition")
        if asked is None:
            return
        if (
            request.max_wait_ms < 0
            or asked.fetch_offset < 0
            or asked.last_fetched_epoch < 0
            or asked.last_fetched_epoch > asked.current_leader_epoch
        ):
            self._reply_error(token, request, ErrorCode.INVALID_REQUEST)
            return
        known = asked.high_watermark if asked.high_watermark >= 0 else replica.high_watermark
        parked = Parked(token, request, replica.now_ms + request.max_wait_ms, known)
        if not self._serve(parked, request.max_wait_ms == 0):
            if len(self._parked) < MAX_PARKED_FETCHES:
                self._parked.append(parked)
            else:
                self._serve(parked, True)

    def _reply_error(self, token: Any, request: Any, error: ErrorCode) -> None:
        self._replica.reply(
            token, request, error_code=error, high_watermark=NO_OFFSET, log_start_offset=NO_OFFSET, records=b""
        )

    def leader_only_error(self, epoch: int) -> ErrorCode:
        replica = self._replica
        if epoch < replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > replica.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(replica.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _serve(self, parked: Parked, even_empty: bool) -> bool:
        """Answers a Fetch and returns True. If the response would be empty and `even_empty` is False, does nothing and
        returns False.
        """
        replica = self._replica
        request = parked.request
        asked = request.topics[0].partitions[0]
        error = self.leader_only_error(asked.current_leader_epoch)
        if error:
            self._reply_error(parked.token, request, error)
            return True
        role = replica.role
        assert isinstance(role, Leader)
        place = self._place(asked.fetch_offset, asked.last_fetched_epoch)
        if place is not None:
            self._reply_fetch(parked, role, {"records": b"", **place})
            return True
        # Update the progress before reading: if this Fetch commits a batch, collected batches are appended, and the
        # response then includes them.
        self._note_progress(role, _fetching(request, asked), asked.fetch_offset)
        records: bytes | None = b""
        max_bytes = messages.bounded_bytes(request.max_bytes)
        if asked.fetch_offset < replica.log.end_offset:
            records = replica.log.read_recent(asked.fetch_offset, max_bytes)
        if records is None:
            read = ReadRecords(asked.fetch_offset, max_bytes)
            replica.effects.beside(read, lambda found: self._serve_read(parked, found))
            return True
        committed = replica.high_watermark if self.is_known(role) else NO_OFFSET
        if not (even_empty or records or committed > parked.high_watermark):
            return False
        self._reply_fetch(parked, role, {"records": records})
        return True

    def _serve_read(self, parked: Parked, records: bytes) -> None:
        """Answers a Fetch with the records that a disk read has returned. Refuses the Fetch if this replica no longer
        leads.
        """
        role = self._replica.role
        asked = parked.request.topics[0].partitions[0]
        error = self.leader_only_error(asked.current_leader_epoch)
        if error or not isinstance(role, Leader):
            self._reply_error(parked.token, parked.request, error)
        else:
            place = self._place(asked.fetch_offset, asked.last_fetched_epoch)
            self._reply_fetch(parked, role, {"records": records} if place is None else {"records": b"", **place})

    def _reply_fetch(self, parked: Parked, role: Leader, values: dict[str, Any]) -> None:
        committed = self._replica.high_watermark if self.is_known(role) else NO_OFFSET
        self._replica.reply(
            parked.token,
            parked.request,
            error_code=ErrorCode.NONE,
            high_watermark=committed,
            last_stable_offset=committed,
            log_start_offset=self._replica.log.start_offset,
            **values,
        )

    def _place(self, offset: int, epoch: int) -> dict[str, Any] | None:
        """Returns None if the follower's log is a prefix of this log. Otherwise returns the fields that the response
        contains instead of records: a snapshot to fetch, or the epoch and offset where the logs diverge.
        """
        log = self._replica.log
        if log.start_offset == 0 and offset == 0 and epoch == 0:
            return None
        snapshots = log.snapshots()
        if snapshots and snapshots[-1].offset > 0 and log.start_offset > 0:
            oldest = next((each for each in snapshots if each.offset >= log.start_offset), snapshots[-1])
            if (
                offset < log.start_offset
                or epoch < oldest.epoch
                or (offset == log.start_offset and epoch != oldest.epoch)
            ):
                wanted = snapshots[-1]
                return {"snapshot_id": classes.FetchResponse.SnapshotId(end_offset=wanted.offset, epoch=wanted.epoch)}
        end = log.end_offset_for_epoch(epoch)
        if end.epoch != epoch or end.offset < offset:
            return {"diverging_epoch": classes.FetchResponse.EpochEndOffset(epoch=end.epoch, end_offset=end.offset)}
        return None

    def _note_progress(self, role: Leader, key: ReplicaKey, offset: int) -> None:
        replica = self._replica
        if key.replica_id < 0 or key.replica_id == replica.me.replica_id:
            return
        progress = role.voters.get(key.replica_id)
        if progress is not None and progress.key.matches(key):
            progress.announced_until_ms = replica.now_ms + replica.config.fetch_timeout_ms
            self._elections.heard_of_voter(role, key)
        else:
            progress = role.observers.get(key) or self._new_observer(role, key)
        self._caught_up(progress, offset)
        progress.last_fetch_ms = replica.now_ms
        progress.leader_end_at_last_fetch = replica.log.end_offset
        if offset > progress.end_offset:
            progress.end_offset = offset
            self.advance_high_watermark()

    def _new_observer(self, role: Leader, key: ReplicaKey) -> Progress:
        progress = Progress(key)
        if len(role.observers) >= MAX_OBSERVERS:
            self._forget_observers(role)
        if len(role.observers) < MAX_OBSERVERS:
            role.observers[key] = progress
        return progress

    def members(self) -> frozenset[int]:
        """Returns the ids of the voters, and of the observers that have fetched from this leader recently."""
        replica = self._replica
        found = {voter.key.replica_id for voter in replica.voters.latest.voters()}
        if isinstance(replica.role, Leader):
            self._forget_observers(replica.role)
            found |= {key.replica_id for key in replica.role.observers}
        return frozenset(found)

    def _forget_observers(self, role: Leader) -> None:
        """Removes observers that have not fetched for OBSERVER_SESSION_MS."""
        for key in [
            key
            for key, seen in role.observers.items()
            if seen.last_fetch_ms + OBSERVER_SESSION_MS < self._replica.now_ms
        ]:
            del role.observers[key]

    def _caught_up(self, progress: Progress, offset: int) -> None:
        """Notes when a replica was last caught up: now, if this Fetch has reached the end of the leader's log. If this
        Fetch has only reached the end that the log had at the replica's previous Fetch: the time of that Fetch.
        """
        if offset >= self._replica.log.end_offset:
            progress.last_caught_up_ms = self._replica.now_ms
        elif 0 <= progress.leader_end_at_last_fetch <= offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)

    def is_known(self, role: Leader) -> bool:
        """Returns whether the leader knows the high watermark. A new leader knows it only when a record of its own
        epoch is committed (Raft paper, section 5.4.2).
        """
        return self._replica.high_watermark > role.epoch_start_offset

    def advance_high_watermark(self) -> None:
        """Advances the high watermark over all records that a majority of the voters has. From its own log, the leader
        counts only durable records.
        """
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leader) or replica.voters.latest_offset >= replica.log.end_offset:
            return  # a voter set that is not in the log yet takes effect when its batch gets a segment
        self.refresh_voters(role)
        ends = sorted(
            [
                replica.syncs.durable_offset
                if progress.key.replica_id == replica.me.replica_id
                else progress.end_offset
                for progress in role.voters.values()
            ],
            reverse=True,
        )
        committed = ends[len(ends) // 2]
        if committed > role.epoch_start_offset and committed > replica.high_watermark:
            replica.high_watermark = committed
            self.wake_parked()
            self._on_commit(role)

    def refresh_voters(self, role: Leader) -> None:
        """Switches to the latest voter set in the log, which may be uncommitted."""
        latest: VoterSet = self._replica.voters.latest
        if len(latest) != len(role.voters) or any(progress.key not in latest for progress in role.voters.values()):
            known = {progress.key: progress for progress in (*role.observers.values(), *role.voters.values())}
            role.voters = {voter.key.replica_id: known.pop(voter.key, Progress(voter.key)) for voter in latest.voters()}
            # A replica that is no longer a voter keeps fetching, as an observer.
            role.observers = {key: progress for key, progress in known.items() if key != self._replica.me}
            role.fetched &= role.voters.keys()

    def wake_parked(self) -> None:
        """Answers the waiting Fetches that can now get new records or a new high watermark."""
        if self._parked:
            waiting, self._parked = self._parked, []
            for parked in waiting:
                if not self._serve(parked, False):
                    self._parked.append(parked)

    def next_ms(self) -> int | None:
        """Returns the time at which `expire_parked` is due, or None if no Fetch waits."""
        return min([parked.deadline_ms for parked in self._parked], default=None)

    def expire_parked(self) -> None:
        replica = self._replica
        due = [parked for parked in self._parked if parked.deadline_ms <= replica.now_ms]
        if due:
            self._parked = [parked for parked in self._parked if parked.deadline_ms > replica.now_ms]
            for parked in due:
                self._serve(parked, True)

    def refuse_parked(self) -> None:
        """Refuses all waiting Fetches, because this replica no longer leads and the other replicas must find the new
        leader."""
        waiting, self._parked = self._parked, []
        for parked in waiting:
            self._reply_error(parked.token, parked.request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_describe_quorum(self, token: Any, request: Any) -> None:
        replica = self._replica
        if messages.only(request, request.topics, lambda each: each.partition_index) is None:
            replica.answer(token, messages.describe_error(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        role = replica.role
        if not isinstance(role, Leader):
            replica.answer(token, messages.describe_error(request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        self.refresh_voters(role)
        self._forget_observers(role)
        voters = [self._replica_state(role.voters[replica_id]) for replica_id in sorted(role.voters)]
        observers = [self._replica_state(role.observers[key]) for key in sorted(role.observers)]
        committed = replica.high_watermark if self.is_known(role) else NO_OFFSET
        leader = (replica.leader_id, replica.epoch)
        replica.answer(
            token, messages.describe_quorum(leader, committed, voters, observers, replica.voters.latest.voters())
        )

    def _replica_state(self, progress: Progress) -> Any:
        replica = self._replica
        to_wall = replica.wall_ms() - replica.now_ms
        mine = progress.key.replica_id == replica.me.replica_id
        fetched, caught_up = (
            (replica.now_ms, replica.now_ms) if mine else (progress.last_fetch_ms, progress.last_caught_up_ms)
        )
        return classes.DescribeQuorumResponse.ReplicaState(
            replica_id=progress.key.replica_id,
            replica_directory_id=progress.key.directory_id,
            log_end_offset=replica.log.end_offset if mine else progress.end_offset,
            last_fetch_timestamp=NEVER if fetched == NEVER else fetched + to_wall,
            last_caught_up_timestamp=NEVER if caught_up == NEVER else caught_up + to_wall,
        )

    # --- follower ---

    def fetch(self) -> None:
        """Sends a Fetch for the next records to the leader. If this replica knows no leader, sends the Fetch to any
        voter, whose response reports the leader. An observer also does this while its leader does not answer, because a
        new leader does not send BeginQuorumEpoch to observers.
        """
        replica = self._replica
        role = replica.role
        if isinstance(role, Follower) and replica.leader_endpoint is not None:
            self._fetch_from(Destination(replica.leader_id, *replica.leader_endpoint), role)
            if replica.is_voter or not role.is_unanswered:
                return
        elif replica.requests:
            return
        self._fetch_from(replica.anybody(), role)

    def _fetch_from(self, to: Destination | None, role: Role) -> None:
        replica = self._replica
        config = replica.config
        if to is None or not replica.can_send(to.node_id):
            return
        if isinstance(role, Follower) and role.download is not None:
            wanted = messages.fetch_snapshot(
                config.cluster_id,
                replica.me,
                replica.epoch,
                role.download,
                role.download_position,
                config.fetch_snapshot_max_bytes,
            )
            replica.send(to, wanted)
            return
        # The leader assumes that records below the fetch offset are stored on this replica, so they must be durable
        # before the Fetch is sent.
        wanted = messages.fetch(
            config.cluster_id, replica.me, replica.epoch, replica.end, replica.high_watermark, config.fetch_max_bytes
        )
        replica.send(to, wanted, after_sync=True)

    def on_fetch_response(self, sent: InFlight, response: Any) -> None:
        replica = self._replica
        error, partition = messages.answered(response)
        if partition is None:
            replica.back_off(sent)
            return
        leader_id, epoch = messages.leader_of(partition)
        if replica.hear(epoch, leader_id, messages.endpoint_of(response, leader_id)):
            return
        role = replica.role
        asked = sent.request.topics[0].partitions[0]
        if error or not isinstance(role, Follower) or asked.current_leader_epoch != replica.epoch:
            replica.back_off(sent)
            if isinstance(role, Unattached) or error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._leader_is_gone(role, leader_id)
            return
        role.is_unanswered, replica.doubted = False, None
        diverging, offered = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            theirs = OffsetAndEpoch(diverging.end_offset, diverging.epoch)
            check_divergence(theirs, OffsetAndEpoch(asked.fetch_offset, asked.last_fetched_epoch))
            self._truncate(theirs)
        elif offered.epoch >= 0 or offered.end_offset >= 0:
            snapshot_id = OffsetAndEpoch(offered.end_offset, offered.epoch)
            check_snapshot_id(snapshot_id, replica.log, replica.epoch, replica.high_watermark)
            role.begin_download(snapshot_id)
        else:
            data = bytes(partition.records or b"")
            self._append(checked_records(data, replica.log, replica.epoch) if data else b"", partition.high_watermark)
        role.fetch_deadline_ms = replica.fetch_deadline()
        role.has_fetched = True

    def _leader_is_gone(self, role: Any, leader_id: int) -> None:
        """Handles a response of a leader that no longer leads. An observer gives up this leader and sends its Fetch to
        other nodes. A voter waits for its fetch timeout.
        """
        replica = self._replica
        if isinstance(role, Follower) and not replica.is_voter and leader_id != replica.leader_id:
            replica.lose_leader()

    def _truncate(self, theirs: OffsetAndEpoch) -> None:
        replica = self._replica
        mine = replica.log.end_offset_for_epoch(theirs.epoch)
        end = min(mine.offset, theirs.offset) if mine.epoch == theirs.epoch else mine.offset
        if end < replica.high_watermark:
            raise RaftFault(
                f"the leader of epoch {replica.epoch} has no record at {end}, but all below "
                f"{replica.high_watermark} is committed: a majority of the voters has lost its disks"
            )
        if end < replica.log.end_offset:
            replica.effects.change(Truncate(end), lambda _: self._truncated())

    def _truncated(self) -> None:
        self._replica.truncated()
        self._extend_fetch_timeout()

    def _append(self, data: bytes, told: int) -> None:
        """Appends records from the leader. When the records are in the log, adopts the leader's high watermark."""
        replica = self._replica
        if data:
            if not replica.log.append(data):
                replica.effects.change(BeginSegment(), lambda _: self._segment_began(data, told))
                return
            control.learn_voters(replica.voters, data)
        self.learn_high_watermark(told)

    def _segment_began(self, data: bytes, told: int) -> None:
        self._append(data, told)
        self._extend_fetch_timeout()

    def _extend_fetch_timeout(self) -> None:
        """Starts the fetch timeout again, because this replica itself was unable to receive for a while. The leader may
        have sent something during that time.
        """
        if isinstance(self._replica.role, Follower):
            self._replica.role.fetch_deadline_ms = self._replica.fetch_deadline()

    def learn_high_watermark(self, told: int) -> None:
        replica = self._replica
        replica.high_watermark = max(replica.high_watermark, min(told, replica.log.end_offset))
