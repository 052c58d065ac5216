"""Applies one record of `__consumer_offsets` to a shard that is being loaded."""

from __future__ import annotations

from typing import Final

from kafkacore.coordinator.group import other_kinds, records
from kafkacore.coordinator.group.classic import EMPTY, STABLE, ClassicGroup, Member
from kafkacore.coordinator.group.commits import note_group
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.offsets import Pending
from kafkacore.coordinator.group.other_kinds import OtherGroup
from kafkacore.coordinator.group.rebalance import new_group, session_of
from kafkacore.protocol.errors import ErrorCode, UnsupportedVersionError, error_for
from kafkacore.protocol.messages import GroupMetadataValue

NO_PRODUCER_ID: Final = -1
_NO_REBALANCE_TIMEOUT: Final = -1  # version 0 has no rebalance timeout


def replay(core: Core, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
    """Applies a record. If the record cannot be read, raises ProtocolError, UnsupportedVersionError or
    InvalidRecordError and changes nothing."""
    kind = records.kind_of(key)
    if kind in (records.OFFSET_COMMIT, records.LEGACY_OFFSET_COMMIT):
        _replay_offset(core, key, value, offset, producer_id)
    elif kind == records.GROUP_METADATA:
        _replay_group(core, records.read_group_key(key), value)
    elif other_kinds.is_other_kind(kind):
        _replay_other(core, kind, key, value is not None)
    else:
        raise UnsupportedVersionError(f"records of kind {kind} are not known in __consumer_offsets")


def end_transaction(core: Core, producer_id: int, committed: bool, offset: int) -> None:
    for group_id, _, _ in core.offsets.end(producer_id, committed, offset):
        note_group(core, group_id)


def _replay_offset(core: Core, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
    group_id, topic, partition = records.read_offset_key(key)
    if value is None:
        core.offsets.remove(group_id, topic, (partition,), offset)
        return
    read = records.read_offset(value)
    note_group(core, group_id)
    if producer_id == NO_PRODUCER_ID:
        core.offsets.put(group_id, topic, partition, read, offset)
    else:
        core.offsets.put_pending(producer_id, (group_id, topic, partition), Pending(offset, read))


def _replay_group(core: Core, group_id: str, value: bytes | None) -> None:
    if value is None:
        core.groups.pop(group_id, None)
        return
    recorded = records.read_group(value)
    if recorded.members and recorded.protocol is None:
        raise error_for(ErrorCode.INVALID_RECORD, f"group {group_id} has members that have agreed on no protocol")
    group = new_group(core, group_id)
    group.generation_id = recorded.generation
    group.protocol_type = recorded.protocol_type or None
    group.protocol_name = recorded.protocol
    group.leader_id = recorded.leader
    group.state = STABLE if recorded.members else EMPTY
    group.state_timestamp = recorded.current_state_timestamp
    group.recorded = True
    for member in recorded.members:
        group.add(_member(core, group, recorded, member), None)
    group.note_subscriptions()


def _member(
    core: Core, group: ClassicGroup, recorded: GroupMetadataValue, member: GroupMetadataValue.MemberMetadata
) -> Member:
    rebalance_ms = member.rebalance_timeout
    return Member(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout if rebalance_ms == _NO_REBALANCE_TIMEOUT else rebalance_ms,
        member.session_timeout,
        recorded.protocol_type,
        ((recorded.protocol or "", member.subscription),),
        session_of(core, group, member.member_id),
        member.assignment,
    )


def _replay_other(core: Core, kind: int, key: bytes, present: bool) -> None:
    """Applies a record of a group of another kind. An earlier offset of the group may have created a simple group. This
    record shows that the group is of another kind."""
    group_id = other_kinds.group_id_of(key)
    known = core.groups.get(group_id)
    if isinstance(known, ClassicGroup):
        if present and not known.is_simple:
            raise error_for(ErrorCode.INVALID_RECORD, f"group {group_id} is a classic group")
        known = None
    if known is None:
        if not present:
            return
        known = OtherGroup(group_id, other_kinds.type_of(kind))
    if other_kinds.replay(known, kind, key, present):
        core.groups[group_id] = known
    else:
        core.groups.pop(group_id, None)
