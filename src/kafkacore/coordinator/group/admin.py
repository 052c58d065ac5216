"""ListGroups (KIP-518, KIP-848), DescribeGroups (KIP-1043) and DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final

from kafkacore.coordinator.group.classic import DEAD, EMPTY, STABLE, ClassicGroup, Member
from kafkacore.coordinator.group.core import Core, Group
from kafkacore.coordinator.group.effects import Waiter
from kafkacore.coordinator.group.expiry import append_removal, begin_deletion
from kafkacore.coordinator.group.other_kinds import CLASSIC, CONSUMER, SHARE, STREAMS
from kafkacore.coordinator.group.outbox import Outcome
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import DeleteGroupsResponse, DescribeGroupsResponse, ListGroupsResponse
from kafkacore.runtime.slices import Work, distinct

_ERRORS_SINCE: Final = 6  # earlier versions of DescribeGroups report a missing group as Dead
_Result: Final = DeleteGroupsResponse.DeletableGroupResult
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
    """Lists the groups in slices of a few milliseconds. Each group is listed with its state at the time of its slice.
    An empty filter matches every group.
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
    """Deletes each group that is empty. The result is a list of DeletableGroupResult."""
    results = {group_id: _Result(group_id=group_id) for group_id in group_ids}
    deleting = set()
    for group_id, result in results.items():
        result.error_code = _not_deletable(core, group_id)
        if result.error_code == ErrorCode.NONE:
            deleting.add(group_id)
    if not deleting:
        core.outbox.answer(waiter, list(results.values()))

    def deleted(group_id: str, error: ErrorCode) -> None:
        results[group_id].error_code = error
        deleting.discard(group_id)
        if not deleting:
            core.outbox.answer(waiter, list(results.values()))

    for group_id in [each for each in results if each in deleting]:
        _delete(core, group_id, partial(deleted, group_id))


def _delete(core: Core, group_id: str, outcome: Outcome) -> None:
    group, offsets = core.classic(group_id), _all_offsets(core, group_id)
    if group is not None:
        begin_deletion(core, group)
    append_removal(core, group_id, offsets, group, outcome, ends=True)


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
    # The append that will create a simple group may be in progress.
    simple = group is None and core.outbox.last_of(group_id) is not None
    return ErrorCode.NONE if simple else ErrorCode.GROUP_ID_NOT_FOUND


def _all_offsets(core: Core, group_id: str) -> list[tuple[str, list[int]]]:
    """Returns all of the group's offsets: committed offsets, offsets that are being committed, and offsets that open
    transactions have written."""
    by_topic = {topic: set(partitions) for topic, partitions in core.offsets.of(group_id).items()}
    for topic, index in core.outbox.open_offsets(group_id) | set(core.offsets.open_of(group_id)):
        by_topic.setdefault(topic, set()).add(index)
    return [(topic, sorted(indexes)) for topic, indexes in by_topic.items()]
