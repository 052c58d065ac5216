"""The state that all rules of Raft share: the role, the epoch, the log, the voters. And the changes of role."""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import attrgetter
from random import Random
from typing import Any, Final, NamedTuple

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message
from kafkacore.raft import control, messages
from kafkacore.raft.answer_checks import check_leader
from kafkacore.raft.collector import Collector
from kafkacore.raft.effects import Effects
from kafkacore.raft.log import OffsetAndEpoch, RaftLog
from kafkacore.raft.outbox import Outbox
from kafkacore.raft.requests import InFlight, Requests
from kafkacore.raft.roles import (
    NOBODY,
    Destination,
    Election,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from kafkacore.raft.syncs import Syncs
from kafkacore.raft.term import Term
from kafkacore.raft.voters import NO_VOTERS, Endpoints, ReplicaKey, Voter, VoterHistory, VoterSet

FIRST_WAIT: Final = 100  # a new quorum waits for 1 / FIRST_WAIT of the election timeout,
FIRST_SPREAD: Final = 25  # and for a random time of at most 1 / FIRST_SPREAD of it more
FETCH_SPREAD: Final = 20  # fetch timeouts of voters differ by at most 1 / FETCH_SPREAD
LOG: Final = logging.getLogger("kafkacore.raft")


class RaftConfig(NamedTuple):
    """`endpoints` are this node's controller listeners. An observer that knows no leader asks the `bootstrap` servers.
    The node id of an observer may be NOBODY: then leaders do not list it among their observers."""

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
    append_linger_ms: int = 0
    checkpoint_interval_ms: int = 60_000


class Replica:
    """`on_role` is called with the former role after a change of role, `on_append` after each append to the log. The
    rules, which are created after this object, set both."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        voters: VoterHistory,
        term: Term,
        random: Random,
        now_ms: int,
        wall_ms: Callable[[], int],
        *,
        on_role: Callable[[Role], None],
        on_append: Callable[[], None],
    ) -> None:
        self.config, self.log, self.voters, self.term = config, log, voters, term
        self.random = random
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        self._on_role, self._on_append = on_role, on_append
        self.me = ReplicaKey(config.node_id, config.directory_id)
        self.effects = Effects()
        self.collector = Collector(log, config.append_linger_ms, config.max_batch_bytes)
        self.requests = Requests(config.request_timeout_ms)
        self.syncs = Syncs(log)
        self.outbox = Outbox(term, self.syncs, self.requests)
        # The records in a snapshot were committed when it was made.
        snapshots = log.snapshots()
        self.high_watermark = max(log.start_offset, log.committed_offset, snapshots[-1].offset if snapshots else 0)
        self.doubted: tuple[int, int] | None = None  # epoch and id of the leader that this replica last gave up
        self.loaded_snapshot: OffsetAndEpoch | None = None  # received from a leader; the driver takes it
        self.role: Role = Unattached(self._first_election_deadline())
        # A leader must not continue in its epoch after a restart: it may have lost records that it has sent already
        # (KIP-595).
        if term.leader_id == config.node_id != NOBODY:
            self.role = Resigned(self.election_deadline(), set())

    # --- state ---

    @property
    def epoch(self) -> int:
        return self.term.epoch

    @property
    def leader_id(self) -> int:
        return self.term.leader_id

    @property
    def leader_endpoint(self) -> tuple[str, int] | None:
        return self.term.leader_endpoint

    @property
    def is_voter(self) -> bool:
        return self.config.can_vote and self.me in self.voters.latest

    @property
    def is_only_voter(self) -> bool:
        return self.config.can_vote and self.voters.latest.is_only(self.me)

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    # --- messages ---

    def answer(self, token: Any, response: Message) -> None:
        self.outbox.answer(token, response)

    def asked(self, token: Any, request: Any, index: str = "partition_index") -> Any | None:
        """Returns the partition of a request; `index` is the field with the partition's number. A request for anything
        but the metadata log is answered with INVALID_REQUEST, and this returns None."""
        found = messages.only(request, request.topics, attrgetter(index))
        if found is None:
            self.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
        return found

    def reply(self, token: Any, request: Any, **values: Any) -> None:
        """Answers a request for the one partition, and names the leader."""
        leader = self.term.leader_id, self.term.epoch
        self.outbox.answer(token, messages.answer(request, leader, self.term.leader_endpoint, **values))

    def can_send(self, node_id: int) -> bool:
        return self.requests.is_free(node_id, self.now_ms)

    def send(self, to: Destination, request: Message, after_sync: bool = False) -> None:
        """Sends a request; a node gets one request at a time. With `after_sync` the request waits until all records in
        the log are durable."""
        self.outbox.send(to, request, self.now_ms, self.log.end_offset if after_sync else 0)

    def back_off(self, sent: InFlight) -> None:
        """The node refused the request. This replica leaves it alone for a while."""
        self.requests.leave_alone(sent.to.node_id, self.now_ms + self.config.retry_backoff_ms)

    def destination(self, voter: Voter) -> Destination | None:
        endpoint = voter.endpoint(self.config.listener)
        return None if endpoint is None else Destination(voter.key.replica_id, *endpoint)

    def anybody(self) -> Destination | None:
        """Returns a voter or a bootstrap server to ask for the leader: another one at each call. A leader that this
        replica has given up comes last, when nobody else is left."""
        known = [
            self.destination(voter)
            for voter in self.voters.latest.voters()
            if voter.key.replica_id != self.me.replica_id
        ]
        asked = [each for each in known if each is not None] or [
            Destination(-2 - index, host, port) for index, (host, port) in enumerate(self.config.bootstrap)
        ]
        silent = NOBODY if self.doubted is None else self.doubted[1]
        asked = [each for each in asked if each.node_id != silent] or asked
        ready = [each for each in asked if self.can_send(each.node_id)]
        return self.random.choice(ready) if ready else None

    # --- the log ---

    def append(self, data: bytes) -> None:
        """As leader: appends a batch that begins at the end of the log. Call `flush` first, so that no batch waits."""
        self.log.append(data)
        self._on_append()

    def collect(self, data: bytes, end_offset: int) -> None:
        """As leader: appends a batch that begins at the collector's end. It goes to the log now, or later with other
        batches."""
        if self.collector.add(data, end_offset, self.high_watermark, self.now_ms):
            self.flush()

    def flush(self) -> None:
        """Appends the batches that wait in the collector."""
        batches = self.collector.take()
        for data in batches:
            self.log.append(data)
        if batches:
            self._on_append()

    def truncated(self) -> None:
        """The end of the log was removed. A sync that began before says nothing about records that come later."""
        self.syncs.truncated()
        self.voters.truncate(self.log.end_offset)

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, voters: VoterHistory) -> None:
        """A snapshot with these voters has taken the place of the log."""
        self.loaded_snapshot = snapshot_id
        self.syncs.restarted(snapshot_id.offset)
        self.high_watermark = max(self.high_watermark, snapshot_id.offset)
        self.voters = voters

    # --- roles and epochs ---

    def election_deadline(self) -> int:
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout + self.random.randrange(timeout)

    def fetch_deadline(self) -> int:
        """Voters lose their leader at the same time, so each waits a little less than the fetch timeout: two that
        stand for election at once split the votes."""
        timeout = self.config.fetch_timeout_ms
        less = self.random.randrange(max(1, timeout // FETCH_SPREAD)) if self.is_voter else 0
        return self.now_ms + timeout - less

    def _first_election_deadline(self) -> int:
        """A new quorum (no vote, empty logs) has no leader that an early election would disturb, so the wait is short.
        It is still long enough for a leader to be heard, because a voter with a wiped disk looks like a voter of a new
        quorum."""
        if self.term.epoch > 0 or self.log.end_offset > 0:
            return self.election_deadline()
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout // FIRST_WAIT + self.random.randrange(max(1, timeout // FIRST_SPREAD))

    def backoff_ms(self) -> int:
        """A random part of the longest election backoff, so that candidates do not collide again."""
        return self.random.randint(1, self.config.election_backoff_max_ms)

    def become(self, role: Role) -> None:
        was, self.role = self.role, role
        self.requests.give_up()
        if type(was) is not type(role):
            LOG.info("epoch %d: %s -> %s", self.epoch, type(was).__name__.lower(), type(role).__name__.lower())
        self._on_role(was)

    def become_unattached(self, epoch: int, delay_ms: int | None = None) -> None:
        """`delay_ms` is the time until this replica stands for election; None means a random time. If this replica
        waits already, a later epoch does not extend its wait. Otherwise a candidate that cannot win, and begins epoch
        after epoch, would keep a better candidate waiting for ever."""
        deadline = self.election_deadline() if delay_ms is None else self.now_ms + delay_ms
        if epoch > self.epoch:
            self.term.enter(epoch)
            if isinstance(self.role, (Unattached, Resigned)):
                deadline = self.role.election_deadline_ms
            elif isinstance(self.role, Election):
                deadline = self.role.deadline_ms
        self.become(Unattached(deadline))

    def become_follower(self, epoch: int, leader_id: int, endpoint: tuple[str, int] | None) -> None:
        if epoch > self.epoch:
            self.term.enter(epoch, leader_id=leader_id)
        self.term.leader_id = leader_id
        self.term.leader_endpoint = endpoint or self._voter_endpoint(leader_id)
        role = Follower(self.fetch_deadline())
        role.is_unanswered = self.doubted == (epoch, leader_id)
        self.become(role)

    def lose_leader(self) -> None:
        """This replica gives up the leader of its epoch. Other replicas may still name that leader."""
        if self.leader_id != NOBODY:
            self.doubted = (self.epoch, self.leader_id)
        self.term.leader_id = NOBODY
        self.become_unattached(self.epoch)

    def hear(
        self, epoch: int, leader_id: int, endpoint: tuple[str, int] | None = None, from_leader: bool = False
    ) -> bool:
        """Takes an epoch, and maybe its leader, from another replica. Returns True when that changed this replica's
        role. Raises ImpossibleAnswerError."""
        check_leader(leader_id, epoch)
        if epoch < self.epoch or leader_id == self.config.node_id != NOBODY:
            return False
        # A replica that doubts its leader does not believe replicas that still follow that leader.
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

    def _voter_endpoint(self, node_id: int) -> tuple[str, int] | None:
        voter = self.voters.latest.get(node_id)
        return voter.endpoint(self.config.listener) if voter else None
