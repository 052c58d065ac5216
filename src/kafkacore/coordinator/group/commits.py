"""OffsetCommit, OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.hot.offset_rows import TopicOffsets
from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.answers import fetch_error
from kafkacore.coordinator.group.classic import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE, ClassicGroup
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.effects import GroupRecord, Waiter
from kafkacore.coordinator.group.other_kinds import SHARE, OtherGroup
from kafkacore.coordinator.group.rebalance import extend_session, new_group
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafkacore.protocol.uuid import ZERO

NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
_NO_RETENTION: Final = -1  # the client does not set the retention; versions 2 to 4 may set it
_LAST_TIMESTAMP: Final = (1 << 63) - 1
_GROUP_ID_NOT_FOUND_SINCE: Final = 9
_NO_OFFSETS: Final = TopicOffsets()
_NO_ROW: Final = (NO_OFFSET, NO_LEADER_EPOCH, "", NO_OFFSET, NO_OFFSET, ZERO)

_FetchGroup: TypeAlias = OffsetFetchRequest.OffsetFetchRequestGroup
Row: TypeAlias = tuple[int, int, str, int, int, bytes]  # the fields of a CommittedOffset
_FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions


# --- OffsetCommit ---


def offset_commit(core: Core, commit: OffsetCommit, waiter: Waiter) -> None:
    """Answers the waiter with `commit` when the accepted offsets are committed.

    Raises the error that every partition gets: ILLEGAL_GENERATION, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION, COORDINATOR_NOT_AVAILABLE.
    """
    _validate_commit(core, commit)
    core.outbox.require_room()
    retention_ms = commit.retention_time_ms
    expires = records.NO_EXPIRE_TIMESTAMP
    if retention_ms != _NO_RETENTION:
        expires = min(core.now_ms + retention_ms, _LAST_TIMESTAMP)
    commit.accept(core.now_ms, expires, core.settings.metadata_max_bytes, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    if not len(commit):
        core.outbox.answer(waiter, commit)
        return

    core.counts.offset_commits += len(commit)

    def outcome(error: ErrorCode) -> None:
        commit.error = error
        core.outbox.answer(waiter, commit)

    def apply(base_offset: int) -> None:
        """Applies the commit. The first committed offset of an unknown group creates a simple group."""
        note_group(core, commit.group_id)
        core.offsets.commit(commit, base_offset)

    core.outbox.append(commit, outcome, apply=apply, offsets={commit.group_id: _Accepted(commit)}, independent=True)


class _Accepted:
    """The topics and partitions of a commit. They are listed on demand, because most commits never need the list."""

    __slots__ = ("_commit",)

    def __init__(self, commit: OffsetCommit) -> None:
        self._commit = commit

    def __iter__(self) -> Iterator[tuple[str, list[int]]]:
        for number in self._commit.accepted():
            yield self._commit.names[number], self._commit.partitions(number)


def note_group(core: Core, group_id: str) -> None:
    """Marks the group as recorded, because its offsets are in the log, even if the log has no other record of the
    group."""
    group = core.groups.get(group_id)
    if group is None:
        group = new_group(core, group_id)
    if isinstance(group, ClassicGroup):
        group.recorded = True


def _validate_commit(core: Core, commit: OffsetCommit) -> None:
    group = core.groups.get(commit.group_id)
    generation_id, member_id = commit.generation_id_or_member_epoch, commit.member_id
    if isinstance(group, OtherGroup):
        _validate_other(group, member_id, generation_id, commit.version)
    elif group is None or group.deleting:
        if generation_id >= 0:
            unknown = ErrorCode.GROUP_ID_NOT_FOUND if commit.version >= _GROUP_ID_NOT_FOUND_SINCE else None
            raise error_for(unknown or ErrorCode.ILLEGAL_GENERATION)
    elif generation_id >= 0 or group.state != EMPTY:
        _validate_member(core, group, commit)


def _validate_member(core: Core, group: ClassicGroup, commit: OffsetCommit) -> None:
    """Checks the member of a commit. The commit also shows that this member is alive."""
    generation_id, member_id, instance_id = (
        commit.generation_id_or_member_epoch,
        commit.member_id,
        commit.group_instance_id,
    )
    if generation_id < 0 and not member_id and instance_id is None:
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)  # a commit without a member is allowed only for an empty group
    member = group.validate_member(member_id, instance_id)
    if generation_id != group.generation_id:
        raise error_for(ErrorCode.ILLEGAL_GENERATION)
    if group.state == COMPLETING_REBALANCE:
        raise error_for(ErrorCode.REBALANCE_IN_PROGRESS)
    if group.state in (STABLE, PREPARING_REBALANCE):
        extend_session(core, member)


def _validate_other(group: OtherGroup, member_id: str, epoch: int, api_version: int) -> None:
    """Accepts a commit without a member while the group has no members. This node cannot check a member's epoch,
    because only a coordinator for that kind of group knows it."""
    if group.group_type == SHARE:
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    if epoch < 0 and not group.members:
        return
    if member_id not in group.members:
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID)
    too_old = api_version < _GROUP_ID_NOT_FOUND_SINCE
    raise error_for(ErrorCode.UNSUPPORTED_VERSION if too_old else ErrorCode.STALE_MEMBER_EPOCH)


# --- OffsetFetch ---


def offset_fetch(core: Core, group: _FetchGroup, require_stable: bool, waiter: Waiter) -> None:
    """Answers the waiter with the group's offsets. Raises the error that the group gets: UNKNOWN_MEMBER_ID,
    STALE_MEMBER_EPOCH, COORDINATOR_NOT_AVAILABLE."""
    other = core.groups.get(group.group_id)
    if isinstance(other, OtherGroup) and other.group_type != SHARE:
        _validate_other_fetch(other, group.member_id, group.member_epoch)
    under_way = core.outbox.last_of(group.group_id) if require_stable else None
    if under_way is None:
        core.outbox.answer(waiter, _fetched(core, group, require_stable))
        return
    if under_way.late:
        raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    core.outbox.require_room()

    def outcome(error: ErrorCode) -> None:
        failed = None if error == ErrorCode.NONE else fetch_error(group, error, api_version=2)
        core.outbox.answer(waiter, failed or _fetched(core, group, require_stable))

    under_way.waiting.append(outcome)


def _validate_other_fetch(group: OtherGroup, member_id: str | None, epoch: int) -> None:
    if member_id is None and epoch < 0:
        return
    known = member_id in group.members
    raise error_for(ErrorCode.STALE_MEMBER_EPOCH if known else ErrorCode.UNKNOWN_MEMBER_ID)


def _fetched(core: Core, group: _FetchGroup, require_stable: bool) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    held = core.offsets.of(group.group_id)
    unstable = set(core.offsets.open_of(group.group_id)) if require_stable else set()
    shown = OffsetFetchResponse.OffsetFetchResponseTopics
    wanted = group.topics
    if wanted is None:
        topics = [
            shown(
                name=name,
                partitions=[_fetched_partition(name, index, row, ZERO, unstable) for index, row in of.items()],
            )
            for name, of in held.items()
        ]
    else:
        topics = []
        for topic in wanted:
            of = held.get(topic.name, _NO_OFFSETS)
            partitions = [
                _fetched_partition(topic.name, index, of.get(index), topic.topic_id, unstable)
                for index in topic.partition_indexes
            ]
            topics.append(shown(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _fetched_partition(topic: str, index: int, row: Row | None, topic_id: bytes, unstable: set[tuple[str, int]]) -> Any:
    """Returns the offset of one partition. If a commit was made for a deleted topic, it does not count for a later
    topic of the same name."""
    if unstable and (topic, index) in unstable:
        error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    else:
        error = ErrorCode.NONE
        offset, leader_epoch, metadata, _, _, committed_for = row or _NO_ROW
        if row is not None and (committed_for == topic_id or ZERO in (committed_for, topic_id)):
            return _FetchedPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                metadata=metadata,
            )
    return _FetchedPartition(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        error_code=error,
    )


# --- OffsetDelete ---


def offset_delete(core: Core, request: OffsetDeleteRequest, waiter: Waiter) -> None:
    """Deletes offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group_id = request.group_id
    group = core.groups.get(group_id)
    under_way = core.outbox.open_offsets(group_id)
    _validate_delete(group, group_id, bool(under_way))
    held, pending = core.offsets.of(group_id), set(core.offsets.open_of(group_id)) | under_way
    topics = []
    removed: list[tuple[str, list[int]]] = []
    for topic in request.topics:
        subscribed = _is_subscribed(group, topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        indexes = [each.partition_index for each in topic.partitions]
        shown = OffsetDeleteResponse.OffsetDeleteResponsePartition
        answers = [shown(partition_index=index, error_code=error) for index in indexes]
        topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        if not subscribed:
            of = held.get(topic.name, _NO_OFFSETS)
            removed.append((topic.name, [each for each in indexes if each in of or (topic.name, each) in pending]))
    response = OffsetDeleteResponse(topics=topics)
    tombstones = offset_tombstones(group_id, removed)
    if not tombstones:
        core.outbox.answer(waiter, response)
        return

    core.counts.deleted_offsets += len(tombstones)

    def outcome(error: ErrorCode) -> None:
        core.outbox.answer(waiter, response if error == ErrorCode.NONE else OffsetDeleteResponse(error_code=error))

    core.outbox.append(
        tombstones,
        outcome,
        apply=lambda base_offset: remove(core, group_id, removed, base_offset),
        offsets={group_id: removed},
    )


def offset_tombstones(group_id: str, removed: Iterable[tuple[str, Iterable[int]]]) -> list[GroupRecord]:
    return [(records.offset_key(group_id, topic, index), None) for topic, indexes in removed for index in indexes]


def remove(core: Core, group_id: str, removed: Iterable[tuple[str, Iterable[int]]], at: int) -> None:
    """Applies a deletion whose record is at offset `at` of the log."""
    for topic, indexes in removed:
        core.offsets.remove(group_id, topic, indexes, at)


def drop(core: Core, group: ClassicGroup) -> None:
    """Applies the deletion of a group. Offsets of a transaction can arrive before the deletion, but come after it in
    the log. Such offsets create a simple group."""
    core.drop(group)
    if core.offsets.of(group.group_id) or core.offsets.open_of(group.group_id):
        note_group(core, group.group_id)


def _validate_delete(group: ClassicGroup | OtherGroup | None, group_id: str, under_way: bool) -> None:
    if isinstance(group, OtherGroup):
        if group.group_type == SHARE:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    elif group is None or group.deleting:
        if not under_way or group is not None:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    elif group.state != EMPTY and not group.uses_consumer_protocol:
        raise error_for(ErrorCode.NON_EMPTY_GROUP)


def _is_subscribed(group: ClassicGroup | OtherGroup | None, topic: str) -> bool:
    if isinstance(group, OtherGroup):
        return bool(group.members)  # only a coordinator for that kind of group knows its topics
    return group is not None and group.is_subscribed(topic)


def refused_fetch(group: _FetchGroup, error: KafkaError) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    made: OffsetFetchResponse.OffsetFetchResponseGroup = fetch_error(group, error.code, api_version=2)
    return made
