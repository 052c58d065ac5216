"""Elections: pre-votes and votes, the start and the end of an epoch, and leaders that lose contact with the majority
(KIP-595, KIP-650, KIP-853, KIP-996)."""

from __future__ import annotations

import logging
from typing import Any, Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import control, messages
from kafkacore.raft.replica import Replica
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import (
    NOBODY,
    Candidate,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    Unattached,
)
from kafkacore.raft.voters import ReplicaKey, Voter
from kafkacore.storage.quorum_state import LAST_EPOCH

NEVER: Final = 1 << 62
OWN_EPOCHS: Final = 1 << 24
LOG: Final = logging.getLogger("kafkacore.raft")
CHECK_QUORUM_FACTOR: Final = 1.5  # a leader resigns if no majority has fetched for this multiple of the fetch timeout


class Elections:
    """Requests votes, grants votes, and determines the leader."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def deadline(self) -> int:
        """Returns the time at which `tick` must be called to check the timeouts of the current role."""
        replica = self._replica
        role = replica.role
        if isinstance(role, Leader):
            others = [each for each in role.voters.values() if each.key.replica_id != replica.me.replica_id]
            # Leave out nodes to which this replica currently sends nothing, after a failure. The deadline for those
            # nodes comes from `Requests.next_ms`.
            told = [each.announced_until_ms for each in others if replica.can_send(each.key.replica_id)]
            return min([role.check_quorum_deadline_ms, *told]) if others else NEVER
        if isinstance(role, Follower):
            return role.fetch_deadline_ms
        if isinstance(role, (Prospective, Candidate)):
            return role.deadline_ms
        # A leader that was removed from the voters resigns, and at this deadline looks for the new leader.
        return role.election_deadline_ms if replica.is_voter or isinstance(role, Resigned) else NEVER

    def tick(self) -> None:
        replica = self._replica
        if self.deadline() > replica.now_ms:
            return
        role = replica.role
        if isinstance(role, Leader):
            if role.check_quorum_deadline_ms <= replica.now_ms:
                self._check_quorum(role)
        elif isinstance(role, Follower):
            if replica.is_voter:
                self.campaign()
            else:
                replica.lose_leader()
        elif isinstance(role, (Prospective, Candidate)):
            self._lose()
        elif replica.is_voter:
            self.campaign()
        else:
            replica.lose_leader()

    # --- candidate ---

    def campaign(self) -> None:
        """Sends pre-votes, which ask the voters whether this replica could win an election. The only voter of a quorum
        skips the pre-votes."""
        replica = self._replica
        if replica.is_only_voter:
            self._become_candidate()
            return
        role = Prospective(replica.election_deadline())
        role.granted.add(replica.me)
        replica.become(role)

    def _become_candidate(self) -> None:
        replica = self._replica
        if replica.epoch + 1 >= LAST_EPOCH:
            LOG.error(
                "no leader can be elected after epoch %d, the greatest that a quorum can use. Give the controllers new "
                "directories with `storage format`, from a snapshot of the metadata",
                replica.epoch,
            )
            replica.become_unattached(replica.epoch)
            return
        replica.term.enter(replica.epoch + 1, voted=replica.me)
        replica.become(Candidate(replica.election_deadline()))

    def vote_persisted(self) -> None:
        """Counts the candidate's own vote, which counts only when it is on disk. Called when the disk write is done."""
        replica = self._replica
        role = replica.role
        if isinstance(role, Candidate) and replica.term.is_persisted and replica.me not in role.granted:
            role.granted.add(replica.me)
            self._count(role)

    def ask_for_votes(self, role: Prospective | Candidate) -> None:
        replica = self._replica
        pre_vote = isinstance(role, Prospective)
        for voter in replica.voters.latest.voters():
            key = voter.key
            if key.replica_id in role.asked or key.matches(replica.me) or not replica.can_send(key.replica_id):
                continue
            to = replica.destination(voter)
            if to is not None:
                role.asked.add(key.replica_id)
                cluster_id = replica.config.cluster_id
                request = messages.vote(cluster_id, key, replica.me, replica.epoch, replica.end, pre_vote)
                replica.send(to, request)

    def on_vote_response(self, sent: InFlight, response: Any) -> None:
        replica = self._replica
        error, partition = messages.answered(response)
        role = replica.role
        if not isinstance(role, (Prospective, Candidate)):
            return
        if partition is not None and self._hear_from(response, partition):
            return
        asked = sent.request.topics[0].partitions[0]
        key = ReplicaKey(sent.to.node_id, asked.voter_directory_id)
        if error == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
            # This voter's release does not support pre-votes, so its UNSUPPORTED_VERSION counts as a granted pre-vote
            # (KIP-996).
            role.granted.add(key)
        elif error or partition is None:
            role.asked.discard(sent.to.node_id)
            replica.back_off(sent)
            return
        else:
            (role.granted if partition.vote_granted else role.rejected).add(key)
        role.silent.discard(sent.to.node_id)
        self._count(role)

    def unanswered(self, role: Prospective | Candidate, sent: InFlight) -> None:
        """Notes that a voter did not answer. This replica sends the voter another request after the back-off."""
        role.asked.discard(sent.to.node_id)
        role.silent.add(sent.to.node_id)
        self._count(role)

    def _count(self, role: Prospective | Candidate) -> None:
        voters = self._replica.voters.latest
        majority = len(voters) // 2 + 1
        granted = [key for key in role.granted if key in voters]
        rejected = [key for key in role.rejected if key in voters]
        if len(granted) >= majority:
            if isinstance(role, Prospective):
                self._become_candidate()
            else:
                self._become_leader(frozenset(granted))
        elif len(voters) - len(rejected) < majority or _is_split(role, len(voters)):
            self._lose()

    def _lose(self) -> None:
        """Ends a lost election. If this replica still knows a leader of the current epoch, it follows that leader
        again. Otherwise it waits for a random time.
        """
        replica = self._replica
        if isinstance(replica.role, Prospective) and replica.leader_id not in (NOBODY, replica.me.replica_id):
            replica.become_follower(replica.epoch, replica.leader_id, replica.leader_endpoint)
        else:
            replica.become_unattached(replica.epoch, replica.backoff_ms())

    def _become_leader(self, granting: frozenset[ReplicaKey]) -> None:
        replica = self._replica
        now = replica.now_ms
        voters = {voter.key.replica_id: Progress(voter.key) for voter in replica.voters.latest.voters()}
        replica.term.leader_id = replica.me.replica_id
        # Until the records of this epoch are in the log, the voter set may still have the endpoints of an earlier run
        # of this node.
        own = Voter(replica.me, replica.config.endpoints)
        known = replica.voters.latest.get(replica.me.replica_id)
        listener = replica.config.listener
        replica.term.leader_endpoint = own.endpoint(listener) or (known and known.endpoint(listener))
        start = replica.log.end_offset
        replica.become(Leader(start, voters, granting, now + self._check_quorum_ms()))
        change = control.leader_change(replica.me.replica_id, [each.key for each in voters.values()], granting)
        records = control.start_of_epoch(replica.voters, change, own)
        data = control.control_batch(records, start, replica.epoch, replica.wall_ms())
        control.learn_voters(replica.voters, data)
        replica.append(data)

    # --- voter ---

    def on_vote(self, token: Any, request: Any) -> None:
        replica = self._replica
        asked = replica.asked(token, request)
        if asked is None:
            return
        legal = (
            asked.last_offset_epoch <= asked.replica_epoch
            if asked.pre_vote
            else asked.last_offset_epoch < asked.replica_epoch
        )
        if asked.last_offset < 0 or asked.last_offset_epoch < 0 or not legal:
            replica.reply(token, request, error_code=ErrorCode.INVALID_REQUEST, vote_granted=False)
            return
        refusal = self._epoch_refusal(asked.replica_epoch, asked.replica_id)
        if refusal:
            replica.reply(token, request, error_code=refusal, vote_granted=False)
            return
        if asked.replica_epoch > replica.epoch:
            replica.become_unattached(asked.replica_epoch)
        if not self._is_for_me(request.voter_id, asked.voter_directory_id):
            replica.reply(token, request, error_code=ErrorCode.INVALID_VOTER_KEY, vote_granted=False)
            return
        key = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        up_to_date = (asked.last_offset_epoch, asked.last_offset) >= (replica.log.last_epoch, replica.log.end_offset)
        granted = self._grants(key, up_to_date, asked.pre_vote)
        if not granted and isinstance(replica.role, Prospective):
            # The sender has lost the leader too, so it may now grant the pre-vote that it refused before. This replica
            # may need that vote to win.
            replica.role.ask_again(asked.replica_id)
        if granted and not asked.pre_vote and replica.term.voted is None:
            replica.term.enter(replica.epoch, voted=key)
            # A replica that has just voted starts a new election timeout, to give the candidate time to win.
            replica.become_unattached(replica.epoch)
        replica.reply(token, request, error_code=ErrorCode.NONE, vote_granted=granted)

    def _grants(self, key: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        replica = self._replica
        role = replica.role
        if pre_vote:
            if isinstance(role, Leader):
                return False
            if isinstance(role, Follower):
                return up_to_date and not role.has_fetched
            return up_to_date
        if replica.term.voted is not None:
            return replica.term.voted.matches(key) and not isinstance(role, Leader)
        return up_to_date and replica.leader_id == NOBODY and isinstance(role, (Unattached, Prospective))

    def on_begin_epoch(self, token: Any, request: Any) -> None:
        replica = self._replica
        asked = replica.asked(token, request)
        if asked is None:
            return
        refusal = self._epoch_refusal(asked.leader_epoch, asked.leader_id)
        if not refusal:
            endpoint = self._listener(request.leader_endpoints)
            replica.hear(asked.leader_epoch, asked.leader_id, endpoint, from_leader=True)
            if not self._is_for_me(request.voter_id, asked.voter_directory_id):
                refusal = ErrorCode.INVALID_VOTER_KEY
        replica.reply(token, request, error_code=refusal)

    def on_end_epoch(self, token: Any, request: Any) -> None:
        replica = self._replica
        asked = replica.asked(token, request)
        if asked is None:
            return
        refusal = self._epoch_refusal(asked.leader_epoch, asked.leader_id)
        if not refusal:
            replica.hear(asked.leader_epoch, asked.leader_id, self._listener(request.leader_endpoints))
            role = replica.role
            if isinstance(role, Follower) and replica.leader_id == asked.leader_id and replica.is_voter:
                role.fetch_deadline_ms = replica.now_ms + self._succession_delay_ms(asked)
        replica.reply(token, request, error_code=refusal)

    def _succession_delay_ms(self, asked: Any) -> int:
        """Returns how long this replica waits before it starts an election. The first replica in the list of preferred
        successors does not wait. A later position in the list means a longer wait."""
        replica = self._replica
        named = [each.candidate_id for each in asked.preferred_candidates] or list(asked.preferred_successors)
        if replica.me.replica_id not in named:
            return replica.config.election_backoff_max_ms
        place = named.index(replica.me.replica_id)
        step = replica.config.retry_backoff_ms << min(place, 10)
        return 0 if place == 0 else min(replica.config.election_backoff_max_ms, replica.random.randint(1, step))

    def _epoch_refusal(self, epoch: int, replica_id: int) -> ErrorCode:
        if epoch < self._replica.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        # A replica that is the only voter reserves the last epochs for its own elections. Otherwise one request of
        # another node could use up all epochs, and no leader could be elected again.
        end = LAST_EPOCH - OWN_EPOCHS if self._replica.is_only_voter else LAST_EPOCH
        if epoch >= end:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.INVALID_REQUEST if replica_id < 0 else ErrorCode.NONE

    def _is_for_me(self, voter_id: int, directory_id: Any) -> bool:
        return voter_id < 0 or self._replica.me.matches(ReplicaKey(voter_id, directory_id))

    def _listener(self, endpoints: Any) -> tuple[str, int] | None:
        for each in endpoints:
            if each.name == self._replica.config.listener:
                return each.host, each.port
        return (endpoints[0].host, endpoints[0].port) if endpoints else None

    def _hear_from(self, response: Any, partition: Any) -> bool:
        leader_id, epoch = messages.leader_of(partition)
        return self._replica.hear(epoch, leader_id, messages.endpoint_of(response, leader_id))

    # --- leader ---

    def _check_quorum_ms(self) -> int:
        return int(self._replica.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    def heard_of_voter(self, role: Leader, key: ReplicaKey) -> None:
        """Notes that a voter has fetched from this leader. The leader resigns if no majority of the voters fetches
        (check quorum, KIP-595). Ignores a replica that has a voter's id but another directory id, for example because
        the replica has a new disk."""
        voter = role.voters.get(key.replica_id)
        if voter is None or key.replica_id == self._replica.me.replica_id or not voter.key.matches(key):
            return
        role.fetched.add(key.replica_id)
        heard = len(role.fetched) + (self._replica.me.replica_id in role.voters)
        if heard > len(role.voters) // 2:
            self.begin_quorum_check(role)

    def begin_quorum_check(self, role: Leader) -> None:
        """Starts a new period in which a majority must fetch."""
        role.fetched.clear()
        role.check_quorum_deadline_ms = self._replica.now_ms + self._check_quorum_ms()

    def _check_quorum(self, role: Leader) -> None:
        if role.voters.keys() - {self._replica.me.replica_id}:
            self.resign()
        else:
            self.begin_quorum_check(role)

    def announce(self, role: Leader) -> None:
        """Sends BeginQuorumEpoch to voters that do not fetch from this leader."""
        replica = self._replica
        for voter in replica.voters.latest.voters():
            progress = role.voters.get(voter.key.replica_id)
            if progress is None or voter.key.matches(replica.me) or progress.announced_until_ms > replica.now_ms:
                continue
            to = replica.destination(voter)
            if to is not None and replica.can_send(to.node_id):
                progress.announced_until_ms = replica.now_ms + replica.config.fetch_timeout_ms // 2
                config, me = replica.config, replica.me.replica_id
                request = messages.begin_epoch(config.cluster_id, voter.key, me, replica.epoch, config.endpoints)
                replica.send(to, request)

    def on_begin_epoch_response(self, sent: InFlight, response: Any) -> None:
        _, partition = messages.answered(response)
        if partition is not None:
            self._hear_from(response, partition)

    def resign(self) -> None:
        replica = self._replica
        role = replica.role
        assert isinstance(role, Leader)
        others = {replica_id for replica_id in role.voters if replica_id != replica.me.replica_id}
        successors = sorted(
            [each for each in role.voters.values() if each.key.replica_id in others],
            key=lambda each: (-each.end_offset, each.key),
        )
        replica.become(Resigned(replica.election_deadline(), others))
        for progress in successors:
            voter = replica.voters.latest.get(progress.key.replica_id)
            to = replica.destination(voter) if voter else None
            if to is not None:
                self._send_end(to, [each.key for each in successors])

    def announce_end(self, role: Resigned) -> None:
        replica = self._replica
        for replica_id in sorted(role.unacknowledged):
            voter = replica.voters.latest.get(replica_id)
            to = replica.destination(voter) if voter else None
            if to is not None and replica.can_send(replica_id):
                self._send_end(to, [ReplicaKey(each) for each in sorted(role.unacknowledged)])

    def _send_end(self, to: Any, successors: list[ReplicaKey]) -> None:
        replica = self._replica
        config, me = replica.config, replica.me.replica_id
        replica.send(to, messages.end_epoch(config.cluster_id, me, replica.epoch, successors, config.endpoints))

    def on_end_epoch_response(self, sent: InFlight, response: Any) -> None:
        _, partition = messages.answered(response)
        if partition is None or self._hear_from(response, partition):
            return
        if isinstance(self._replica.role, Resigned):
            self._replica.role.unacknowledged.discard(sent.to.node_id)


def _is_split(role: Prospective | Candidate, voters: int) -> bool:
    """Returns whether every reachable voter has answered and no majority has granted its vote. Voters do not change
    their vote within an epoch, so the candidate need not wait for the end of its election timeout.
    """
    answered = len(role.granted) + len(role.rejected)
    return isinstance(role, Candidate) and bool(role.rejected) and answered + len(role.silent) == voters
