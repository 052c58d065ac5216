"""SyncGroup, Heartbeat, LeaveGroup, and session timeouts."""

from typing import Any

import pytest

from group_log import SESSION_MS, SETTINGS, Client, GroupLog
from kafkacore.protocol.errors import ErrorCode

OLD = Client(api_version=3)


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def joined(count: int = 2, hold: bool = False) -> tuple[GroupLog, list[str]]:
    """Returns a group whose members have joined and are waiting for their assignments."""
    log = GroupLog()
    for number in range(count):
        log.join(number, client=OLD)
    while 0 not in log.answers:
        log.wait(1_000)
    log.hold = hold
    return log, [log.answers.pop(number).member_id for number in range(count)]


# --- SyncGroup ---


def test_follower_waits_for_the_leader_and_the_leader_for_the_log() -> None:
    log, (leader, follower) = joined(hold=True)
    assert log.sync("follower", follower, 1) is None
    assert log.sync("leader", leader, 1, {leader: b"1", follower: b"2"}) is None
    assert log.describe().group_state == "CompletingRebalance"
    log.commit()
    assert (log.answers["leader"].assignment, log.answers["follower"].assignment) == (b"1", b"2")
    assert log.answers["leader"].protocol_name == "range"
    assert log.describe().group_state == "Stable"


def test_late_member_gets_its_assignment_at_once() -> None:
    log, (leader, follower) = joined()
    log.sync("leader", leader, 1, {follower: b"2"})
    assert log.sync("follower", follower, 1).assignment == b"2"
    assert log.sync("again", leader, 1).assignment == b""  # the leader's assignment gives nothing to the leader itself


def test_failed_assignment_starts_another_rebalance() -> None:
    log, (leader, follower) = joined(hold=True)
    log.sync("follower", follower, 1)
    log.sync("leader", leader, 1, {leader: b"1"})
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code(log.answers["leader"]) == code(log.answers["follower"]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log.describe().group_state == "PreparingRebalance"


def test_slow_assignment_starts_another_rebalance_and_is_dropped() -> None:
    log, (leader, follower) = joined(hold=True)
    log.sync("follower", follower, 1)
    log.sync("leader", leader, 1, {leader: b"1"})
    log.time_out()
    assert code(log.answers["leader"]) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.commit()
    assert log.describe().group_state == "PreparingRebalance"
    assert log.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_assignment_of_a_generation_that_is_over_is_dropped() -> None:
    log, (leader, follower) = joined(hold=True)
    log.sync("leader", leader, 1, {leader: b"1"})
    log.join("follower", member=follower, protocols=[("range", b"changed")])
    assert code(log.answers["leader"]) == ErrorCode.REBALANCE_IN_PROGRESS
    log.commit()
    assert log.describe().group_state == "PreparingRebalance"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        # The error for a wrong generation takes precedence over the error for a wrong protocol.
        ({"generation": 2, "protocol_name": "sticky"}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_sync_is_refused_when_it_does_not_match_the_group(asked: dict[str, Any], error: ErrorCode) -> None:
    log, (leader, _) = joined()
    assert code(log.sync("s", **({"member": leader, "generation": 1} | asked))) == error


def test_sync_is_refused_while_a_rebalance_is_prepared() -> None:
    log = GroupLog()
    (leader, follower), generation = log.form(2)
    log.join("again", member=leader)
    assert code(log.sync("s", follower, generation)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_sent_twice_is_answered_twice() -> None:
    log, (leader, follower) = joined()
    log.sync("once", follower, 1)
    log.sync("twice", follower, 1)
    assert code(log.answers["once"]) == ErrorCode.REBALANCE_IN_PROGRESS
    log.sync("leader", leader, 1, {follower: b"2"})
    assert log.answers["twice"].assignment == b"2"


def test_member_is_removed_when_it_does_not_sync_in_time() -> None:
    log, (leader, follower) = joined()
    log.sync("leader", leader, 1, {leader: b"1"})
    for _ in range(6):  # during the rebalance timeout, the follower sends heartbeats but no SyncGroup
        assert log.heartbeat(follower, 1) == ErrorCode.NONE
        log.heartbeat(leader, 1)
        log.wait(9_999)
    log.heartbeat(leader, 1)
    log.heartbeat(follower, 1)
    log.wait(6)
    assert log.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert log.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


# --- heartbeats and sessions ---


def test_heartbeat_extends_a_session() -> None:
    log = GroupLog()
    (member,), generation = log.form(1)
    for _ in range(5):
        log.wait(9_999)
        assert log.heartbeat(member, generation) == ErrorCode.NONE
    log.wait(10_000)
    assert log.heartbeat(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_extends_a_session() -> None:
    log = GroupLog()
    (member,), generation = log.form(1)
    for number in range(3):
        log.wait(9_000)
        assert log.commit_offsets(number, {("t", 0): number}, member=member, generation=generation) is not None
    assert log.heartbeat(member, generation) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "none"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": "who", "generation": 2}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat_is_refused_when_it_does_not_match_the_group(asked: dict[str, Any], error: ErrorCode) -> None:
    log = GroupLog()
    (member,), _ = log.form(1)
    assert log.heartbeat(**({"member": member, "generation": 1} | asked)) == error


def test_others_must_rejoin_when_a_session_ends() -> None:
    log = GroupLog()
    (leader, follower), generation = log.form(2)
    log.wait(5_000)
    log.heartbeat(leader, generation)
    log.wait(5_000)
    assert log.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    log.join("again", member=leader)
    assert [each.member_id for each in log.answers["again"].members] == [leader]
    assert follower != leader


def test_member_that_waits_for_others_to_join_sends_no_heartbeats() -> None:
    log = GroupLog()
    (leader, follower), generation = log.form(2)
    log.join("leader", member=leader)
    for _ in range(4):
        log.wait(9_000)
        assert log.heartbeat(follower, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    log.join("follower", member=follower)
    assert log.answers["leader"].generation_id == log.answers["follower"].generation_id == 2


def test_member_that_waits_for_its_assignment_sends_no_heartbeats() -> None:
    log, (leader, follower) = joined()
    log.sync("follower", follower, 1)
    for _ in range(4):
        log.wait(9_000)
        log.heartbeat(leader, 1)
    log.sync("leader", leader, 1, {follower: b"2"})
    assert log.answers["follower"].assignment == b"2"
    log.wait(9_999)
    assert log.heartbeat(follower, 1) == ErrorCode.NONE  # the follower's session began when its request was answered


# --- LeaveGroup ---


def test_members_leave_together_each_with_an_answer_of_its_own() -> None:
    log = GroupLog()
    members, generation = log.form(3)
    told = log.join("newcomer").member_id
    answer = log.leave("l", (members[1], None), ("who", None), (told, None), (members[2], "i"), ("", "nobody"))
    assert code(answer) == ErrorCode.NONE
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error_code for each in answer.members] == [0, unknown, 0, unknown, unknown]
    assert log.heartbeat(members[0], generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert log.heartbeat(members[1], generation) == unknown


def test_leaving_a_missing_group_is_refused() -> None:
    log = GroupLog()
    answer = log.leave("l", ("who", "i"), group="none")
    assert code(answer) == ErrorCode.NONE
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
        ("who", "i", ErrorCode.UNKNOWN_MEMBER_ID)
    ]


def test_last_to_leave_leaves_an_empty_generation_in_the_log() -> None:
    log = GroupLog()
    (member,), _ = log.form(1)
    written = len(log.records)
    log.leave("l", (member, None))
    assert len(log.records) == written + 1
    assert log.restarted().describe().group_state == log.describe().group_state == "Empty"


def test_member_that_leaves_while_its_join_is_parked_must_begin_anew() -> None:
    log = GroupLog()
    (leader, _), _ = log.form(2)
    log.join("parked", member=leader)
    log.leave("l", (leader, None))
    assert code(log.answers["parked"]) == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_an_administrator_removes_while_its_sync_is_parked_must_begin_anew() -> None:
    log, (_, follower) = joined()
    assert log.sync("parked", follower, 1) is None
    log.leave("l", (follower, None))
    assert code(log.answers["parked"]) == ErrorCode.UNKNOWN_MEMBER_ID


def test_departure_ends_a_rebalance_that_waited_for_it() -> None:
    log = GroupLog()
    (leader, follower), _ = log.form(2)
    log.join("leader", member=leader)
    log.leave("l", (follower, None))
    assert log.answers["leader"].generation_id == 2


# --- clock jumps ---


def test_members_stay_when_an_hour_passes_at_once() -> None:
    log = GroupLog()
    (leader, follower), generation = log.form(2)
    log.skip(3_600_000)
    assert log.describe().group_state == "Stable"
    assert [log.heartbeat(each, generation) for each in (leader, follower)] == [ErrorCode.NONE] * 2


def test_member_that_stays_silent_after_an_hour_that_passed_at_once_is_removed() -> None:
    log = GroupLog()
    (leader, _), generation = log.form(2)
    log.skip(3_600_000)
    for _ in range(4):
        log.wait(SESSION_MS // 4)
        log.heartbeat(leader, generation)
    assert log.describe().group_state == "PreparingRebalance"


def test_rebalance_waits_on_when_an_hour_passes_at_once() -> None:
    log = GroupLog()
    (leader, follower), _ = log.form(2)
    log.join("leader again", member=leader)
    log.skip(3_600_000)
    assert log.describe().group_state == "PreparingRebalance"
    log.join("follower again", member=follower)
    assert log.answers["leader again"].generation_id == 2
    assert len(log.describe().members) == 2


# --- unloading ---


def test_waiters_get_an_error_when_a_shard_is_unloaded() -> None:
    log, (leader, follower) = joined(hold=True)
    log.sync("follower", follower, 1)
    log.sync("leader", leader, 1, {})
    log.join("other", "h", client=OLD)
    log.commit_offsets("commit", {("t", 0): 1}, "simple")
    log.fetch("fetch", {"t": [0]}, "simple", require_stable=True)
    effects = log.shard.unload(ErrorCode.NOT_COORDINATOR)
    assert not effects.appends
    log.open.clear()
    log.carry_out(effects)
    assert {each: code(log.answers[each]) for each in ("follower", "leader", "other", "fetch")} == dict.fromkeys(
        ("follower", "leader", "other", "fetch"), ErrorCode.NOT_COORDINATOR
    )
    (topic,) = log.answers["commit"].topics
    assert code(topic.partitions[0]) == ErrorCode.NOT_COORDINATOR


def test_empty_shard_only_searches_for_expired_offsets() -> None:
    log = GroupLog()
    assert log.shard.next_deadline_ms() == log.now_ms + SETTINGS.offsets_retention_check_interval_ms
