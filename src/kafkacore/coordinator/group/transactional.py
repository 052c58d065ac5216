"""TxnOffsetCommit: commits offsets that take effect when their transaction commits (KIP-98, KIP-447).

The commit is a transactional batch of `__consumer_offsets`. Its offsets are pending until the transaction coordinator
writes a marker, a control batch, to the same partition. The marker commits the offsets or makes them void.
"""

from __future__ import annotations

from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.classic import EMPTY
from kafkacore.coordinator.group.commits import note_group
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.offsets import Pending
from kafkacore.coordinator.group.other_kinds import SHARE, OtherGroup
from kafkacore.coordinator.group.records import CommittedOffset
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import TxnOffsetCommitRequest

# Topic, partition and offset, in the order of the records.
Commits = list[tuple[str, int, CommittedOffset]]


def validate(core: Core, request: TxnOffsetCommitRequest) -> None:
    """Checks a commit. Raises ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or GROUP_ID_NOT_FOUND. A client
    that sends no member id is older than KIP-447, and may commit to a group with members."""
    group = core.groups.get(request.group_id)
    generation_id, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
    if isinstance(group, OtherGroup):
        if group.group_type == SHARE:
            raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")
        if generation_id >= 0 or member_id:
            # This node cannot check a member's epoch, because only a coordinator for that kind of group knows it.
            known = member_id in group.members
            raise error_for(ErrorCode.ILLEGAL_GENERATION if known else ErrorCode.UNKNOWN_MEMBER_ID)
    elif group is None or group.deleting:
        if generation_id >= 0:
            raise error_for(ErrorCode.ILLEGAL_GENERATION)
    elif generation_id < 0 and group.state == EMPTY:
        return
    elif generation_id >= 0 or member_id or instance_id is not None:
        group.validate_member(member_id, instance_id)
        if generation_id != group.generation_id:
            raise error_for(ErrorCode.ILLEGAL_GENERATION)


def batch_records(group_id: str, commits: Commits) -> list[tuple[bytes, bytes]]:
    """Returns the records of the commit's batch."""
    return [
        (records.offset_key(group_id, topic, partition), records.offset_value(offset))
        for topic, partition, offset in commits
    ]


def appended(core: Core, group_id: str, producer_id: int, base_offset: int, commits: Commits) -> None:
    """Stores the offsets of a batch, which is now in the log, as pending. Until the transaction ends, a client that
    fetches stable offsets gets an error for these partitions and tries again."""
    note_group(core, group_id)
    for delta, (topic, partition, offset) in enumerate(commits):
        core.offsets.put_pending(producer_id, (group_id, topic, partition), Pending(base_offset + delta, offset))
    core.counts.offset_commits += len(commits)
