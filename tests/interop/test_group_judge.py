"""Random histories of groups, compared step by step with Apache Kafka's own GroupCoordinatorShard.

Both sides receive the same requests at the same times. They must return the same answers and write the same records.
Apache Kafka makes random member ids, so each side gets its own ids, and the test compares only the beginnings of the
ids. A history ends at the first step where Apache Kafka chooses a group leader by the iteration order of a hash map,
because our side cannot reproduce that choice.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brokers import java, need_jars
from group_log import GroupLog, arrived, loaded
from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.admin import state_filter, type_filter
from kafkacore.coordinator.group.answers import whole_request
from kafkacore.coordinator.group.effects import Effects, GroupRecord
from kafkacore.coordinator.group.settings import GroupSettings
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from kafkacore.runtime.slices import finish_now

pytestmark = pytest.mark.peer("apache-4.3")

RELEASE = "4.3.1"
JUDGE = Path(__file__).parent / "java" / "GroupJudge.java"
STORIES = int(os.environ.get("KAFKACORE_GROUP_STORIES", "50"))
STEPS = 60
UUID_LENGTH = 37  # the length of a UUID with the dash before it
MAX_SIZE = 4
GROUPS = ("g", "h")
BODY_VERSION = {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}
SUBSCRIBED = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
OTHER = b"\0\0\0\0\0\x02\0\x01t\0\x01u\xff\xff\xff\xff"
OFFERS: tuple[tuple[tuple[str, bytes], ...], ...] = (
    (("range", SUBSCRIBED),),
    (("range", SUBSCRIBED), ("sticky", SUBSCRIBED)),
    (("range", OTHER), ("sticky", OTHER)),
    (("sticky", SUBSCRIBED),),
    (("range", b"?"),),
    (),
)


# Every run of 50 histories contains at least these answers.
EXPECTED = {
    *(("JoinGroupResponse", code) for code in (0, 23, 25, 79, 82)),
    *(("SyncGroupResponse", code) for code in (0, 22, 23, 25, 27)),
    *(("HeartbeatResponse", code) for code in (0, 22, 25, 27)),
    *(("LeaveGroupResponse", code) for code in (0, 25)),
    *(("OffsetCommitResponse", code) for code in (0, 22, 25)),
    *(("OffsetDeleteResponse", code) for code in (0, 69)),
    *(("DeleteGroupsResponse", code) for code in (0, 68, 69)),
    ("OffsetFetchResponse", 0),
}


class Judge:
    """Apache Kafka's shard, in a Java process."""

    def __init__(self) -> None:
        command = [*java(RELEASE, "512m"), str(JUDGE)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def tell(self, *words: object) -> list[list[str]]:
        """Sends one line to the process. Returns the lines of its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(" ".join(map(str, words)) + "\n")
        stdin.flush()
        told = []
        while (line := stdout.readline()) != "done\n":
            assert line, f"the judge process ended after {words[:6]}"
            told.append(line.rstrip("\n").split(" "))
        return told

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    need_jars(RELEASE)
    made = Judge()
    yield made
    made.close()


class OtherLeaderError(Exception):
    """Apache Kafka chose a different leader among equal members, so the rest of the history cannot be compared."""


class Story:
    def __init__(self, judge: Judge, seed: int) -> None:
        self.judge, self.random = judge, Random(seed)
        self.ours = GroupLog(GroupSettings(max_size=MAX_SIZE), now_ms=1_700_000_000_000)
        self.theirs: dict[str, Any] = {}
        self.theirs_log: list[GroupRecord] = []
        self.compared = 0  # the number of our records that have been compared
        self.whole: list[GroupRecord] = []  # the log since the beginning of the history
        self.their_whole: list[GroupRecord] = []
        self.asked: dict[str, Any] = {}
        self.joins: dict[str, str] = {}  # by waiter of a JoinGroup: its group
        self.count = 0
        judge.tell("new", self.ours.now_ms, MAX_SIZE)
        judge.tell("loaded")
        self.told: list[str] = []
        self.seen: set[tuple[str, int]] = set()  # pairs of a response and its error

    # --- both sides ---

    def wait(self, ms: int) -> None:
        self.told.append(f"wait {ms}")
        self._hear(self.judge.tell("wait", ms))
        self.ours.wait(ms)
        self.compare()

    def ask(self, build: Any, version: int = 9) -> str:
        """Sends a request to both sides. `build(side)` returns the request with the member ids of that side."""
        self.count += 1
        waiter = f"w{self.count}"
        mine, other = build(0), build(1)
        key = mine.API_KEY
        client_id = f"client{self.count}"
        body = BODY_VERSION.get(key, apis.request_class(key).VERSIONS[1])
        if key == ApiKey.OFFSET_COMMIT and mine.retention_time_ms != -1:
            body = 4
        self.told.append(f"{waiter} v{version} {mine!r}")
        self.asked[waiter] = other
        if key == ApiKey.JOIN_GROUP:
            self.joins[waiter] = mine.group_id
        self._hear(self.judge.tell("ask", key, body, version, waiter, client_id, other.encode(body).hex()))
        self._serve(waiter, Caller(version, client_id), mine)
        self.compare()
        return waiter

    def _serve(self, waiter: str, caller: Any, request: Any) -> None:
        log, shard, now = self.ours, self.ours.shard, self.ours.now_ms
        effects = Effects()
        match request.API_KEY:
            case ApiKey.JOIN_GROUP:
                effects = shard.join_group(caller, request, waiter, now)
            case ApiKey.SYNC_GROUP:
                log.sync_as(request, waiter)
            case ApiKey.HEARTBEAT:
                log.answers[waiter] = log.heartbeat_as(request)
            case ApiKey.LEAVE_GROUP:
                effects = shard.leave_group(request, waiter, now)
            case ApiKey.OFFSET_COMMIT:
                effects = shard.offset_commit(arrived(request, caller.api_version), waiter, now)
            case ApiKey.OFFSET_DELETE:
                effects = shard.offset_delete(request, waiter, now)
            case ApiKey.OFFSET_FETCH:
                effects = shard.offset_fetch(request.groups[0], True, waiter)
            case ApiKey.DELETE_GROUPS:
                effects = shard.delete_groups(request.groups_names, waiter, now)
            case ApiKey.DESCRIBE_GROUPS:
                log.answers[waiter] = DescribeGroupsResponse(
                    groups=[shard.describe_group(caller, each) for each in request.groups]
                )
            case ApiKey.LIST_GROUPS:
                states, types = state_filter(request.states_filter), type_filter(request.types_filter)
                listed = finish_now(shard.list_groups(finish_now(states), finish_now(types)))
                log.answers[waiter] = ListGroupsResponse(groups=listed)
        log.carry_out(effects)
        answer = log.answers.get(waiter)
        if request.API_KEY == ApiKey.DELETE_GROUPS:
            log.answers[waiter] = DeleteGroupsResponse(results=answer)
        elif request.API_KEY == ApiKey.OFFSET_FETCH:
            log.answers[waiter] = OffsetFetchResponse(groups=[answer])

    def _hear(self, lines: list[list[str]]) -> None:
        for line in lines:
            if line[0] == "record":
                self.theirs_log.append((bytes.fromhex(line[1]), None if line[2] == "-" else bytes.fromhex(line[2])))
                continue
            request = self.asked[line[1]]
            if line[0] == "error":
                self.theirs[line[1]] = refused(request, int(line[2]))
            else:
                response = apis.response_class(request.API_KEY)
                self.theirs[line[1]] = response.decode(bytes.fromhex(line[3]), int(line[2]))

    def compare(self) -> None:
        mine, other = self.ours.answers, self.theirs
        # When a member repeats a request, Apache Kafka never answers the earlier request.
        for waiter in mine.keys() - other.keys():
            if mine[waiter].error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                del mine[waiter]
        assert sorted(mine) == sorted(other), self.story()
        for waiter, answer in mine.items():
            self.seen.add((type(answer).__name__, error_of(answer)))
            self._same_leader(answer, other[waiter])
            assert shown(answer) == shown(other[waiter]), f"{waiter}\n{self.story()}"
            if waiter in self.joins and answer.member_id:
                self.ids.setdefault(self.joins[waiter], {})[waiter] = (answer, other[waiter])
        mine.clear()
        other.clear()
        written, theirs = self.ours.records[self.compared :], self.theirs_log
        self.whole.extend(written)
        self.their_whole.extend(theirs)
        assert sorted(map(told_record, written)) == sorted(map(told_record, theirs)), self.story()
        self.compared += len(written)
        theirs.clear()

    @property
    def ids(self) -> dict[str, dict[str, tuple[Any, Any]]]:
        """Returns the answers to the JoinGroups of each group, by waiter. Each is a pair of our answer and Apache
        Kafka's."""
        return self.__dict__.setdefault("_ids", {})

    def _same_leader(self, mine: Any, other: Any) -> None:
        if isinstance(mine, JoinGroupResponse) and name(mine.leader) != name(other.leader):
            raise OtherLeaderError

    def story(self) -> str:
        return "\n".join(self.told)

    def exchange_logs(self) -> None:
        """Restarts each side with the log of the other side. A group that was in a rebalance returns to its last
        generation."""
        self.told.append("exchange")
        now_ms = self.ours.now_ms
        self.judge.tell("new", now_ms, MAX_SIZE)
        for key, value in self.whole:
            self.judge.tell("replay", key.hex(), "-" if value is None else value.hex())
        self.judge.tell("loaded")
        self.ours = loaded(self.their_whole, self.ours.settings, now_ms)
        self.compared = len(self.ours.records)
        for known in self.ids.values():
            for waiter, (mine, other) in known.items():
                known[waiter] = (other, mine)
        self.whole, self.their_whole = self.their_whole, self.whole
        for _ in range(3):
            self.describe()
            self.fetch()

    # --- steps ---

    def step(self) -> None:
        kinds = (
            [self.join] * 5
            + [self.rejoin] * 4
            + [self.sync] * 3
            + [self.settle] * 4
            + [self.heartbeat] * 3
            + [self.leave] * 2
        )
        kinds += [self.commit] * 3 + [self.fetch, self.delete_offsets, self.delete_groups, self.describe, self.list]
        kinds += [self.pause] * 6
        self.random.choice(kinds)()
        self.wait(self.random.randint(1, 13))  # so that no two deadlines are at the same time

    def group(self) -> str:
        return self.random.choice((*GROUPS, *GROUPS[:1] * 3))

    def somebody(self, group: str) -> tuple[Any, Any]:
        """Returns the two sides' answers to a JoinGroup of the group. Sometimes it returns answers for a member that
        has never existed."""
        known = self.ids.get(group, {})
        if not known or self.random.random() < 0.05:
            return (JoinGroupResponse(member_id="who", generation_id=1),) * 2
        current = self.current(group)
        if current and self.random.random() < 0.6:
            return self.random.choice(current)
        return known[self.random.choice(list(known)[-6:])]

    def current(self, group: str) -> list[tuple[Any, Any]]:
        """Returns the answers to the members of the newest generation that any member knows."""
        joined = [each for each in self.ids.get(group, {}).values() if not each[0].error_code]
        last = max((each[0].generation_id for each in joined), default=0)
        return [each for each in joined if each[0].generation_id == last]

    def member(self, group: str, static: float = 0.3) -> tuple[tuple[Any, Any], int, str | None]:
        """Returns a member's answers, a generation and an instance id. In most cases they match."""
        answers = self.somebody(group)
        generation = answers[0].generation_id + (self.random.random() < 0.1)
        begins = name(answers[0].member_id)
        instance = begins if begins.startswith("i") and self.random.random() > 0.1 else None
        if instance is None and self.random.random() < 0.05 * static:
            instance = "i1"
        return answers, generation, instance

    def join(self) -> None:
        group, instance = self.group(), self.random.choice((None, None, None, "i1", "i2"))
        self._join(group, ("", ""), instance)

    def rejoin(self) -> None:
        group = self.group()
        answers, _, instance = self.member(group)
        self._join(group, (answers[0].member_id, answers[1].member_id), instance)

    def _join(self, group: str, ids: tuple[str, str], instance: str | None) -> None:
        offer = self.random.choice(OFFERS[:3] * 6 + OFFERS)
        protocol_type = self.random.choice(("consumer",) * 12 + ("connect", ""))
        # No two sessions end at the same time, because Kafka's hash map would decide which of them ends first.
        session_ms = self.random.choice((6_000, 10_000, 45_000)) + 7 * self.count
        rebalance_ms = self.random.choice((5_000, 30_000))
        each = JoinGroupRequest.JoinGroupRequestProtocol
        self.ask(
            lambda side: JoinGroupRequest(
                group_id=group,
                member_id=ids[side],
                group_instance_id=instance,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=[each(name=protocol, metadata=metadata) for protocol, metadata in offer],
            ),
            version=self.random.choice((3, 9, 9)) if instance is None else self.random.choice((8, 9)),
        )

    def settle(self) -> None:
        """Sends SyncGroup for every member that has joined. After that, some members send heartbeats and commit
        offsets."""
        group = self.group()
        self.wait(self.random.choice((0, 3_100, 6_100)))
        for answers in self.current(group):
            self._sync(group, answers, answers[0].generation_id, None, None, None)
        for answers in self.current(group)[:2]:
            self._heartbeat(group, answers, answers[0].generation_id, None)

    def sync(self) -> None:
        group = self.group()
        answers, generation, instance = self.member(group)
        agreed = self.random.choice((None, answers[0].protocol_type, answers[0].protocol_type, "connect"))
        protocol = self.random.choice((None, answers[0].protocol_name, answers[0].protocol_name, "sticky"))
        self._sync(group, answers, generation, instance, agreed, protocol)

    def _sync(
        self,
        group: str,
        answers: tuple[Any, Any],
        generation: int,
        instance: str | None,
        agreed: str | None,
        protocol: str | None,
    ) -> None:
        left_out = self.random.random() < 0.2
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        self.ask(
            lambda side: SyncGroupRequest(
                group_id=group,
                member_id=answers[side].member_id,
                generation_id=generation,
                group_instance_id=instance,
                protocol_type=agreed,
                protocol_name=protocol,
                assignments=[
                    assignment(member_id=each.member_id, assignment=name(each.member_id).encode())
                    for each in sorted(answers[side].members, key=lambda each: name(each.member_id))[left_out:]
                ],
            ),
            version=5,
        )

    def heartbeat(self) -> None:
        group = self.group()
        self._heartbeat(group, *self.member(group))

    def _heartbeat(self, group: str, answers: tuple[Any, Any], generation: int, instance: str | None) -> None:
        self.ask(
            lambda side: HeartbeatRequest(
                group_id=group,
                member_id=answers[side].member_id,
                generation_id=generation,
                group_instance_id=instance,
            )
        )

    def leave(self) -> None:
        group = self.group()
        leaving = [self.member(group) for _ in range(self.random.randint(1, 2))]
        by_instance = self.random.random() < 0.3
        identity = LeaveGroupRequest.MemberIdentity
        self.ask(
            lambda side: LeaveGroupRequest(
                group_id=group,
                members=[
                    identity(
                        member_id="" if by_instance else answers[side].member_id,
                        group_instance_id="i1" if by_instance else instance,
                    )
                    for answers, _, instance in leaving
                ],
            ),
            version=5,
        )

    def commit(self) -> None:
        group = self.group()
        outside = self.random.random() < 0.4
        answers, generation, instance = self.member(group)
        topics = self.random.sample(("t", "u", "v"), self.random.randint(1, 2))
        offset, note = self.random.randint(0, 1000), self.random.choice(("", "note", None, "x" * 4096, "x" * 4097))
        version, retention_ms = self.random.choice(((9, -1), (9, -1), (8, -1), (4, 60_000), (3, 864_000_000)))
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        self.ask(
            lambda side: OffsetCommitRequest(
                group_id=group,
                member_id="" if outside else answers[side].member_id,
                generation_id_or_member_epoch=-1 if outside else generation,
                group_instance_id=None if outside or version < 7 else instance,
                retention_time_ms=retention_ms,
                topics=[
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            partition(
                                partition_index=index,
                                committed_offset=offset,
                                committed_leader_epoch=-1 if version < 6 else 5,
                                committed_metadata=note if index else "",
                            )
                            for index in range(2)
                        ],
                    )
                    for topic in topics
                ],
            ),
            version=version,
        )

    def fetch(self) -> None:
        group, everything = self.group(), self.random.random() < 0.5
        topic = OffsetFetchRequest.OffsetFetchRequestTopics
        topics = None if everything else [topic(name=each, partition_indexes=[0, 1, 2]) for each in ("t", "v")]
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        self.ask(lambda side: OffsetFetchRequest(groups=[asked], require_stable=True))

    def delete_offsets(self) -> None:
        topic, partition = (
            OffsetDeleteRequest.OffsetDeleteRequestTopic,
            OffsetDeleteRequest.OffsetDeleteRequestPartition,
        )
        topics = [topic(name=each, partitions=[partition(partition_index=0)]) for each in ("t", "u")]
        request = OffsetDeleteRequest(group_id=self.group(), topics=topics)
        self.ask(lambda side: request, version=0)

    def delete_groups(self) -> None:
        request = DeleteGroupsRequest(groups_names=self.random.sample((*GROUPS, "none"), 2))
        self.ask(lambda side: request, version=2)

    def describe(self) -> None:
        request = DescribeGroupsRequest(groups=[*GROUPS, "none"])
        self.ask(lambda side: request, version=self.random.choice((5, 6)))

    def list(self) -> None:
        states = self.random.choice(([], ["Stable"], ["empty ", "PREPARINGREBALANCE"]))
        request = ListGroupsRequest(states_filter=states, types_filter=self.random.choice(([], ["Classic"], ["share"])))
        self.ask(lambda side: request, version=5)

    def pause(self) -> None:
        self.wait(self.random.choice((500, 3_000, 3_000, 6_100, 11_000, 47_000, 310_000, 700_000_000)))


class Caller:
    def __init__(self, api_version: int, client_id: str) -> None:
        self.api_version, self.client_id, self.client_host = api_version, client_id, "127.0.0.1"


def refused(request: Any, code: int) -> Any:
    """Returns the response that Kafka's GroupCoordinatorService makes from an error of the shard."""
    if request.API_KEY == ApiKey.LEAVE_GROUP and code == ErrorCode.UNKNOWN_MEMBER_ID:
        response = LeaveGroupResponse.MemberResponse
        return LeaveGroupResponse(
            members=[
                response(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
                for each in request.members
            ]
        )
    return whole_request(request, code, api_version=9)


def name(member_id: str) -> str:
    """Returns the beginning of a member id, which is the client id or the instance id."""
    return member_id[:-UUID_LENGTH] if len(member_id) > UUID_LENGTH else member_id


def error_of(answer: Any) -> int:
    """Returns the first error code in a response."""
    for field in ("topics", "partitions", "members", "groups", "results"):
        if not getattr(answer, "error_code", 0) and getattr(answer, field, None):
            return error_of(getattr(answer, field)[0])
    return int(getattr(answer, "error_code", 0))


def shown(message: Any) -> Any:
    """Converts a response to a form in which both sides can be compared: member ids are cut to their beginnings, and
    unordered lists are sorted."""
    if isinstance(message, list):
        made = [shown(each) for each in message]
        return sorted(made, key=repr) if made and isinstance(made[0], tuple) else made
    if hasattr(message, "FIELDS"):
        values = []
        for field in message.FIELDS:
            value = getattr(message, field)
            if field in ("member_id", "leader") and value:
                value = name(value)
            # None and the empty string have the same bytes on the wire.
            values.append((field, shown(value) or None))
        return tuple(values)
    return message


def told_record(record: GroupRecord) -> str:
    key, value = record
    if value is None or records.kind_of(key) != records.GROUP_METADATA:
        return f"{key!r} {value!r}"
    assert records.value_version(value) == records.GROUP_METADATA_VERSION
    return f"{key!r} {shown(records.read_group(value))!r}"


@pytest.mark.parametrize("first", range(0, STORIES, 50))
def test_coordinator_answers_and_writes_as_apache_kafka_does_over_random_lives(judge: Judge, first: int) -> None:
    steps, seen = 0, set()
    for seed in range(first, first + 50):
        story = Story(judge, seed)
        try:
            for _ in range(STEPS):
                story.step()
                steps += 1
        except OtherLeaderError:
            pass
        seen |= story.seen
    assert steps > 50 * STEPS // 2
    assert seen >= EXPECTED, EXPECTED - seen


def test_coordinator_resumes_from_a_log_that_apache_kafka_wrote_and_back(judge: Judge) -> None:
    members = 0
    for seed in range(1_000, 1_020):
        story = Story(judge, seed)
        try:
            for _ in range(STEPS // 2):
                story.step()
            story.exchange_logs()
            members += len(story.ours.describe("g").members)
            for _ in range(STEPS // 2):
                story.step()
        except OtherLeaderError:
            continue
    assert members
