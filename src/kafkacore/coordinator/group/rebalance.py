"""A group's rebalance: the group prepares the rebalance, the members join, and the leader assigns. Each step has a
deadline.

The rules are the same as in the classic part of Apache Kafka's GroupMetadataManager. This module answers only parked
requests, which wait for other members. Its callers answer the request that is being handled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.answers import join_error, join_protocol_name
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
from kafkacore.coordinator.group.deadlines import Deadline
from kafkacore.coordinator.group.effects import GroupRecord
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import GroupMetadataValue, JoinGroupResponse, SyncGroupResponse

LOG: Final = logging.getLogger("kafkacore.coordinator.group")
# A client may set a rebalance timeout of 0 or less. Without this lower bound, the node would check again immediately
# and without end until sessions expire, and would do nothing else.
MIN_WAIT_FOR_STATIC_MS: Final = 1_000


# --- groups, members and their deadlines ---


def new_group(core: Core, group_id: str) -> ClassicGroup:
    """Makes an empty group and adds it to the groups."""
    group = core.groups[group_id] = ClassicGroup(group_id, core.now_ms)
    return group


def session_of(core: Core, group: ClassicGroup, member_id: str) -> Deadline:
    """Returns a deadline for a member's session. The deadline is not set yet."""
    return Deadline().call(_session_expired, core, group, member_id)


def extend_session(core: Core, member: Member) -> None:
    core.await_client(member.session, member.session_timeout_ms)


def _was_heard(core: Core, member: Member) -> bool:
    """Restarts the session at the time when a processor last received a heartbeat of the member. Returns False if no
    processor has received any within the session."""
    left_ms = _left_since_heard(member)
    if left_ms <= 0:
        return False
    core.await_client(member.session, left_ms)
    return True


def _left_since_heard(member: Member) -> int:
    """Returns the time until the member's session ends, according to the heartbeats that processors have received. The
    result is 0 if they have received none."""
    if member.heard_by is None:
        return 0
    published, place = member.heard_by
    silence_ms = published.silence_ms(place)
    return 0 if silence_ms is None else member.session_timeout_ms - silence_ms


def publish(core: Core, group: ClassicGroup) -> None:
    """Publishes the group if it is stable and not published yet. The group may have been published before in the same
    generation, for example before a static member got a new id. So the sessions first take over the heartbeats that
    processors received at that time."""
    if core.published_groups is None or not group.may_be_published:
        return
    for member in group.members.values():
        left_ms, due_ms = _left_since_heard(member), member.session.due_ms
        if due_ms is not None and core.now_ms + left_ms > due_ms:
            core.await_client(member.session, left_ms)
    group.publish(core.published_groups)


def remove_member(core: Core, group: ClassicGroup, member: Member) -> None:
    """Removes a member. A parked JoinGroup or SyncGroup of the member gets an error that makes the client start again,
    because the client may still exist (KAFKA-7610)."""
    parked = group.park_join(member, None)
    if parked is not None:
        parked.answer(join_error(parked.api_version, ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
    parked, member.awaiting_sync = member.awaiting_sync, None
    if parked is not None:
        parked.answer(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    core.deadlines.cancel(member.session)
    group.remove(member.member_id)


def _session_expired(core: Core, group: ClassicGroup, member_id: str) -> None:
    if not core.is_here(group):
        return
    if member_id in group.pending_members:
        LOG.info("Group %s: member %s got its id and did not join in time.", group.group_id, member_id)
        group.remove(member_id)
        if group.state == PREPARING_REBALANCE and group.has_all_joined:
            complete_join(core, group)
        return
    member = group.members.get(member_id)
    if member is None or member.excused or _was_heard(core, member):
        return
    LOG.info("Group %s: member %s was silent for longer than its session and is removed.", group.group_id, member_id)
    remove_member(core, group, member)
    if group.state in (STABLE, COMPLETING_REBALANCE):
        prepare(core, group, f"member {member_id} was silent")
    elif group.state == PREPARING_REBALANCE and group.has_all_joined:
        complete_join(core, group)


# --- joining ---


def prepare_or_complete(core: Core, group: ClassicGroup, reason: str) -> None:
    """Starts a rebalance. If one is already being prepared, completes it when all members have joined."""
    if group.can_rebalance:
        prepare(core, group, reason)
    else:
        complete_when_all_joined(core, group)


def prepare(core: Core, group: ClassicGroup, reason: str) -> None:
    """Starts a rebalance, which all members must join. The first rebalance of an empty group waits for more members
    (KIP-134)."""
    if group.state == COMPLETING_REBALANCE:
        for member in group.members.values():
            member.assignment = b""
        give_assignments(core, group, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    core.deadlines.cancel(group.sync_timer)
    is_initial = group.state == EMPTY
    group.transition_to(PREPARING_REBALANCE, core.now_ms)
    LOG.info("Group %s prepares a rebalance after generation %d: %s.", group.group_id, group.generation_id, reason)
    if is_initial:
        delay_ms = core.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        _wait_for_more(core, group, delay_ms, remaining_ms)
    elif group.has_all_joined:
        complete_join(core, group)
    else:
        _wait_for_joins(core, group)


def complete_when_all_joined(core: Core, group: ClassicGroup) -> None:
    """Completes the join if all members have joined. The first rebalance of an empty group always waits until its delay
    has ended."""
    if group.state == PREPARING_REBALANCE and group.previous_state != EMPTY and group.has_all_joined:
        complete_join(core, group)


def complete_join(core: Core, group: ClassicGroup) -> None:
    """Removes the members that have not joined, except static members. The others form the new generation."""
    core.deadlines.cancel(group.join_timer)
    if not core.is_here(group):
        return
    for member in [each for each in group.members.values() if each.awaiting_join is None and each.instance_id is None]:
        LOG.info("Group %s: member %s did not join in time and is removed.", group.group_id, member.member_id)
        core.deadlines.cancel(member.session)
        group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members remain, and none of them has joined. The group waits for them until their sessions end.
        _wait_for_joins(core, group, at_least_ms=MIN_WAIT_FOR_STATIC_MS)
        return
    group.next_generation(core.now_ms)
    if group.state == EMPTY:
        LOG.info("Group %s is empty with generation %d.", group.group_id, group.generation_id)
        append_group(core, group, {})
    else:
        LOG.info("Group %s: generation %d has %d members.", group.group_id, group.generation_id, len(group.members))
        _tell_joined(core, group)
        sync_timer = group.sync_timer.call(_pending_sync_expired, core, group, group.generation_id)
        core.await_client(sync_timer, group.rebalance_timeout_ms)


def join_response(group: ClassicGroup, member_id: str, api_version: int) -> JoinGroupResponse:
    """Returns the response to a member of the group's generation. The response to the leader lists the members."""
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=join_protocol_name(api_version, group.protocol_name),
        leader=group.leader_id or "",
        members=joined_members(group) if group.leader_id == member_id else [],
    )


def joined_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    """Returns the members in the form that the response to the leader uses."""
    shown = JoinGroupResponse.JoinGroupResponseMember
    return [
        shown(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def _tell_joined(core: Core, group: ClassicGroup) -> None:
    for member in group.members.values():
        parked = group.park_join(member, None)
        if parked is not None:
            parked.answer(join_response(group, member.member_id, parked.api_version))
        extend_session(core, member)
        member.is_new = False
        group.pending_sync.add(member.member_id)


def _wait_for_joins(core: Core, group: ClassicGroup, at_least_ms: int = 0) -> None:
    wait_ms = max(group.rebalance_timeout_ms, at_least_ms)
    core.await_client(group.join_timer.call(complete_join, core, group), wait_ms)


def _wait_for_more(core: Core, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    core.set_deadline(group.join_timer.call(_initial_delay_over, core, group, delay_ms, remaining_ms), delay_ms)


def _initial_delay_over(core: Core, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    """Ends a delay of the first rebalance. If a new member has joined during the delay, another delay follows, within
    the rebalance timeout."""
    if not core.is_here(group):
        return
    if group.new_member_added and remaining_ms:
        group.new_member_added = False
        next_ms = min(core.settings.initial_rebalance_delay_ms, remaining_ms)
        _wait_for_more(core, group, next_ms, max(remaining_ms - delay_ms, 0))
    else:
        complete_join(core, group)


# --- assignments ---


def append_group(core: Core, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
    """Writes the group's record. No request waits for it."""

    def outcome(error: ErrorCode) -> None:
        if error != ErrorCode.NONE:
            LOG.warning("Group %s: its state could not be stored: %s.", group.group_id, error.message)

    core.outbox.append([group_record(group, assignments)], outcome, apply=lambda offset: note_recorded(core, group))


def note_recorded(core: Core, group: ClassicGroup) -> None:
    """Notes that the group's record is committed. The group now exists, even if the log has an earlier tombstone for
    its id."""
    group.recorded = True
    core.groups.setdefault(group.group_id, group)


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """Returns the group's record. `assignments` must have an entry for every member."""
    shown = GroupMetadataValue.MemberMetadata
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp,
        members=[
            shown(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return records.group_key(group.group_id), records.group_value(value)


def give_assignments(core: Core, group: ClassicGroup, error: ErrorCode) -> None:
    """Answers every member whose SyncGroup is parked."""
    agreed = error == ErrorCode.NONE
    for member in group.members.values():
        parked, member.awaiting_sync = member.awaiting_sync, None
        if parked is not None:
            parked.answer(sync_response(group, member) if agreed else SyncGroupResponse(error_code=error))
            # The member's session may have expired while its SyncGroup was parked. Then it has no deadline any longer.
            extend_session(core, member)


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def synced(core: Core, group: ClassicGroup, member_id: str) -> None:
    """Notes that a member has sent its SyncGroup. When all members have sent theirs, cancels the deadline."""
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        core.deadlines.cancel(group.sync_timer)


def _pending_sync_expired(core: Core, group: ClassicGroup, generation_id: int) -> None:
    late = group.late_members()
    waits = group.state in (COMPLETING_REBALANCE, STABLE) and generation_id == group.generation_id
    if not core.is_here(group) or not waits or not late:
        return
    for member_id in late:
        member = group.remove(member_id)
        if member is not None:
            core.deadlines.cancel(member.session)
    prepare(core, group, f"{', '.join(late)} did not ask for an assignment in time")
