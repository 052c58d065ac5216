"""Expiry of offsets and removal of groups (KIP-211), and the requests DeleteGroups, ListGroups and DescribeGroups."""

import pytest

from group_log import SETTINGS, Client, GroupLog, loaded
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.coordinator.group import expiry, records
from kafkacore.coordinator.group.admin import state_filter, type_filter
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.runtime.slices import finish_now

DAY_MS = 86_400_000
RETENTION_MS = SETTINGS.offsets_retention_ms
LOOK_MS = SETTINGS.offsets_retention_check_interval_ms
OLD = Client(api_version=3)
TOPIC_ID = Uuid(bytes(range(16)))


def groups(log: GroupLog) -> list[str]:
    return [each.group_id for each in finish_now(log.shard.list_groups([], []))]


# --- expiry ---


def test_simple_group_ends_when_its_last_offset_expires() -> None:
    log = GroupLog()
    log.commit_offsets("old", {("t", 0): 5})
    log.wait(DAY_MS)
    log.commit_offsets("young", {("t", 1): 5})
    log.wait(RETENTION_MS - DAY_MS + LOOK_MS)
    assert log.offsets() == {("t", 1): 5}
    assert groups(log) == ["g"]
    log.wait(DAY_MS + LOOK_MS)
    assert groups(log) == []
    assert log.records[-1] == (records.group_key("g"), None)
    assert groups(log.restarted()) == []


def test_offsets_of_a_group_count_from_when_it_became_empty() -> None:
    log = GroupLog()
    (member,), generation = log.form(1, session_ms=1_800_000)
    log.commit_offsets("c", {("t", 0): 5}, member=member, generation=generation)
    for _ in range(RETENTION_MS // 1_200_000):
        log.wait(1_200_000)
        log.heartbeat(member, generation)
    log.leave("l", (member, None))
    log.wait(RETENTION_MS - LOOK_MS)
    assert log.offsets() == {("t", 0): 5}
    log.wait(2 * LOOK_MS)
    assert groups(log) == []


def test_offsets_of_topics_that_a_group_has_left_expire() -> None:
    log = GroupLog()
    metadata = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
    log.join("j", client=OLD, protocols=[("range", metadata)], session_ms=1_800_000)
    log.wait(3_000)
    member = log.answers["j"].member_id
    log.sync("s", member, 1, {})
    log.commit_offsets("c", {("t", 0): 5, ("left", 0): 6}, member=member, generation=1)
    for _ in range(RETENTION_MS // 1_200_000 + 1):
        log.wait(1_200_000)
        log.heartbeat(member, 1)
    assert log.offsets() == {("t", 0): 5}


def test_retention_of_the_client_takes_precedence() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=LOOK_MS // 2, version=3)
    log.commit_offsets("d", {("t", 1): 5}, retention_ms=2 * RETENTION_MS, version=3)
    log.wait(LOOK_MS)
    assert log.offsets() == {("t", 1): 5}
    log.wait(RETENTION_MS + LOOK_MS)
    assert log.offsets() == {("t", 1): 5}


def test_offset_never_expires_when_the_client_asks_for_the_longest_retention() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=(1 << 63) - 1, version=3)
    log.wait(2 * RETENTION_MS)
    assert log.offsets() == log.restarted().offsets() == {("t", 0): 5}


def test_group_without_members_and_offsets_is_removed_at_the_next_look() -> None:
    log = GroupLog()
    log.join("told")  # gets a member id, but never joins with it
    log.wait(LOOK_MS)
    assert groups(log) == []


def test_group_that_has_members_and_no_offsets_stays() -> None:
    log = GroupLog()
    (member,), generation = log.form(1, session_ms=1_800_000)
    log.wait(LOOK_MS)
    assert log.heartbeat(member, generation) == ErrorCode.NONE


def test_look_is_limited_to_a_few_thousand_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TICK", 20)
    monkeypatch.setattr(expiry, "MAX_TOMBSTONES_PER_APPEND", 8)
    log = GroupLog()
    for number in range(10):
        log.commit_offsets(number, {("t", index): 5 for index in range(10)}, f"g-{number}", retention_ms=1, version=3)
    log.now_ms += LOOK_MS
    ticks = 0
    while len(finish_now(log.restarted().shard.list_groups([], []))) > 0:
        effects = log.shard.tick(log.now_ms)
        assert all(len(each.records) <= 9 for each in effects.appends)
        log.carry_out(effects)
        ticks += 1
    assert ticks == 5


def test_group_with_very_many_offsets_is_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TICK", 20)
    log = GroupLog()
    for topic in ("one", "two", "three"):
        log.commit_offsets(topic, {(topic, index): 5 for index in range(30)}, retention_ms=1, version=3)
    log.commit_offsets("stays", {("stays", 0): 5})
    log.now_ms += LOOK_MS
    left = []
    for _ in range(10):
        effects = log.shard.tick(log.now_ms)
        assert sum(len(each.records) for each in effects.appends) <= 20
        log.carry_out(effects)
        left.append(len(log.offsets()))
        if len(left) == 3:  # both groups have now been checked
            log.commit_offsets("again", {("one", 0): 6, ("two", 0): 6}, version=9)
    assert left[:5] == [71, 51, 31, 13, 3]
    assert log.offsets() == {("stays", 0): 5, ("one", 0): 6, ("two", 0): 6}


def test_group_with_very_many_offsets_is_removed_in_the_round_that_expires_its_last_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TICK", 20)
    log = GroupLog()
    log.commit_offsets("all", {("t", index): 5 for index in range(50)}, retention_ms=1, version=3)
    log.wait(LOOK_MS)
    assert groups(log) == groups(log.restarted()) == []
    assert log.records[-1] == (records.group_key("g"), None)


def test_group_that_starts_to_consume_during_a_look_keeps_its_other_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TICK", 20)
    log = GroupLog()
    log.commit_offsets("all", {("t", index): 5 for index in range(50)}, retention_ms=1, version=3)
    log.now_ms += LOOK_MS
    log.carry_out(log.shard.tick(log.now_ms))
    assert len(log.offsets()) == 30
    log.join("member", client=OLD)
    log.wait(1)
    assert len(log.offsets()) == 30


def test_offset_that_is_committed_again_while_it_expires_stays() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=1, version=3)
    log.hold = True
    log.commit_offsets("anew", {("t", 0): 6})
    log.wait(LOOK_MS)
    log.commit()
    assert not log.open
    assert log.offsets() == {("t", 0): 6}


def test_commit_after_the_end_of_its_group_makes_another_group() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=1, version=3)
    log.hold = True
    log.wait(LOOK_MS)
    log.commit_offsets("anew", {("t", 1): 6})
    log.commit()
    assert groups(log) == []
    log.commit()
    assert log.offsets() == log.restarted().offsets() == {("t", 1): 6}


def test_failed_expiry_is_tried_again() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=1, version=3)
    log.hold = True
    log.wait(LOOK_MS)
    assert log.join("j").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert log.offsets() == {("t", 0): 5}
    assert log.join("k").error_code == ErrorCode.MEMBER_ID_REQUIRED
    log.hold = False
    log.wait(LOOK_MS)
    assert log.offsets() == {}


def test_expiry_goes_on_when_it_has_failed_for_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=1, version=3)

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(expiry, "_expire", fails)
        with pytest.raises(MemoryError):
            log.wait(LOOK_MS)
    assert log.offsets() == {("t", 0): 5}
    log.wait(LOOK_MS)
    assert log.offsets() == {}


def test_nothing_expires_while_many_appends_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_OPEN_APPENDS", 1)
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=1, version=3)
    log.hold = True
    for number in range(2):
        log.commit_offsets(number, {("t", 0): 5}, "other")
    log.wait(LOOK_MS)
    assert len(log.open) == 2
    log.commit()
    log.wait(1_000)
    assert len(log.open) == 2  # one of the two unfinished appends comes from the expiry


def test_offsets_of_a_deleted_topic_go_with_it() -> None:
    log = GroupLog()
    log.commit_offsets("a", {("t", 0): 5, ("u", 0): 6})
    log.commit_offsets("b", {("t", 0): 5}, "h", topic_id=TOPIC_ID)
    log.carry_out(log.shard.topics_deleted([("t", Uuid(bytes(15) + b"\1"))], log.now_ms))
    # The topic ids differ, so this is a different topic with the same name.
    assert (log.offsets(), log.offsets("h")) == ({("u", 0): 6}, {("t", 0): 5})
    log.carry_out(log.shard.topics_deleted([("t", TOPIC_ID)], log.now_ms))
    assert log.offsets("h") == {}


class Name(str):
    """The name of a topic. Counts how often somebody looks it up."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        Name.looked_up += 1
        return super().__hash__()


def test_deletion_of_many_topics_looks_only_at_the_topics_of_each_group() -> None:
    log = GroupLog()
    for number in range(100):
        log.commit_offsets(number, {("t", 0): 5}, f"g-{number}")
    gone = [(Name(f"gone-{number}"), TOPIC_ID) for number in range(100)]
    log.carry_out(log.shard.topics_deleted([*gone, ("t", TOPIC_ID)], log.now_ms))
    assert Name.looked_up <= 300
    assert log.offsets("g-0") == log.offsets("g-99") == {}


# --- DeleteGroups ---


def test_groups_are_deleted_with_their_offsets() -> None:
    log = GroupLog()
    log.commit_offsets("a", {("t", 0): 5, ("t", 1): 6}, "simple")
    log.form(1, "busy")
    results = log.delete_groups("d", "simple", "busy", "none", "simple")
    assert [(each.group_id, each.error_code) for each in results] == [
        ("simple", 0),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert groups(log) == groups(log.restarted()) == ["busy"]
    assert log.restarted().offsets("simple") == {}


def test_group_with_many_offsets_is_deleted_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_TOMBSTONES_PER_APPEND", 2)
    log = GroupLog()
    log.commit_offsets("a", {("t", index): 5 for index in range(5)})
    log.commit_offsets("b", {("t", 0): 5}, "other")
    log.hold = True
    log.delete_groups("d", "g", "other")
    assert [len(each.records) for each in log.open] == [2, 2, 2, 2]
    for _ in range(4):
        assert "d" not in log.answers
        log.commit()
    assert [(each.group_id, each.error_code) for each in log.answers["d"]] == [("g", 0), ("other", 0)]
    assert groups(log) == groups(log.restarted()) == []
    assert log.restarted().offsets() == {}


def test_group_with_a_long_name_is_deleted_in_batches_that_fit_into_the_log() -> None:
    group, limit_bytes = "g" * 500, 4_000
    log = GroupLog(max_batch_bytes=limit_bytes)
    log.commit_offsets("a", {("t" * length, index): 5 for length in (1, 100, 249) for index in range(7)}, group)
    log.hold = True
    log.delete_groups("d", group)
    for append in log.open:
        assert RecordBatchBuilder(limit_bytes=limit_bytes).append_all(log.now_ms, append.records)
    assert len(log.open) < 21
    while log.open:
        log.commit()
    assert [each.error_code for each in log.answers["d"]] == [0]
    assert groups(log) == groups(log.restarted()) == []


def test_deletion_that_failed_leaves_the_group() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5})
    log.hold = True
    log.delete_groups("d", "g")
    assert log.delete_groups("twice", "g")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert log.answers["d"][0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups(log) == ["g"]
    assert log.offsets() == {("t", 0): 5}


def test_failed_deletion_leaves_no_member_that_a_rebalance_waits_for() -> None:
    log = GroupLog()
    log.join("told")
    log.hold = True
    log.delete_groups("d", "g")
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    log.hold = False
    log.join("a", client=OLD)
    log.wait(3_000)
    (leader,) = [each.member_id for each in log.answers["a"].members]
    log.sync("s", leader, 1, {})
    log.join("again", member=leader)
    assert log.answers["again"].generation_id == 2


def test_group_whose_first_offset_is_being_committed_is_deleted() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    log.delete_groups("d", "g")
    log.commit()
    log.commit()
    assert log.answers["d"][0].error_code == 0
    assert groups(log) == []
    assert log.offsets() == {}


def test_member_of_a_deleted_group_that_has_not_joined_begins_anew() -> None:
    log = GroupLog()
    told = log.join("told").member_id
    log.delete_groups("d", "g")
    assert log.join("joins", member=told).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- ListGroups and DescribeGroups ---


def test_groups_are_listed_by_state_and_type() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, "simple")
    log.form(1, "busy")
    listed = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type)
        for each in finish_now(log.shard.list_groups([], []))
    }
    assert listed == {"simple": ("", "Empty", "classic"), "busy": ("consumer", "Stable", "classic")}
    states, types = finish_now(state_filter([" STABLE", "Dead"])), finish_now(type_filter(["Classic"]))
    assert [each.group_id for each in finish_now(log.shard.list_groups(states, []))] == ["busy"]
    assert len(finish_now(log.shard.list_groups([], types))) == 2
    assert finish_now(log.shard.list_groups([], finish_now(type_filter([" classic"])))) == []
    assert (
        finish_now(log.shard.list_groups([], ["consumer"])) == finish_now(log.shard.list_groups([], ["nonsense"])) == []
    )


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_missing_group_is_described_as_dead(version: int, error: ErrorCode) -> None:
    described = GroupLog().describe("none", version)
    assert (described.group_state, described.error_code) == ("Dead", error)


def test_group_that_rebalances_shows_no_subscriptions() -> None:
    log = GroupLog()
    log.join("a", client=OLD)
    described = log.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    (member,) = described.members
    assert (member.client_id, member.client_host, member.member_metadata) == ("client", "/127.0.0.1", b"")


def test_topics_without_an_id_match_any_id() -> None:
    log = loaded([])
    log.commit_offsets("c", {("t", 0): 5}, topic_id=ZERO)
    log.carry_out(log.shard.topics_deleted([("t", TOPIC_ID)], log.now_ms))
    assert log.offsets() == {}
