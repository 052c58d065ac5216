"""A group of ten thousand members on a real log. Its state does not fit into a single record."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from asking import ask
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kafkacore.testing import Broker

MEMBERS = 10_000
CALL = RequestContext(ApiKey.JOIN_GROUP, 3, 0, "c", "PLAINTEXT", "127.0.0.1")
SUBSCRIBED = b"\0\0\0\0\0\1\0\1t\0\0\0\x40" + bytes(64)
PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED)
ASSIGNED = b"\0\0\0\0\0\0\xff\xff\xff\xff"


async def answers(broker: Broker, requests: list[Any]) -> list[Any]:
    """Passes requests directly to the coordinator, because ten thousand connections would be too many."""
    groups = broker.node.broker.context.groups

    def asked(request: Any) -> Any:
        if isinstance(request, JoinGroupRequest):
            return groups.ask("g", lambda shard, waiter, now_ms: shard.join_group(CALL, request, waiter, now_ms))
        return groups.ask("g", lambda shard, waiter, now_ms: shard.sync_group(request, waiter, now_ms))

    return await asyncio.gather(*map(asked, requests))


def committed(broker: Broker, group_id: str, offset: int) -> int:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    asked = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=[topic])
    error: int = ask(broker.bootstrap, asked, 9).topics[0].partitions[0].error_code
    return error


@pytest.mark.parametrize("fits", [False, True])
def test_ten_thousand_members_agree_or_get_an_error_and_other_groups_go_on(fits: bool) -> None:
    configs = {"offsets.topic.num.partitions": 1, "message.max.bytes": 4_000_000 if fits else 1_048_588}
    with Broker(topics=["t"], configs=configs) as broker:
        ask(broker.bootstrap, FindCoordinatorRequest(key="g"), 1)
        run = broker.node.broker.plane.loop.run
        join = JoinGroupRequest(
            group_id="g", protocol_type="consumer", protocols=[PROTOCOL], session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
        )  # fmt: skip
        joined = run(answers(broker, [join] * MEMBERS), 60)
        assert {(each.error_code, each.generation_id) for each in joined} == {(0, 1)}
        [leader] = [each for each in joined if each.leader == each.member_id]
        given = SyncGroupRequest.SyncGroupRequestAssignment
        assignments = [given(member_id=each.member_id, assignment=ASSIGNED) for each in leader.members]
        assert len(assignments) == MEMBERS
        syncs = [
            SyncGroupRequest(
                group_id="g", generation_id=1, member_id=each.member_id, assignments=assignments * (each is leader)
            )
            for each in sorted(joined, key=lambda each: each is leader)
        ]
        synced = Counter((each.error_code, each.assignment) for each in run(answers(broker, syncs), 60))
        if fits:
            assert synced == {(ErrorCode.NONE, ASSIGNED): MEMBERS}
        else:
            assert synced == {(ErrorCode.UNKNOWN_SERVER_ERROR, b""): MEMBERS}
            assert broker.groups["g"].state == "PreparingRebalance"
        assert committed(broker, "other", 5) == ErrorCode.NONE
        broker.restart()
        assert broker.groups["other"].offsets == {("t", 0): 5}
        group = broker.groups["g"]
        assert (group.state, len(group.members)) == (("Stable", MEMBERS) if fits else ("Empty", 0))
