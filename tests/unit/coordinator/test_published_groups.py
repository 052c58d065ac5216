"""Native processors answer the Heartbeats and SyncGroups of a stable group. They note each heartbeat for the group
coordinator, which uses these notes to extend sessions."""

from typing import Any

import pytest

from group_log import REBALANCE_MS, SESSION_MS, SETTINGS, Client, GroupLog
from kafkacore.coordinator.group.classic import ClassicGroup
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import SyncGroupRequest, SyncGroupResponse

OLD = Client(api_version=3)
# After this many heartbeats, a member that has not sent SyncGroup is late.
ROUNDS = REBALANCE_MS // (SESSION_MS - 1) + 1


def noted(log: GroupLog, member: str, generation: int, instance: str | None = None) -> bool:
    """Sends a heartbeat. Returns whether a processor answered it, so that it did not reach the coordinator."""
    before = log.published_groups.noted
    log.heartbeat(member, generation, instance=instance)
    return log.published_groups.noted > before


@pytest.fixture
def stable() -> tuple[GroupLog, list[str], int]:
    """Returns a stable group of two members. The first one is the leader."""
    log = GroupLog()
    ids, generation = log.form()
    return log, ids, generation


def test_processors_answer_all_members_once_the_group_is_stable(
    stable: tuple[GroupLog, list[str], int],
) -> None:
    log, ids, generation = stable
    assert [noted(log, each, generation) for each in ids] == [True, True]
    assert log.heartbeat(ids[0], generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert log.heartbeat("nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat(ids[0], generation, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat(ids[0], generation, instance="static") == ErrorCode.UNKNOWN_MEMBER_ID


def test_session_continues_from_the_last_heartbeat_on_either_path(
    stable: tuple[GroupLog, list[str], int],
) -> None:
    log, (lives, _), generation = stable
    for _ in range(3):
        log.wait(SESSION_MS // 2)
        log.heartbeat(lives, generation)
    # Meanwhile the session of the silent member has ended, and the shard answers the other member.
    assert log.describe().group_state == "PreparingRebalance"
    assert [each.member_id for each in log.describe().members] == [lives]
    assert log.heartbeat(lives, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_that_only_processors_heard_is_removed_a_session_after_they_did(
    stable: tuple[GroupLog, list[str], int],
) -> None:
    log, ids, generation = stable
    log.wait(SESSION_MS - 1)
    assert [noted(log, each, generation) for each in ids] == [True, True]
    log.wait(SESSION_MS - 1)
    assert len(log.describe().members) == 2
    log.wait(1)
    assert log.describe().members == []


def test_static_members_are_answered_by_their_instance_id() -> None:
    log = GroupLog()
    log.join("one", instance="i-1")
    log.wait(SETTINGS.initial_rebalance_delay_ms * 2)
    joined = log.answers.pop("one")
    log.sync("one", joined.member_id, 1, {joined.member_id: b"all"}, instance="i-1")
    log.heartbeat(joined.member_id, 1, instance="i-1")
    assert noted(log, joined.member_id, 1, instance="i-1")
    assert noted(log, joined.member_id, 1)
    assert log.heartbeat(joined.member_id, 1, instance="i-2") == ErrorCode.UNKNOWN_MEMBER_ID
    # The restarted member gets another member id, and the group fences the old one.
    log.join("again", instance="i-1")
    assert log.heartbeat(joined.member_id, 1, instance="i-1") == ErrorCode.FENCED_INSTANCE_ID


def test_member_that_processors_heard_stays_when_the_group_is_published_again() -> None:
    log = GroupLog()
    for instance in ("i-1", "i-2"):
        log.join(instance, instance=instance)
    log.wait(SETTINGS.initial_rebalance_delay_ms * 2)
    first, other = (log.answers.pop(instance).member_id for instance in ("i-1", "i-2"))
    for member, assignments in ((first, {first: b"a", other: b"b"}), (other, {})):
        log.sync(member, member, 1, assignments)
    log.wait(SESSION_MS - 1_000)
    assert noted(log, other, 1)
    # The group keeps its generation. The new member's heartbeat publishes the group for the second time.
    again = log.join("again", instance="i-1").member_id
    log.heartbeat(again, 1, instance="i-1")
    assert noted(log, again, 1)
    log.wait(SESSION_MS - 1)
    log.heartbeat(again, 1)
    assert log.describe().group_state == "Stable"
    assert {each.member_id for each in log.describe().members} == {again, other}
    log.wait(1)
    assert {each.member_id for each in log.describe().members} == {again}


@pytest.mark.parametrize("change", ["join", "leave", "session", "unload", "rebalance"])
def test_group_is_withdrawn_before_it_changes(stable: tuple[GroupLog, list[str], int], change: str) -> None:
    log, (leader, other), generation = stable
    match change:
        case "join":
            log.join("third", client=OLD)
        case "leave":
            log.leave("left", (other, None))
        case "session":
            log.wait(SESSION_MS - 1)
            log.heartbeat(leader, generation)
            log.wait(1)
        case "unload":
            log.carry_out(log.shard.unload(ErrorCode.NOT_COORDINATOR))
        case "rebalance":
            log.join("again", member=leader)
    assert not noted(log, leader, generation)


def test_next_generation_is_published_separately(stable: tuple[GroupLog, list[str], int]) -> None:
    log, (leader, other), generation = stable
    assert noted(log, other, generation)
    log.leave("left", (leader, None))
    assert log.heartbeat(other, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert log.join("other", member=other).generation_id == generation + 1
    log.sync("synced", other, generation + 1, {other: b"all"})
    assert noted(log, other, generation + 1)
    assert log.heartbeat(other, generation) == ErrorCode.ILLEGAL_GENERATION


def test_loaded_group_is_published_at_its_first_heartbeat(stable: tuple[GroupLog, list[str], int]) -> None:
    log, ids, generation = stable
    again = log.restarted()
    assert [noted(again, each, generation) for each in ids] == [False, True]


# --- SyncGroup ---


def joined_pair() -> tuple[GroupLog, list[str]]:
    """Returns a group in generation 1. The first member is the leader and has sent the assignments, so the group is
    stable."""
    log = GroupLog()
    for waiter in ("one", "two"):
        log.join(waiter, client=OLD)
    log.wait(SETTINGS.initial_rebalance_delay_ms * 2)
    ids = [log.answers.pop(waiter).member_id for waiter in ("one", "two")]
    assert log.sync("led", ids[0], 1, {ids[0]: b"first", ids[1]: b"second"}).assignment == b"first"
    assert log.published_groups.synced == 0
    return log, ids


def by_the_shard(log: GroupLog, request: SyncGroupRequest) -> SyncGroupResponse:
    effects = log.shard.sync_group(request, "shard", log.now_ms)
    [(_, response)] = effects.answers
    return response


def test_follower_gets_the_same_assignment_as_from_the_shard() -> None:
    log, ids = joined_pair()
    given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=ids[0], assignment=b"other")]
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    cases: list[dict[str, Any]] = [
        {},
        {"member_id": ids[0]},
        {"member_id": ids[0], "assignments": given},
        {"generation_id": 0},
        {"member_id": "nobody"},
        {"group_id": "other"},
        {"group_instance_id": "static"},
        named,
        named | {"protocol_type": "connect"},
        named | {"protocol_name": "sticky"},
        named | {"protocol_name": ""},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
    ]
    for case in cases:
        request = SyncGroupRequest(**({"group_id": "g", "generation_id": 1, "member_id": ids[1]} | case))
        native = log.published_groups.sync_group(request)
        told = by_the_shard(log, request)
        version = 5 if "protocol_name" in case else 3
        assert (native is None) == bool(told.error_code), case
        assert native is None or native.encode(version) == told.encode(version), case


def test_member_that_got_its_assignment_from_a_processor_is_not_late() -> None:
    log, ids = joined_pair()
    assert log.sync("followed", ids[1], 1).assignment == b"second"
    assert log.published_groups.synced == 1
    for _ in range(ROUNDS):
        log.wait(SESSION_MS - 1)
        assert [noted(log, each, 1) for each in ids] == [True, True]
    assert log.describe().group_state == "Stable"


@pytest.mark.parametrize("asks", [False, True])
def test_member_without_its_assignment_is_late_after_a_withdrawal_too(asks: bool) -> None:
    log, (leader, other) = joined_pair()
    if asks:
        log.sync("followed", other, 1)
    group = log.shard._core.groups["g"]
    assert isinstance(group, ClassicGroup)
    group.withdraw()
    assert group.late_members() == ([] if asks else [other])
    assert not noted(log, leader, 1)
    assert noted(log, leader, 1)
    assert group.late_members() == ([] if asks else [other])
    for _ in range(ROUNDS):
        log.wait(SESSION_MS - 1)
        for each in (leader, other):
            log.heartbeat(each, 1)
    assert log.describe().group_state == ("Stable" if asks else "PreparingRebalance")


def test_replaced_static_member_gets_its_assignment_with_its_new_id() -> None:
    log = GroupLog()
    log.join("one", instance="i-1")
    log.wait(SETTINGS.initial_rebalance_delay_ms * 2)
    first = log.answers.pop("one").member_id
    log.sync("one", first, 1, {first: b"all"}, instance="i-1")
    again = log.join("again", instance="i-1", client=Client(api_version=9)).member_id
    assert log.sync("late", first, 1, instance="i-1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert log.sync("early", again, 1, instance="i-1").assignment == b"all"
    assert log.heartbeat(again, 1, instance="i-1") == ErrorCode.NONE
    assert log.published_groups.synced == 0
    assert log.sync("then", again, 1, instance="i-1").assignment == b"all"
    assert log.published_groups.synced == 1
