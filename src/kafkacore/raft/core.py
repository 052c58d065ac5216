"""The KRaft state machine, called the core. Its inputs are requests, responses, ticks, and reports that disk work is
done. Its outputs are requests, responses, disk work, and states to persist.

The state machine has no clock, socket, file, thread or source of random numbers. The caller passes times and a
`random.Random`, and does the disk work that `take_work` returns. The outbox holds a message back until the vote or the
records that it depends on are on disk (Raft dissertation, 10.2.1). So `take_outputs` returns only messages that can be
sent now.

`replica` contains the state that all rules share. These modules contain the rules: `election` (votes, epochs,
resignation), `replication` (both sides of Fetch, the high watermark), `transfer` (both sides of FetchSnapshot),
`membership` (changes of the voter set).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import control, messages
from kafkacore.raft.answer_checks import ImpossibleAnswerError
from kafkacore.raft.effects import Work
from kafkacore.raft.election import NEVER, Elections
from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.membership import Membership
from kafkacore.raft.outbox import Answer, Send
from kafkacore.raft.replica import RaftConfig, Replica
from kafkacore.raft.replication import Replication
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role
from kafkacore.raft.syncs import Sync
from kafkacore.raft.term import Term
from kafkacore.raft.transfer import Transfers
from kafkacore.raft.voter_log import voters_of
from kafkacore.raft.voters import ReplicaKey, VoterHistory
from kafkacore.storage.quorum_state import QuorumState

__all__ = ["Answer", "Raft", "RaftConfig", "Send"]

LOG: Final = logging.getLogger("kafkacore.raft")
DISTRUST_MS: Final = 1000  # after an impossible response, this replica sends the node no requests for this long


class Raft:
    """One replica. Call `tick` when the time `next_tick_ms` is reached. After every call of a method, take the
    outputs."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        state: QuorumState | None,
        random: Random,
        now_ms: int,
        wall_ms: Callable[[], int],
        voters: VoterHistory | None = None,
    ) -> None:
        """Creates a replica from its files. `state` is the last persisted quorum state. Everything in the log must be
        durable. `wall_ms` is used only for the timestamps of batches and of DescribeQuorum. `voters` is the result of
        `voters_of`. If it is missing, the constructor reads the voters from the log and can raise SnapshotError."""
        self.config, self.log = config, log
        self._deferred: deque[Callable[[], None]] = deque()
        replica = self.replica = Replica(
            config, log, voters or voters_of(log, config.voters), Term(state, log.last_epoch), random, now_ms, wall_ms,
            on_role=self._role_changed, on_append=self._appended,
        )  # fmt: skip
        elections = self.elections = Elections(replica)
        replication = self.replication = Replication(replica, elections, self._committed)
        membership = self.membership = Membership(replica, elections, replication)
        transfers = self.transfers = Transfers(replica, elections, replication)
        self._handlers: dict[str, Callable[[Any, Any], None]] = {
            "VoteRequest": elections.on_vote,
            "BeginQuorumEpochRequest": elections.on_begin_epoch,
            "EndQuorumEpochRequest": elections.on_end_epoch,
            "FetchRequest": replication.on_fetch,
            "FetchSnapshotRequest": transfers.on_fetch_snapshot,
            "DescribeQuorumRequest": replication.on_describe_quorum,
            "AddRaftVoterRequest": membership.on_add_voter,
            "RemoveRaftVoterRequest": membership.on_remove_voter,
            "UpdateRaftVoterRequest": membership.on_update_voter,
        }
        self._responses: dict[str, Callable[[InFlight, Any], None]] = {
            "VoteRequest": elections.on_vote_response,
            "BeginQuorumEpochRequest": elections.on_begin_epoch_response,
            "EndQuorumEpochRequest": elections.on_end_epoch_response,
            "FetchRequest": replication.on_fetch_response,
            "FetchSnapshotRequest": transfers.on_fetch_snapshot_response,
            "ApiVersionsRequest": membership.on_api_versions_response,
            "UpdateRaftVoterRequest": membership.on_update_voter_response,
            "AddRaftVoterRequest": membership.on_join_response,
            "RemoveRaftVoterRequest": membership.on_join_response,
        }
        if replica.is_only_voter:
            elections.campaign()
        self._send_what_is_due()

    # --- state ---

    @property
    def role(self) -> Role:
        return self.replica.role

    @property
    def epoch(self) -> int:
        return self.replica.term.epoch

    @property
    def me(self) -> ReplicaKey:
        return self.replica.me

    @property
    def voters(self) -> VoterHistory:
        return self.replica.voters

    @property
    def leader_id(self) -> int:
        return self.replica.term.leader_id

    @property
    def leader_endpoint(self) -> tuple[str, int] | None:
        return self.replica.term.leader_endpoint

    @property
    def end_offset(self) -> int:
        """The offset of the next append. Batches that wait in the collector are counted."""
        return self.replica.collector.end_offset

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def durable_offset(self) -> int:
        return self.replica.syncs.durable_offset

    @property
    def is_voter(self) -> bool:
        return self.replica.is_voter

    @property
    def is_leader(self) -> bool:
        return isinstance(self.replica.role, Leader)

    @property
    def is_changing_log(self) -> bool:
        """Whether a change of the log is in progress. Meanwhile, nothing else on the loop may read the log."""
        return self.replica.effects.is_changing

    @property
    def download(self) -> OffsetAndEpoch | None:
        """The snapshot that this replica is downloading, or None."""
        role = self.role
        return role.download if isinstance(role, Follower) else None

    # --- inputs ---

    def tick(self, now_ms: int) -> None:
        self._pass_time(now_ms)
        if self.replica.effects.is_changing:
            return
        for sent in self.replica.requests.take_expired(self.replica.now_ms):
            self._unanswered(sent)
        self.replica.requests.end_back_offs(self.replica.now_ms)
        due_ms = self.replica.flush_due_ms
        if due_ms is not None and due_ms <= self.replica.now_ms:
            self.replica.flush()
        self.replication.expire_parked()
        self.membership.expire()
        self.elections.tick()
        self._send_what_is_due()

    def request(self, token: Any, request: Any, now_ms: int) -> None:
        """Handles a request of another replica or a client. The response appears among the outputs, now or later, with
        the same `token`."""
        self._pass_time(now_ms)
        if self.replica.effects.is_changing:
            self._deferred.append(lambda: self.request(token, request, now_ms))
            return
        cluster_id = getattr(request, "cluster_id", None)
        if cluster_id is not None and cluster_id != self.config.cluster_id:
            self.replica.answer(token, messages.refused(request, ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        self._handlers[request.NAME](token, request)
        self._send_what_is_due()

    def response(self, correlation: int, response: Any | None, now_ms: int) -> None:
        """Handles the response to the request with this correlation id. `response` is None if the connection failed or
        no response arrived in time.
        """
        self._pass_time(now_ms)
        if self.replica.effects.is_changing:
            self._deferred.append(lambda: self.response(correlation, response, now_ms))
            return
        sent = self.replica.requests.finish(correlation)
        if sent is None:
            return
        if response is None:
            self._unanswered(sent)
        else:
            self.replica.requests.welcome(sent.to.node_id)
            try:
                self._responses[sent.request.NAME](sent, response)
            except ImpossibleAnswerError as error:
                self._distrust(sent, error)
        self._send_what_is_due()

    def durable(self, sync: Sync, now_ms: int) -> None:
        """Reports that a sync from `take_sync` is done. All records that the sync covers now survive a power loss."""
        self._pass_time(now_ms)
        if self.replica.syncs.done(sync):
            self.replication.advance_high_watermark()
            self._send_what_is_due()

    def persisted(self, version: int, now_ms: int) -> None:
        """Reports that this version of the quorum state, from `take_state`, is on disk."""
        self._pass_time(now_ms)
        self.replica.term.persisted(version)
        self.elections.vote_persisted()
        self._send_what_is_due()

    def done(self, number: int, result: Any, now_ms: int) -> None:
        """Reports the result of the work that `take_work` returned with this number. If the work was a change of the
        log, also handles the messages that arrived during the change, in order.
        """
        self._pass_time(now_ms)
        effects = self.replica.effects
        effects.done(number, result)
        while self._deferred and not effects.is_changing:
            self._deferred.popleft()()
        self._send_what_is_due()

    def append(self, values: Sequence[control.Value]) -> int | None:
        """Appends records as one atomic batch. Only the leader can append. Returns the offset of the last record, or
        None if the batch would be larger than `max_batch_bytes`. The batch is committed when the high watermark is
        above that offset in the same epoch."""
        limit = self.config.max_batch_bytes
        data = control.data_batch(values, self.end_offset, self.epoch, self.replica.wall_ms(), limit)
        if data is None:
            return None
        end_offset = control.next_offset(data)
        self.replica.collect(data, end_offset)
        return end_offset - 1

    def why_not_dynamic(self) -> str | None:
        """Returns the reason why this replica cannot raise kraft.version to 1 now, or None if it can."""
        return self.membership.why_not_dynamic()

    def make_dynamic(self) -> int:
        """Raises kraft.version to 1; see `why_not_dynamic`. Returns the offset of the last record of this change."""
        return self.membership.make_dynamic()

    def resign(self) -> None:
        """Gives up the leadership if this replica leads, because the node is shutting down."""
        if self.is_leader:
            self.replica.flush()
            self.elections.resign()
            self._send_what_is_due()

    # --- outputs ---

    def take_outputs(self) -> list[Send | Answer]:
        """Returns the messages that can be sent now, in order."""
        return self.replica.outbox.take()

    def take_state(self) -> tuple[int, QuorumState] | None:
        """Returns the quorum state to write, with a version to pass to `persisted`, or None if the state on disk is up
        to date."""
        return self.replica.term.take_state(self.replica.voters)

    def take_sync(self) -> Sync | None:
        """Returns the next sync to perform, or None if all of the log is durable. When the sync is done, pass it to
        `durable`.
        """
        return None if self.replica.effects.is_changing else self.replica.syncs.take()

    def take_work(self) -> list[Work]:
        """Returns work on the log that the caller must perform. Pass each result to `done`. Only one change of the log
        runs at a time. During a change, the replica reads no log, handles no message and appends nothing."""
        return self.replica.effects.take()

    def is_moot(self, sync: Sync) -> bool:
        """Returns whether the log was truncated after `take_sync` returned `sync`. If so, the sync does not prove that
        the present records are durable.
        """
        return self.replica.syncs.is_moot(sync)

    def take_loaded_snapshot(self) -> OffsetAndEpoch | None:
        """Returns the snapshot that has replaced the log since the last call, or None. The caller must load this
        snapshot before it applies more records."""
        loaded, self.replica.loaded_snapshot = self.replica.loaded_snapshot, None
        return loaded

    @property
    def next_tick_ms(self) -> int:
        """The time at which `tick` is due. While a change of the log is in progress, no `tick` is due until `done` is
        called."""
        if self.replica.effects.is_changing:
            return NEVER
        times = (
            self.elections.deadline(),
            self.replica.requests.next_ms(),
            self.replication.next_ms(),
            self.membership.deadline(),
            self.replica.flush_due_ms,
        )
        return min([each for each in times if each is not None])

    # --- internals ---

    def _pass_time(self, now_ms: int) -> None:
        self.replica.now_ms = max(now_ms, self.replica.now_ms)

    def _role_changed(self, was: Role) -> None:
        if not self.is_leader:
            self.replication.refuse_parked()
        if isinstance(was, Leader):
            self.replica.drop_collected()
            self.membership.abandon(was)

    def _appended(self) -> None:
        self.replication.wake_parked()

    def _committed(self, role: Leader) -> None:
        self.membership.high_watermark_moved(role)
        if self.is_leader and self.replica.high_watermark >= self.log.end_offset:
            self.replica.flush()

    def _unanswered(self, sent: InFlight) -> None:
        self.replica.back_off(sent)
        role = self.role
        if isinstance(role, Follower):
            role.download = None
            role.is_unanswered = True
        elif isinstance(role, (Prospective, Candidate)):
            self.elections.unanswered(role, sent)

    def _distrust(self, sent: InFlight, error: ImpossibleAnswerError) -> None:
        """Ignores an impossible response. The replica sends the request again after DISTRUST_MS."""
        LOG.warning(
            "an answer of %s:%d to %s is impossible, and is ignored: %s",
            sent.to.host, sent.to.port, sent.request.NAME, error,
        )  # fmt: skip
        self.replica.requests.leave_alone(sent.to.node_id, self.replica.now_ms + DISTRUST_MS)
        role = self.role
        if isinstance(role, Follower):
            role.download = None
        if isinstance(role, (Prospective, Candidate)):
            role.asked.discard(sent.to.node_id)

    def _send_what_is_due(self) -> None:
        role = self.role
        if self.replica.effects.is_changing:
            return
        if isinstance(role, (Prospective, Candidate)):
            self.elections.ask_for_votes(role)
        elif isinstance(role, Leader):
            self.elections.announce(role)
        elif isinstance(role, Resigned):
            self.elections.announce_end(role)
        elif not (isinstance(role, Follower) and self.membership.change_myself(role)):
            self.replication.fetch()
