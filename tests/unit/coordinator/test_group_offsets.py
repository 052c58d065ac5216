"""OffsetCommit, OffsetFetch and OffsetDelete."""

from typing import Any

import pytest

from group_log import PARTITIONS, SETTINGS, Client, GroupLog, arrived
from kafkacore.coordinator.group import commits, outbox, records
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import OffsetCommitRequest
from kafkacore.protocol.uuid import Uuid

OLD = Client(api_version=3)
TOPIC_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))


def errors(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def fetched(answer: Any) -> dict[tuple[str, int], tuple[int, int, str, int]]:
    return {
        (topic.name, each.partition_index): (
            each.committed_offset,
            each.committed_leader_epoch,
            each.metadata,
            each.error_code,
        )
        for topic in answer.topics
        for each in topic.partitions
    }


# --- commits ---


def test_commit_to_a_missing_group_makes_a_simple_group() -> None:
    log = GroupLog()
    assert errors(log.commit_offsets("c", {("t", 0): 5, ("u", 3): 7})) == [0, 0]
    described = log.describe()
    assert (described.group_state, described.protocol_type) == ("Empty", "")
    assert log.offsets() == log.restarted().offsets() == {("t", 0): 5, ("u", 3): 7}


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_member_commit_to_a_missing_group_is_refused(version: int, error: ErrorCode) -> None:
    log = GroupLog()
    assert errors(log.commit_offsets("c", {("t", 0): 5}, member="m", generation=1, version=version)) == [error]
    assert log.records == []


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, ErrorCode.UNKNOWN_MEMBER_ID),  # the commit comes from outside the group, which has a member
        ({"member": "who", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 2}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "i", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_outside_commit_is_refused_when_the_group_has_members(asked: dict[str, Any], error: ErrorCode) -> None:
    log = GroupLog()
    log.form(1)
    assert errors(log.commit_offsets("c", {("t", 0): 5}, **asked)) == [error]
    assert log.offsets() == {}


@pytest.mark.parametrize("generation", [0, 2, -1])
def test_commit_of_another_generation_is_refused(generation: int) -> None:
    log = GroupLog()
    (member,), _ = log.form(1)
    answer = log.commit_offsets("c", {("t", 0): 5}, member=member, generation=generation)
    assert errors(answer) == [ErrorCode.ILLEGAL_GENERATION]


def test_members_commit_while_a_rebalance_is_prepared_but_not_while_it_is_completed() -> None:
    log = GroupLog()
    (leader, follower), generation = log.form(2)
    log.join("leader", member=leader)
    assert errors(log.commit_offsets("c", {("t", 0): 5}, member=follower, generation=generation)) == [0]
    log.join("follower", member=follower)
    answer = log.commit_offsets("d", {("t", 0): 6}, member=follower, generation=generation + 1)
    assert errors(answer) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert log.offsets() == {("t", 0): 5}


def test_outside_commit_is_accepted_when_the_group_is_empty() -> None:
    log = GroupLog()
    (member,), _ = log.form(1)
    log.leave("l", (member, None))
    assert errors(log.commit_offsets("c", {("t", 0): 5})) == [0]


# --- committed offsets ---


def test_offset_is_shown_once_it_is_committed() -> None:
    log = GroupLog(hold=True)
    assert log.commit_offsets("c", {("t", 0): 5}) is None
    assert log.offsets() == {}
    log.commit()
    assert errors(log.answers["c"]) == [0]
    assert log.offsets() == {("t", 0): 5}


def test_failed_commit_keeps_the_offset_before_it() -> None:
    log = GroupLog()
    log.commit_offsets("before", {("t", 0): 5})
    log.hold = True
    log.commit_offsets("c", {("t", 0): 9})
    log.fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert errors(log.answers["c"]) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert log.offsets() == {("t", 0): 5}


def test_refused_metadata_writes_nothing() -> None:
    log = GroupLog(SETTINGS._replace(metadata_max_bytes=4), hold=True)
    one = OffsetCommitRequest.OffsetCommitRequestPartition
    # The last partition does not exist, but the group coordinator does not check that.
    told = (("12345", 0), ("1234", 1), ("", PARTITIONS))
    partitions = [one(partition_index=index, committed_metadata=metadata) for metadata, index in told]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=partitions)
    asked = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    log.carry_out(log.shard.offset_commit(arrived(asked), "c", log.now_ms))
    log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    failed = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert errors(log.answers["c"]) == [failed, failed, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_commit_that_takes_too_long_may_still_count() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    log.time_out()
    assert errors(log.answers["c"]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    log.commit()
    assert log.offsets() == {("t", 0): 5}


def test_appends_are_committed_in_their_order() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("a", {("t", 0): 1})
    log.commit_offsets("b", {("t", 0): 2})
    with pytest.raises(ValueError, match="not the oldest"):
        log.shard.committed(log.open[1].token, 0, log.now_ms)


def test_append_may_fail_while_earlier_ones_wait_for_the_replicas() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("waits", {("t", 0): 1})
    log.commit_offsets("fails", {("t", 0): 2})
    log.commit_offsets("fails, too", {("t", 1): 3})
    waiting = log.open.popleft()
    log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert {name: errors(answer) for name, answer in log.answers.items()} == {
        "fails": [ErrorCode.NOT_COORDINATOR],
        "fails, too": [ErrorCode.NOT_COORDINATOR],
    }
    log.open.append(waiting)
    log.commit()
    assert log.offsets() == {("t", 0): 1}


def test_commits_above_the_limit_must_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_OPEN_APPENDS", 2)
    log = GroupLog(hold=True)
    for number in range(3):
        log.commit_offsets(number, {("t", 0): number})
    assert errors(log.answers[2]) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    log.commit()
    assert log.commit_offsets(3, {("t", 0): 3}) is None


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    log = GroupLog(SETTINGS._replace(metadata_max_bytes=4))
    assert errors(log.commit_offsets("long", {("t", 0): 5}, metadata="12345")) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert errors(log.commit_offsets("fits", {("t", 1): 5}, metadata="1234")) == [0]
    # The limit counts characters, not bytes.
    assert errors(log.commit_offsets("umlauts", {("t", 2): 5}, metadata="äöüß")) == [0]
    # Java counts each of these characters as two.
    wide = log.commit_offsets("wide", {("t", 3): 5}, metadata="\U0001f600" * 3)
    assert errors(wide) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert set(log.offsets()) == {("t", 1), ("t", 2)}


def test_every_committed_offset_is_fetched() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, metadata="näher", leader_epoch=3)
    log.commit_offsets("d", {("t", 1): 6}, metadata=None)
    assert fetched(log.fetch("f", {"t": [0, 1, 2]})) == {
        ("t", 0): (5, 3, "näher", 0),
        ("t", 1): (6, -1, "", 0),
        ("t", 2): (-1, -1, "", 0),
    }
    assert fetched(log.fetch("all")) == {("t", 0): (5, 3, "näher", 0), ("t", 1): (6, -1, "", 0)}


def test_missing_group_has_no_offsets() -> None:
    log = GroupLog()
    assert fetched(log.fetch("f", {"t": [0]})) == {("t", 0): (-1, -1, "", 0)}
    assert log.fetch("all").topics == []


def test_offset_of_an_earlier_topic_with_the_same_name_is_not_shown() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, topic_id=TOPIC_ID)
    assert fetched(log.fetch("same", {"t": [0]}, topic_id=TOPIC_ID))["t", 0][0] == 5
    assert fetched(log.fetch("unsaid", {"t": [0]}))["t", 0][0] == 5
    assert fetched(log.fetch("other", {"t": [0]}, topic_id=OTHER_ID))["t", 0][0] == -1


def test_stable_fetch_waits_for_commits_under_way_in_its_group() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    assert fetched(log.fetch("now", {"t": [0]}))["t", 0][0] == -1
    assert fetched(log.fetch("other", {"t": [0]}, "other group", require_stable=True))["t", 0][0] == -1
    assert log.fetch("stable", {"t": [0]}, require_stable=True) is None
    log.commit()
    assert fetched(log.answers["stable"])["t", 0][0] == 5


def test_stable_fetch_ignores_commits_of_other_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    log = GroupLog()
    log.commit_offsets("before", {("t", 0): 5})
    log.hold = True
    log.commit_offsets("first", {("t", 1): 5}, group="other")
    log.commit_offsets("second", {("t", 2): 5}, group="other")
    log.delete_offsets("third", {"t": [1]}, group="other")
    with monkeypatch.context() as patched:
        patched.setattr(commits._Accepted, "__iter__", lambda self: pytest.fail("it is of another group"))
        assert fetched(log.fetch("f", {"t": [0]}, require_stable=True))["t", 0][0] == 5
        log.delete_offsets("d", {"t": [0]})
    assert log.shard._core.outbox.open_offsets("other") == {("t", 1), ("t", 2)}
    log.hold = False
    while log.open:
        log.commit()
    assert log.shard._core.outbox.group_ids() == set()
    assert log.offsets() == {}
    assert log.offsets("other") == {("t", 2): 5}


def test_stable_fetch_behind_a_failed_commit_must_be_repeated() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    log.fetch("stable", {"t": [0]}, require_stable=True)
    log.time_out()
    assert log.answers["stable"].error_code == ErrorCode.NOT_COORDINATOR


def test_stable_fetch_does_not_wait_for_a_commit_that_already_takes_too_long() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    log.time_out()
    log.fetch("stable", {"t": [0]}, require_stable=True)
    assert log.answers["stable"].error_code == ErrorCode.NOT_COORDINATOR
    log.commit()
    assert fetched(log.fetch("again", {"t": [0]}, require_stable=True))["t", 0][0] == 5


def test_stable_fetch_gets_an_error_that_old_consumers_know_when_too_many_commits_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MAX_OPEN_APPENDS", 1)
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    log.fetch("stable", {"t": [0]}, require_stable=True)
    assert log.answers["stable"].error_code == ErrorCode.NOT_COORDINATOR


def test_commit_that_cannot_be_applied_is_answered_when_its_shard_is_unloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})

    def no_memory(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(log.shard._core.offsets, "commit", no_memory)
    with pytest.raises(MemoryError):
        log.commit()
    log.carry_out(log.shard.unload(ErrorCode.NOT_COORDINATOR))
    assert errors(log.answers["c"]) == [ErrorCode.NOT_COORDINATOR]


# --- the records ---


def test_retention_of_the_client_is_in_the_record() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5}, retention_ms=1_000, version=3)
    (_, value) = log.records[-1]
    assert value is not None
    assert records.value_version(value) == 1
    assert records.read_offset(value) == records.CommittedOffset(5, -1, "", log.now_ms, log.now_ms + 1_000)


# --- OffsetDelete ---


def subscription(*topics: str) -> bytes:
    """Returns the subscription of a consumer, in version 0."""
    named = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


def consumers(*topics: str) -> tuple[GroupLog, str]:
    """Returns a stable group with one consumer that subscribes to these topics."""
    log = GroupLog()
    log.join("j", client=OLD, protocols=[("range", subscription(*topics))])
    log.wait(3_000)
    member: str = log.answers["j"].member_id
    log.sync("s", member, 1, {})
    return log, member


def test_offsets_of_topics_that_a_group_consumes_are_not_deleted() -> None:
    log, member = consumers("t")
    log.commit_offsets("c", {("t", 0): 5, ("u", 0): 6, ("u", 1): 7}, member=member, generation=1)
    answer = log.delete_offsets("d", {"t": [0], "u": [0, 9]})
    assert errors(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, 0]
    assert log.offsets() == log.restarted().offsets() == {("t", 0): 5, ("u", 1): 7}
    assert log.records[-1] == (records.offset_key("g", "u", 0), None)


def test_no_offset_is_deleted_when_the_subscriptions_cannot_be_read() -> None:
    log, _ = GroupLog(), None
    log.join("j", client=OLD, protocols=[("range", b"\0\0\0\0\0\x09")])
    log.wait(3_000)
    log.sync("s", log.answers["j"].member_id, 1, {})
    assert errors(log.delete_offsets("d", {"t": [0]})) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@pytest.mark.parametrize(("protocol_type", "error"), [("connect", ErrorCode.NON_EMPTY_GROUP), ("consumer", 0)])
def test_offset_delete_is_refused_when_the_group_has_members(protocol_type: str, error: int) -> None:
    log = GroupLog()
    log.join("j", client=OLD, protocol_type=protocol_type, protocols=[("p", subscription("other"))])
    log.wait(3_000)
    assert log.delete_offsets("d", {"t": [0]}).error_code == error


def test_offset_delete_is_refused_when_the_group_is_missing() -> None:
    assert GroupLog().delete_offsets("d", {"t": [0]}).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offset_that_is_being_committed_is_deleted_too() -> None:
    log = GroupLog(hold=True)
    log.commit_offsets("c", {("t", 0): 5})
    assert log.delete_offsets("d", {"t": [0]}) is None
    log.commit()
    assert log.offsets() == {("t", 0): 5}
    log.commit()
    assert errors(log.answers["d"]) == [0]
    assert log.offsets() == {}


def test_deletion_that_failed_leaves_the_offset() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5})
    log.hold = True
    log.delete_offsets("d", {"t": [0]})
    log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert log.answers["d"].error_code == ErrorCode.NOT_COORDINATOR
    assert log.offsets() == {("t", 0): 5}
