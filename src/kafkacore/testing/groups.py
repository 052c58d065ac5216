"""Consumer groups that a test can inspect. Their state comes directly from the broker's coordinator, without a
socket."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kafkacore.coordinator.group.classic import COMPLETING_REBALANCE, EMPTY, PREPARING_REBALANCE, STABLE
from kafkacore.coordinator.group.other_kinds import CLASSIC
from kafkacore.coordinator.group.shard import GroupShard
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, error_for
from kafkacore.protocol.messages import ConsumerProtocolAssignment, OffsetFetchRequest
from kafkacore.runtime.slices import finish
from kafkacore.server.node import Node
from kafkacore.testing.lookup import UnknownName, unknown

T = TypeVar("T")

_CALL_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.002  # between two checks of `wait_for`
_LOAD_SECONDS: Final = 30.0
_STATES: Final = (EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE)
_DEAD: Final = "Dead"  # the state of a group that does not exist
_CONSUMER: Final = "consumer"
_DESCRIBE: Final = RequestContext(ApiKey.DESCRIBE_GROUPS, 5, 0, None, "", "")


class Member(NamedTuple):
    """A member of a group. `assignment` contains the partitions of a consumer by topic. It is empty for other protocols
    and during a rebalance. Brokers do not check the bytes that a group's leader sends: if the bytes are not a
    consumer's assignment, `assignment` is also empty."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: dict[str, list[int]]


class GroupInfo(NamedTuple):
    """A snapshot of a group. `state` is one of Kafka's states: Empty, PreparingRebalance, CompletingRebalance, Stable.
    `offsets` contains the committed offsets, by topic and partition."""

    group_id: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    members: list[Member]
    offsets: dict[tuple[str, int], int]


class Groups(Mapping[str, GroupInfo]):
    """Groups of the classic protocol, by their id. Every access reads the current state. Raises UnknownName for a group
    that does not exist, and for a group of another protocol, which can come from a directory of Apache Kafka."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __getitem__(self, group_id: str) -> GroupInfo:
        found = self._run(self._look(group_id))
        if found is None:
            raise UnknownName(unknown("group", group_id, self))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._run(self._ids()))

    def __len__(self) -> int:
        return len(self._run(self._ids()))

    def __contains__(self, group_id: object) -> bool:
        return isinstance(group_id, str) and self._run(self._look(group_id)) is not None

    def wait_for(
        self,
        group_id: str,
        *,
        state: str | None = None,
        members: int | None = None,
        offsets: Mapping[tuple[str, int], int] | None = None,
        timeout_seconds: float = 10.0,
    ) -> GroupInfo:
        """Waits until the group has this state, this number of members and these committed offsets. Returns the group.

        Raises TimeoutError, which shows the last state of the group, and UnknownName for a state that does not exist.
        """
        if state is not None and state not in _STATES:
            raise UnknownName(unknown("state of a group", state, _STATES))
        until = time.monotonic() + timeout_seconds
        while True:
            found = self._run(self._look(group_id))
            if (
                found is not None
                and state in {None, found.state}
                and members in {None, len(found.members)}
                and (offsets or {}).items() <= found.offsets.items()
            ):
                return found
            if time.monotonic() > until:
                raise TimeoutError(
                    f"group {group_id} did not reach the awaited state: {found or 'there is no such group'}"
                )
            time.sleep(_LOOK_SECONDS)

    def __repr__(self) -> str:
        return f"<Groups: {', '.join(self) or 'none'}>"

    # --- on the broker's loop ---

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._node.broker.plane.loop.run(work, _CALL_SECONDS)

    async def _ids(self) -> list[str]:
        groups = self._node.broker.context.groups_made
        if groups is None:
            return []
        await self._loaded()
        found = []
        for shard in tuple(groups.runtime.active()):
            found += [each.group_id for each in await finish(shard.list_groups([], [CLASSIC]))]
        return sorted(found)

    async def _look(self, group_id: str) -> GroupInfo | None:
        groups = self._node.broker.context.groups_made
        if groups is None:
            return None
        await self._loaded()
        try:
            shard: GroupShard = groups.shard_of(group_id)
        except KafkaError:
            return None  # the partition of the group does not exist yet
        told = shard.describe_group(_DESCRIBE, group_id)
        if told.error_code or told.group_state == _DEAD:
            return None
        return GroupInfo(
            group_id,
            told.group_state,
            shard.generation(group_id),
            told.protocol_type,
            told.protocol_data,
            [_member(each, told.protocol_type) for each in told.members],
            await self._offsets(group_id),
        )

    async def _offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)
        answer = await self._node.broker.context.groups.ask(
            group_id, lambda shard, waiter, now_ms: shard.offset_fetch(asked, False, waiter)
        )
        if answer.error_code:
            raise error_for(ErrorCode(answer.error_code))
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        }

    async def _loaded(self) -> None:
        """Waits until the coordinator has loaded the groups from their logs after a restart."""
        async with asyncio.timeout(_LOAD_SECONDS):
            # Shards do not notify anybody when they are loaded.
            while (groups := self._node.broker.context.groups_made) is not None and groups.runtime.loading:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)


def _member(told: Any, protocol_type: str) -> Member:
    assignment: dict[str, list[int]] = {}
    if protocol_type == _CONSUMER and told.member_assignment:
        with contextlib.suppress(ProtocolError):
            decoded, _ = ConsumerProtocolAssignment.decode_prefix(told.member_assignment[2:], 0)
            assignment = {each.topic: sorted(each.partitions) for each in decoded.assigned_partitions}
    return Member(told.member_id, told.group_instance_id, told.client_id, told.client_host, assignment)
