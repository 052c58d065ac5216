"""Changes of the voter set while the quorum runs: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853), and
controllers that join automatically (KIP-1186).

The leader changes one voter at a time. A voter set takes effect when it is in the log, even before its commit. The next
change waits for this commit. So any majority of one set and any majority of the next set have a voter in common (Raft
dissertation, 4.1).
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kafkacore.protocol import messages as classes
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.features import KRAFT_VERSION
from kafkacore.protocol.messages import KRaftVersionRecord
from kafkacore.protocol.uuid import ZERO
from kafkacore.raft import control
from kafkacore.raft.answer_checks import check_leader
from kafkacore.raft.election import Elections
from kafkacore.raft.replica import Replica
from kafkacore.raft.replication import Replication
from kafkacore.raft.requests import InFlight
from kafkacore.raft.roles import Destination, Follower, Leader, VoterChange
from kafkacore.raft.voters import MAX_VOTERS_BYTES, Endpoints, ReplicaKey, Voter, VoterSet

LOG: Final = logging.getLogger("kafkacore.raft")
# An observer can become a voter if it has fetched in the last hour, and has reached the leader's log end at least once.
CAUGHT_UP_MS: Final = 3_600_000
_TOO_LARGE: Final = f"The voters have so many endpoints that their record would exceed {MAX_VOTERS_BYTES} bytes."
_RESPONSES: Final = {
    "AddRaftVoterRequest": classes.AddRaftVoterResponse,
    "RemoveRaftVoterRequest": classes.RemoveRaftVoterResponse,
}


def _endpoints(request: Any) -> Endpoints:
    return tuple([(each.name, each.host, each.port) for each in request.listeners])


def _listeners(request_class: Any, endpoints: Endpoints) -> list[Any]:
    """Returns listeners in the form that a request class uses: the reverse of `_endpoints`."""
    return [request_class.Listener(name=name, host=host, port=port) for name, host, port in endpoints]


def _ids(voters: VoterSet) -> str:
    return ", ".join(str(voter.key.replica_id) for voter in voters.voters())


class Membership:
    """The changes of the voter set on the leader, and a replica's requests about its own membership."""

    def __init__(self, replica: Replica, elections: Elections, replication: Replication) -> None:
        self._replica, self._elections, self._replication = replica, elections, replication

    # --- leader ---

    def on_add_voter(self, token: Any, request: Any) -> None:
        """Handles AddRaftVoter: sends ApiVersions to the new voter, to find out which kraft.version it supports.
        `on_api_versions_response` continues with the response."""
        replica = self._replica
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = _endpoints(request)
        role = self._leader(token, request)
        if role is None:
            return
        address = next(((host, port) for name, host, port in endpoints if name == replica.config.listener), None)
        if address is None:
            why = f"The request has no endpoint for the listener {replica.config.listener}."
            self._answer(token, request, ErrorCode.INVALID_REQUEST, why)
            return
        if refusal := self._refusal(role):
            self._answer(token, request, *refusal)
            return
        voters = replica.voters.latest
        if voters.get(key.replica_id) is not None:
            why = f"The voter id {key.replica_id} is already part of the set of voters {_ids(voters)}."
            self._answer(token, request, ErrorCode.DUPLICATE_VOTER, why)
            return
        if voters.with_voter(Voter(key, endpoints)).is_too_large():
            self._answer(token, request, ErrorCode.INVALID_REQUEST, _TOO_LARGE)
            return
        if not replica.can_send(key.replica_id):
            why = f"New voter {key.replica_id} is not ready to receive requests."
            self._answer(token, request, ErrorCode.REQUEST_TIMED_OUT, why)
            return
        role.change = VoterChange(
            token, request, replica.now_ms + replica.config.request_timeout_ms, Voter(key, endpoints)
        )
        asked = classes.ApiVersionsRequest(client_software_name="kafkacore", client_software_version="1")
        replica.send(Destination(key.replica_id, *address), asked)

    def on_api_versions_response(self, sent: InFlight, response: Any) -> None:
        replica = self._replica
        role = replica.role
        change = role.change if isinstance(role, Leader) else None
        if change is None or change.offset is not None or change.voter is None:
            return
        key = change.voter.key
        if key.replica_id != sent.to.node_id:
            return
        assert isinstance(role, Leader)
        supported = next(
            (
                (each.min_version, each.max_version)
                for each in response.supported_features
                if each.name == KRAFT_VERSION
            ),
            (0, 0),
        )
        finalized = replica.voters.kraft_version
        if response.error_code:
            why = f"The new voter {key.replica_id} answered ApiVersions with error {response.error_code}."
            self._end_change(role, ErrorCode.REQUEST_TIMED_OUT, why)
        elif not supported[0] <= finalized <= supported[1]:
            why = (
                f"The new voter {key.replica_id} supports kraft.version {supported[0]} to {supported[1]}, "
                f"and {finalized} is finalized."
            )
            self._end_change(role, ErrorCode.INVALID_REQUEST, why)
        elif not self._is_caught_up(role, key):
            why = f"The new voter {key.replica_id} is lagging behind: it has not fetched all of the metadata log yet."
            self._end_change(role, ErrorCode.REQUEST_TIMED_OUT, why)
        else:
            voter = change.voter._replace(kraft_versions=supported)
            self._append_voters(role, replica.voters.latest.with_voter(voter), change)
            if not change.request.ack_when_committed:
                self._end_change(role, ErrorCode.NONE, None)

    def on_remove_voter(self, token: Any, request: Any) -> None:
        replica = self._replica
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        role = self._leader(token, request)
        if role is None:
            return
        if refusal := self._refusal(role):
            self._answer(token, request, *refusal)
            return
        voters = replica.voters.latest
        known = voters.get(key.replica_id)
        if known is None or known.key != key or len(voters) == 1:
            why = f"Cannot remove voter {key.replica_id} with directory id {key.directory_id} from {_ids(voters)}."
            self._answer(token, request, ErrorCode.VOTER_NOT_FOUND, why)
            return
        role.change = VoterChange(token, request, replica.now_ms + replica.config.request_timeout_ms, None)
        self._append_voters(role, voters.without_voter(key.replica_id), role.change)

    def on_update_voter(self, token: Any, request: Any) -> None:
        """Handles UpdateRaftVoter: stores a voter's new endpoints and versions. As in Apache Kafka, the response does
        not wait for the commit."""
        replica = self._replica
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = _endpoints(request)
        versions = request.kraft_version_feature
        supported = versions.min_supported_version, versions.max_supported_version
        error = self._replication.leader_only_error(request.current_leader_epoch)
        role = replica.role
        if error or not isinstance(role, Leader):
            self._answer_update(token, error)
        elif (
            key.replica_id < 0
            or key.directory_id == ZERO
            or not any(name == replica.config.listener for name, _, _ in endpoints)
            or not 0 <= supported[0] <= supported[1]
        ):
            self._answer_update(token, ErrorCode.INVALID_REQUEST)
        elif refusal := self._refusal(role, 0):
            self._answer_update(token, refusal[0])
        elif not supported[0] <= replica.voters.kraft_version <= supported[1]:
            self._answer_update(token, ErrorCode.INVALID_REQUEST)
        elif key not in replica.voters.latest:
            self._answer_update(token, ErrorCode.VOTER_NOT_FOUND)
        else:
            self._answer_update(token, self._update(role, Voter(key, endpoints, supported)))

    def _update(self, role: Leader, voter: Voter) -> ErrorCode:
        replica = self._replica
        static = replica.voters.kraft_version < 1
        former = VoterSet(self._introduced(role)) if static else replica.voters.latest
        voters = former.with_voter(voter)
        if voters.is_too_large():
            return ErrorCode.INVALID_REQUEST
        if static:
            role.introduced[voter.key.replica_id] = voter
        elif voters != former:
            self._append_voters(role, voters, None)
        return ErrorCode.NONE

    # --- from static to dynamic voters ---

    def why_not_dynamic(self) -> str | None:
        """Returns the reason why kraft.version cannot become 1 now, or None if it can."""
        role = self._replica.role
        if not isinstance(role, Leader):
            return "This controller does not lead the quorum."
        if refusal := self._refusal(role, 0):
            return refusal[1]
        voters = self._introduced(role)
        missing = [str(each.key.replica_id) for each in voters if each.key.directory_id == ZERO]
        if missing:
            return (
                f"The leader does not know the directory ids of the voters {', '.join(missing)} yet: they do not run, "
                "or their release does not send directory ids."
            )
        unable = [
            str(each.key.replica_id) for each in voters if not each.kraft_versions[0] <= 1 <= each.kraft_versions[1]
        ]
        if unable:
            return f"The voters {', '.join(unable)} do not support it."
        return _TOO_LARGE if VoterSet(voters).is_too_large() else None

    def make_dynamic(self) -> int:
        """Writes kraft.version 1 and the voters with their directory ids, as one batch. Call this only if
        `why_not_dynamic` returns None. Returns the offset of the batch's last record."""
        replica = self._replica
        role = replica.role
        assert isinstance(role, Leader)
        voters = VoterSet(self._introduced(role))
        records = [KRaftVersionRecord(version=0, kraft_version=1), voters.to_record()]
        data = control.control_batch(records, replica.collector.end_offset, replica.epoch, replica.wall_ms())
        control.learn_voters(replica.voters, data)
        for voter in voters.voters():
            role.voters[voter.key.replica_id].key = voter.key
        role.introduced.clear()
        LOG.info("epoch %d: kraft.version is 1, and the voters are %s", replica.epoch, _ids(voters))
        replica.append(data)
        return control.next_offset(data) - 1

    def _introduced(self, role: Leader) -> list[Voter]:
        """Returns the static voters, with the directory ids and endpoints that these voters have sent to the leader."""
        replica = self._replica
        made = []
        for voter in replica.voters.latest.voters():
            if voter.key.matches(replica.me):
                made.append(Voter(replica.me, replica.config.endpoints or voter.endpoints))
            else:
                made.append(role.introduced.get(voter.key.replica_id, voter))
        return made

    def high_watermark_moved(self, role: Leader) -> None:
        """Answers the waiting client if its voter change is now committed. A leader that is not among the committed
        voters resigns.
        """
        replica = self._replica
        change = role.change
        if change is not None and change.offset is not None and replica.high_watermark > change.offset:
            self._end_change(role, ErrorCode.NONE, None)
        if replica.me not in replica.voters.latest and replica.voters.latest_offset < replica.high_watermark:
            LOG.info("epoch %d: this leader is no longer among the voters, and resigns", replica.epoch)
            self._elections.resign()

    def deadline(self) -> int | None:
        """Returns the time at which `expire` is due, or None if no change is in progress."""
        role = self._replica.role
        change = role.change if isinstance(role, Leader) else None
        return None if change is None else change.deadline_ms

    def expire(self) -> None:
        role = self._replica.role
        if isinstance(role, Leader) and role.change is not None and role.change.deadline_ms <= self._replica.now_ms:
            why = (
                "The new voter did not answer in time."
                if role.change.offset is None
                else "The change is in the log, but was not committed in time."
            )
            self._end_change(role, ErrorCode.REQUEST_TIMED_OUT, why)

    def abandon(self, role: Leader) -> None:
        """Abandons the change, because this replica loses its role. Only the next leader will learn whether the change
        is committed."""
        if role.change is not None:
            self._end_change(role, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)

    def _leader(self, token: Any, request: Any) -> Leader | None:
        """Returns this replica's Leader state if it leads and the request contains a voter. Otherwise refuses the
        request and returns None.
        """
        role = self._replica.role
        if not isinstance(role, Leader):
            self._answer(token, request, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
        elif request.voter_id < 0 or request.voter_directory_id == ZERO:
            self._answer(token, request, ErrorCode.INVALID_REQUEST, "The request has no voter id or no directory id.")
        else:
            return role
        return None

    def _refusal(self, role: Leader, kraft_version: int = 1) -> tuple[ErrorCode, str] | None:
        """Returns the error that prevents a change of the voter set now, or None if the set can change. The change
        needs at least `kraft_version`.
        """
        replica = self._replica
        if role.change is not None:
            return ErrorCode.REQUEST_TIMED_OUT, "The leader still handles an earlier change of the voters."
        if not self._replication.is_known(role):
            return ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed a record of its epoch yet."
        if replica.voters.kraft_version < kraft_version:
            return (
                ErrorCode.UNSUPPORTED_VERSION,
                f"The voters are static: {KRAFT_VERSION} is {replica.voters.kraft_version}, and 1 is needed.",
            )
        if replica.voters.latest_offset >= replica.high_watermark:
            return ErrorCode.REQUEST_TIMED_OUT, "The latest change of the voters is not committed yet."
        return None

    def _is_caught_up(self, role: Leader, key: ReplicaKey) -> bool:
        progress = role.observers.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and progress.last_fetch_ms > self._replica.now_ms - CAUGHT_UP_MS
        )

    def _append_voters(self, role: Leader, voters: VoterSet, change: VoterChange | None) -> None:
        replica = self._replica
        offset = replica.collector.end_offset
        data = control.control_batch([voters.to_record()], offset, replica.epoch, replica.wall_ms())
        control.learn_voters(replica.voters, data)
        if change is not None:
            change.offset = offset
        LOG.info("epoch %d: the voters are %s from offset %d on", replica.epoch, _ids(voters), offset)
        if role.voters.keys() == {replica.me.replica_id}:
            # The only voter of a quorum does not check whether a majority fetches. Start a new period of this check, so
            # that the new voter has enough time for its first Fetch.
            self._elections.begin_quorum_check(role)
        self._replication.refresh_voters(role)
        replica.append(data)

    def _answer(self, token: Any, request: Any, error: ErrorCode, message: str | None) -> None:
        self._replica.answer(
            token,
            _RESPONSES[request.NAME](error_code=error, error_message=message or (error.message if error else None)),
        )

    def _end_change(self, role: Leader, error: ErrorCode, message: str | None) -> None:
        change, role.change = role.change, None
        assert change is not None
        self._answer(change.token, change.request, error, message)

    def _answer_update(self, token: Any, error: ErrorCode) -> None:
        replica = self._replica
        host, port = replica.leader_endpoint or ("", 0)
        leader = classes.UpdateRaftVoterResponse.CurrentLeader(
            leader_id=replica.leader_id, leader_epoch=replica.epoch, host=host, port=port
        )
        replica.answer(token, classes.UpdateRaftVoterResponse(error_code=error, current_leader=leader))

    # --- voter ---

    def change_myself(self, role: Follower) -> bool:
        """If this replica's own membership must change, sends a request for that change to the leader, at most once in
        each fetch timeout. Returns True if it has sent the request in place of a Fetch.
        """
        replica = self._replica
        if (
            role.change_due_ms > replica.now_ms
            or not replica.config.endpoints
            or replica.leader_endpoint is None
            or not replica.can_send(replica.leader_id)
        ):
            return False
        request = self._update_of_myself(role) if replica.is_voter else self._join(role)
        if request is None:
            return False
        role.change_due_ms = replica.now_ms + replica.config.fetch_timeout_ms
        replica.send(Destination(replica.leader_id, *replica.leader_endpoint), request)
        return True

    def _update_of_myself(self, role: Follower) -> Any | None:
        """Returns the request that reports this voter's endpoints, or None if the voter set already has them. A static
        voter sends this request to each new leader."""
        replica = self._replica
        config = replica.config
        static = replica.voters.kraft_version < 1
        known = replica.voters.latest.get(replica.me.replica_id) == Voter(replica.me, config.endpoints)
        if role.has_introduced_itself if static else known:
            return None
        request_class = classes.UpdateRaftVoterRequest
        lowest, highest = Voter(replica.me, ()).kraft_versions
        return request_class(
            cluster_id=config.cluster_id,
            current_leader_epoch=replica.epoch,
            voter_id=replica.me.replica_id,
            voter_directory_id=replica.me.directory_id,
            listeners=_listeners(request_class, config.endpoints),
            kraft_version_feature=request_class.KRaftVersionFeature(
                min_supported_version=lowest, max_supported_version=highest
            ),
        )

    def _join(self, role: Follower) -> Any | None:
        """Returns the next request of an observer that joins automatically, or None if it must not join. If the voter
        set has an old voter with the same id and another directory, the observer removes that voter first.
        """
        replica = self._replica
        config = replica.config
        if replica.voters.kraft_version < 1 or not (config.auto_join and config.can_vote and role.has_fetched):
            return None
        former = replica.voters.latest.get(replica.me.replica_id)
        if former is not None:
            return classes.RemoveRaftVoterRequest(
                cluster_id=config.cluster_id, voter_id=former.key.replica_id, voter_directory_id=former.key.directory_id
            )
        request_class = classes.AddRaftVoterRequest
        return request_class(
            cluster_id=config.cluster_id,
            timeout_ms=config.request_timeout_ms,
            voter_id=replica.me.replica_id,
            voter_directory_id=replica.me.directory_id,
            listeners=_listeners(request_class, config.endpoints),
            # The leader can commit the change only after this replica's next Fetch, and this replica sends that Fetch
            # only after the response. So the response must not wait for the commit.
            ack_when_committed=False,
        )

    def on_join_response(self, sent: InFlight, response: Any) -> None:
        """Logs a refusal; the next attempt follows at its usual time. This replica learns the new voter set only from
        the log.
        """
        if response.error_code:
            LOG.info(
                "the leader refused %s of this controller with error %d: %s",
                sent.request.NAME, response.error_code, response.error_message,
            )  # fmt: skip

    def on_update_voter_response(self, sent: InFlight, response: Any) -> None:
        """Learns the leader from the response. This replica learns the new voter set only from the log. If the leader
        refuses the request, the next attempt follows at its usual time. Raises ImpossibleAnswerError.
        """
        del sent
        role = self._replica.role
        if isinstance(role, Follower) and response.error_code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            # A leader older than 4.1 does not accept UpdateRaftVoter from a static voter, so this replica does not send
            # the request again.
            role.has_introduced_itself = True
        leader = response.current_leader
        if leader.leader_epoch >= 0:
            check_leader(leader.leader_id, leader.leader_epoch)
            endpoint = (leader.host, leader.port) if leader.host else None
            self._replica.hear(leader.leader_epoch, leader.leader_id, endpoint)
