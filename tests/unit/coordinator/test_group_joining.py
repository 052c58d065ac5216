"""JoinGroup: which members a group accepts, which members must rejoin, and when a rebalance ends."""

from typing import Any

import pytest

from group_log import SESSION_MS, SETTINGS, Client, GroupLog, loaded
from kafkacore.coordinator.group import joining, records
from kafkacore.protocol.errors import ErrorCode
from kafkacore.runtime.slices import finish_now

OLD = Client(api_version=3)  # in versions up to this one, a new member joins without a member id
RANGE = ("range", b"\0\0")
STICKY = ("sticky", b"\0\1")


def code(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def test_newcomer_gets_its_id_and_joins_with_it() -> None:
    log = GroupLog()
    told = log.join("a")
    assert code(told) == ErrorCode.MEMBER_ID_REQUIRED
    assert told.member_id.startswith("client-")
    assert told.protocol_name is None
    assert log.join("b", member=told.member_id) is None  # the shard has parked the request
    log.wait(SETTINGS.initial_rebalance_delay_ms)
    joined = log.answers["b"]
    assert code(joined) == ErrorCode.NONE
    assert (joined.member_id, joined.leader, joined.generation_id) == (told.member_id, told.member_id, 1)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")


def test_old_client_and_static_member_join_without_an_id() -> None:
    log = GroupLog()
    assert log.join("old", client=OLD) is None
    assert log.join("static", instance="i-1") is None
    log.wait(2 * SETTINGS.initial_rebalance_delay_ms)
    assert log.answers["old"].protocol_name == "range"
    assert log.answers["static"].member_id.startswith("i-1-")


def test_empty_protocol_name_is_null_since_version_7_only() -> None:
    log = GroupLog()
    assert log.join("old", protocols=(), client=Client(api_version=6)).protocol_name == ""
    assert log.join("new", protocols=(), client=Client(api_version=7)).protocol_name is None


def test_member_of_a_missing_group_is_unknown() -> None:
    log = GroupLog()
    answer = log.join("a", member="who")
    assert (code(answer), answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "who")
    assert log.records == []


def test_join_fails_when_the_group_does_not_know_the_member() -> None:
    log = GroupLog()
    log.form(1)
    assert code(log.join("a", member="who")) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [RANGE]), ("consumer", [])])
def test_first_member_must_offer_a_protocol(protocol_type: str, protocols: list[tuple[str, bytes]]) -> None:
    log = GroupLog()
    answer = log.join("a", protocol_type=protocol_type, protocols=protocols)
    assert code(answer) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert len(log.records) == 1  # as in Kafka, the empty group still exists
    assert log.describe().group_state == "Empty"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", [RANGE]), ("consumer", [STICKY])])
def test_later_member_must_share_a_protocol(protocol_type: str, protocols: list[tuple[str, bytes]]) -> None:
    log = GroupLog()
    log.form(1)
    answer = log.join("a", protocol_type=protocol_type, protocols=protocols)
    assert code(answer) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_common_protocol_with_most_votes_is_chosen() -> None:
    log = GroupLog()
    log.join("a", protocols=[("own", b""), RANGE, STICKY], client=OLD)
    log.join("b", protocols=[STICKY, RANGE], client=OLD)
    log.join("c", protocols=[STICKY, RANGE], client=OLD)
    log.wait(10_000)
    assert {log.answers[each].protocol_name for each in "abc"} == {"sticky"}


def test_only_the_leader_gets_the_members() -> None:
    log = GroupLog()
    log.join("a", client=OLD, protocols=[("range", b"of a")])
    log.join("b", instance="i", protocols=[("range", b"of b")])
    log.wait(10_000)
    leader, other = log.answers["a"], log.answers["b"]
    assert [(each.member_id, each.group_instance_id, each.metadata) for each in leader.members] == [
        (leader.member_id, None, b"of a"),
        (other.member_id, "i", b"of b"),
    ]
    assert (other.members, other.leader) == ([], leader.member_id)


def test_initial_rebalance_waits_for_newcomers_up_to_the_rebalance_timeout() -> None:
    log = GroupLog()
    log.join(0, client=OLD, rebalance_ms=8_000)
    for number in range(1, 10):
        log.wait(1_000)
        log.join(number, client=OLD, rebalance_ms=8_000)
        if 0 in log.answers:
            break
    # The initial rebalance waits 3 seconds, then 3 more, and then the remaining 2.
    assert number == 8
    assert len(log.answers[0].members) == 8


def test_initial_rebalance_ends_after_one_quiet_delay() -> None:
    log = GroupLog()
    log.join("a", client=OLD)
    log.wait(2_999)
    assert "a" not in log.answers
    log.wait(1)
    assert log.answers["a"].generation_id == 1


def test_member_is_removed_when_it_does_not_rejoin_within_the_rebalance_timeout() -> None:
    log = GroupLog()
    (first, second), _ = log.form(2, session_ms=600_000)
    log.join("again", member=first, session_ms=600_000)
    assert log.heartbeat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    log.wait(59_999)
    assert "again" not in log.answers
    log.wait(1)
    assert [each.member_id for each in log.answers["again"].members] == [first]
    assert log.heartbeat(second, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout() -> None:
    log = GroupLog()
    first = Client(api_version=0)
    log.join("a", client=first, rebalance_ms=-1, session_ms=7_000)
    log.wait(3_000)
    leader = log.answers["a"].member_id
    log.sync("s", leader, 1, {})
    log.join("again", member=leader, client=first, rebalance_ms=-1, session_ms=9_000)
    log.sync("t", leader, 2, {})
    (value,) = [records.read_group(value) for _, value in log.records[-1:] if value is not None]
    assert value.members[0].rebalance_timeout == 9_000


def test_rebalance_is_over_when_the_last_member_has_joined() -> None:
    log = GroupLog()
    (first, second), _ = log.form(2)
    assert log.join("first", member=first) is None
    log.join("second", member=second)
    assert (log.answers["first"].generation_id, log.answers["second"].generation_id) == (2, 2)


def test_rebalance_waits_for_a_member_that_got_an_id() -> None:
    log = GroupLog()
    (first,), _ = log.form(1)
    told = log.join("newcomer")
    assert log.join("first", member=first) is None
    log.join("joins", member=told.member_id)
    assert {log.answers["first"].generation_id, log.answers["joins"].generation_id} == {2}


def test_member_that_got_an_id_and_does_not_join_delays_a_rebalance_for_a_session() -> None:
    log = GroupLog()
    (first,), _ = log.form(1)
    log.join("newcomer", session_ms=7_000)
    log.join("first", member=first)
    log.wait(6_999)
    assert "first" not in log.answers
    log.wait(1)
    assert log.answers["first"].generation_id == 2


def test_new_member_that_waits_too_long_must_begin_anew() -> None:
    log = GroupLog()
    (first,), _ = log.form(1, session_ms=1_800_000)
    log.join("new", client=OLD, rebalance_ms=1_800_000)
    for _ in range(60):
        log.wait(5_000)
        log.heartbeat(first, 1)
    answer = log.answers["new"]
    assert (code(answer), answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_follower_that_rejoins_unchanged_gets_the_generation() -> None:
    log = GroupLog()
    (leader, follower), generation = log.form(2)
    answer = log.join("again", member=follower)
    assert (answer.generation_id, answer.leader, answer.members) == (generation, leader, [])
    assert log.describe().group_state == "Stable"


def test_follower_with_another_subscription_makes_a_rebalance() -> None:
    log = GroupLog()
    (_, follower), _ = log.form(2)
    assert log.join("again", member=follower, protocols=[("range", b"another")]) is None
    assert log.describe().group_state == "PreparingRebalance"


def test_leader_that_rejoins_starts_a_rebalance() -> None:
    log = GroupLog()
    (leader, _), _ = log.form(2)
    assert log.join("again", member=leader) is None


def test_member_that_missed_its_answer_gets_it_again_while_the_leader_assigns() -> None:
    log = GroupLog()
    log.join("a", client=OLD)
    log.join("b", client=OLD)
    log.wait(10_000)
    leader = log.answers["a"].member_id
    again = log.join("again", member=leader)
    assert (again.generation_id, len(again.members)) == (1, 2)
    assert log.join("other", member=log.answers["b"].member_id, protocols=[("range", b"x")]) is None
    assert log.describe().group_state == "PreparingRebalance"


def test_join_sent_twice_is_answered_twice() -> None:
    log = GroupLog()
    (leader, follower), _ = log.form(2)
    log.join("once", member=leader)
    log.join("twice", member=leader)
    assert code(log.answers["once"]) == ErrorCode.REBALANCE_IN_PROGRESS
    log.join("follower", member=follower)
    assert code(log.answers["twice"]) == ErrorCode.NONE


def test_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    log = GroupLog(SETTINGS._replace(max_size=2))
    members, generation = log.form(2)
    answer = log.join("third")
    assert (code(answer), answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert [log.heartbeat(each, generation) for each in members] == [0, 0]
    assert log.join("again", member=members[1]).generation_id == generation


def test_oversized_group_drops_the_last_members_to_join() -> None:
    log = GroupLog()
    members, _ = log.form(3)
    small = loaded(log.records, SETTINGS._replace(max_size=2))
    assert small.heartbeat(members[0], 1) == ErrorCode.REBALANCE_IN_PROGRESS
    for member in members:
        small.join(member, member=member)
    assert code(small.answers[members[2]]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {small.answers[each].generation_id for each in members[:2]} == {2}


def test_rebalance_ends_when_the_last_member_to_join_is_refused_because_the_group_is_full() -> None:
    log = GroupLog(SETTINGS._replace(max_size=2))
    members, generation = log.form(2)
    log.join("first", member=members[0])
    promised = log.join("third").member_id
    log.join("second", member=members[1])
    assert "first" not in log.answers
    assert code(log.join("third again", member=promised)) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {log.answers[each].generation_id for each in ("first", "second")} == {generation + 1}


def test_group_does_not_exist_when_its_record_could_not_be_written() -> None:
    log = GroupLog(hold=True)
    assert log.join("a", client=OLD) is None
    assert log.join("b", client=OLD) is None
    # Clients do not see a group until its record is committed.
    assert log.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert code(log.answers["a"]) == ErrorCode.NOT_COORDINATOR
    assert code(log.answers["b"]) == ErrorCode.NOT_COORDINATOR
    assert finish_now(log.shard.list_groups([], [])) == []


def test_joined_member_becomes_leader_when_the_leader_is_gone() -> None:
    log = GroupLog()
    (leader, follower), _ = log.form(2)
    log.join("follower", member=follower, protocols=[("range", b"new")])
    log.leave("leaves", (leader, None))
    assert log.answers["follower"].leader == follower


def test_group_goes_on_in_the_next_generation_after_it_was_empty() -> None:
    log = GroupLog()
    (member,), _ = log.form(1)
    log.leave("leaves", (member, None))
    assert log.describe().group_state == "Empty"
    again = log.restarted()
    _, generation = again.form(1)
    assert generation == 3  # generation 2 was the one without members


@pytest.mark.parametrize("asked", [{"client": OLD._replace(client_id="c" * 32_731)}, {"instance": "ä" * 16_366}])
def test_id_too_long_for_a_record_is_refused_first(asked: dict[str, Any]) -> None:
    log = GroupLog()
    assert code(log.join("a", **asked)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert finish_now(log.shard.list_groups([], [])) == []
    assert log.records == []


def test_first_of_two_equal_protocols_counts() -> None:
    log = GroupLog()
    log.join("a", client=OLD, protocols=[("range", b"first"), STICKY, ("range", b"second")])
    log.join("b", client=OLD, protocols=[RANGE])
    log.wait(10_000)
    leader = log.answers["a"]
    assert (leader.protocol_name, leader.members[0].metadata) == ("range", b"first")


def test_number_of_members_with_an_id_that_have_not_joined_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MAX_PENDING_MEMBERS", 2)
    log = GroupLog()
    told = log.join("a")
    assert code(log.join("b")) == ErrorCode.MEMBER_ID_REQUIRED
    refused = log.join("c")
    assert (code(refused), refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    log.join("comes", member=told.member_id)
    assert code(log.join("d")) == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_rebalance_timeout_of_zero_leaves_time_for_other_groups(rebalance_ms: int) -> None:
    log = GroupLog()
    log.join("leader", client=OLD)
    log.join("static", instance="i", rebalance_ms=rebalance_ms)
    log.wait(10_000)
    leader = log.answers["leader"].member_id
    log.leave("leaves", (leader, None))
    log.carry_out(log.shard.tick(log.now_ms))
    due_ms = log.shard.next_deadline_ms()
    assert due_ms is not None
    assert due_ms > log.now_ms
    log.wait(SESSION_MS)
    assert log.describe().group_state == "Empty"


def test_rebalance_without_members_accepts_a_newcomer() -> None:
    log = GroupLog()
    log.join("a", client=OLD)
    (member,) = log.describe().members
    log.leave("l", (member.member_id, None))
    described = log.describe()
    assert (described.group_state, described.members) == ("PreparingRebalance", [])
    log.join("b", client=OLD)
    log.wait(2 * SETTINGS.initial_rebalance_delay_ms)
    assert code(log.answers["b"]) == ErrorCode.NONE
