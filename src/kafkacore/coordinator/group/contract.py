"""The face of a shard: all groups and offsets whose records are in one partition of `__consumer_offsets`.

`shard.GroupShard(settings, new_uuid)` is one. Whoever owns a shard serves one input at a time and carries out the
effects of each. `now_ms` is wall clock time, as it stands in records; it may stand still, and going back harms nothing
but the precision of timeouts.

A shard's life: made empty; `replay` for every record of its partition up to the high watermark; `loaded`; requests,
`tick`, and what became of its appends; `unload`, after which it is thrown away.

What is recorded changes when an append is committed, never before. A decision that counts on an append in flight is in
a later append, so the owner keeps this rule: when an append fails, those after it fail too, told in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kafkacore.coordinator.group.effects import Caller, Effects, Waiter
from kafkacore.protocol.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafkacore.protocol.uuid import Uuid


class Shard(Protocol):
    # --- what is recorded ---

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int = -1) -> None:
        """A record of the partition, on loading, in the order of the log; not for what this shard appended itself.

        `offset` is the record's, `producer_id` the batch's when it is transactional, else -1. Records of kinds that are
        not run here are remembered as far as answers depend on them. A record that cannot be read changes nothing and
        raises ProtocolError, UnsupportedVersionError or InvalidRecordError: the owner logs it with its offset and goes
        on.
        """

    def replay_end_of_transaction(self, producer_id: int, committed: bool) -> None:
        """A control record of the partition, on loading and from a follower's or transaction's append after it."""

    def loaded(self, now_ms: int) -> Effects:
        """Everything is replayed: sessions of members begin now, and the regular look for expired offsets."""

    # --- what became of an append ---

    def committed(self, token: int, base_offset: int, now_ms: int) -> Effects:
        """The batch is committed; `base_offset` is its first record's. What it says is now recorded."""

    def failed(self, token: int, error: int, now_ms: int) -> Effects:
        """The batch is not in the log. `error` is Kafka's code of the reason; clients get what Kafka makes of it
        (`answers.append_error`). Nothing of its decision stays. After NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR
        the owner also unloads the shard."""

    def timed_out(self, token: int) -> Effects:
        """Longer than `offsets.commit.timeout.ms`: who waits for it is answered with COORDINATOR_NOT_AVAILABLE. The
        batch may still be committed or fail; the token stays open."""

    def unload(self, error: int) -> Effects:
        """Everybody who waits is answered with `error`: NOT_COORDINATOR when the partition went elsewhere,
        COORDINATOR_NOT_AVAILABLE when the node stops."""

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """No tick before it changes anything. It may lie in the past, and may be earlier than what happens."""

    def tick(self, now_ms: int) -> Effects:
        """Ends sessions, rebalances and delays that are over, and expires offsets."""

    # --- members. Group ids are not empty and session timeouts in range (`answers.refusal`). ---

    def join_group(self, caller: Caller, request: JoinGroupRequest, waiter: Waiter, now_ms: int) -> Effects:
        """The waiter is answered now, or parked until the group's rebalance is over: JoinGroupResponse."""

    def sync_group(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Effects:
        """The waiter is answered now, or parked until the leader's assignment is committed: SyncGroupResponse."""

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse: ...

    def leave_group(self, request: LeaveGroupRequest, waiter: Waiter, now_ms: int) -> Effects:
        """Of version 3 and later in form: a request of one member has it in `members` (`answers.batched_leave`); so is
        the LeaveGroupResponse."""

    # --- offsets. Topics have their names, and ids where known, in every version; they exist and may be read. ---

    def offset_commit(self, caller: Caller, request: OffsetCommitRequest, waiter: Waiter, now_ms: int) -> Effects:
        """OffsetCommitResponse, once committed. Topics that have no id leave it zero."""

    def offset_fetch(
        self, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, waiter: Waiter
    ) -> Effects:
        """OffsetFetchResponse.OffsetFetchResponseGroup. `topics` None asks for all of them. With `require_stable` it
        waits for the commits that are under way."""

    def offset_delete(self, request: OffsetDeleteRequest, waiter: Waiter, now_ms: int) -> Effects:
        """OffsetDeleteResponse."""

    def topics_deleted(self, topics: Sequence[tuple[str, Uuid]], now_ms: int) -> Effects:
        """Committed offsets of topics that are no more are deleted; nobody is answered."""

    # --- groups ---

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> list[ListGroupsResponse.ListedGroup]:
        """Empty filters let everything through; names as clients send them, in any case."""

    def describe_groups(
        self, caller: Caller, group_ids: Sequence[str]
    ) -> list[DescribeGroupsResponse.DescribedGroup]: ...

    def delete_groups(self, group_ids: Sequence[str], waiter: Waiter, now_ms: int) -> Effects:
        """A list of DeleteGroupsResponse.DeletableGroupResult."""
