"""A shard of the group coordinator whose log is in memory, and the requests that tests send to the shard.

`GroupLog` stores each answer under the name of the waiter that the test gave to the request. It commits appends
immediately, or, after `hold`, when the test calls `commit`.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.record.batch import DEFAULT_LIMIT_BYTES
from kafkacore.coordinator.group.core import Counts
from kafkacore.coordinator.group.effects import Answer, Append, Effects, GroupRecord
from kafkacore.coordinator.group.settings import GroupSettings
from kafkacore.coordinator.group.shard import GroupShard
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafkacore.protocol.uuid import ZERO, Uuid
from published_groups import PublishedGroups

SETTINGS = GroupSettings(initial_rebalance_delay_ms=3_000)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
PARTITIONS = 1_000  # the number of partitions of every topic


class Client(NamedTuple):
    """The client that sends a request."""

    client_id: str | None = "client"
    api_version: int = 9
    client_host: str = "127.0.0.1"


class Uuids:
    """UUIDs that are the same in every run."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed
        self._count = 0

    def __call__(self) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._seed}{self._count}".encode()).digest()[:16]


def arrived(request: OffsetCommitRequest, version: int = 9) -> OffsetCommit:
    """Returns the request as a broker passes it to the shard: decoded from its wire format, with its topics
    resolved."""
    commit, rows = OffsetCommit(request.encode(version), version), array("i", range(PARTITIONS))
    for number, topic in enumerate(request.topics):
        commit.find(number, topic.name, topic.topic_id, rows, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return commit


def told(response: Any) -> Any:
    """Returns the response as the client decodes it from its wire format."""
    if isinstance(response, OffsetCommit):
        return OffsetCommitResponse.decode(response.response(b""), response.version)
    return response


class GroupLog:
    """A shard, its log, its clock and its answers."""

    def __init__(
        self,
        settings: GroupSettings = SETTINGS,
        now_ms: int = 1_000_000,
        hold: bool = False,
        max_batch_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.hold = hold
        self.records: list[GroupRecord] = []  # the committed records; a record's index is its offset
        self.open: deque[Append] = deque()
        self.answers: dict[Any, Any] = {}
        self._uuids = Uuids()
        self.published_groups = PublishedGroups(lambda: self.now_ms)
        self.counts = Counts()
        self.shard = GroupShard(settings, self._uuids, self.published_groups, self.counts, lambda: max_batch_bytes)
        self.carry_out(self.shard.loaded(now_ms))

    # --- the log ---

    def carry_out(self, effects: Effects) -> None:
        for waiter, response in effects.answers:
            assert waiter not in self.answers, f"{waiter} was answered twice"
            self.answers[waiter] = told(response)
        self.open.extend(effects.appends)
        while self.open and not self.hold:
            self.commit()

    def commit(self) -> None:
        """Commits the oldest open append."""
        append = self.open.popleft()
        base_offset = len(self.records)
        self.records.extend(append.records)
        self.carry_out(self.shard.committed(append.token, base_offset, self.now_ms))

    def fail(self, error: int) -> None:
        """Fails every open append."""
        failing, self.open = self.open, deque()
        for append in failing:
            self.carry_out(self.shard.failed(append.token, error, self.now_ms))

    def time_out(self) -> None:
        """Lets the oldest open append time out. The append stays open."""
        self.carry_out(self.shard.timed_out(self.open[0].token, self.now_ms))

    def restarted(self) -> GroupLog:
        """Returns a GroupLog with a new shard, which has loaded this log."""
        return loaded(self.records, self.settings, self.now_ms)

    # --- time ---

    def wait(self, ms: int) -> None:
        """Advances the clock by `ms`. Calls `tick` separately for each deadline on the way."""
        end = self.now_ms + ms
        while True:
            due_ms = self.shard.next_deadline_ms()
            if due_ms is None or due_ms > end:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.shard.tick(self.now_ms))
        self.now_ms = end

    def skip(self, ms: int) -> None:
        """Advances the clock by `ms` in one step. All deadlines on the way get a single, late tick."""
        self.now_ms += ms
        self.carry_out(self.shard.tick(self.now_ms))

    # --- requests; each returns its answer, or None while the shard holds it back ---

    def join(
        self,
        waiter: Any,
        group: str = "g",
        member: str = "",
        instance: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", b"\x00\x00"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client: Client | None = None,
    ) -> Any:
        offered = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols]
        request = JoinGroupRequest(
            group_id=group,
            member_id=member,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=offered,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
        )
        self.carry_out(self.shard.join_group(client or Client(), request, waiter, self.now_ms))
        return self.answers.get(waiter)

    def sync(
        self,
        waiter: Any,
        member: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Any:
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=data)
            for each, data in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=group,
            member_id=member,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=given,
        )
        return self.sync_as(request, waiter)

    def sync_as(self, request: SyncGroupRequest, waiter: Any) -> Any:
        """Sends SyncGroup as a broker does: first to the processor, and if the processor cannot answer it, to the
        shard."""
        answer = self.published_groups.sync_group(request)
        if answer is None:
            self.carry_out(self.shard.sync_group(request, waiter, self.now_ms))
        else:
            effects = Effects()
            effects.answers.append(Answer(waiter, answer))
            self.carry_out(effects)
        return self.answers.get(waiter)

    def heartbeat(self, member: str, generation: int, group: str = "g", instance: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=group, member_id=member, generation_id=generation, group_instance_id=instance
        )
        return self.heartbeat_as(request).error_code

    def heartbeat_as(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Sends the heartbeat as a broker does: first to the processor, and if the processor cannot answer it, to the
        shard."""
        return (
            HeartbeatResponse()
            if self.published_groups.heartbeat(request)
            else self.shard.heartbeat(request, self.now_ms)
        )

    def leave(self, waiter: Any, *members: tuple[str, str | None], group: str = "g") -> Any:
        """Sends LeaveGroup for members, each given as member id and group instance id."""
        named = [LeaveGroupRequest.MemberIdentity(member_id=each, group_instance_id=static) for each, static in members]
        request = LeaveGroupRequest(group_id=group, members=named)
        self.carry_out(self.shard.leave_group(request, waiter, self.now_ms))
        return self.answers.get(waiter)

    def commit_offsets(
        self,
        waiter: Any,
        offsets: dict[tuple[str, int], int],
        group: str = "g",
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: Uuid = ZERO,
        leader_epoch: int = -1,
        version: int = 9,
    ) -> Any:
        by_topic: dict[str, list[Any]] = {}
        for (topic, index), offset in offsets.items():
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_metadata=metadata,
                    committed_leader_epoch=leader_epoch,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        self.carry_out(self.shard.offset_commit(arrived(request, version), waiter, self.now_ms))
        return self.answers.get(waiter)

    def fetch(
        self,
        waiter: Any,
        topics: dict[str, Sequence[int]] | None = None,
        group: str = "g",
        require_stable: bool = False,
        member: str | None = None,
        epoch: int = -1,
        topic_id: Uuid = ZERO,
    ) -> Any:
        wanted = None
        if topics is not None:
            wanted = [
                OffsetFetchRequest.OffsetFetchRequestTopics(
                    name=topic, topic_id=topic_id, partition_indexes=list(indexes)
                )
                for topic, indexes in topics.items()
            ]
        request = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group, topics=wanted, member_id=member, member_epoch=epoch
        )
        self.carry_out(self.shard.offset_fetch(request, require_stable, waiter))
        return self.answers.get(waiter)

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        """Returns all committed offsets of the group."""
        waiter = object()
        fetched = self.fetch(waiter, None, group)
        del self.answers[waiter]
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in fetched.topics
            for each in topic.partitions
        }

    def delete_offsets(self, waiter: Any, topics: dict[str, Sequence[int]], group: str = "g") -> Any:
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic, partitions=[partition(partition_index=index) for index in indexes]
                )
                for topic, indexes in topics.items()
            ],
        )
        self.carry_out(self.shard.offset_delete(request, waiter, self.now_ms))
        return self.answers.get(waiter)

    def delete_groups(self, waiter: Any, *groups: str) -> Any:
        self.carry_out(self.shard.delete_groups(groups, waiter, self.now_ms))
        return self.answers.get(waiter)

    def describe(self, group: str = "g", version: int = 6) -> Any:
        return self.shard.describe_group(Client(api_version=version), group)

    # --- shortcuts ---

    def form(self, count: int = 2, group: str = "g", session_ms: int = SESSION_MS) -> tuple[list[str], int]:
        """Makes a stable group of `count` members. Returns the generation and the member ids, with the leader's id
        first."""
        waiters = [f"{group}-forms-{number}" for number in range(count)]
        old = Client(api_version=3)  # members join without a member id in this version
        for waiter in waiters:
            self.join(waiter, group, client=old, session_ms=session_ms)
        for _ in range(count + 1):
            if waiters[-1] in self.answers:
                break
            self.wait(self.settings.initial_rebalance_delay_ms)
        joined = [self.answers.pop(waiter) for waiter in waiters]
        leader, generation = joined[0].leader, joined[0].generation_id
        ids = sorted((each.member_id for each in joined), key=lambda each: each != leader)
        for number, each in enumerate(reversed(ids)):
            given = {member: b"of %d" % place for place, member in enumerate(ids)} if each == leader else None
            self.sync(waiters[number], each, generation, given, group)
        for waiter in waiters:
            assert self.answers.pop(waiter).error_code == 0
        return ids, generation


def loaded(records: Iterable[GroupRecord], settings: GroupSettings = SETTINGS, now_ms: int = 1_000_000) -> GroupLog:
    """Returns a GroupLog whose shard has loaded these records."""
    made = GroupLog(settings, now_ms)
    made.shard = GroupShard(settings, Uuids("again"), made.published_groups)
    made.records = list(records)
    for offset, (key, value) in enumerate(made.records):
        made.shard.replay(key, value, offset)
    made.carry_out(made.shard.loaded(now_ms))
    return made
