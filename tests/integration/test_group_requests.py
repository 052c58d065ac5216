"""Requests about groups, sent over a real connection. A list of metadata records replaces the broker's controller."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asking import ask
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.server.metrics import broker_metrics
from lone_broker import Started
from processes import wait_until

PARTITIONS = 5
PATIENCE_S = 10


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made = Started(
        tmp_path, group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions=str(PARTITIONS),
        group_min_session_timeout_ms="100",
    )  # fmt: skip
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def found(started: Started) -> Started:
    """Starts a broker with the topic `__consumer_offsets` and a topic t with two partitions."""
    started.create("t", 2)
    ask(started.bootstrap, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    return started


def join_request(
    group: str = "g", member: str = "", instance: str | None = None, protocol_metadata: bytes = b"m", **fields: Any
) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=protocol_metadata)
    settled = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000} | fields
    return JoinGroupRequest(
        group_id=group, member_id=member, group_instance_id=instance, protocol_type="consumer", protocols=[protocol],
        **settled,
    )  # fmt: skip


def stable(started: Started, group: str = "g", instance: str | None = None, **fields: Any) -> JoinGroupResponse:
    """Makes a group with one member, which has received its assignment."""
    asked = ask(started.bootstrap, join_request(group, instance=instance, **fields), 9)
    assert asked.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE)
    joined: JoinGroupResponse = ask(started.bootstrap, join_request(group, asked.member_id, instance, **fields), 9)
    assert (joined.error_code, joined.leader) == (ErrorCode.NONE, joined.member_id)
    synced = ask(
        started.bootstrap,
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        ),
        5,
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")
    return joined


def commit_request(group: str = "g", offsets: dict[int, int] | None = None, **fields: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    partitions = [partition(partition_index=i, committed_offset=at) for i, at in (offsets or {0: 7}).items()]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic], **fields)


def errors(response: Any) -> dict[int, int]:
    return {each.partition_index: each.error_code for topic in response.topics for each in topic.partitions}


def fetch(started: Started, *groups: str, version: int = 9) -> dict[str, dict[int, int]]:
    """Returns the committed offsets of all partitions, by group."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(groups=[group(group_id=name, topics=None) for name in groups])
    return {
        each.group_id: {p.partition_index: p.committed_offset for topic in each.topics for p in topic.partitions}
        for each in ask(started.bootstrap, request, version).groups
    }


def test_first_find_coordinator_creates_the_topic(started: Started) -> None:
    told = ask(started.bootstrap, FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h", ""]), 6)
    [port] = {each.port for each in told.coordinators}
    assert [(each.key, each.error_code, each.node_id) for each in told.coordinators] == [
        ("g", 0, 1), ("h", 0, 1), ("", 0, 1),
    ]  # fmt: skip
    assert started.bootstrap.endswith(f":{port}")
    topic = MetadataRequest.MetadataRequestTopic(name="__consumer_offsets")
    [shown] = ask(started.bootstrap, MetadataRequest(topics=[topic]), 12).topics
    assert (shown.is_internal, len(shown.partitions)) == (True, PARTITIONS)
    old = ask(started.bootstrap, FindCoordinatorRequest(key="g"), 0)
    assert (old.error_code, old.node_id, old.port) == (0, 1, port)


def test_group_without_a_coordinator_gets_an_error(started: Started) -> None:
    assert ask(started.bootstrap, join_request(), 9).error_code == ErrorCode.NOT_COORDINATOR
    assert ask(started.bootstrap, ListGroupsRequest(), 4).groups == []


def test_a_parked_member_holds_none_of_its_plane_s_memory(found: Started) -> None:
    joined, counters = stable(found), found.broker.plane.native.counters
    parked = Parked(found, protocol_metadata=bytes(100_000))
    wait_until(lambda: counters()["requests_out"] == 1, PATIENCE_S)
    wait_until(lambda: counters()["memory_used_bytes"] == 0, PATIENCE_S)
    beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert ask(found.bootstrap, beat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    parked.socket.close()


def test_member_joins_syncs_sends_heartbeats_and_leaves(found: Started) -> None:
    joined = stable(found)
    assert joined.member_id.startswith("test-")
    beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert ask(found.bootstrap, beat, 4).error_code == ErrorCode.NONE
    beat.generation_id += 1
    assert ask(found.bootstrap, beat, 4).error_code == ErrorCode.ILLEGAL_GENERATION
    [listed] = ask(found.bootstrap, ListGroupsRequest(), 5).groups
    assert (listed.group_id, listed.protocol_type, listed.group_state) == ("g", "consumer", "Stable")
    assert ask(found.bootstrap, ListGroupsRequest(states_filter=["Empty"]), 5).groups == []
    described, other = ask(
        found.bootstrap, DescribeGroupsRequest(groups=["g", "other"], include_authorized_operations=True), 5
    ).groups
    [member] = described.members
    assert (described.group_state, described.protocol_data, member.member_assignment) == ("Stable", "range", b"mine")
    assert member.client_host == "/127.0.0.1"
    # Bits: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
    assert described.authorized_operations == 0b110101001000
    assert (other.group_id, other.group_state) == ("other", "Dead")
    identity = LeaveGroupRequest.MemberIdentity(member_id=joined.member_id)
    assert ask(found.bootstrap, LeaveGroupRequest(group_id="g", members=[identity]), 5).error_code == ErrorCode.NONE
    again = ask(found.bootstrap, LeaveGroupRequest(group_id="g", member_id=joined.member_id), 1)
    assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    [described] = ask(found.bootstrap, DescribeGroupsRequest(groups=["g"]), 0).groups
    assert described.group_state == "Empty"


@pytest.mark.parametrize("version", range(10))
def test_join_answer_has_the_fields_of_its_version(found: Started, version: int) -> None:
    answer = ask(found.bootstrap, join_request(f"g{version}"), version)
    required = ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE
    assert answer.error_code == required
    refused = ask(found.bootstrap, join_request(session_timeout_ms=99), version)
    assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert ask(found.bootstrap, join_request(""), version).error_code == ErrorCode.INVALID_GROUP_ID


def test_sync_answer_has_its_protocol_from_version_5(found: Started) -> None:
    joined = stable(found)
    request = SyncGroupRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    assert ask(found.bootstrap, request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert ask(found.bootstrap, request, 4).assignment == b"mine"


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_committed_for_partitions_that_exist(found: Started, version: int) -> None:
    answer = ask(found.bootstrap, commit_request(offsets={0: 7, 1: 8, 2: 9}), version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(answer) == {0: 0, 1: 0, 2: unknown}
    assert len(answer.topics) == 1
    request = commit_request()
    request.topics[0].name = "nobody"
    assert errors(ask(found.bootstrap, request, version)) == {0: unknown}
    assert fetch(found, "g") == {"g": {0: 7, 1: 8}}


def test_by_topic_id_too(found: Started) -> None:
    topic = found.broker.context.image.topic("t")
    assert topic is not None
    request = commit_request(offsets={0: 7, 5: 1})
    request.topics[0].topic_id = topic.topic_id
    answer = ask(found.bootstrap, request, 10)
    assert errors(answer) == {0: 0, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [each.topic_id for each in answer.topics] == [topic.topic_id]
    request.topics[0].topic_id = Uuid.random()
    assert set(errors(ask(found.bootstrap, request, 10)).values()) == {ErrorCode.UNKNOWN_TOPIC_ID}
    asked = OffsetFetchRequest.OffsetFetchRequestTopics
    topics = [
        asked(topic_id=topic.topic_id, partition_indexes=[0, 1]),
        asked(topic_id=Uuid.random(), partition_indexes=[0]),
    ]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)
    [told] = ask(found.bootstrap, OffsetFetchRequest(groups=[group]), 10).groups
    assert [
        (each.topic_id == topic.topic_id, p.partition_index, p.committed_offset, p.error_code)
        for each in told.topics for p in each.partitions
    ] == [(True, 0, 7, 0), (True, 1, -1, 0), (False, 0, -1, ErrorCode.UNKNOWN_TOPIC_ID)]  # fmt: skip
    assert fetch(found, "g", version=10) == {"g": {0: 7}}


def test_offsets_of_many_groups_are_fetched_at_once_and_of_one_in_every_version(found: Started) -> None:
    groups = [f"g{n}" for n in range(20)]
    for n, group in enumerate(groups):
        ask(found.bootstrap, commit_request(group, {0: n}), 8)
    assert fetch(found, *groups, "nobody") == {group: {0: n} for n, group in enumerate(groups)} | {"nobody": {}}
    for version in range(1, 8):
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
        told = ask(found.bootstrap, OffsetFetchRequest(group_id="g3", topics=[topic]), version)
        assert [(p.committed_offset, p.metadata) for p in told.topics[0].partitions] == [(3, ""), (-1, "")]


def test_a_group_and_its_offsets_are_deleted(found: Started) -> None:
    for group in ("a", "b", "c"):
        ask(found.bootstrap, commit_request(group, {0: 1, 1: 2}), 8)
    joined = stable(found, "c")
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
    request = OffsetDeleteRequest(
        group_id="a", topics=[topic(name="t", partitions=[partition(partition_index=i) for i in (0, 9)])]
    )
    assert errors(ask(found.bootstrap, request, 0)) == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert fetch(found, "a") == {"a": {1: 2}}
    results = ask(found.bootstrap, DeleteGroupsRequest(groups_names=["b", "c", "nobody", "b"]), 2).results
    assert {each.group_id: each.error_code for each in results} == {
        "b": 0, "c": ErrorCode.NON_EMPTY_GROUP, "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }  # fmt: skip
    assert len(results) == 3
    assert fetch(found, "b", "c") == {"b": {}, "c": {0: 1, 1: 2}}
    assert joined.member_id


def test_metrics_count_groups_and_offsets(found: Started) -> None:
    stable(found)
    ask(found.bootstrap, commit_request("other", {0: 1, 1: 2}), 8)

    async def read() -> dict[str, Any]:
        return {each.mbean: each.value for each in broker_metrics(found.broker)}

    seen = found.loop.run(read(), PATIENCE_S)
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name="
    assert {name: seen[f"{manager}{name}"] for name in ("NumOffsets", "NumGroups", "NumGroupsStable")} == {
        "NumOffsets": 2, "NumGroups": 2, "NumGroupsStable": 1,
    }  # fmt: skip
    assert seen["kafka.server:type=group-coordinator-metrics,name=num-partitions,state=active"] == PARTITIONS
    assert seen["kafka.server:type=group-coordinator-metrics,name=partition-load-time-max"] >= 0


def test_longest_possible_group_id_works(found: Started) -> None:
    longest = "g" * 32_767
    assert errors(ask(found.bootstrap, commit_request(longest), 8)) == {0: 0}
    assert fetch(found, longest) == {longest: {0: 7}}


class Parked:
    """A JoinGroup that waits for another member, which does not rejoin."""

    def __init__(self, started: Started, group: str = "g", rebalance_timeout_ms: int = 60_000, **fields: Any) -> None:
        host, port = started.bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        frame = apis.encode_request(
            3, 1, "late", join_request(group, rebalance_timeout_ms=rebalance_timeout_ms, **fields)
        )
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self) -> JoinGroupResponse:
        size = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))[0]
        return JoinGroupResponse.decode(self.socket.recv(size, socket.MSG_WAITALL)[4:], 3)


def state(started: Started, group: str = "g") -> str:
    [described] = ask(started.bootstrap, DescribeGroupsRequest(groups=[group]), 5).groups
    return described.group_state  # type: ignore[no-any-return]


def test_parked_joins_delay_no_other_request_and_end_when_their_time_is_over(found: Started) -> None:
    first = stable(found, rebalance_timeout_ms=1_500)
    parked = [Parked(found, rebalance_timeout_ms=1_500) for _ in range(20)]
    wait_until(lambda: state(found) == "PreparingRebalance", PATIENCE_S, "the rebalance begins")
    beat = HeartbeatRequest(group_id="g", generation_id=first.generation_id, member_id=first.member_id)
    assert ask(found.bootstrap, beat, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert fetch(found, "other") == {"other": {}}
    answers = [each.answer() for each in parked]
    assert {each.error_code for each in answers} == {0}
    assert len({each.member_id for each in answers}) == 20
    [leader] = {each.leader for each in answers}
    assert [len(each.members) for each in answers if each.member_id == leader] == [20]


def test_parked_client_that_disconnects_is_released(found: Started) -> None:
    stable(found)
    native = found.broker.plane.native
    before = native.counters()["connections"]
    parked = Parked(found)
    wait_until(lambda: state(found) == "PreparingRebalance", PATIENCE_S, "the rebalance begins")
    parked.socket.close()
    # The peer has sent its last byte. The processor now waits up to ten seconds for the answer to the peer's last
    # request.
    wait_until(lambda: native.counters()["connections"] <= before, 2 * PATIENCE_S, "its connection is gone")


def test_stopping_node_answers_parked_requests(tmp_path: Path) -> None:
    started = Started(tmp_path, group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="1")
    ask(started.bootstrap, FindCoordinatorRequest(key="g"), 1)
    stable(started)
    parked = Parked(started)
    wait_until(lambda: state(started) == "PreparingRebalance", PATIENCE_S, "the rebalance begins")
    started.stop()
    assert parked.answer().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
