"""Records of `__consumer_offsets`. The coordinator writes them as Kafka's message tables define them, and can load a
log with any content."""

from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from group_log import GroupLog, arrived, loaded
from kafkacore._fast.hot import offset_records
from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.effects import GroupRecord
from kafkacore.protocol.errors import ErrorCode, InvalidRecordError, ProtocolError, UnsupportedVersionError
from kafkacore.protocol.messages import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    Message,
    OffsetCommitKey,
    OffsetCommitRequest,
    OffsetCommitValue,
    ShareGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
)
from kafkacore.protocol.uuid import Uuid
from kafkacore.runtime.slices import finish_now

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
END = 1_000  # the offset of a marker behind all records of a test


def framed(message: Message, version: int) -> bytes:
    return pack(">h", version) + message.encode(version)


def key(message: Message) -> bytes:
    return pack(">h", message.API_KEY) + message.encode(0)


# --- writing ---


@given(
    TEXT,
    TEXT,
    st.integers(0, 999),
    LONG,
    INT,
    st.none() | TEXT,
    LONG,
    st.just(-1) | LONG,
    st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
)
def test_offsets_are_written_as_the_tables_say(
    group: str,
    topic: str,
    index: int,
    offset: int,
    epoch: int,
    metadata: str | None,
    now: int,
    expires: int,
    raw: bytes,
) -> None:
    topic_id = Uuid(raw)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
    )
    asked = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[partition])
    commit = arrived(OffsetCommitRequest(group_id=group, topics=[asked]))
    commit.accept(now, expires, 4096, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    ((name, written),) = commit
    assert name == key(OffsetCommitKey(group=group, topic=topic, partition=index))
    assert name == records.offset_key(group, topic, index)
    value = OffsetCommitValue(offset=offset, metadata=metadata or "", commit_timestamp=now)
    if expires == -1:
        value.leader_epoch, value.topic_id = epoch, topic_id
        assert written == framed(value, 4)
    else:
        value.expire_timestamp = expires
        assert written == framed(value, 1)
    assert records.read_offset_key(name) == (group, topic, index)
    read = records.read_offset(written)
    assert (read.offset, read.metadata, read.commit_timestamp, read.expire_timestamp) == (
        offset,
        metadata or "",
        now,
        expires,
    )


@given(st.integers(0, 5), LONG, INT, TEXT, LONG, LONG, st.binary(max_size=3), st.integers(0, 40))
def test_offsets_are_read_as_the_tables_say(
    version: int, offset: int, epoch: int, metadata: str, now: int, expires: int, behind: bytes, cut: int
) -> None:
    """A record with offsets can also be read if it is truncated, or if extra bytes follow it."""
    message = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=now)
    if version == 1:
        message.expire_timestamp = expires
    if version >= 3:
        message.leader_epoch = epoch
    whole = framed(message, min(version, 4)) if version < 5 else pack(">h", 5)
    value = whole[: len(whole) - cut] + behind
    try:
        expected = OffsetCommitValue.decode(value[2:], records.value_version(value))
    except (ProtocolError, UnsupportedVersionError) as error:
        with pytest.raises(type(error)):
            records.read_offset(value)
        return
    assert records.read_offset(value) == (
        expected.offset,
        expected.leader_epoch,
        expected.metadata,
        expected.commit_timestamp,
        expected.expire_timestamp,
        expected.topic_id,
    )


def test_metadata_longer_than_a_string_is_encoded_by_the_tables() -> None:
    value = pack(">hqi", 4, 1, 2) + b"\x81\x80\x02" + b"x" * 32_768 + bytes(9)
    assert offset_records.read_offset(value) is None
    with pytest.raises(ProtocolError):
        records.read_offset(value)


@given(st.binary(max_size=60), st.integers(0, 4))
def test_any_offset_value_is_read_as_the_tables_read_it(body: bytes, version: int) -> None:
    plain = offset_records.read_offset(pack(">h", version) + body)
    try:
        expected = OffsetCommitValue.decode(body, version)
    except ProtocolError:
        assert plain is None
        return
    if plain is not None:
        assert plain[:3] == (expected.offset, expected.leader_epoch, expected.metadata)
        assert plain[3:] == (expected.commit_timestamp, expected.expire_timestamp, expected.topic_id)


def test_group_is_written_in_version_3() -> None:
    log = GroupLog()
    log.form(1)
    written, value = log.records[-1]
    assert written == key(GroupMetadataKey(group="g"))
    assert value is not None
    assert records.value_version(value) == 3
    assert records.read_group(value).protocol_type == "consumer"


def test_new_group_is_written_empty() -> None:
    log = GroupLog()
    log.join("j")
    ((_, value),) = log.records
    expected = GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=log.now_ms)
    assert value == framed(expected, 3)


# --- older record versions ---


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    value = framed(OffsetCommitValue(offset=7, metadata="m", commit_timestamp=3), version)
    assert loaded([(records.offset_key("g", "t", 0), value)]).offsets() == {("t", 0): 7}


def test_offsets_under_the_oldest_key_are_the_same_offsets() -> None:
    legacy = b"\0\0" + records.offset_key("g", "t", 0)[2:]
    value = framed(OffsetCommitValue(offset=7, metadata="m"), 0)
    assert loaded([(legacy, value)]).offsets() == {("t", 0): 7}
    assert loaded([(records.offset_key("g", "t", 0), value), (legacy, None)]).offsets() == {}


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=10_000, subscription=b"s", assignment=b"a"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member])
    log = loaded([(records.group_key("g"), framed(value, version))])
    assert log.describe().group_state == "Stable"
    assert log.heartbeat("m", 4) == ErrorCode.NONE
    assert log.join("again", member="m", protocols=[("range", b"s2")]).generation_id == 5


def test_group_without_the_time_of_its_end_expires_by_its_commits() -> None:
    value = framed(GroupMetadataValue(protocol_type="consumer", protocol=None, leader=None), 1)
    log = loaded([(records.group_key("g"), value)])
    log.commit_offsets("c", {("t", 0): 5})
    again = loaded(log.records, now_ms=log.now_ms)
    again.wait(log.settings.offsets_retention_ms - 1)
    assert again.offsets() == {("t", 0): 5}
    again.wait(log.settings.offsets_retention_check_interval_ms)
    assert again.offsets() == {}


# --- unreadable records ---

_UNREADABLE: list[tuple[GroupRecord, type[Exception]]] = [
    ((b"", None), ProtocolError),
    ((b"\0", b""), ProtocolError),
    ((b"\0\1", None), ProtocolError),
    ((b"\0\1\0\1g\0\1t\0\0\0", None), ProtocolError),
    ((records.offset_key("g", "t", 0) + b"!", None), ProtocolError),
    ((records.offset_key("g", "t", 0), b""), ProtocolError),
    ((records.offset_key("g", "t", 0), b"\0\4\0\0"), ProtocolError),
    ((records.offset_key("g", "t", 0), b"\0\5" + bytes(40)), UnsupportedVersionError),
    ((records.group_key("g"), b"\0\3\0\0"), ProtocolError),
    ((records.group_key("g"), b"\0\x09"), UnsupportedVersionError),
    ((b"\0\x63\0\1g", b"x"), UnsupportedVersionError),
    ((b"\0\x03\0\x09g", b"x"), ProtocolError),
    (
        (
            records.group_key("g"),
            framed(GroupMetadataValue(protocol=None, members=[GroupMetadataValue.MemberMetadata(member_id="m")]), 3),
        ),
        InvalidRecordError,
    ),
]


@pytest.mark.parametrize(("record", "error"), _UNREADABLE)
def test_record_that_cannot_be_read_changes_nothing(record: GroupRecord, error: type[Exception]) -> None:
    log = GroupLog()
    log.form(1)
    log.commit_offsets("c", {("t", 0): 5}, "simple")
    again = log.restarted()
    with pytest.raises(error):
        again.shard.replay(*record, offset=99)
    assert again.describe() == log.describe()
    assert again.offsets("simple") == {("t", 0): 5}


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_any_bytes_in_the_log_raise_documented_errors_alone(raw_key: bytes, value: bytes | None) -> None:
    log = loaded([])
    try:
        log.shard.replay(raw_key, value, 0)
    except (ProtocolError, UnsupportedVersionError, InvalidRecordError):
        assert finish_now(log.shard.list_groups([], [])) == []


# --- groups of other kinds ---

CONSUMER = [
    (key(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")), b"\0\0"),
    (key(ConsumerGroupMetadataKey(group_id="g")), b"\0\0"),
]


def of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code)


def committed_error(answer: Any) -> ErrorCode:
    return of(answer.topics[0].partitions[0])


def test_group_of_another_kind_is_not_a_classic_group() -> None:
    log = loaded(CONSUMER)
    log.records = []
    assert of(log.join("j")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert of(log.sync("s", "m", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert log.heartbeat("m", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert of(log.leave("l", ("m", None)).members[0]) == ErrorCode.UNKNOWN_MEMBER_ID
    assert of(log.delete_groups("d", "g")[0]) == ErrorCode.NON_EMPTY_GROUP
    described = log.describe()
    assert (of(described), described.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a classic group.",
    )
    (listed,) = finish_now(log.shard.list_groups([], ["consumer"]))
    assert (listed.group_state, listed.protocol_type) == ("Stable", "consumer")
    assert log.records == []


def test_offsets_of_a_group_of_another_kind() -> None:
    log = loaded(CONSUMER)
    assert committed_error(log.commit_offsets("a", {("t", 0): 1})) == ErrorCode.UNKNOWN_MEMBER_ID
    stale = log.commit_offsets("b", {("t", 0): 1}, member="m", generation=9)
    assert committed_error(stale) == ErrorCode.STALE_MEMBER_EPOCH
    old = log.commit_offsets("c", {("t", 0): 1}, member="m", generation=9, version=8)
    assert committed_error(old) == ErrorCode.UNSUPPORTED_VERSION
    assert of(log.fetch("d", {"t": [0]}, member="who", epoch=1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert of(log.fetch("e", {"t": [0]}, member="m", epoch=1)) == ErrorCode.STALE_MEMBER_EPOCH
    assert of(log.fetch("f", {"t": [0]})) == ErrorCode.NONE
    assert committed_error(log.delete_offsets("g", {"t": [0]})) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_empty_group_of_another_kind_takes_offsets_and_is_not_deleted() -> None:
    log = loaded([*CONSUMER, (CONSUMER[0][0], None)])
    assert committed_error(log.commit_offsets("a", {("t", 0): 1})) == ErrorCode.NONE
    assert of(log.delete_groups("d", "g")[0]) == ErrorCode.GROUP_ID_NOT_FOUND
    assert of(log.join("j")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    log.wait(2 * log.settings.offsets_retention_ms)
    assert log.offsets() == {("t", 0): 1}
    assert all(value is not None for name, value in log.records[3:])


def test_share_group_has_no_offsets() -> None:
    log = loaded([(key(ShareGroupMetadataKey(group_id="g")), b"\0\0")])
    assert committed_error(log.commit_offsets("a", {("t", 0): 1})) == ErrorCode.GROUP_ID_NOT_FOUND
    assert log.fetch("f", {"t": [0]}).topics[0].partitions[0].committed_offset == -1
    assert of(log.delete_offsets("d", {"t": [0]})) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_that_come_before_the_records_of_their_group() -> None:
    log = GroupLog()
    log.commit_offsets("c", {("t", 0): 5})
    member = key(StreamsGroupMemberMetadataKey(group_id="g", member_id="m"))
    again = loaded([*log.records, (member, b"\0\0")])
    assert [each.group_type for each in finish_now(again.shard.list_groups([], []))] == ["streams"]
    assert again.offsets() == {("t", 0): 5}


def test_group_of_another_kind_ends_with_its_own_tombstone() -> None:
    log = loaded([*CONSUMER, (CONSUMER[0][0], None), (CONSUMER[1][0], None)])
    assert finish_now(log.shard.list_groups([], [])) == []
    assert of(log.join("j")) == ErrorCode.MEMBER_ID_REQUIRED


def test_records_of_another_kind_do_not_take_a_classic_group() -> None:
    log = GroupLog()
    log.form(1)
    again = log.restarted()
    with pytest.raises(InvalidRecordError):
        again.shard.replay(*CONSUMER[0], offset=9)
    assert again.describe() == log.describe()


# --- transactions ---


def transactional(log: GroupLog, producer_id: int, offset: int, index: int = 0) -> None:
    """Adds a transactional commit at the end of the log."""
    name = records.offset_key("g", "t", index)
    value = framed(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=log.now_ms), 4)
    log.shard.replay(name, value, len(log.records), producer_id)
    log.records.append((name, value))


def test_offset_of_a_transaction_counts_when_it_is_committed() -> None:
    log = loaded([])
    transactional(log, 1, 5)
    transactional(log, 2, 6, index=1)
    assert log.offsets() == {}
    log.shard.replay_end_of_transaction(1, committed=True, offset=END)
    log.shard.replay_end_of_transaction(2, committed=False, offset=END)
    # The marker ends the transaction in another partition, not in this one.
    log.shard.replay_end_of_transaction(3, committed=True, offset=END)
    assert log.offsets() == {("t", 0): 5}


def test_stable_fetch_is_refused_while_a_transaction_is_open() -> None:
    log = loaded([])
    log.commit_offsets("c", {("t", 0): 5, ("t", 1): 6})
    transactional(log, 1, 7)
    answer = log.fetch("f", {"t": [0, 1]}, require_stable=True)
    first, second = answer.topics[0].partitions
    assert (of(first), first.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert (of(second), second.committed_offset) == (ErrorCode.NONE, 6)
    assert log.fetch("g", {"t": [0]}).topics[0].partitions[0].committed_offset == 5
    assert of(log.fetch("h", require_stable=True).topics[0].partitions[0]) == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_stable_fetch_is_refused_while_a_batch_of_a_transaction_is_being_appended() -> None:
    log = loaded([])
    log.commit_offsets("c", {("t", 0): 5})
    commits = [("t", 0, records.CommittedOffset(7, -1, "", log.now_ms))]
    with log.shard.transactional_appending("g", 1, commits):
        answer = log.fetch("f", {"t": [0]}, require_stable=True)
        assert of(answer.topics[0].partitions[0]) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    answer = log.fetch("g", {"t": [0]}, require_stable=True)
    assert answer.topics[0].partitions[0].committed_offset == 5, "the append has failed"


@pytest.mark.parametrize("last_to_end", [1, 2])
def test_last_offset_in_the_log_counts_among_several_transactions(last_to_end: int) -> None:
    log = loaded([])
    transactional(log, 1, 5)
    transactional(log, 2, 6)
    log.shard.replay_end_of_transaction(3 - last_to_end, committed=True, offset=END)
    log.shard.replay_end_of_transaction(last_to_end, committed=True, offset=END)
    assert log.offsets() == {("t", 0): 6}


def test_plain_commit_behind_a_transactional_one_counts() -> None:
    log = loaded([])
    transactional(log, 1, 5)
    log.commit_offsets("c", {("t", 0): 9})
    assert of(log.fetch("f", {"t": [0]}, require_stable=True).topics[0].partitions[0]) == (
        ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    log.shard.replay_end_of_transaction(1, committed=True, offset=END)
    assert log.offsets() == {("t", 0): 9}


def test_transactional_commit_counts_when_the_replicas_confirm_an_earlier_plain_one_after_it() -> None:
    log = loaded([])
    log.hold = True
    log.commit_offsets("c", {("t", 0): 9})
    plain = log.open.popleft()
    log.records.extend(plain.records)
    transactional(log, 1, 5)
    log.carry_out(log.shard.committed(plain.token, 0, log.now_ms))
    assert log.offsets() == {("t", 0): 9}
    log.shard.replay_end_of_transaction(1, committed=True, offset=END)
    assert log.offsets() == {("t", 0): 5}


def test_deletion_removes_offsets_of_open_transactions() -> None:
    log = loaded([])
    transactional(log, 1, 5)
    assert of(log.delete_groups("d", "g")[0]) == ErrorCode.NONE
    log.shard.replay_end_of_transaction(1, committed=True, offset=END)
    assert log.offsets() == {}


@pytest.mark.parametrize("ended", [True, False])
def test_group_of_a_transaction_behind_its_deletion_stays_when_the_deletion_arrives_late(ended: bool) -> None:
    log = loaded([])
    log.commit_offsets("c", {("t", 0): 3})
    log.hold = True
    log.delete_groups("d", "g")
    deletion, base_offset = log.open.popleft(), len(log.records)
    log.records.extend(deletion.records)
    transactional(log, 1, 5)
    if ended:
        log.shard.replay_end_of_transaction(1, committed=True, offset=END)
    log.carry_out(log.shard.committed(deletion.token, base_offset, log.now_ms))
    assert log.offsets() == ({("t", 0): 5} if ended else {})
    assert [each.group_id for each in finish_now(log.shard.list_groups([], []))] == ["g"]


def test_group_does_not_expire_while_a_transaction_is_open() -> None:
    log = loaded([])
    transactional(log, 1, 5)
    log.wait(2 * log.settings.offsets_retention_ms)
    assert [each.group_id for each in finish_now(log.shard.list_groups([], []))] == ["g"]
