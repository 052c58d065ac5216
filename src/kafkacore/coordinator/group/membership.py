"""Handles SyncGroup, Heartbeat and LeaveGroup."""

from __future__ import annotations

from kafkacore.coordinator.group.classic import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    UNKNOWN_MEMBER_ID,
    ClassicGroup,
    Member,
)
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.effects import Waiter
from kafkacore.coordinator.group.outbox import Parked
from kafkacore.coordinator.group.rebalance import (
    LOG,
    complete_when_all_joined,
    extend_session,
    give_assignments,
    group_record,
    prepare_or_complete,
    publish,
    remove_member,
    sync_response,
    synced,
)
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    HeartbeatRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


def sync_group(core: Core, request: SyncGroupRequest, waiter: Waiter) -> None:
    """Answers the waiter with the member's assignment, now or later. Raises the error for the client:
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS."""
    group = core.classic(request.group_id)
    if group is None or group.state == EMPTY:
        raise error_for(_UNKNOWN)
    member = group.validate_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation_id:
        raise error_for(ErrorCode.ILLEGAL_GENERATION)
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
        raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state == PREPARING_REBALANCE:
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS)
    synced(core, group, member.member_id)
    if group.state == STABLE:
        core.outbox.answer(waiter, sync_response(group, member))
        return
    before, member.awaiting_sync = member.awaiting_sync, Parked(core.outbox, waiter, 0)
    if before is not None:  # an earlier request was parked: a client that still waits for it must join again
        before.answer(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    if group.leader_id == member.member_id:
        _assign(core, group, {each.member_id: each.assignment for each in request.assignments})


def _differs(asked: str | None, agreed: str | None) -> bool:
    return asked is not None and agreed is not None and asked != agreed


def _assign(core: Core, group: ClassicGroup, given: dict[str, bytes]) -> None:
    """Stores the leader's assignment, and then sends it to all members. A member that the leader left out gets an empty
    assignment."""
    generation_id = group.generation_id
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}

    def outcome(error: ErrorCode) -> None:
        # If another rebalance has started in the meantime, this assignment is out of date.
        if group.state != COMPLETING_REBALANCE or group.generation_id != generation_id or not core.is_here(group):
            return
        for member in group.members.values():
            member.assignment = b"" if error != ErrorCode.NONE else assignments.get(member.member_id, b"")
        give_assignments(core, group, error)
        if error == ErrorCode.NONE:
            group.transition_to(STABLE, core.now_ms)
            core.counts.completed_rebalances += 1
            publish(core, group)  # so that processors answer the members that send their SyncGroup from now on
        else:
            prepare_or_complete(core, group, f"the assignment could not be stored: {error.name}")

    core.outbox.append([group_record(group, assignments)], outcome)


def heartbeat(core: Core, request: HeartbeatRequest) -> ErrorCode:
    """Returns NONE, or the error that the member gets: REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID."""
    group = core.groups.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        return _UNKNOWN
    try:
        member = group.validate_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        return ErrorCode(error.code)
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    extend_session(core, member)
    publish(core, group)  # from now on processors answer the heartbeats of the other members
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state == PREPARING_REBALANCE else ErrorCode.NONE


def leave_group(core: Core, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Removes each member by its id, or by its instance id alone, as an administrator does (KIP-345)."""
    group = core.classic(request.group_id)
    shown = LeaveGroupResponse.MemberResponse
    answers = [
        shown(
            member_id=each.member_id,
            group_instance_id=each.group_instance_id,
            error_code=_UNKNOWN if group is None else _leave(core, group, each),
        )
        for each in request.members
    ]
    gone = [each.member_id for each in answers if each.error_code == ErrorCode.NONE]
    if group is not None and gone:
        if group.state in (STABLE, COMPLETING_REBALANCE):
            prepare_or_complete(core, group, f"{', '.join(gone)} left")
        elif group.state == PREPARING_REBALANCE:
            complete_when_all_joined(core, group)
    return LeaveGroupResponse(members=answers)


def _leave(core: Core, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
    member_id = identity.member_id
    session = group.pending_members.get(member_id)
    try:
        if member_id == UNKNOWN_MEMBER_ID:
            member = _static_member(group, identity.group_instance_id)
        elif session is not None:
            core.deadlines.cancel(session)
            group.remove(member_id)
            return ErrorCode.NONE
        else:
            member = group.validate_member(member_id, identity.group_instance_id)
    except KafkaError as error:
        return ErrorCode(error.code)
    LOG.info("Group %s: member %s left (%s).", group.group_id, member.member_id, identity.reason or "no reason given")
    remove_member(core, group, member)
    return ErrorCode.NONE


def _static_member(group: ClassicGroup, instance_id: str | None) -> Member:
    member_id = None if instance_id is None else group.static_member_id(instance_id)
    if member_id is None:
        raise error_for(_UNKNOWN)
    return group.members[member_id]
