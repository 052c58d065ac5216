"""Heartbeats that a stable group's shard leaves to processors, and sessions that go on by what was heard there."""

import pytest

from group_log import SESSION_MS, SETTINGS, Client, GroupLog
from kafkacore.protocol.errors import ErrorCode

OLD = Client(api_version=3)


def noted(log: GroupLog, member: str, generation: int, instance: str | None = None) -> bool:
    """Whether a heartbeat does not reach the shard."""
    before = log.rolls.noted
    log.heartbeat(member, generation, instance=instance)
    return log.rolls.noted > before


@pytest.fixture
def stable() -> tuple[GroupLog, list[str], int]:
    """A group of two, of which the first heartbeat was served by the shard."""
    log = GroupLog()
    ids, generation = log.form()
    assert not noted(log, ids[0], generation)
    return log, ids, generation


def test_after_one_heartbeat_all_members_of_the_generation_are_answered_without_the_shard(
    stable: tuple[GroupLog, list[str], int],
) -> None:
    log, ids, generation = stable
    assert [noted(log, each, generation) for each in ids] == [True, True]
    assert log.heartbeat(ids[0], generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert log.heartbeat("nobody", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat(ids[0], generation, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat(ids[0], generation, instance="static") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_goes_on_from_the_last_heartbeat_wherever_that_was_heard(
    stable: tuple[GroupLog, list[str], int],
) -> None:
    log, (lives, _), generation = stable
    for _ in range(3):
        log.wait(SESSION_MS // 2)
        log.heartbeat(lives, generation)
    # The silent one's session has ended meanwhile, and the shard answers the other.
    assert log.describe().group_state == "PreparingRebalance"
    assert [each.member_id for each in log.describe().members] == [lives]
    assert log.heartbeat(lives, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_only_processors_heard_is_removed_a_session_after_they_did(
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
    # Started again, it has another id, and the old one is fenced.
    log.join("again", instance="i-1")
    assert log.heartbeat(joined.member_id, 1, instance="i-1") == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("change", ["join", "leave", "session", "unload", "rebalance"])
def test_nothing_of_a_group_changes_while_processors_answer_for_it(
    stable: tuple[GroupLog, list[str], int], change: str
) -> None:
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


def test_the_next_generation_has_a_roll_of_its_own(stable: tuple[GroupLog, list[str], int]) -> None:
    log, (leader, other), generation = stable
    assert noted(log, other, generation)
    log.leave("left", (leader, None))
    assert log.heartbeat(other, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert log.join("other", member=other).generation_id == generation + 1
    log.sync("synced", other, generation + 1, {other: b"all"})
    assert [noted(log, other, generation + 1) for _ in range(2)] == [False, True]
    assert log.heartbeat(other, generation) == ErrorCode.ILLEGAL_GENERATION


def test_a_group_that_is_loaded_has_a_roll_with_its_first_heartbeat(stable: tuple[GroupLog, list[str], int]) -> None:
    log, ids, generation = stable
    again = log.restarted()
    assert [noted(again, each, generation) for each in ids] == [False, True]
