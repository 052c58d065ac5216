"""Consumer groups of a broker in the test's process. The test reads their state, and advances the broker's clock."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from asking import ask
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from kafkacore.testing import Broker
from kafkacore.testing.lookup import UnknownName

pytestmark = pytest.mark.timeout(60)


def consumer(broker: Broker, client_id: str, **settings: object) -> Consumer:
    made = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "client.id": client_id,
        "auto.offset.reset": "earliest", "enable.auto.commit": False, **settings,
    })  # fmt: skip
    made.subscribe(["t"])
    return made


def poll(one: Consumer):
    for _ in range(200):
        message = one.poll(0.1)
        if message is not None:
            return message
    raise AssertionError("no message came")


def recorded(broker: Broker) -> int:
    """Returns the number of records in the topic `__consumer_offsets`."""
    partitions = range(broker.topics["__consumer_offsets"])
    return sum(broker.log("__consumer_offsets", index).end_offset for index in partitions)


def test_group_shows_members_assignment_and_offsets() -> None:
    with Broker(topics={"t": 2}) as broker:
        assert len(broker.groups) == 0
        with pytest.raises(UnknownName, match="no group called 'g'"):
            broker.groups["g"]
        broker.produce("t", "x")
        one = consumer(broker, "one")
        message = poll(one)
        group = broker.groups.wait_for("g", state="Stable", members=1)
        assert (group.protocol_type, group.protocol, group.generation) == ("consumer", "range", 1)
        assert [(each.client_id, each.assignment) for each in group.members] == [("one", {"t": [0, 1]})]
        assert group.offsets == {}
        one.commit(message, asynchronous=False)
        assert broker.groups["g"].offsets == {("t", 0): 1}
        one.close()
        assert broker.groups.wait_for("g", state="Empty", members=0).offsets == {("t", 0): 1}
        assert list(broker.groups) == ["g"]
        assert "other" not in broker.groups
        broker.restart()
        assert broker.groups["g"].offsets == {("t", 0): 1}


def test_session_ends_when_its_time_is_over() -> None:
    # When `advance` returns, the coordinator's decision is already in its log. The append does not linger.
    with Broker(topics=["t"], configs={"group.coordinator.append.linger.ms": 300}) as broker:
        broker.produce("t", "x")
        one = consumer(broker, "one", **{"session.timeout.ms": 45_000, "heartbeat.interval.ms": 40_000})
        poll(one)
        assert len(broker.groups["g"].members) == 1
        broker.clock.advance(seconds=30)
        assert len(broker.groups["g"].members) == 1
        before = recorded(broker)
        broker.clock.advance(seconds=20)
        assert recorded(broker) > before
        group = broker.groups["g"]
        assert (group.state, group.members) == ("Empty", [])
        one.close()


def test_session_lasts_through_heartbeats_that_processors_answer() -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0")
    with Broker(configs={"group.initial.rebalance.delay.ms": 0}) as broker:
        ask(broker.bootstrap, FindCoordinatorRequest(key="g"), 1)
        asked = JoinGroupRequest(
            group_id="g", protocol_type="p", protocols=[protocol], session_timeout_ms=10_000, rebalance_timeout_ms=1_000
        )
        joined = ask(broker.bootstrap, asked, 3)
        named = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        ask(broker.bootstrap, SyncGroupRequest(**named), 2)
        for _ in range(4):  # processors answer all of these requests
            assert ask(broker.bootstrap, HeartbeatRequest(**named), 3).error_code == 0
            broker.clock.advance(seconds=8)
            assert len(broker.groups["g"].members) == 1
        broker.clock.advance(seconds=3)
        assert broker.groups["g"].members == []
        assert ask(broker.bootstrap, HeartbeatRequest(**named), 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_group_meets_faults_and_is_recorded_although_processors_could_answer_it() -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0")
    with Broker(configs={"group.initial.rebalance.delay.ms": 0}) as broker:
        ask(broker.bootstrap, FindCoordinatorRequest(key="g"), 1)
        asked = JoinGroupRequest(
            group_id="g", protocol_type="p", protocols=[protocol], session_timeout_ms=10_000, rebalance_timeout_ms=1_000
        )
        joined = ask(broker.bootstrap, asked, 3)
        named = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")

        def sync(*assignments: SyncGroupRequest.SyncGroupRequestAssignment) -> tuple[int, bytes]:
            told = ask(broker.bootstrap, SyncGroupRequest(**named, assignments=list(assignments)), 2)
            return told.error_code, told.assignment

        assert sync(given) == sync() == (ErrorCode.NONE, b"all")
        with broker.refuse("SyncGroup", error="COORDINATOR_NOT_AVAILABLE", times=1) as fault:
            assert sync() == (ErrorCode.COORDINATOR_NOT_AVAILABLE, b"")
            assert sync() == (ErrorCode.NONE, b"all")
        assert fault.hits == 1
        broker.requests.start()
        assert sync() == (ErrorCode.NONE, b"all")
        assert len(broker.requests.of("SyncGroup")) == 1


@pytest.mark.parametrize("assignment", [b"?", b"no assignment"])
def test_group_with_a_foreign_assignment_format_is_shown(assignment: bytes) -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0")
    with Broker() as broker:
        ask(broker.bootstrap, FindCoordinatorRequest(key="g"), 1)
        asked = JoinGroupRequest(
            group_id="g", protocol_type="consumer", protocols=[protocol], session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
        )  # fmt: skip
        joined = ask(broker.bootstrap, asked, 3)
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)
        sync = SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[given]
        )
        assert ask(broker.bootstrap, sync, 2).assignment == assignment
        assert [each.assignment for each in broker.groups["g"].members] == [{}]


def test_groups_of_other_kinds_are_not_listed() -> None:
    with Broker(topics=["t"], configs={"offsets.topic.num.partitions": 1}) as broker:
        ask(broker.bootstrap, FindCoordinatorRequest(key="g"), 1)
        log = broker.node.broker.replicas.by_name("__consumer_offsets", 0)
        assert log is not None
        written = RecordBatchBuilder()
        key = ConsumerGroupMetadataKey(group_id="modern").encode(0)
        assert written.append(0, b"\0\3" + key, b"\0\0" + ConsumerGroupMetadataValue(epoch=1).encode(0))
        assert log.append(bytearray(written.build()), -1, True, origin="coordinator").error == 0
        broker.restart()
        answers = iter(lambda: ask(broker.bootstrap, ListGroupsRequest(), 5), None)
        listed = next(each for each in answers if each.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert [(each.group_id, each.group_type) for each in listed.groups] == [("modern", "consumer")]
        assert dict(broker.groups) == {}
        assert "modern" not in broker.groups


def test_offsets_expire_when_the_group_was_empty_for_long() -> None:
    with Broker(topics=["t"], configs={"offsets.retention.minutes": 60 * 24}) as broker:
        broker.produce("t", "x")
        one = consumer(broker, "one")
        one.commit(poll(one), asynchronous=False)
        one.close()
        broker.groups.wait_for("g", state="Empty")
        broker.clock.advance(hours=23)
        assert broker.groups["g"].offsets == {("t", 0): 1}
        broker.clock.advance(hours=2)
        assert "g" not in broker.groups


def test_error_for_a_wrong_state_shows_the_group() -> None:
    with Broker() as broker:
        with pytest.raises(TimeoutError, match="there is no such group"):
            broker.groups.wait_for("g", timeout_seconds=0.01)
        with pytest.raises(UnknownName, match="there is no state of a group called 'stable'; do you mean Stable"):
            broker.groups.wait_for("g", state="stable")
        with pytest.raises(UnknownName, match="called 'Dead'; there are CompletingRebalance, Empty, Prep"):
            broker.groups.wait_for("g", state="Dead")
        assert repr(broker.groups) == "<Groups: none>"


def test_member_joins_again_when_its_heartbeat_is_refused() -> None:
    with Broker(topics=["t"], record=True) as broker:
        broker.produce("t", "x")
        one = consumer(broker, "one", **{"heartbeat.interval.ms": 50})
        poll(one)
        joins = len(broker.requests.of("JoinGroup"))
        broker.refuse("Heartbeat", error="REBALANCE_IN_PROGRESS", times=1)
        while len(broker.requests.of("JoinGroup")) == joins:
            one.poll(0.05)
        assert broker.faults() == []
        one.close()
