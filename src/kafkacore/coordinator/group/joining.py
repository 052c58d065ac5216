"""Handles JoinGroup (KIP-345, KIP-394, KIP-559, KIP-814)."""

from __future__ import annotations

from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.answers import join_error, join_protocol_name
from kafkacore.coordinator.group.classic import (
    COMPLETING_REBALANCE,
    EMPTY,
    MAX_PENDING_MEMBERS,
    PREPARING_REBALANCE,
    STABLE,
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    Member,
    Protocols,
)
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.effects import Caller, Waiter
from kafkacore.coordinator.group.outbox import Parked
from kafkacore.coordinator.group.rebalance import (
    complete_when_all_joined,
    extend_session,
    group_record,
    join_response,
    joined_members,
    new_group,
    note_recorded,
    prepare,
    prepare_or_complete,
    session_of,
)
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import GroupMetadataValue, JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_MAX_ID_PREFIX_BYTES = 0x7FFF - len("-00000000-0000-0000-0000-000000000000")


class Joining:
    """Handles one JoinGroup: either answers it, or parks it (keeps it without an answer) until the rebalance ends."""

    def __init__(self, core: Core, caller: Caller, request: JoinGroupRequest, waiter: Waiter) -> None:
        self._core = core
        self._request = request
        self._parked = Parked(core.outbox, waiter, caller.api_version)
        self._client_id = caller.client_id or ""
        self._client_host = "/" + caller.client_host
        # Version 0 has no rebalance timeout, so the session timeout serves both purposes.
        timeout_ms = request.rebalance_timeout_ms if caller.api_version > 0 else request.session_timeout_ms
        self._rebalance_timeout_ms = timeout_ms
        instance_id = request.group_instance_id
        self._id_prefix = self._client_id if instance_id is None else instance_id
        self._protocols = _offered(request)

    def serve(self) -> None:
        core, group_id, member_id = self._core, self._request.group_id, self._request.member_id
        known = core.groups.get(group_id)
        if known is not None and not isinstance(known, ClassicGroup):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
            return
        if known is None and member_id != UNKNOWN_MEMBER_ID:
            self._refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            return
        if len(self._id_prefix.encode()) > _MAX_ID_PREFIX_BYTES:
            self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, member_id)  # as Kafka does if the id does not fit a record
            return
        group = known or new_group(core, group_id)
        if not self._accepted(group, member_id):
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
            self._expel(group, member_id)
        elif group.deleting:
            self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        elif not group.supports(self._request.protocol_type, self._protocols):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif member_id == UNKNOWN_MEMBER_ID:
            self._newcomer(group)
        else:
            self._known(group)
        if known is None:
            self._record_new(group)

    def _refuse(self, error: ErrorCode, member_id: str) -> None:
        self._parked.answer(join_error(self._parked.api_version, error, member_id))

    def _accepted(self, group: ClassicGroup, member_id: str) -> bool:
        """Returns whether the group has room for the member within `group.max.size`. During a join, only the members
        that have already joined count. So if the limit was lowered below the group's size, the members that join last
        are refused."""
        limit = self._core.settings.max_size
        if group.state == EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state == PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit

    def _expel(self, group: ClassicGroup, member_id: str) -> None:
        """Removes a refused member, or the id that was promised to it, so that the other members do not wait for it."""
        promised = group.pending_members.get(member_id)
        member = group.remove(member_id)
        session = promised if member is None else member.session
        if session is not None:
            self._core.deadlines.cancel(session)
            complete_when_all_joined(self._core, group)

    def _record_new(self, group: ClassicGroup) -> None:
        """Writes the new, still empty group immediately. A group that exists only in memory would be lost in a
        crash."""
        value = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_timestamp)

        def outcome(error: ErrorCode) -> None:
            if error != ErrorCode.NONE:
                self._refuse(error, "")

        self._core.outbox.append(
            [(records.group_key(group.group_id), records.group_value(value))],
            outcome,
            apply=lambda offset: note_recorded(self._core, group),
            revert=lambda: _forget(self._core, group),
        )

    # --- members without an id ---

    def _newcomer(self, group: ClassicGroup) -> None:
        core, instance_id = self._core, self._request.group_instance_id
        member_id = core.new_member_id(self._id_prefix)
        if instance_id is not None:
            existing = group.static_member_id(instance_id)
            if existing is not None:
                self._replace_static(group, instance_id, existing, member_id)
            else:
                self._add(group, member_id)
        elif self._parked.api_version >= _MEMBER_ID_REQUIRED_SINCE:
            self._promise(group, member_id)
        else:
            self._add(group, member_id)

    def _promise(self, group: ClassicGroup, member_id: str) -> None:
        """Reserves the id for the length of a session. The member must join with the id before the session ends."""
        if len(group.pending_members) >= MAX_PENDING_MEMBERS:
            self._refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
            return
        session = session_of(self._core, group, member_id)
        group.pending_members[member_id] = session
        self._core.await_client(session, self._request.session_timeout_ms)
        self._refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, group: ClassicGroup, member_id: str) -> None:
        core, request = self._core, self._request
        session = group.pending_members.get(member_id) or session_of(core, group, member_id)
        member = Member(
            member_id,
            request.group_instance_id,
            self._client_id,
            self._client_host,
            self._rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            self._protocols,
            session,
        )
        member.is_new = True
        if group.state == PREPARING_REBALANCE and group.previous_state == EMPTY:
            group.new_member_added = True
        group.add(member, self._parked)
        # A new member sends no heartbeats before it has its id. While its request is parked, the node does not read
        # from the connection, so it does not notice that the peer is gone. So this deadline ends the parked JoinGroup
        # of a client that is lost. A client that still exists sends the JoinGroup again.
        core.await_client(session, core.settings.new_member_join_timeout_ms)
        prepare_or_complete(core, group, f"new member {member_id}{self._reason}")

    @property
    def _reason(self) -> str:
        return f" ({self._request.reason})" if self._request.reason else ""

    # --- members with an id ---

    def _known(self, group: ClassicGroup) -> None:
        core, request, member_id = self._core, self._request, self._request.member_id
        if member_id in group.pending_members:
            if request.group_instance_id is not None:
                # The node promises ids only to dynamic members. Apache Kafka also answers with this error.
                self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID)
            else:
                self._add(group, member_id)
            return
        try:
            member = group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            self._refuse(ErrorCode(error.code), member_id)
            return
        same = member.protocols == self._protocols
        if group.state == EMPTY:
            self._refuse(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        elif (group.state == COMPLETING_REBALANCE and same) or (
            group.state == STABLE and same and group.leader_id != member_id
        ):
            # The member missed the response to its JoinGroup, or its subscription has not changed.
            self._parked.answer(join_response(group, member_id, self._parked.api_version))
        else:
            # A leader joins again with the same protocols when topics have changed, to assign the partitions again.
            group.update(member, self._protocols, self._rebalance_timeout_ms, request.session_timeout_ms)
            before = group.park_join(member, self._parked)
            if before is not None:  # an earlier request was parked: a client that still waits for it must join again
                before.answer(join_error(before.api_version, ErrorCode.REBALANCE_IN_PROGRESS, member_id))
            prepare_or_complete(core, group, f"member {member_id} joins again{self._reason}")

    # --- a static member that was restarted ---

    def _replace_static(self, group: ClassicGroup, instance_id: str, old_id: str, new_id: str) -> None:
        core, request = self._core, self._request
        leader_before, old = group.leader_id, group.members[old_id]
        _fence(group, old)
        member = _renamed(core, group, old, new_id)
        group.replace_static(instance_id, old_id, member)
        core.deadlines.cancel(old.session)
        extend_session(core, member)
        group.update(member, self._protocols, self._rebalance_timeout_ms, request.session_timeout_ms)
        group.park_join(member, self._parked)
        if group.state == STABLE and group.select_protocol() == (group.protocol_name or ""):
            self._record_replaced(group, instance_id, old, member, leader_before)
        elif group.state in (STABLE, COMPLETING_REBALANCE):
            # A rebalance is necessary for one of two reasons: the leader knows only the old id and would assign nothing
            # to the new id, or the group would now choose another protocol.
            prepare(core, group, f"static member {instance_id} has a new id, {new_id}{self._reason}")
        else:
            complete_when_all_joined(core, group)

    def _record_replaced(
        self, group: ClassicGroup, instance_id: str, old: Member, member: Member, leader_before: str | None
    ) -> None:
        """Writes the new id of a static member. The group already uses this id, and has not changed otherwise
        (KIP-814). If the write fails, the group takes the old id back. If the commit takes too long, the new id stays,
        because the log may contain it, and the client retries."""
        core, version = self._core, self._parked.api_version

        def outcome(error: ErrorCode) -> None:
            # A rebalance may have answered the request in the meantime, and the member may have sent another one.
            waits = member.awaiting_join is self._parked
            if waits:
                group.park_join(member, None)
                if group.members.get(member.member_id) is member and member.session.due_ms is None:
                    extend_session(core, member)  # the session has expired while the request was parked
            if error != ErrorCode.NONE:
                response = join_response(group, UNKNOWN_MEMBER_ID, version)
                response.leader, response.error_code = leader_before or "", error
                self._parked.answer(response)
            elif waits:
                self._parked.answer(self._unchanged(group, member, leader_before))

        def revert() -> None:
            _take_back(core, group, instance_id, old, member)

        assignments = {each.member_id: each.assignment for each in group.members.values()}
        core.outbox.append([group_record(group, assignments)], outcome, revert=revert)

    def _unchanged(self, group: ClassicGroup, member: Member, leader_before: str | None) -> JoinGroupResponse:
        """Returns the response to a static member that replaces another. A client that knows skip_assignment learns
        that it leads but need not assign. An older client gets the old leader's id, so that it does not assign."""
        skips = self._parked.api_version >= _SKIP_ASSIGNMENT_SINCE
        is_leader = group.leader_id == member.member_id
        return JoinGroupResponse(
            member_id=member.member_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=join_protocol_name(self._parked.api_version, group.protocol_name),
            leader=(group.leader_id if skips else leader_before) or "",
            skip_assignment=skips and is_leader,
            members=joined_members(group) if skips and is_leader else [],
        )


def _offered(request: JoinGroupRequest) -> Protocols:
    """Returns the protocols without duplicate names; the first protocol of each name is kept. If a name counted twice,
    the protocol would seem to have the support of one more member."""
    if len(request.protocols) == 1:
        return ((request.protocols[0].name, request.protocols[0].metadata),)
    offered: dict[str, bytes] = {}
    for each in request.protocols:
        offered.setdefault(each.name, each.metadata)
    return tuple(offered.items())


def _renamed(core: Core, group: ClassicGroup, member: Member, member_id: str) -> Member:
    return Member(
        member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.protocol_type,
        member.protocols,
        session_of(core, group, member_id),
        member.assignment,
    )


def _fence(group: ClassicGroup, member: Member) -> None:
    """Answers the parked requests of a member whose instance id now belongs to another member."""
    parked = group.park_join(member, None)
    if parked is not None:
        parked.answer(join_error(parked.api_version, ErrorCode.FENCED_INSTANCE_ID, member.member_id))
    parked, member.awaiting_sync = member.awaiting_sync, None
    if parked is not None:
        parked.answer(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))


def _take_back(core: Core, group: ClassicGroup, instance_id: str, old: Member, member: Member) -> None:
    """Restores the old member after the replacement of a static member could not be written to the log. Does nothing if
    the group has changed since."""
    if group.members.get(member.member_id) is not member:
        return
    _fence(group, member)
    core.deadlines.cancel(member.session)
    group.replace_static(instance_id, member.member_id, old)
    extend_session(core, old)


def _forget(core: Core, group: ClassicGroup) -> None:
    """Removes a new group that could not be written to the log. Members that have joined it since then must search for
    their coordinator again."""
    for member in group.members.values():
        parked = group.park_join(member, None)
        if parked is not None:
            parked.answer(join_error(parked.api_version, ErrorCode.NOT_COORDINATOR))
    if not group.recorded:
        core.drop(group)
