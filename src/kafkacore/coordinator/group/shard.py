"""A shard: all groups and offsets whose records are in one partition of `__consumer_offsets`.

A shard's owner passes it one input at a time and executes the effects of each input. `now_ms` is the wall-clock time
that the shard writes into new records. It comes from a clock that smooths small jumps (`coordinator.steady_clock`). The
same clock measures sessions.

The life cycle of a shard: the owner creates it empty. The owner calls `replay` for every record of the partition up to
the high watermark, and then `loaded`. After that, the owner passes requests and the results of appends to the shard,
and calls `tick`. `unload` ends the shard.

The recorded state changes when an append is committed, and never earlier. A decision may depend on an append that is
not committed yet. In that case, the decision's own records are in a later append. So when one append fails, the owner
fails all later appends too, and reports their failures in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.record.batch import DEFAULT_LIMIT_BYTES
from kafkacore.coordinator.group import admin, commits, expiry, membership, replay, transactional
from kafkacore.coordinator.group.answers import join_error
from kafkacore.coordinator.group.classic import ClassicGroup
from kafkacore.coordinator.group.core import Core, Counts
from kafkacore.coordinator.group.effects import Caller, Effects, Waiter
from kafkacore.coordinator.group.joining import Joining
from kafkacore.coordinator.group.other_kinds import OtherGroup
from kafkacore.coordinator.group.published_groups import PublishedGroups
from kafkacore.coordinator.group.rebalance import extend_session, prepare
from kafkacore.coordinator.group.replay import NO_PRODUCER_ID
from kafkacore.coordinator.group.settings import GroupSettings
from kafkacore.protocol.errors import ErrorCode, KafkaError
from kafkacore.protocol.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import Work


class GroupShard:
    """The state machine of one partition. `new_uuid` returns 16 unique bytes for the end of a member's id. If
    `published_groups` is given, processors answer heartbeats that change nothing, and the shard does not see them. The
    shards of a broker share `counts`. `max_batch_bytes` returns the topic's max.message.bytes."""

    def __init__(
        self,
        settings: GroupSettings,
        new_uuid: Callable[[], bytes],
        published_groups: PublishedGroups | None = None,
        counts: Counts | None = None,
        max_batch_bytes: Callable[[], int] = lambda: DEFAULT_LIMIT_BYTES,
    ) -> None:
        self._core = Core(settings, new_uuid, published_groups, counts, max_batch_bytes)
        self._expiry = expiry.Expiry(self._core)

    # --- the recorded state ---

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Applies a record of the partition while the shard is being loaded. Call this in the order of the log, and not
        for records that this shard has appended itself.

        `offset` is the offset of the record. `producer_id` is the batch's producer id if the batch is transactional,
        else -1. This node does not run groups of the new kinds. The shard only notes which of them exist, so that
        requests for them get Kafka's errors. A record that cannot be read changes nothing and raises ProtocolError,
        UnsupportedVersionError or InvalidRecordError. The owner then logs the record's offset and continues.
        """
        replay.replay(self._core, key, value, offset, producer_id)

    def replay_end_of_transaction(self, producer_id: int, committed: bool, offset: int) -> None:
        """Applies the partition's control record at `offset`, both while the shard is being loaded and afterwards."""
        replay.end_transaction(self._core, producer_id, committed, offset)

    def loaded(self, now_ms: int) -> Effects:
        """Starts the sessions of members and the regular search for expired offsets. Call this after everything was
        replayed."""
        core = self._turn(now_ms)
        self._expiry.start()
        for group in list(core.groups.values()):
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    extend_session(core, member)
                if len(group.members) > core.settings.max_size:
                    prepare(core, group, "it is larger than group.max.size")
        return core.outbox.take()

    # --- the results of an append ---

    def committed(self, token: int, base_offset: int, now_ms: int) -> Effects:
        """Applies a committed batch: its content is now the recorded state. `base_offset` is the offset of its first
        record."""
        core = self._turn(now_ms)
        core.outbox.committed(token, base_offset)
        return core.outbox.take()

    def failed(self, token: int, error: int, now_ms: int) -> Effects:
        """Undoes the decision whose records could not be appended to the log because of `error`. Clients get the
        code that Kafka derives from `error` (`answers.append_error`). After NOT_LEADER_OR_FOLLOWER and
        KAFKA_STORAGE_ERROR, the owner also unloads the shard."""
        core = self._turn(now_ms)
        core.outbox.failed(token, error)
        return core.outbox.take()

    def timed_out(self, token: int, now_ms: int) -> Effects:
        """Answers the waiters of an append with COORDINATOR_NOT_AVAILABLE, because it has taken longer than
        `offsets.commit.timeout.ms`. The token stays open, because the batch may still be committed or fail."""
        core = self._turn(now_ms)
        core.outbox.timed_out(token)
        return core.outbox.take()

    def unload(self, error: int) -> Effects:
        """Answers every waiter with `error`: NOT_COORDINATOR if another broker leads the partition now,
        COORDINATOR_NOT_AVAILABLE if the node stops."""
        core, code = self._core, ErrorCode(error)
        groups = [group for group in core.groups.values() if isinstance(group, ClassicGroup)]
        core.groups.clear()  # so that an append that ends later finds no group to change
        for group in groups:
            group.withdraw()
            for member in group.members.values():
                join, sync = group.park_join(member, None), member.awaiting_sync
                if join is not None:
                    join.answer(join_error(join.api_version, code))
                if sync is not None:
                    sync.answer(SyncGroupResponse(error_code=code))
        core.outbox.give_up(code)
        effects = core.outbox.take()
        effects.appends.clear()
        return effects

    # --- time ---

    def next_deadline_ms(self) -> int | None:
        """Returns a time before which a tick changes nothing. The time may be in the past, and it may be earlier than
        the next change."""
        return self._core.deadlines.next_ms()

    def tick(self, now_ms: int) -> Effects:
        """Ends the sessions, rebalances and delays whose time has passed, and expires offsets."""
        core = self._turn(now_ms)
        core.deadlines.advance(now_ms)
        return core.outbox.take()

    # --- members. The caller has checked that group ids are not empty and that session timeouts are in range
    # (`answers.refusal`). ---

    def join_group(self, caller: Caller, request: JoinGroupRequest, waiter: Waiter, now_ms: int) -> Effects:
        """Answers the waiter now, or keeps the request until the group's rebalance has ended. The answer is a
        JoinGroupResponse."""
        core = self._turn(now_ms)
        Joining(core, caller, request, waiter).serve()
        return core.outbox.take()

    def sync_group(self, request: SyncGroupRequest, waiter: Waiter, now_ms: int) -> Effects:
        """Answers the waiter now, or keeps the request until the leader's assignment is committed. The answer is a
        SyncGroupResponse."""
        core = self._turn(now_ms)
        try:
            membership.sync_group(core, request, waiter)
        except KafkaError as error:
            core.outbox.answer(waiter, SyncGroupResponse(error_code=error.code))
        return core.outbox.take()

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        core = self._turn(now_ms)
        return HeartbeatResponse(error_code=membership.heartbeat(core, request))

    def leave_group(self, request: LeaveGroupRequest, waiter: Waiter, now_ms: int) -> Effects:
        """Removes members. Request and response have the form of version 3 and later: even a request for a single
        member uses `members` (`answers.batched_leave`)."""
        core = self._turn(now_ms)
        core.outbox.answer(waiter, membership.leave_group(core, request))
        return core.outbox.take()

    # --- offsets. The caller has checked that the topics exist and that the client is allowed to read them. In every
    # version, topics have names, and ids if these are known. ---

    def offset_commit(self, commit: OffsetCommit, waiter: Waiter, now_ms: int) -> Effects:
        """Commits offsets. The response is `commit` itself, with the error of each partition. It is sent when the
        offsets are committed. The topics of `commit` must have names; a topic without an id has the id zero."""
        core = self._turn(now_ms)
        try:
            commits.offset_commit(core, commit, waiter)
        except KafkaError as error:
            commit.error = error.code
            core.outbox.answer(waiter, commit)
        return core.outbox.take()

    def validate_transactional(self, request: TxnOffsetCommitRequest) -> None:
        """Checks a commit within a transaction. Raises the error that the client gets. If there is no error, the owner
        appends the batch of the commit (`transactional.batch_records`)."""
        transactional.validate(self._core, request)

    def transactional_appending(
        self, group_id: str, producer_id: int, commits: transactional.Commits
    ) -> AbstractContextManager[None]:
        """Surrounds the append of a transaction's offsets, and the call of `transactional_appended`. In the meantime, a
        fetch of stable offsets gets UNSTABLE_OFFSET_COMMIT for these partitions, as it does until the transaction has
        ended."""
        names = [(group_id, topic, partition) for topic, partition, _ in commits]
        return self._core.offsets.appending(producer_id, names)

    def transactional_appended(
        self, group_id: str, producer_id: int, base_offset: int, commits: transactional.Commits
    ) -> None:
        """Applies offsets of a transaction whose batch is now in the log. `base_offset` is the offset of its first
        record."""
        transactional.appended(self._core, group_id, producer_id, base_offset, commits)

    def offset_fetch(
        self, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, waiter: Waiter
    ) -> Effects:
        """Answers the waiter with an OffsetFetchResponseGroup. If `group.topics` is None, the answer contains all
        topics of the group. With `require_stable`, the answer waits for the commits in progress."""
        core = self._core
        try:
            commits.offset_fetch(core, group, require_stable, waiter)
        except KafkaError as error:
            core.outbox.answer(waiter, commits.refused_fetch(group, error))
        return core.outbox.take()

    def offset_delete(self, request: OffsetDeleteRequest, waiter: Waiter, now_ms: int) -> Effects:
        """Deletes offsets. The answer is an OffsetDeleteResponse."""
        core = self._turn(now_ms)
        try:
            commits.offset_delete(core, request, waiter)
        except KafkaError as error:
            core.outbox.answer(waiter, OffsetDeleteResponse(error_code=error.code))
        return core.outbox.take()

    def topics_deleted(self, topics: Sequence[tuple[str, Uuid]], now_ms: int) -> Effects:
        """Deletes the committed offsets of deleted topics. No request waits for this."""
        core = self._turn(now_ms)
        expiry.topics_deleted(core, topics)
        return core.outbox.take()

    # --- groups ---

    def list_groups(
        self, states: Collection[str], types: Collection[str]
    ) -> Work[list[ListGroupsResponse.ListedGroup]]:
        """Lists the groups that match the filters. `admin` creates the filters, once for all shards. An empty filter
        matches every group."""
        return admin.list_groups(self._core, states, types)

    def describe_group(self, caller: Caller, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        return admin.describe_group(self._core, caller.api_version, group_id)

    def offset_count(self, group_id: str) -> int:
        return sum(len(offsets) for offsets in self._core.offsets.of(group_id).values())

    def committed_partitions(self, group_id: str) -> Work[list[tuple[str, list[int]]]]:
        """Returns the topics and partitions for which the group has committed offsets."""
        found = []
        for topic, offsets in tuple(self._core.offsets.of(group_id).items()):
            found.append((topic, [index for index, _ in offsets.items()]))
            yield
        return found

    def generation(self, group_id: str) -> int:
        """Returns the generation of a classic group, or -1 if there is no such group."""
        group = self._core.groups.get(group_id)
        return group.generation_id if isinstance(group, ClassicGroup) else -1

    def census(self) -> tuple[Counter[str], int]:
        """Returns the number of classic groups in each state, and the number of committed offsets."""
        groups = self._core.groups.values()
        return Counter(group.state for group in groups if isinstance(group, ClassicGroup)), len(self._core.offsets)

    def other_groups(self) -> Counter[str]:
        """Returns the number of groups that this node does not run, by kind: consumer, share, streams."""
        return Counter(group.group_type for group in self._core.groups.values() if isinstance(group, OtherGroup))

    def delete_groups(self, group_ids: Sequence[str], waiter: Waiter, now_ms: int) -> Effects:
        """Deletes groups. The answer is a list of DeleteGroupsResponse.DeletableGroupResult."""
        core = self._turn(now_ms)
        admin.delete_groups(core, group_ids, waiter)
        return core.outbox.take()

    def _turn(self, now_ms: int) -> Core:
        self._core.now_ms = now_ms
        return self._core
