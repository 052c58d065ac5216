"""Static members (KIP-345). A group identifies a static member by its instance id. It keeps the member during a
restart. When another process joins with the same instance id, the group fences the earlier one."""

from typing import Any

import pytest

from group_log import SESSION_MS, SETTINGS, Client, GroupLog
from kafkacore.protocol.errors import ErrorCode

OLD = Client(api_version=3)


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def static_group(*instances: str) -> tuple[GroupLog, dict[str, str]]:
    """Makes a stable group of static members. Returns the member ids by instance id."""
    log = GroupLog()
    for instance in instances:
        log.join(instance, instance=instance)
    while instances[0] not in log.answers:
        log.wait(1_000)
    ids = {instance: log.answers.pop(instance).member_id for instance in instances}
    for instance in reversed(instances):
        given = {member: each.encode() for each, member in ids.items()} if instance == instances[0] else None
        log.sync(f"sync-{instance}", ids[instance], 1, given, instance=instance)
    return log, ids


def test_restarted_static_member_takes_its_place_without_a_rebalance() -> None:
    log, ids = static_group("a", "b")
    answer = log.join("again", instance="b")
    assert (code(answer), answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, ids["a"])
    assert answer.member_id != ids["b"]
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert log.sync("sync", answer.member_id, 1, instance="b").assignment == b"b"
    assert log.heartbeat(ids["b"], 1, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert log.heartbeat(ids["b"], 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.restarted().describe() == log.describe()


def test_restarted_leader_gets_the_members_and_skips_the_assignment() -> None:
    log, _ = static_group("a", "b")
    answer = log.join("again", instance="a")
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert len(answer.members) == 2


def test_restarted_leader_with_an_old_client_gets_its_old_id_as_leader() -> None:
    log, ids = static_group("a", "b")
    answer = log.join("again", instance="a", client=Client(api_version=8))
    assert (answer.leader, answer.skip_assignment, answer.members) == (ids["a"], False, [])
    assert log.restarted().join("third", instance="a").leader != ids["a"]


def test_restarted_member_with_other_protocols_starts_a_rebalance() -> None:
    log, ids = static_group("a", "b")
    log.join("both", member=ids["a"], instance="a", protocols=[("range", b""), ("sticky", b"")])
    log.join("both too", member=ids["b"], instance="b", protocols=[("range", b""), ("sticky", b"")])
    log.sync("a", ids["a"], 2, {}, instance="a")
    log.sync("b", ids["b"], 2, instance="b")
    assert log.describe().group_state == "Stable"
    assert log.join("again", instance="b", protocols=[("sticky", b"")]) is None
    assert log.describe().group_state == "PreparingRebalance"


def test_member_that_restarts_while_the_leader_assigns_starts_a_rebalance() -> None:
    log = GroupLog()
    log.join("a", instance="a")
    log.join("b", instance="b")
    while "a" not in log.answers:
        log.wait(1_000)
    leader = log.answers["a"].member_id
    assert log.join("again", instance="b") is None
    assert log.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_join_of_the_former_member_is_fenced() -> None:
    log, ids = static_group("a", "b")
    log.join("parked", member=ids["a"], instance="a")  # the leader rejoins, which starts a rebalance
    log.join("waits", instance="a")
    assert (code(log.answers["parked"]), log.answers["parked"].member_id) == (ErrorCode.FENCED_INSTANCE_ID, ids["a"])
    log.join("b", member=ids["b"], instance="b")
    assert log.answers["waits"].generation_id == 2


def test_parked_sync_of_the_former_member_is_fenced() -> None:
    log = GroupLog()
    log.join("a", instance="a")
    log.join("b", instance="b")
    while "b" not in log.answers:
        log.wait(1_000)
    log.sync("parked", log.answers["b"].member_id, 1, instance="b")
    log.join("again", instance="b")
    assert code(log.answers["parked"]) == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("member", "instance", "error"),
    [("other", "a", ErrorCode.FENCED_INSTANCE_ID), ("other", "nobody", ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_instance_id_of_another_member_is_fenced(member: str, instance: str, error: ErrorCode) -> None:
    log, _ = static_group("a")
    assert code(log.join("j", member=member, instance=instance)) == error
    assert code(log.sync("s", member, 1, instance=instance)) == error
    assert log.heartbeat(member, 1, instance=instance) == error
    assert log.leave("l", (member, instance)).members[0].error_code == error
    committed = log.commit_offsets("c", {("t", 0): 1}, member=member, generation=1, instance=instance)
    assert committed.topics[0].partitions[0].error_code == error


def test_administrator_removes_a_member_by_its_instance_id_alone() -> None:
    log, _ = static_group("a", "b")
    answer = log.leave("l", ("", "b"))
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [("", "b", 0)]
    assert [each.group_instance_id for each in log.describe().members] == ["a"]


def test_rebalance_waits_for_a_static_member_until_its_session_ends() -> None:
    log, ids = static_group("a", "b")
    log.join("a", member=ids["a"], instance="a")
    for _ in range(6):  # longer than the rebalance timeout, but within the session timeout
        log.wait(9_999)
        log.heartbeat(ids["b"], 1, instance="b")
    log.wait(20)
    assert log.answers["a"].generation_id == 2
    assert len(log.answers["a"].members) == 2  # the silent member is still in the group


def test_failed_replacement_is_undone() -> None:
    log, ids = static_group("a", "b")
    log.hold = True
    assert log.join("again", instance="b", protocols=[("range", b"another")]) is None
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = log.answers["again"]
    assert (code(answer), answer.member_id, answer.leader) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", ids["a"])
    assert log.heartbeat(ids["b"], 1, instance="b") == ErrorCode.NONE
    described = {each.group_instance_id: each.member_metadata for each in log.describe().members}
    assert described["b"] == b"\0\0"


def test_static_member_is_never_asked_to_join_with_an_id() -> None:
    log = GroupLog()
    told = log.join("a").member_id
    answer = log.join("b", member=told, instance="i")
    assert (code(answer), answer.protocol_name) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert SETTINGS.new_member_join_timeout_ms == 300_000


def test_replacement_that_is_written_late_answers_no_later_request_of_the_member() -> None:
    log, ids = static_group("a", "b")
    log.hold = True
    log.join("again", instance="b")
    log.join("a", member=ids["a"], instance="a")  # the leader rejoins, which starts a rebalance that ends immediately
    new_id = log.answers["again"].member_id
    assert log.answers["again"].generation_id == 2
    assert log.join("later", member=new_id, instance="b", protocols=[("range", b"another")]) is None
    log.commit()
    assert "later" not in log.answers
    log.join("leader", member=ids["a"], instance="a")
    assert log.answers["later"].generation_id == 3


def test_request_of_the_new_member_is_fenced_when_its_replacement_cannot_be_written() -> None:
    log, ids = static_group("a", "b")
    log.hold = True
    log.join("again", instance="b")
    log.join("a", member=ids["a"], instance="a")  # starts a rebalance, from which the client learns its new id
    new_id = log.answers["again"].member_id
    log.join("later", member=new_id, instance="b", protocols=[("range", b"another")])
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code(log.answers["later"]) == ErrorCode.FENCED_INSTANCE_ID
    log.join("leader", member=ids["a"], instance="a")
    assert "leader" not in log.answers, "the rebalance waits for the member that took its place back"


def test_session_begins_again_when_a_replacement_is_written_after_its_end() -> None:
    log, ids = static_group("a", "b")
    log.hold = True

    def wait_for_a_session() -> None:
        for _ in range(11):
            log.wait(SESSION_MS // 10)
            log.heartbeat(ids["a"], 1, instance="a")

    log.join("again", instance="b")
    wait_for_a_session()
    log.commit()
    assert code(log.answers["again"]) == ErrorCode.NONE
    wait_for_a_session()
    assert [each.group_instance_id for each in log.describe().members] == ["a"]
