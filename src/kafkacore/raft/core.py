"""The KRaft state machine. Messages, ticks and reports of durable writes go in; messages, answers and states to persist
come out.

It owns no clock, socket, file, thread or random source: the caller passes times and a `random.Random`. The core holds
back a message until the vote is on disk or the log is synced (Raft dissertation, 10.2.1): `take_outputs` returns only
messages that may go now.

The rules live beside it: `election` (votes, epochs, resignation), `replication` (Fetch on both sides, the high
watermark), `transfer` (snapshots on both sides), `membership` (voters that come and go).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message
from kafkacore.raft import control, election, membership, messages, replication, transfer
from kafkacore.raft.answer_checks import ImpossibleAnswerError, check_leader
from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.roles import (
    NOBODY,
    Candidate,
    Destination,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from kafkacore.raft.snapshots import SnapshotError, checked_batches
from kafkacore.raft.voters import BEFORE_LOG, NO_VOTERS, Endpoints, ReplicaKey, Voter, VoterHistory, VoterSet
from kafkacore.storage.quorum_state import QuorumState

LOG: Final = logging.getLogger("kafkacore.raft")
DISTRUST_MS: Final = (
    1000  # until a node is asked again that has given an impossible answer: one line a second in the log
)


class RaftConfig(NamedTuple):
    """`endpoints` are this node's controller listeners. An observer that knows no leader asks the `bootstrap` servers.
    The node id of an observer may be NOBODY: then no leader counts it."""

    node_id: int
    directory_id: Any
    cluster_id: str
    voters: VoterSet = NO_VOTERS
    bootstrap: tuple[tuple[str, int], ...] = ()
    can_vote: bool = True
    auto_join: bool = False
    listener: str = "CONTROLLER"
    endpoints: Endpoints = ()
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = messages.FETCH_MAX_BYTES
    fetch_snapshot_max_bytes: int = messages.FETCH_MAX_BYTES
    max_batch_bytes: int = control.MAX_BATCH_BYTES


class Send(NamedTuple):
    """A request to send; its response comes back with `correlation`."""

    to: Destination
    correlation: int
    request: Message


class Answer(NamedTuple):
    """A response to the request that was received with `token`."""

    token: Any
    response: Message


class Held(NamedTuple):
    output: Send | Answer
    state_version: int
    synced_offset: int


class InFlight(NamedTuple):
    correlation: int
    deadline_ms: int
    to: Destination
    request: Any


class Raft:
    """One replica. Give it `tick` whenever `next_tick_ms` is reached, and take its outputs after every call."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        state: QuorumState | None,
        random: Random,
        now_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        """`state` was persisted last; everything in the log is durable. `wall_ms` serves only the timestamps of batches
        and of DescribeQuorum."""
        self.config = config
        self.log = log
        self.random = random
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self.me = ReplicaKey(config.node_id, config.directory_id)
        self.voters = VoterHistory(config.voters)
        self.epoch = max(state.leader_epoch if state else 0, log.last_epoch)
        self.voted: ReplicaKey | None = None
        if state and state.leader_epoch == self.epoch and state.voted_id != NOBODY:
            self.voted = ReplicaKey(state.voted_id, state.voted_directory_id)
        self.leader_id = state.leader_id if state and state.leader_epoch == self.epoch else NOBODY
        self.leader_endpoint: tuple[str, int] | None = None
        self.durable_offset = log.end_offset
        self.high_watermark = self._snapshot_end()
        self.loaded_snapshot: OffsetAndEpoch | None = None  # received from a leader; the driver takes it
        self.parked: list[replication.Parked] = []
        self._correlation = 0
        self._tail = 0  # a count of truncations
        self._in_flight: dict[int, InFlight] = {}
        self._backoff_until: dict[int, int] = {}
        self._held: deque[Held] = deque()
        self._state_version = self._required_version = self._persisted_version = 0
        self._written: QuorumState | None = state
        self._stated: tuple[Any, ...] | None = None  # the values in the last state to write
        self._learn_voters()
        self.role: Role = Unattached(self._election_deadline())
        # A leader must not go on in its epoch after a restart: it may have lost what it sent then (KIP-595).
        if self.leader_id == config.node_id != NOBODY:
            self.role = Resigned(self._election_deadline(), set())
        if self.is_only_voter:
            election.campaign(self)
        self._send_what_is_due()

    # --- state ---

    @property
    def is_voter(self) -> bool:
        return self.config.can_vote and self.me in self.voters.latest

    @property
    def is_only_voter(self) -> bool:
        return self.config.can_vote and self.voters.latest.is_only(self.me)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    # --- inputs ---

    def tick(self, now_ms: int) -> None:
        self.now_ms = max(now_ms, self.now_ms)
        for node_id, sent in list(self._in_flight.items()):
            if sent.deadline_ms <= self.now_ms:
                self._fail(node_id)
        replication.expire_parked(self)
        membership.expire(self)
        election.tick(self)
        self._send_what_is_due()

    def request(self, token: Any, request: Any, now_ms: int) -> None:
        """Takes a request of another replica or a client. Its answer comes out with `token`, now or later."""
        self.now_ms = max(now_ms, self.now_ms)
        cluster_id = getattr(request, "cluster_id", None)
        if cluster_id is not None and cluster_id != self.config.cluster_id:
            self.answer(token, messages.refused(request, ErrorCode.INCONSISTENT_CLUSTER_ID))
            return
        _HANDLERS[request.NAME](self, token, request)
        self._send_what_is_due()

    def response(self, correlation: int, response: Any | None, now_ms: int) -> None:
        """Takes the response to a Send; None when the connection failed or no response came."""
        self.now_ms = max(now_ms, self.now_ms)
        node_id = next((each for each, sent in self._in_flight.items() if sent.correlation == correlation), None)
        if node_id is None:
            return
        if response is None:
            self._fail(node_id)
        else:
            sent = self._in_flight.pop(node_id)
            self._backoff_until.pop(node_id, None)
            try:
                _RESPONSES[sent.request.NAME](self, sent, response)
            except ImpossibleAnswerError as error:
                self._distrust(sent, error)
        self._send_what_is_due()

    def durable(self, sync: tuple[int, int], now_ms: int) -> None:
        """The sync that `take_sync` asked for is done: the records it covers survive power loss."""
        self.now_ms = max(now_ms, self.now_ms)
        if self.is_moot(sync):
            return
        self.durable_offset = max(self.durable_offset, sync[1])
        replication.advance_high_watermark(self)
        self._send_what_is_due()

    def persisted(self, version: int, now_ms: int) -> None:
        """The quorum state that `take_state` returned as `version` is on disk."""
        self.now_ms = max(now_ms, self.now_ms)
        self._persisted_version = max(self._persisted_version, version)
        election.vote_persisted(self)
        self._send_what_is_due()

    def append(self, values: Sequence[control.Value]) -> int | None:
        """Leader only: appends records as one atomic batch. Returns the offset of the last one; None when the batch
        would be over `max_batch_bytes`. The batch is committed when the high watermark is above that offset in the
        same epoch."""
        limit = self.config.max_batch_bytes
        data = control.data_batch(values, self.log.end_offset, self.epoch, self.wall_ms(), limit)
        if data is None:
            return None
        self.append_batch(data)
        return self.log.end_offset - 1

    def resign(self) -> None:
        """Gives the leadership up if this replica leads: the node shuts down."""
        if isinstance(self.role, Leader):
            election.resign(self)
            self._send_what_is_due()

    # --- outputs ---

    def take_outputs(self) -> list[Send | Answer]:
        """The messages that may be sent now, in order."""
        ready: list[Send | Answer] = []
        kept: deque[Held] = deque()
        current = {sent.correlation for sent in self._in_flight.values()}
        for held in self._held:
            if isinstance(held.output, Send) and held.output.correlation not in current:
                continue  # its request was given up while it waited
            if held.state_version <= self._persisted_version and held.synced_offset <= self.durable_offset:
                ready.append(held.output)
            else:
                kept.append(held)
        self._held = kept
        return ready

    def take_state(self) -> tuple[int, QuorumState] | None:
        """The quorum state to write, with a version for `persisted`; None when the state on disk is right."""
        stated = (self.leader_id, self.epoch, self.voted, self.voters.kraft_version, self.voters.latest)
        if stated == self._stated and self._required_version <= self._state_version:
            return None
        self._stated = stated
        known = self.voters.kraft_version
        state = QuorumState(
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            voted_id=self.voted.replica_id if self.voted else NOBODY,
            voted_directory_id=self.voted.directory_id if self.voted and known else QuorumState().voted_directory_id,
            voters=tuple([] if known else [voter.key.replica_id for voter in self.voters.latest.voters()]),
        )
        if state == self._written and self._required_version <= self._state_version:
            return None
        self._written = state
        self._state_version += 1
        return self._state_version, state

    def take_sync(self) -> tuple[int, int] | None:
        """The sync that is due, for `durable`; None when all of the log is durable."""
        return (self._tail, self.log.end_offset) if self.durable_offset < self.log.end_offset else None

    def is_moot(self, sync: tuple[int, int]) -> bool:
        """The log was truncated after `take_sync` returned `sync`: the sync proves nothing any more."""
        return sync[0] != self._tail

    @property
    def next_tick_ms(self) -> int:
        """The time at which `tick` is due."""
        due = election.deadline(self)
        for sent in self._in_flight.values():
            due = min(due, sent.deadline_ms)
        for until in self._backoff_until.values():
            if until > self.now_ms:
                due = min(due, until)
        for parked in self.parked:
            due = min(due, parked.deadline_ms)
        if isinstance(self.role, Leader) and self.role.change is not None:
            due = min(due, self.role.change.deadline_ms)
        return due

    # --- used by the modules with the rules ---

    def answer(self, token: Any, response: Message) -> None:
        # The epoch and its vote must be on disk before anything is sent in that epoch.
        self._held.append(Held(Answer(token, response), self._required_version, 0))

    def reply(self, token: Any, request: Any, **values: Any) -> None:
        self.answer(token, messages.answer(request, (self.leader_id, self.epoch), self.leader_endpoint, **values))

    def can_send(self, node_id: int) -> bool:
        return node_id not in self._in_flight and self._backoff_until.get(node_id, 0) <= self.now_ms

    @property
    def waits_for_answer(self) -> bool:
        return bool(self._in_flight)

    def send(self, to: Destination, request: Message, after_sync: bool = False) -> None:
        """One request to a node at a time. `after_sync`: it goes when all records in the log are durable."""
        self._correlation += 1
        self._in_flight[to.node_id] = InFlight(
            self._correlation, self.now_ms + self.config.request_timeout_ms, to, request
        )
        synced = self.log.end_offset if after_sync else 0
        self._held.append(Held(Send(to, self._correlation, request), self._required_version, synced))

    def append_batch(self, data: bytes) -> None:
        self.log.append(data)
        replication.log_grew(self)

    def backoff_ms(self) -> int:
        """A random part of the longest election backoff, so that candidates do not collide again."""
        return self.random.randint(1, self.config.election_backoff_max_ms)

    def new_epoch(self, epoch: int, voted: ReplicaKey | None = None, leader_id: int = NOBODY) -> None:
        """Enters an epoch or votes in it. Messages that follow wait until that is on disk."""
        self.epoch, self.voted, self.leader_id, self.leader_endpoint = epoch, voted, leader_id, None
        self._required_version = self._state_version + 1

    def vote_is_persisted(self) -> bool:
        return self._persisted_version >= self._required_version

    def become(self, role: Role) -> None:
        was, self.role = self.role, role
        self._in_flight.clear()
        if type(was) is not type(role):
            LOG.info("epoch %d: %s -> %s", self.epoch, type(was).__name__.lower(), type(role).__name__.lower())
        if not isinstance(role, Leader):
            replication.refuse_parked(self)
        if isinstance(was, Leader):
            membership.abandon(self, was)

    def become_unattached(self, epoch: int, delay_ms: int | None = None) -> None:
        if epoch > self.epoch:
            self.new_epoch(epoch)
        deadline = self._election_deadline() if delay_ms is None else self.now_ms + delay_ms
        self.become(Unattached(deadline))

    def become_follower(self, epoch: int, leader_id: int, endpoint: tuple[str, int] | None) -> None:
        if epoch > self.epoch:
            self.new_epoch(epoch, leader_id=leader_id)
        self.leader_id = leader_id
        self.leader_endpoint = endpoint or self._voter_endpoint(leader_id)
        self.become(Follower(self.now_ms + self.config.fetch_timeout_ms))

    def hear(
        self, epoch: int, leader_id: int, endpoint: tuple[str, int] | None = None, from_leader: bool = False
    ) -> bool:
        """Takes an epoch, and maybe its leader, from another replica. True when this replica's role changed. Raises
        ImpossibleAnswerError."""
        check_leader(leader_id, epoch)
        if epoch < self.epoch or leader_id == self.config.node_id != NOBODY:
            return False
        # A replica that doubts its leader does not believe others that still follow it.
        doubts = isinstance(self.role, Prospective) and self.leader_id == leader_id and not from_leader
        if leader_id >= 0 and (epoch > self.epoch or not (doubts or isinstance(self.role, (Follower, Leader)))):
            known = endpoint or self._voter_endpoint(leader_id)
            if known is None:
                return self._hear_epoch(epoch)
            self.become_follower(epoch, leader_id, known)
            return True
        return self._hear_epoch(epoch)

    def _hear_epoch(self, epoch: int) -> bool:
        if epoch > self.epoch:
            self.become_unattached(epoch)
            return True
        return False

    def destination(self, voter: Voter) -> Destination | None:
        endpoint = voter.endpoint(self.config.listener)
        return None if endpoint is None else Destination(voter.key.replica_id, *endpoint)

    def anybody(self) -> Destination | None:
        """A voter or a bootstrap server that may know the leader, another one each time."""
        known = [
            self.destination(voter)
            for voter in self.voters.latest.voters()
            if voter.key.replica_id != self.me.replica_id
        ]
        asked = [each for each in known if each is not None] or [
            Destination(-2 - index, host, port) for index, (host, port) in enumerate(self.config.bootstrap)
        ]
        ready = [each for each in asked if self.can_send(each.node_id)]
        return self.random.choice(ready) if ready else None

    def truncated(self) -> None:
        """The log lost its end. A sync that is under way proves nothing about the records that come now."""
        self._tail += 1
        self.durable_offset = min(self.durable_offset, self.log.end_offset)
        self.voters.truncate(self.log.end_offset)

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch) -> None:
        self.loaded_snapshot = snapshot_id
        self._tail += 1
        self.durable_offset = snapshot_id.offset
        self.high_watermark = max(self.high_watermark, snapshot_id.offset)
        self.voters.forget_all()
        self._learn_voters()

    # --- inside ---

    def _snapshot_end(self) -> int:
        # The records in a snapshot were committed when it was made.
        snapshots = self.log.snapshots()
        return max(self.log.start_offset, snapshots[-1].offset if snapshots else 0)

    def _voter_endpoint(self, node_id: int) -> tuple[str, int] | None:
        voter = self.voters.latest.get(node_id)
        return voter.endpoint(self.config.listener) if voter else None

    def _learn_voters(self) -> None:
        """Raises SnapshotError. The checkpoint at offset 0 may be damaged when the log has the voters too."""
        damage: SnapshotError | None = None
        snapshots = self.log.snapshots()
        if snapshots:
            last, empty = snapshots[-1].offset - 1, True
            try:
                for batch in checked_batches(self.log, snapshots[-1]):
                    empty = False
                    if batch.is_control:
                        control.learn_voters(self.voters, batch.data, BEFORE_LOG if last < 0 else last)
                if empty:
                    raise SnapshotError(snapshots[-1], "is empty")
            except SnapshotError as error:
                damage = error
        offset = self.log.start_offset
        while offset < self.log.end_offset:
            data = self.log.read(offset, messages.FETCH_MAX_BYTES)
            control.learn_voters(self.voters, data)
            offset = replication.next_offset(data)
        if damage is not None and (snapshots[-1].offset > 0 or not self.voters.in_log):
            raise damage

    def _election_deadline(self) -> int:
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout + self.random.randrange(timeout)

    def _fail(self, node_id: int) -> None:
        del self._in_flight[node_id]
        self._backoff_until[node_id] = self.now_ms + self.config.retry_backoff_ms
        if isinstance(self.role, Follower):
            self.role.download = None

    def _distrust(self, sent: InFlight, error: ImpossibleAnswerError) -> None:
        """Nothing of the answer was used. The request is sent again after a while."""
        LOG.warning(
            "an answer of %s:%d to %s is impossible, and is ignored: %s",
            sent.to.host, sent.to.port, sent.request.NAME, error,
        )  # fmt: skip
        self._backoff_until[sent.to.node_id] = self.now_ms + DISTRUST_MS
        if isinstance(self.role, Follower):
            self.role.download = None
        if isinstance(self.role, (Prospective, Candidate)):
            self.role.asked.discard(sent.to.node_id)

    def _send_what_is_due(self) -> None:
        role = self.role
        if isinstance(role, (Prospective, Candidate)):
            election.ask_for_votes(self, role)
        elif isinstance(role, Leader):
            election.announce(self, role)
        elif isinstance(role, Resigned):
            election.announce_end(self, role)
        elif not (isinstance(role, Follower) and membership.change_myself(self, role)):
            replication.fetch(self)


_HANDLERS: Final[dict[str, Callable[[Raft, Any, Any], None]]] = {
    "VoteRequest": election.on_vote,
    "BeginQuorumEpochRequest": election.on_begin_epoch,
    "EndQuorumEpochRequest": election.on_end_epoch,
    "FetchRequest": replication.on_fetch,
    "FetchSnapshotRequest": transfer.on_fetch_snapshot,
    "DescribeQuorumRequest": replication.on_describe_quorum,
    "AddRaftVoterRequest": membership.on_add_voter,
    "RemoveRaftVoterRequest": membership.on_remove_voter,
    "UpdateRaftVoterRequest": membership.on_update_voter,
}
_RESPONSES: Final[dict[str, Callable[[Raft, Any, Any], None]]] = {
    "VoteRequest": election.on_vote_response,
    "BeginQuorumEpochRequest": election.on_begin_epoch_response,
    "EndQuorumEpochRequest": election.on_end_epoch_response,
    "FetchRequest": replication.on_fetch_response,
    "FetchSnapshotRequest": transfer.on_fetch_snapshot_response,
    "ApiVersionsRequest": membership.on_api_versions_response,
    "UpdateRaftVoterRequest": membership.on_update_voter_response,
    "AddRaftVoterRequest": membership.on_join_response,
    "RemoveRaftVoterRequest": membership.on_join_response,
}
