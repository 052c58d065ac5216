"""The state that all rules of Raft share (the role, the epoch, the log, the voters), and the transitions
between roles.
"""

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
from kafkacore.raft.effects import BeginSegment, Effects
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

FIRST_WAIT: Final = 100  # The voters of a new quorum wait for 1 / FIRST_WAIT of the election timeout,
FIRST_SPREAD: Final = 25  # and then for a random time of up to 1 / FIRST_SPREAD of that timeout.
FETCH_SPREAD: Final = 20  # The fetch timeouts of voters differ by at most 1 / FETCH_SPREAD of the configured timeout.
LOG: Final = logging.getLogger("kafkacore.raft")


class RaftConfig(NamedTuple):
    """The configuration of a replica. `endpoints` are this node's controller listeners. An observer without a known
    leader sends Fetch to the `bootstrap` servers. An observer can have the node id NOBODY; leaders then do not list it
    among their observers.
    """

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
    """The shared state of a replica. After a change of role, `on_role` is called with the previous role. After each
    append to the log, `on_append` is called.
    """

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
        self._awaits_segment = False
        self.collector = Collector(log, config.append_linger_ms, config.max_batch_bytes)
        self.requests = Requests(config.request_timeout_ms)
        self.syncs = Syncs(log)
        self.outbox = Outbox(term, self.syncs, self.requests)
        # The records in a snapshot were committed when the snapshot was made.
        snapshots = log.snapshots()
        self.high_watermark = max(log.start_offset, log.committed_offset, snapshots[-1].offset if snapshots else 0)
        self.doubted: tuple[int, int] | None = None  # (epoch, leader id) of the last leader that this replica gave up
        # the last snapshot that this replica received from a leader; None once the driver has taken it
        self.loaded_snapshot: OffsetAndEpoch | None = None
        self.role: Role = Unattached(self._first_election_deadline())
        # A leader must not continue in its epoch after a restart, because it may have lost records that it had already
        # sent (KIP-595).
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
        """Returns the metadata partition of a request. `index` is the name of the field with the partition number. If
        the request is for another partition, answers with INVALID_REQUEST and returns None.
        """
        found = messages.only(request, request.topics, attrgetter(index))
        if found is None:
            self.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
        return found

    def reply(self, token: Any, request: Any, **values: Any) -> None:
        """Answers a request for the metadata partition. The response also reports the leader."""
        leader = self.term.leader_id, self.term.epoch
        self.outbox.answer(token, messages.answer(request, leader, self.term.leader_endpoint, **values))

    def can_send(self, node_id: int) -> bool:
        return self.requests.is_free(node_id, self.now_ms)

    def send(self, to: Destination, request: Message, after_sync: bool = False) -> None:
        """Sends a request. At most one request to a node is in flight. With `after_sync`, the request waits until all
        records in the log are durable.
        """
        self.outbox.send(to, request, self.now_ms, self.log.end_offset if after_sync else 0)

    def back_off(self, sent: InFlight) -> None:
        """Stops sending requests to a node for the back-off time, because the node has refused a request."""
        self.requests.leave_alone(sent.to.node_id, self.now_ms + self.config.retry_backoff_ms)

    def destination(self, voter: Voter) -> Destination | None:
        endpoint = voter.endpoint(self.config.listener)
        return None if endpoint is None else Destination(voter.key.replica_id, *endpoint)

    def anybody(self) -> Destination | None:
        """Returns a random voter or bootstrap server to ask for the leader, or None if no request can be sent now. A
        leader that this replica has given up is returned only if there is no other node.
        """
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
        """Appends all batches in the collector, and then a batch that begins at the collector's end. Only the leader
        can append.
        """
        self.collector.add(data, control.next_offset(data), self.high_watermark, self.now_ms)
        self.flush()

    def collect(self, data: bytes, end_offset: int) -> None:
        """Adds a batch that starts at the collector's end. The batch is appended now, or later together with other
        batches. Only the leader can append.
        """
        if self.collector.add(data, end_offset, self.high_watermark, self.now_ms):
            self.flush()

    def flush(self) -> None:
        """Appends the batches in the collector. While a new segment is being prepared, the batches stay in the
        collector and are in no log, so no replica can fetch or commit them.
        """
        if self._awaits_segment:
            return
        end_offset = self.log.end_offset
        while (data := self.collector.first) is not None:
            if not self.log.append(data):
                self._awaits_segment = True
                self.effects.beside(BeginSegment(), lambda _: self._segment_began())
                break
            self.collector.remove_first()
        if self.log.end_offset > end_offset:
            self._on_append()

    def _segment_began(self) -> None:
        self._awaits_segment = False
        self.flush()

    @property
    def flush_due_ms(self) -> int | None:
        """Returns the time at which `flush` is due, or None if no batch waits or all of them wait for a segment."""
        return None if self._awaits_segment else self.collector.due_ms

    def drop_collected(self) -> None:
        """Drops the batches in the collector, because this replica no longer leads and can never append them."""
        self.collector.clear()
        self.voters.truncate(self.log.end_offset)  # A dropped batch may have contained a change of the voters.

    def truncated(self) -> None:
        """Updates the state after the end of the log was removed. A sync that started before the truncation does not
        prove that later records are durable.
        """
        self.syncs.truncated()
        self.voters.truncate(self.log.end_offset)

    def snapshot_loaded(self, snapshot_id: OffsetAndEpoch, voters: VoterHistory) -> None:
        """Updates the state after a snapshot with these voters has replaced the log."""
        self.loaded_snapshot = snapshot_id
        self.syncs.restarted(snapshot_id.offset)
        self.high_watermark = max(self.high_watermark, snapshot_id.offset)
        self.voters = voters

    # --- roles and epochs ---

    def election_deadline(self) -> int:
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout + self.random.randrange(timeout)

    def fetch_deadline(self) -> int:
        """Returns the time at which this replica gives up its leader. The fetch timeouts of all voters start at about
        the same time when a leader fails. So each voter waits a random time a little below the fetch timeout. Otherwise
        simultaneous candidates would split the votes.
        """
        timeout = self.config.fetch_timeout_ms
        less = self.random.randrange(max(1, timeout // FETCH_SPREAD)) if self.is_voter else 0
        return self.now_ms + timeout - less

    def _first_election_deadline(self) -> int:
        """Returns the time of the first election. In a new quorum (no vote, empty logs) there is no leader that an
        early election could disturb, so the wait is short. But a voter with a wiped disk looks like a voter of a new
        quorum. So the wait is long enough for a message of an existing leader."""
        if self.term.epoch > 0 or self.log.end_offset > 0:
            return self.election_deadline()
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout // FIRST_WAIT + self.random.randrange(max(1, timeout // FIRST_SPREAD))

    def backoff_ms(self) -> int:
        """Returns a random part of the maximum election back-off, so that candidates do not collide again."""
        return self.random.randint(1, self.config.election_backoff_max_ms)

    def become(self, role: Role) -> None:
        was, self.role = self.role, role
        self.requests.give_up()
        if type(was) is not type(role):
            LOG.info("epoch %d: %s -> %s", self.epoch, type(was).__name__.lower(), type(role).__name__.lower())
        self._on_role(was)

    def become_unattached(self, epoch: int, delay_ms: int | None = None) -> None:
        """Stops following. `delay_ms` is the time until this replica starts an election; None means a random time. If
        this replica is already waiting, a later epoch does not extend its wait. Otherwise a candidate that cannot win,
        but starts one epoch after another, could delay a better candidate for ever."""
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
        """Forgets the leader of the current epoch. Another replica may still report that leader later."""
        if self.leader_id != NOBODY:
            self.doubted = (self.epoch, self.leader_id)
        self.term.leader_id = NOBODY
        self.become_unattached(self.epoch)

    def hear(
        self, epoch: int, leader_id: int, endpoint: tuple[str, int] | None = None, from_leader: bool = False
    ) -> bool:
        """Processes an epoch that another replica has reported, possibly with the epoch's leader. Returns True if this
        replica changed its role as a result. Raises ImpossibleAnswerError.
        """
        check_leader(leader_id, epoch)
        if epoch < self.epoch or leader_id == self.config.node_id != NOBODY:
            return False
        # A replica that sends pre-votes has given up its leader, so it ignores replicas that still follow that leader.
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
