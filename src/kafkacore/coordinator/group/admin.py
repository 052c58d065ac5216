"""ListGroups (KIP-518, KIP-848), DescribeGroups (KIP-1043) and DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.classic import DEAD, EMPTY, STABLE, ClassicGroup, Member
from kafkacore.coordinator.group.commits import drop, offset_tombstones, remove
from kafkacore.coordinator.group.core import Core, Group
from kafkacore.coordinator.group.effects import GroupRecord, Waiter
from kafkacore.coordinator.group.expiry import begin_deletion
from kafkacore.coordinator.group.other_kinds import CLASSIC, CONSUMER, SHARE, STREAMS
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse
from kafkacore.runtime.slices import Work, distinct

_ERRORS_SINCE: Final = 6  # earlier versions of DescribeGroups report a missing group as Dead
_PROTOCOL_TYPES: Final = {CONSUMER: "consumer", SHARE: "share", STREAMS: "streams"}


def state_filter(names: Iterable[str]) -> Work[Collection[str]]:
    """Returns the states that a client has asked for, in the form that `list_groups` takes. Upper and lower case are
    the same."""
    return distinct(name.lower().strip() for name in names)


def type_filter(names: Iterable[str]) -> Work[Collection[str]]:
    """Does for group types what `state_filter` does for states. Kafka strips spaces around states but not around
    types."""
    return distinct(name.lower() for name in names)


def list_groups(
    core: Core, states: Collection[str], types: Collection[str]
) -> Work[list[ListGroupsResponse.ListedGroup]]:
    """Lists the groups in slices of a few milliseconds, each group in its state at that moment. An empty filter matches
    every group.
    """
    shown = ListGroupsResponse.ListedGroup
    found = []
    for group_id, group in tuple(core.groups.items()):
        state, group_type, protocol_type = _listed(group)
        wanted = state and (not states or state.lower() in states)
        if wanted and (not types or group_type in types):
            found.append(
                shown(group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=group_type)
            )
        yield
    return found


def _listed(group: Group) -> tuple[str, str, str]:
    """Returns the state, type and protocol type of a group. A group that is not recorded yet has no state."""
    if isinstance(group, ClassicGroup):
        return group.state if group.recorded else "", CLASSIC, group.protocol_type or ""
    return group.state, group.group_type, _PROTOCOL_TYPES[group.group_type]


def describe_group(core: Core, api_version: int, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    shown = DescribeGroupsResponse.DescribedGroup
    group = core.groups.get(group_id)
    if isinstance(group, ClassicGroup) and group.recorded:
        agreed = group.protocol_name if group.state == STABLE else None
        return shown(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_data=agreed or "",
            members=[_described_member(member, agreed) for member in group.members.values()],
        )
    if api_version < _ERRORS_SINCE:
        return shown(group_id=group_id, group_state=DEAD)
    known = group is not None and not isinstance(group, ClassicGroup)
    message = f"Group {group_id} is not a classic group." if known else f"Group {group_id} not found."
    return shown(group_id=group_id, group_state=DEAD, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)


def _described_member(member: Member, protocol_name: str | None) -> DescribeGroupsResponse.DescribedGroupMember:
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
        member_assignment=member.assignment,
    )


def delete_groups(core: Core, group_ids: Sequence[str], waiter: Waiter) -> None:
    """Deletes each group that is empty, all in one append. The result is a list of DeletableGroupResult."""
    shown = DeleteGroupsResponse.DeletableGroupResult
    results: list[Any] = []
    ending: list[tuple[str, ClassicGroup | None, list[tuple[str, list[int]]]]] = []
    tombstones: list[GroupRecord] = []
    for group_id in dict.fromkeys(group_ids):
        error = _not_deletable(core, group_id)
        results.append(shown(group_id=group_id, error_code=error))
        if error == ErrorCode.NONE:
            removed, group = _all_offsets(core, group_id), core.classic(group_id)
            tombstones += offset_tombstones(group_id, removed)
            tombstones.append((records.group_key(group_id), None))
            ending.append((group_id, group, removed))
            if group is not None:
                begin_deletion(core, group)
    if not tombstones:
        core.outbox.answer(waiter, results)
        return

    def outcome(error: ErrorCode) -> None:
        failed = [shown(group_id=group_id, error_code=error) for group_id in dict.fromkeys(group_ids)]
        core.outbox.answer(waiter, results if error == ErrorCode.NONE else failed)

    def apply(base_offset: int) -> None:
        for group_id, group, removed in ending:
            remove(core, group_id, removed, base_offset)
            ended = group or core.classic(group_id)
            if ended is not None and (ended.deleting or ended.is_simple):
                drop(core, ended)

    def revert() -> None:
        for _, group, _ in ending:
            if group is not None:
                group.deleting = False

    touched = {group_id: removed for group_id, _, removed in ending if removed}
    core.outbox.append(tombstones, outcome, apply=apply, revert=revert, offsets=touched)


def _not_deletable(core: Core, group_id: str) -> ErrorCode:
    """Returns the error code that says why the group cannot be deleted, or NONE if it can. A group of a kind that this
    node does not run cannot be deleted, even if it has no members."""
    group = core.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        if group.deleting:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state == EMPTY else ErrorCode.NON_EMPTY_GROUP
    if group is not None and group.members:
        return ErrorCode.NON_EMPTY_GROUP
    # An append with the group's first offset may be in progress.
    simple = group is None and core.outbox.last_of(group_id) is not None
    return ErrorCode.NONE if simple else ErrorCode.GROUP_ID_NOT_FOUND


def _all_offsets(core: Core, group_id: str) -> list[tuple[str, list[int]]]:
    """Returns all of the group's offsets: committed offsets, offsets that are being committed, and offsets that open
    transactions have written."""
    by_topic = {topic: set(partitions) for topic, partitions in core.offsets.of(group_id).items()}
    for topic, index in core.outbox.open_offsets(group_id) | set(core.offsets.open_of(group_id)):
        by_topic.setdefault(topic, set()).add(index)
    return [(topic, sorted(indexes)) for topic, indexes in by_topic.items()]
