"""Valid and invalid requests to a group coordinator, in every version, and the broker's answers as text, for
tests/clients/test_group_answers.py."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from kafkacore.network.client import NodeClient
from kafkacore.protocol import apis
from kafkacore.protocol import messages as m
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import ZERO

RANGE: Final = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
NOBODYS_ID: Final = bytes(range(16))
LIMIT_S: Final = 20.0
# Fields whose values depend on the machine, or whose wording is free.
LEFT_OUT: Final = frozenset({"throttle_time_ms", "host", "port", "error_message", "topic_id"})
UUID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Make = Callable[[int], Any]


class Questions:
    """Sends requests to one broker. Each line of `answers` shows a request, its versions, and the answer that all these
    versions get.

    All group ids and the topic begin with `prefix`. The lines omit the prefix.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._address = host, int(port)
        self._clients: dict[str, NodeClient] = {}
        self._prefix = prefix
        self.topic_id = ZERO
        self.answers: list[str] = []

    def name(self, name: str) -> str:
        """Returns the name with the prefix. An empty name stays empty."""
        return self._prefix + name if name else ""

    async def ask(self, request: Any, version: int, client: str = "c") -> Any:
        if client not in self._clients:
            self._clients[client] = NodeClient(*self._address, client)
        return await asyncio.wait_for(self._clients[client].request(request, version), LIMIT_S)

    async def tell(self, what: str, request: Any, version: int, client: str = "c") -> Any:
        answer = await self.ask(request, version, client)
        self.answers.append(f"{what} v{version}: {self.shown(answer)}")
        return answer

    async def every(self, what: str, make: Make, versions: Iterable[int] | None = None) -> None:
        """Sends the request that `make(version)` returns, for each of `versions`. By default these are all versions of
        the API."""
        api = apis.api(make(max(versions) if versions else 0).API_KEY)
        told: dict[str, list[int]] = {}
        for version in versions or range(api.lowest, api.highest + 1):
            told.setdefault(self.shown(await self.ask(make(version), version)), []).append(version)
        for text, those in told.items():
            runs = ",".join(map(str, those)) if len(those) < 3 else f"{those[0]}-{those[-1]}"
            self.answers.append(f"{what} v{runs}: {text}")

    def shown(self, message: Any) -> str:
        """Returns the fields that differ from their defaults, as text. Lists are sorted."""
        if isinstance(message, list):
            return f"[{', '.join(sorted(map(self.shown, message)))}]"
        if not hasattr(message, "FIELDS"):
            return UUID.sub("-UUID", repr(message)).replace(self._prefix, "")
        told = []
        for field in message.FIELDS:
            value = getattr(message, field)
            if field == "error_code" and value:
                told.append(ErrorCode(value).name)
            elif value and field not in LEFT_OUT:
                told.append(f"{field}={self.shown(value)}")
        return f"({' '.join(told)})"

    async def ready(self) -> None:
        """Creates a topic with two partitions, and waits until the coordinator has loaded its groups."""
        topic = m.CreateTopicsRequest.CreatableTopic(name=self.name("t"), num_partitions=2, replication_factor=1)
        await self.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=self.name("t"))])
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.name("g"), topics=None)
        found = await self.until(lambda answer: not answer.topics[0].error_code, asked, 12)
        coordinator = m.FindCoordinatorRequest(coordinator_keys=[self.name("g")])
        await self.until(lambda answer: not answer.coordinators[0].error_code, coordinator, 4)
        await self.until(lambda answer: not answer.groups[0].error_code, m.OffsetFetchRequest(groups=[group]), 9)
        self.topic_id = found.topics[0].topic_id

    async def until(self, ready: Callable[[Any], bool], request: Any, version: int) -> Any:
        """Repeats the request until `ready` accepts its answer. Returns that answer."""
        async with asyncio.timeout(LIMIT_S):
            while not ready(answer := await self.ask(request, version)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return answer

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    # --- requests ---

    def join(
        self,
        group: str,
        member: str = "",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", RANGE),),
        protocol_type: str = "consumer",
        session_ms: int = 60_000,
    ) -> Any:
        each = m.JoinGroupRequest.JoinGroupRequestProtocol
        return m.JoinGroupRequest(
            group_id=self.name(group),
            member_id=member,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
            protocol_type=protocol_type,
            protocols=[each(name=name, metadata=metadata) for name, metadata in protocols],
        )

    def sync(
        self,
        group: str,
        member: str,
        generation: int = 1,
        *,
        version: int = 5,
        instance: str | None = None,
        protocol: str = "range",
        assignments: dict[str, bytes] | None = None,
    ) -> Any:
        each = m.SyncGroupRequest.SyncGroupRequestAssignment
        return m.SyncGroupRequest(
            group_id=self.name(group),
            member_id=member,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name=protocol if version >= 5 else None,
            assignments=[each(member_id=name, assignment=given) for name, given in (assignments or {}).items()],
        )

    def heartbeat(self, group: str, member: str, generation: int = 1, instance: str | None = None) -> Any:
        return m.HeartbeatRequest(
            group_id=self.name(group), member_id=member, generation_id=generation, group_instance_id=instance
        )

    def leave(self, group: str, *members: tuple[str, str | None]) -> Any:
        each = m.LeaveGroupRequest.MemberIdentity
        return m.LeaveGroupRequest(
            group_id=self.name(group),
            members=[each(member_id=member, group_instance_id=instance) for member, instance in members],
        )

    def commit(
        self,
        group: str,
        version: int,
        member: str = "",
        generation: int = -1,
        *,
        instance: str | None = None,
        topics: tuple[str, ...] = ("t",),
        partitions: tuple[int, ...] = (0,),
        offset: int = 5,
        metadata: str | None = "",
    ) -> Any:
        topic, partition = (
            m.OffsetCommitRequest.OffsetCommitRequestTopic,
            m.OffsetCommitRequest.OffsetCommitRequestPartition,
        )
        ids = {"t": self.topic_id}
        return m.OffsetCommitRequest(
            group_id=self.name(group),
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            topics=[
                topic(
                    name=self.name(name) if version < 10 else "",
                    topic_id=ids.get(name, NOBODYS_ID) if version >= 10 else ZERO,
                    partitions=[
                        partition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
                        for index in partitions
                    ],
                )
                for name in topics
            ],
        )

    def fetch(self, version: int, *groups: str, everything: bool = False, stable: bool = False) -> Any:
        """Sends OffsetFetch for one group, in a version below 8."""
        asked = m.OffsetFetchRequest
        if version < 8:
            named = [
                asked.OffsetFetchRequestTopic(name=self.name(name), partition_indexes=[0, 7]) for name in ("t", "no")
            ]
            return asked(group_id=self.name(groups[0]), topics=None if everything else named)
        by_id = version >= 10
        topics = [
            asked.OffsetFetchRequestTopics(
                name="" if by_id else self.name(name),
                topic_id=(self.topic_id if name == "t" else NOBODYS_ID) if by_id else ZERO,
                partition_indexes=[0, 7],
            )
            for name in ("t", "no")
        ]
        return asked(
            groups=[
                asked.OffsetFetchRequestGroup(group_id=self.name(group), topics=None if everything else topics)
                for group in groups
            ],
            require_stable=stable,
        )

    def delete_offsets(self, group: str, **topics: list[int]) -> Any:
        topic, partition = (
            m.OffsetDeleteRequest.OffsetDeleteRequestTopic,
            m.OffsetDeleteRequest.OffsetDeleteRequestPartition,
        )
        return m.OffsetDeleteRequest(
            group_id=self.name(group),
            topics=[
                topic(name=self.name(name), partitions=[partition(partition_index=index) for index in indexes])
                for name, indexes in topics.items()
            ],
        )

    def describe(self, version: int, *groups: str) -> Any:
        return m.DescribeGroupsRequest(
            groups=[self.name(group) for group in groups], include_authorized_operations=version >= 3
        )
