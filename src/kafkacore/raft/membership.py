"""Changes of the voter set while the quorum runs: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853), and
controllers that join by themselves (KIP-1186).

The leader changes one voter at a time. A set takes effect when it is in the log, and the next change waits until it is
committed: any two sets that follow one another share a majority (Raft dissertation, 4.1).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.features import KRAFT_VERSION
from kafkacore.protocol.uuid import ZERO
from kafkacore.raft import control, election, replication
from kafkacore.raft.answer_checks import check_leader
from kafkacore.raft.roles import Destination, Follower, Leader, VoterChange
from kafkacore.raft.voters import Endpoints, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from kafkacore.raft.core import InFlight, Raft

LOG: Final = logging.getLogger("kafkacore.raft")
# An observer that fetched in the last hour and was once at the leader's end is near enough to become a voter.
CAUGHT_UP_MS: Final = 3_600_000
_RESPONSES: Final = {
    "AddRaftVoterRequest": classes.AddRaftVoterResponse,
    "RemoveRaftVoterRequest": classes.RemoveRaftVoterResponse,
}


def _endpoints(request: Any) -> Endpoints:
    return tuple([(each.name, each.host, each.port) for each in request.listeners])


def _listeners(request_class: Any, endpoints: Endpoints) -> list[Any]:
    """The reverse of `_endpoints`, for a request of that class."""
    return [request_class.Listener(name=name, host=host, port=port) for name, host, port in endpoints]


# --- the leader's side ---


def on_add_voter(raft: Raft, token: Any, request: Any) -> None:
    """Asks the new voter which kraft.version it supports; `on_api_versions_response` goes on."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    endpoints = _endpoints(request)
    role = _leader(raft, token, request)
    if role is None:
        return
    if key.replica_id < 0 or key.directory_id == ZERO:
        _answer(raft, token, request, ErrorCode.INVALID_REQUEST, "The request names no voter id and directory id.")
        return
    address = next(((host, port) for name, host, port in endpoints if name == raft.config.listener), None)
    if address is None:
        why = f"The request has no endpoint for the listener {raft.config.listener}."
        _answer(raft, token, request, ErrorCode.INVALID_REQUEST, why)
        return
    if refusal := _refusal(raft, role):
        _answer(raft, token, request, *refusal)
        return
    voters = raft.voters.latest
    if voters.get(key.replica_id) is not None:
        why = f"The voter id {key.replica_id} is already part of the set of voters {_ids(voters)}."
        _answer(raft, token, request, ErrorCode.DUPLICATE_VOTER, why)
        return
    if not raft.can_send(key.replica_id):
        why = f"New voter {key.replica_id} is not ready to receive requests."
        _answer(raft, token, request, ErrorCode.REQUEST_TIMED_OUT, why)
        return
    role.change = VoterChange(token, request, raft.now_ms + raft.config.request_timeout_ms, Voter(key, endpoints))
    asked = classes.ApiVersionsRequest(client_software_name="kafkacore", client_software_version="1")
    raft.send(Destination(key.replica_id, *address), asked)


def on_api_versions_response(raft: Raft, sent: InFlight, response: Any) -> None:
    role = raft.role
    change = role.change if isinstance(role, Leader) else None
    if change is None or change.offset is not None or change.voter is None:
        return
    key = change.voter.key
    if key.replica_id != sent.to.node_id:
        return
    assert isinstance(role, Leader)
    supported = next(
        ((each.min_version, each.max_version) for each in response.supported_features if each.name == KRAFT_VERSION),
        (0, 0),
    )
    finalized = raft.voters.kraft_version
    if response.error_code:
        why = f"The new voter {key.replica_id} answered ApiVersions with error {response.error_code}."
        _end_change(raft, role, ErrorCode.REQUEST_TIMED_OUT, why)
    elif not supported[0] <= finalized <= supported[1]:
        why = (
            f"The new voter {key.replica_id} supports kraft.version {supported[0]} to {supported[1]}, "
            f"and {finalized} is finalized."
        )
        _end_change(raft, role, ErrorCode.INVALID_REQUEST, why)
    elif not _is_caught_up(raft, role, key):
        why = f"The new voter {key.replica_id} is lagging behind: it has not fetched all of the metadata log yet."
        _end_change(raft, role, ErrorCode.REQUEST_TIMED_OUT, why)
    else:
        voter = change.voter._replace(kraft_versions=supported)
        _append_voters(raft, role, raft.voters.latest.with_voter(voter), change)
        if not change.request.ack_when_committed:
            _end_change(raft, role, ErrorCode.NONE, None)


def on_remove_voter(raft: Raft, token: Any, request: Any) -> None:
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    role = _leader(raft, token, request)
    if role is None:
        return
    if key.replica_id < 0 or key.directory_id == ZERO:
        _answer(raft, token, request, ErrorCode.INVALID_REQUEST, "The request names no voter id and directory id.")
        return
    if refusal := _refusal(raft, role):
        _answer(raft, token, request, *refusal)
        return
    voters = raft.voters.latest
    known = voters.get(key.replica_id)
    if known is None or known.key != key or len(voters) == 1:
        why = f"Cannot remove voter {key.replica_id} with directory id {key.directory_id} from {_ids(voters)}."
        _answer(raft, token, request, ErrorCode.VOTER_NOT_FOUND, why)
        return
    role.change = VoterChange(token, request, raft.now_ms + raft.config.request_timeout_ms, None)
    _append_voters(raft, role, voters.without_voter(key.replica_id), role.change)


def on_update_voter(raft: Raft, token: Any, request: Any) -> None:
    """A voter's endpoints and versions. The answer does not wait for the commit, as in Apache Kafka."""
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    endpoints = _endpoints(request)
    versions = request.kraft_version_feature
    supported = versions.min_supported_version, versions.max_supported_version
    error = replication.leader_only_error(raft, request.current_leader_epoch)
    role = raft.role
    if error or not isinstance(role, Leader):
        _answer_update(raft, token, error)
    elif (
        key.replica_id < 0
        or key.directory_id == ZERO
        or not any(name == raft.config.listener for name, _, _ in endpoints)
        or not 0 <= supported[0] <= supported[1]
    ):
        _answer_update(raft, token, ErrorCode.INVALID_REQUEST)
    elif refusal := _refusal(raft, role):
        _answer_update(raft, token, refusal[0])
    elif not supported[0] <= raft.voters.kraft_version <= supported[1]:
        _answer_update(raft, token, ErrorCode.INVALID_REQUEST)
    elif key not in raft.voters.latest:
        _answer_update(raft, token, ErrorCode.VOTER_NOT_FOUND)
    else:
        voters = raft.voters.latest.with_voter(Voter(key, endpoints, supported))
        if voters != raft.voters.latest:
            _append_voters(raft, role, voters, None)
        _answer_update(raft, token, ErrorCode.NONE)


def high_watermark_moved(raft: Raft, role: Leader) -> None:
    """Answers a change that is committed now. A leader that is not among the committed voters resigns."""
    change = role.change
    if change is not None and change.offset is not None and raft.high_watermark > change.offset:
        _end_change(raft, role, ErrorCode.NONE, None)
    if raft.me not in raft.voters.latest and raft.voters.latest_offset < raft.high_watermark:
        LOG.info("epoch %d: this leader is not among the voters any more, and resigns", raft.epoch)
        election.resign(raft)


def expire(raft: Raft) -> None:
    role = raft.role
    if isinstance(role, Leader) and role.change is not None and role.change.deadline_ms <= raft.now_ms:
        why = (
            "The new voter did not answer in time."
            if role.change.offset is None
            else "The change is in the log, and was not committed in time."
        )
        _end_change(raft, role, ErrorCode.REQUEST_TIMED_OUT, why)


def abandon(raft: Raft, role: Leader) -> None:
    """The role ends: whether the change will be committed is the next leader's to know."""
    if role.change is not None:
        _end_change(raft, role, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


def _leader(raft: Raft, token: Any, request: Any) -> Leader | None:
    """The role, where this replica leads; otherwise the refusal is on its way."""
    if isinstance(raft.role, Leader):
        return raft.role
    _answer(raft, token, request, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    return None


def _refusal(raft: Raft, role: Leader) -> tuple[ErrorCode, str] | None:
    """Why the voters cannot change now; None when they can."""
    if role.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "The leader still handles an earlier change of the voters."
    if not replication.is_known(raft, role):
        return ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed a record of its epoch yet."
    if raft.voters.kraft_version < 1:
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            f"The voters are static: {KRAFT_VERSION} is {raft.voters.kraft_version}, and 1 is needed.",
        )
    if raft.voters.latest_offset >= raft.high_watermark:
        return ErrorCode.REQUEST_TIMED_OUT, "The latest change of the voters is not committed yet."
    return None


def _is_caught_up(raft: Raft, role: Leader, key: ReplicaKey) -> bool:
    progress = role.observers.get(key)
    return (
        progress is not None and progress.last_caught_up_ms >= 0 and progress.last_fetch_ms > raft.now_ms - CAUGHT_UP_MS
    )


def _append_voters(raft: Raft, role: Leader, voters: VoterSet, change: VoterChange | None) -> None:
    offset = raft.log.end_offset
    data = control.control_batch([voters.to_record()], offset, raft.epoch, raft.wall_ms())
    control.learn_voters(raft.voters, data)
    if change is not None:
        change.offset = offset
    LOG.info("epoch %d: the voters are %s from offset %d on", raft.epoch, _ids(voters), offset)
    if role.voters.keys() == {raft.me.replica_id}:
        # An only voter checks no quorum. The first check of the new one gets a whole period.
        election.begin_quorum_check(raft, role)
    replication.refresh_voters(raft, role)
    raft.append_batch(data)


def _ids(voters: VoterSet) -> str:
    return ", ".join(str(voter.key.replica_id) for voter in voters.voters())


def _answer(raft: Raft, token: Any, request: Any, error: ErrorCode, message: str | None) -> None:
    raft.answer(
        token, _RESPONSES[request.NAME](error_code=error, error_message=message or (error.message if error else None))
    )


def _end_change(raft: Raft, role: Leader, error: ErrorCode, message: str | None) -> None:
    change, role.change = role.change, None
    assert change is not None
    _answer(raft, change.token, change.request, error, message)


def _answer_update(raft: Raft, token: Any, error: ErrorCode) -> None:
    host, port = raft.leader_endpoint or ("", 0)
    leader = classes.UpdateRaftVoterResponse.CurrentLeader(
        leader_id=raft.leader_id, leader_epoch=raft.epoch, host=host, port=port
    )
    raft.answer(token, classes.UpdateRaftVoterResponse(error_code=error, current_leader=leader))


# --- a voter's side ---


def change_myself(raft: Raft, role: Follower) -> bool:
    """Sends the leader what this replica wants changed about its own membership, once in a fetch timeout; True when
    such a request is on its way instead of a Fetch."""
    if (
        role.change_due_ms > raft.now_ms
        or raft.voters.kraft_version < 1
        or not raft.config.endpoints
        or raft.leader_endpoint is None
        or not raft.can_send(raft.leader_id)
    ):
        return False
    request = _update_of_myself(raft) if raft.is_voter else _join(raft, role)
    if request is None:
        return False
    role.change_due_ms = raft.now_ms + raft.config.fetch_timeout_ms
    raft.send(Destination(raft.leader_id, *raft.leader_endpoint), request)
    return True


def _update_of_myself(raft: Raft) -> Any | None:
    """None when the voter set says where this voter listens."""
    config = raft.config
    if raft.voters.latest.get(raft.me.replica_id) == Voter(raft.me, config.endpoints):
        return None
    request_class = classes.UpdateRaftVoterRequest
    lowest, highest = Voter(raft.me, ()).kraft_versions
    return request_class(
        cluster_id=config.cluster_id,
        current_leader_epoch=raft.epoch,
        voter_id=raft.me.replica_id,
        voter_directory_id=raft.me.directory_id,
        listeners=_listeners(request_class, config.endpoints),
        kraft_version_feature=request_class.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )


def _join(raft: Raft, role: Follower) -> Any | None:
    """An observer that joins by itself first removes the voter that had its id and another directory."""
    config = raft.config
    if not (config.auto_join and config.can_vote and role.has_fetched):
        return None
    former = raft.voters.latest.get(raft.me.replica_id)
    if former is not None:
        return classes.RemoveRaftVoterRequest(
            cluster_id=config.cluster_id, voter_id=former.key.replica_id, voter_directory_id=former.key.directory_id
        )
    request_class = classes.AddRaftVoterRequest
    return request_class(
        cluster_id=config.cluster_id,
        timeout_ms=config.request_timeout_ms,
        voter_id=raft.me.replica_id,
        voter_directory_id=raft.me.directory_id,
        listeners=_listeners(request_class, config.endpoints),
        # This replica's own Fetch commits the new set, and waits for the answer to this request.
        ack_when_committed=False,
    )


def on_join_response(raft: Raft, sent: InFlight, response: Any) -> None:
    """The new set comes with the log; a refused request is sent again when the next one is due."""
    if response.error_code:
        LOG.info(
            "the leader refused %s of this controller with error %d: %s",
            sent.request.NAME, response.error_code, response.error_message,
        )  # fmt: skip


def on_update_voter_response(raft: Raft, sent: InFlight, response: Any) -> None:
    """Hears who leads. The new set comes with the log, and a refused update is sent again when the next one is due.
    Raises ImpossibleAnswerError."""
    del sent
    leader = response.current_leader
    if leader.leader_epoch >= 0:
        check_leader(leader.leader_id, leader.leader_epoch)
        endpoint = (leader.host, leader.port) if leader.host else None
        raft.hear(leader.leader_epoch, leader.leader_id, endpoint)
