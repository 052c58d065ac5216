"""Elections: pre-votes and votes, epochs beginning and ending, a leader that loses its quorum (KIP-595, 650, 853,
996)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kafkacore.protocol.errors import ErrorCode
from kafkacore.raft import control, messages
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

if TYPE_CHECKING:
    from kafkacore.raft.core import InFlight, Raft

NEVER: Final = 1 << 62
OWN_EPOCHS: Final = 1 << 24
LOG: Final = logging.getLogger("kafkacore.raft")
CHECK_QUORUM_FACTOR: Final = 1.5  # of the fetch timeout: a leader that hears less than a majority in it resigns


def deadline(raft: Raft) -> int:
    """The time at which `tick` must look at the role again."""
    role = raft.role
    if isinstance(role, Leader):
        others = [each for each in role.voters.values() if each.key.replica_id != raft.me.replica_id]
        # A node that cannot be sent to now is not due. The core knows when that ends.
        told = [each.announced_until_ms for each in others if raft.can_send(each.key.replica_id)]
        return min([role.check_quorum_deadline_ms, *told]) if others else NEVER
    if isinstance(role, Follower):
        return role.fetch_deadline_ms
    if isinstance(role, (Prospective, Candidate)):
        return role.deadline_ms
    # A leader that was removed from the voters resigns, and then follows.
    return role.election_deadline_ms if raft.is_voter or isinstance(role, Resigned) else NEVER


def tick(raft: Raft) -> None:
    if deadline(raft) > raft.now_ms:
        return
    role = raft.role
    if isinstance(role, Leader):
        if role.check_quorum_deadline_ms <= raft.now_ms:
            _check_quorum(raft, role)
    elif isinstance(role, Follower):
        if raft.is_voter:
            campaign(raft)
        else:
            raft.leader_id = NOBODY
            raft.become_unattached(raft.epoch)
    elif isinstance(role, (Prospective, Candidate)):
        _lose(raft)
    elif raft.is_voter:
        campaign(raft)
    else:
        raft.leader_id = NOBODY
        raft.become_unattached(raft.epoch)


# --- the candidate's side ---


def campaign(raft: Raft) -> None:
    """Asks the voters whether this replica could win an election. The only voter knows that it can."""
    if raft.is_only_voter:
        _become_candidate(raft)
        return
    role = Prospective(raft._election_deadline())
    role.granted.add(raft.me)
    raft.become(role)


def _become_candidate(raft: Raft) -> None:
    if raft.epoch + 1 >= LAST_EPOCH:
        LOG.error(
            "no leader can be elected after epoch %d, the greatest that a quorum can use: give the controllers new "
            "directories with `storage format`, from a snapshot of the metadata",
            raft.epoch,
        )
        raft.become_unattached(raft.epoch)
        return
    raft.new_epoch(raft.epoch + 1, voted=raft.me)
    raft.become(Candidate(raft._election_deadline()))


def vote_persisted(raft: Raft) -> None:
    """A candidate's own vote counts once it is on disk."""
    role = raft.role
    if isinstance(role, Candidate) and raft.vote_is_persisted() and raft.me not in role.granted:
        role.granted.add(raft.me)
        _count(raft, role)


def ask_for_votes(raft: Raft, role: Prospective | Candidate) -> None:
    pre_vote = isinstance(role, Prospective)
    for voter in raft.voters.latest.voters():
        key = voter.key
        if key.replica_id in role.asked or key.matches(raft.me) or not raft.can_send(key.replica_id):
            continue
        to = raft.destination(voter)
        if to is not None:
            role.asked.add(key.replica_id)
            raft.send(to, messages.vote(raft.config.cluster_id, key, raft.me, raft.epoch, raft.end, pre_vote))


def on_vote_response(raft: Raft, sent: InFlight, response: Any) -> None:
    error, partition = messages.answered(response)
    role = raft.role
    if not isinstance(role, (Prospective, Candidate)):
        return
    if partition is not None and _hear_from(raft, response, partition):
        return
    asked = sent.request.topics[0].partitions[0]
    key = ReplicaKey(sent.to.node_id, asked.voter_directory_id)
    if error == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        # A voter from before pre-votes stands for nothing but itself (KIP-996).
        role.granted.add(key)
    elif error or partition is None:
        role.asked.discard(sent.to.node_id)
        raft._backoff_until[sent.to.node_id] = raft.now_ms + raft.config.retry_backoff_ms
        return
    else:
        (role.granted if partition.vote_granted else role.rejected).add(key)
    _count(raft, role)


def _count(raft: Raft, role: Prospective | Candidate) -> None:
    voters = raft.voters.latest
    majority = len(voters) // 2 + 1
    granted = [key for key in role.granted if key in voters]
    if len(granted) >= majority:
        if isinstance(role, Prospective):
            _become_candidate(raft)
        else:
            _become_leader(raft, frozenset(granted))
    elif len(voters) - len([key for key in role.rejected if key in voters]) < majority:
        _lose(raft)


def _lose(raft: Raft) -> None:
    """Steps back for a random while, or follows the leader again if one is still known."""
    if isinstance(raft.role, Prospective) and raft.leader_id not in (NOBODY, raft.me.replica_id):
        raft.become_follower(raft.epoch, raft.leader_id, raft.leader_endpoint)
    else:
        raft.become_unattached(raft.epoch, raft.backoff_ms())


def _become_leader(raft: Raft, granting: frozenset[ReplicaKey]) -> None:
    now = raft.now_ms
    voters = {voter.key.replica_id: Progress(voter.key) for voter in raft.voters.latest.voters()}
    raft.leader_id = raft.me.replica_id
    # The voter set may still have the address of an earlier run until the records of this epoch are in.
    own = Voter(raft.me, raft.config.endpoints)
    known = raft.voters.latest.get(raft.me.replica_id)
    raft.leader_endpoint = own.endpoint(raft.config.listener) or (known and known.endpoint(raft.config.listener))
    start = raft.log.end_offset
    raft.become(Leader(start, voters, granting, now + _check_quorum_ms(raft)))
    change = control.leader_change(raft.me.replica_id, [each.key for each in voters.values()], granting)
    records = control.start_of_epoch(raft.voters, change, own)
    data = control.control_batch(records, start, raft.epoch, raft.wall_ms())
    control.learn_voters(raft.voters, data)
    raft.append_batch(data)


# --- the voter's side ---


def on_vote(raft: Raft, token: Any, request: Any) -> None:
    asked = messages.only(request, request.topics, lambda each: each.partition_index)
    if asked is None:
        raft.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
        return
    legal = (
        asked.last_offset_epoch <= asked.replica_epoch
        if asked.pre_vote
        else asked.last_offset_epoch < asked.replica_epoch
    )
    if asked.last_offset < 0 or asked.last_offset_epoch < 0 or not legal:
        raft.reply(token, request, error_code=ErrorCode.INVALID_REQUEST, vote_granted=False)
        return
    refusal = _epoch_refusal(raft, asked.replica_epoch, asked.replica_id)
    if refusal:
        raft.reply(token, request, error_code=refusal, vote_granted=False)
        return
    if asked.replica_epoch > raft.epoch:
        raft.become_unattached(asked.replica_epoch)
    if not _is_for_me(raft, request.voter_id, asked.voter_directory_id):
        raft.reply(token, request, error_code=ErrorCode.INVALID_VOTER_KEY, vote_granted=False)
        return
    key = ReplicaKey(asked.replica_id, asked.replica_directory_id)
    up_to_date = (asked.last_offset_epoch, asked.last_offset) >= (raft.log.last_epoch, raft.log.end_offset)
    granted = _grants(raft, key, up_to_date, asked.pre_vote)
    if granted and not asked.pre_vote and raft.voted is None:
        raft.new_epoch(raft.epoch, voted=key)
        # A replica that has just voted leaves the candidate time to win.
        raft.become_unattached(raft.epoch)
    raft.reply(token, request, error_code=ErrorCode.NONE, vote_granted=granted)


def _grants(raft: Raft, key: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    role = raft.role
    if pre_vote:
        if isinstance(role, Leader):
            return False
        if isinstance(role, Follower):
            return up_to_date and not role.has_fetched
        return up_to_date
    if raft.voted is not None:
        return raft.voted.matches(key) and not isinstance(role, Leader)
    return up_to_date and raft.leader_id == NOBODY and isinstance(role, (Unattached, Prospective))


def on_begin_epoch(raft: Raft, token: Any, request: Any) -> None:
    asked = messages.only(request, request.topics, lambda each: each.partition_index)
    if asked is None:
        raft.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
        return
    refusal = _epoch_refusal(raft, asked.leader_epoch, asked.leader_id)
    if not refusal:
        raft.hear(asked.leader_epoch, asked.leader_id, _listener(raft, request.leader_endpoints), from_leader=True)
        if not _is_for_me(raft, request.voter_id, asked.voter_directory_id):
            refusal = ErrorCode.INVALID_VOTER_KEY
    raft.reply(token, request, error_code=refusal)


def on_end_epoch(raft: Raft, token: Any, request: Any) -> None:
    asked = messages.only(request, request.topics, lambda each: each.partition_index)
    if asked is None:
        raft.answer(token, messages.refused(request, ErrorCode.INVALID_REQUEST))
        return
    refusal = _epoch_refusal(raft, asked.leader_epoch, asked.leader_id)
    if not refusal:
        raft.hear(asked.leader_epoch, asked.leader_id, _listener(raft, request.leader_endpoints))
        role = raft.role
        if isinstance(role, Follower) and raft.leader_id == asked.leader_id and raft.is_voter:
            role.fetch_deadline_ms = raft.now_ms + _succession_delay_ms(raft, asked)
    raft.reply(token, request, error_code=refusal)


def _succession_delay_ms(raft: Raft, asked: Any) -> int:
    """The first of the preferred successors stands for election at once, the others later, in their order."""
    named = [each.candidate_id for each in asked.preferred_candidates] or list(asked.preferred_successors)
    if raft.me.replica_id not in named:
        return raft.config.election_backoff_max_ms
    place = named.index(raft.me.replica_id)
    step = raft.config.retry_backoff_ms << min(place, 10)
    return 0 if place == 0 else min(raft.config.election_backoff_max_ms, raft.random.randint(1, step))


def _epoch_refusal(raft: Raft, epoch: int, replica_id: int) -> ErrorCode:
    if epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    # Nobody else can win the elections of an only voter. It keeps the end of the epochs for itself, or one request
    # could use them up.
    end = LAST_EPOCH - OWN_EPOCHS if raft.is_only_voter else LAST_EPOCH
    if epoch >= end:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_REQUEST if replica_id < 0 else ErrorCode.NONE


def _is_for_me(raft: Raft, voter_id: int, directory_id: Any) -> bool:
    return voter_id < 0 or raft.me.matches(ReplicaKey(voter_id, directory_id))


def _listener(raft: Raft, endpoints: Any) -> tuple[str, int] | None:
    for each in endpoints:
        if each.name == raft.config.listener:
            return each.host, each.port
    return (endpoints[0].host, endpoints[0].port) if endpoints else None


def _hear_from(raft: Raft, response: Any, partition: Any) -> bool:
    leader_id, epoch = messages.leader_of(partition)
    return raft.hear(epoch, leader_id, messages.endpoint_of(response, leader_id))


# --- the leader's side ---


def _check_quorum_ms(raft: Raft) -> int:
    return int(raft.config.fetch_timeout_ms * CHECK_QUORUM_FACTOR)


def heard_of_voter(raft: Raft, role: Leader, replica_id: int) -> None:
    """A voter fetched. The leader is not cut off while a majority does (KIP-595's check quorum)."""
    role.fetched.add(replica_id)
    heard = len(role.fetched) + (raft.me.replica_id in role.voters)
    if heard > len(role.voters) // 2:
        begin_quorum_check(raft, role)


def begin_quorum_check(raft: Raft, role: Leader) -> None:
    """From now on a majority has a whole period to fetch."""
    role.fetched.clear()
    role.check_quorum_deadline_ms = raft.now_ms + _check_quorum_ms(raft)


def _check_quorum(raft: Raft, role: Leader) -> None:
    if role.voters.keys() - {raft.me.replica_id}:
        resign(raft)
    else:
        begin_quorum_check(raft, role)


def announce(raft: Raft, role: Leader) -> None:
    """Sends BeginQuorumEpoch to voters that do not fetch."""
    for voter in raft.voters.latest.voters():
        progress = role.voters.get(voter.key.replica_id)
        if progress is None or voter.key.matches(raft.me) or progress.announced_until_ms > raft.now_ms:
            continue
        to = raft.destination(voter)
        if to is not None and raft.can_send(to.node_id):
            progress.announced_until_ms = raft.now_ms + raft.config.fetch_timeout_ms // 2
            endpoints = raft.config.endpoints
            raft.send(
                to, messages.begin_epoch(raft.config.cluster_id, voter.key, raft.me.replica_id, raft.epoch, endpoints)
            )


def on_begin_epoch_response(raft: Raft, sent: InFlight, response: Any) -> None:
    _, partition = messages.answered(response)
    if partition is not None:
        _hear_from(raft, response, partition)


def resign(raft: Raft) -> None:
    role = raft.role
    assert isinstance(role, Leader)
    others = {replica_id for replica_id in role.voters if replica_id != raft.me.replica_id}
    successors = sorted(
        [each for each in role.voters.values() if each.key.replica_id in others],
        key=lambda each: (-each.end_offset, each.key),
    )
    raft.become(Resigned(raft._election_deadline(), others))
    for progress in successors:
        voter = raft.voters.latest.get(progress.key.replica_id)
        to = raft.destination(voter) if voter else None
        if to is not None:
            _send_end(raft, to, [each.key for each in successors])


def announce_end(raft: Raft, role: Resigned) -> None:
    for replica_id in sorted(role.unacknowledged):
        voter = raft.voters.latest.get(replica_id)
        to = raft.destination(voter) if voter else None
        if to is not None and raft.can_send(replica_id):
            _send_end(raft, to, [ReplicaKey(each) for each in sorted(role.unacknowledged)])


def _send_end(raft: Raft, to: Any, successors: list[ReplicaKey]) -> None:
    raft.send(
        to,
        messages.end_epoch(raft.config.cluster_id, raft.me.replica_id, raft.epoch, successors, raft.config.endpoints),
    )


def on_end_epoch_response(raft: Raft, sent: InFlight, response: Any) -> None:
    _, partition = messages.answered(response)
    if partition is None or _hear_from(raft, response, partition):
        return
    if isinstance(raft.role, Resigned):
        raft.role.unacknowledged.discard(sent.to.node_id)
