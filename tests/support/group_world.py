"""The consumers of one group, their coordinator and its log. Messages get lost, come late or come twice, and nodes
crash.

A seed decides everything. The consumers act as Kafka's do: they join, the leader assigns the partitions, and each
consumer fetches its committed offsets, consumes (counts up its positions), commits, and sends heartbeats. After an
error they do what the error code demands.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from group_log import Client, arrived, told
from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.effects import Answer, Append, Effects, GroupRecord
from kafkacore.coordinator.group.settings import GroupSettings
from kafkacore.coordinator.group.shard import GroupShard
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from published_groups import PublishedGroups

GROUP, TOPIC = "g", "t"
PARTITIONS = 12
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS, COMMIT_MS = 10_000, 20_000, 2_000, 1_000
RETRY_MS, REQUEST_TIMEOUT_MS, JOIN_TIMEOUT_MS = 200, 3_000, 25_000
START_MS = 1_700_000_000_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=500)
FAILURES = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
START_ANEW = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class World:
    """The network, the log and the clock. `calm` stops all faults."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = START_MS
        self.calm = False
        self.log: list[GroupRecord] = []
        self.lives = 0
        self.shard: GroupShard | None = None
        self.open: deque[Append] = deque()
        # The requests that the shard must still answer, and the time when each one arrived.
        self.waiting: dict[tuple[int, int], int] = {}
        self.generation = -1  # the newest generation
        # By (generation, partition): the member that the leader assigned the partition to.
        self.owners: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}  # by partition: the highest offset whose commit a consumer saw acknowledged
        self.consumers: list[Consumer] = []
        self.dead: list[Consumer] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._asked: dict[int, Callable[[Any], None]] = {}
        self._mailed: dict[Consumer, int] = {}
        self.start()

    # --- time ---

    def later(self, after_ms: int, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + max(after_ms, 1), self._count, what))

    def run(self, ms: int) -> None:
        end = self.now + ms
        while True:
            at = self._events[0][0] if self._events else end
            due = self.shard.next_deadline_ms() if self.shard else None
            if due is not None and due < at:
                at = max(due, self.now)
            if at >= end:
                break
            self.now = at
            if self._events and self._events[0][0] <= at:
                heapq.heappop(self._events)[2]()
            if self.shard is not None:
                self.carry_out(self.shard.tick(self.now))
        self.now = end

    def chance(self, of: float) -> bool:
        return not self.calm and self.random.random() < of

    # --- the coordinator ---

    def start(self) -> None:
        self.lives += 1
        self.published_groups = PublishedGroups(lambda: self.now)
        shard = GroupShard(SETTINGS, self._new_uuid, self.published_groups)
        for offset, (key, value) in enumerate(self.log):
            shard.replay(key, value, offset)
        self.shard = shard
        self.waiting.clear()
        self.carry_out(shard.loaded(self.now))

    def crash(self) -> None:
        """Crashes the coordinator. Only the first few open appends reach the log."""
        surviving = self.random.randint(0, len(self.open))
        for append in list(self.open)[:surviving]:
            self.log.extend(append.records)
        self.open.clear()
        self.shard = None
        self.later(self.random.randint(10, 3_000), self.start)

    def resign(self) -> None:
        """Unloads the coordinator cleanly. It answers all waiting requests."""
        shard, life = self.shard, self.lives
        assert shard is not None
        self.carry_out(shard.unload(ErrorCode.NOT_COORDINATOR))
        assert not self.waiting, f"requests without an answer after the shard was unloaded: {self.waiting}"
        self.open.clear()
        self.shard = None
        self.later(self.random.randint(10, 1_000), lambda: self.start() if self.lives == life else None)

    def carry_out(self, effects: Effects) -> None:
        for waiter, response in effects.answers:
            assert waiter in self.waiting, f"{waiter} gets a second answer, or has sent no request"
            self.waiting.pop(waiter)
            self._respond(waiter, told(response))
        life = self.lives
        for append in effects.appends:
            self.open.append(append)
            self.later(self.random.randint(1, 20 if self.calm else 400), lambda: self._settle(life))

    def _settle(self, life: int) -> None:
        """Decides the result of the oldest open append."""
        if self.shard is None or life != self.lives or not self.open:
            return
        if self.chance(0.03):
            self._fail(self.random.choice(FAILURES))
            return
        if self.chance(0.05):
            self.carry_out(self.shard.timed_out(self.random.choice(self.open).token, self.now))
        append = self.open.popleft()
        base_offset = len(self.log)
        self.log.extend(append.records)
        self.carry_out(self.shard.committed(append.token, base_offset, self.now))

    def _fail(self, error: ErrorCode) -> None:
        """Fails this append and all later appends."""
        assert self.shard is not None
        failing = [self.open.popleft() for _ in range(len(self.open))]
        for append in failing:
            self.carry_out(self.shard.failed(append.token, error, self.now))
        if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
            self.resign()

    def heartbeat(self, shard: GroupShard, request: HeartbeatRequest) -> HeartbeatResponse:
        """Passes the heartbeat to the processor first. If the processor cannot answer it, passes it to the shard."""
        return HeartbeatResponse() if self.published_groups.heartbeat(request) else shard.heartbeat(request, self.now)

    def sync_group(self, shard: GroupShard, request: SyncGroupRequest, waiter: Any) -> Effects:
        """Passes the request to the processor first. If the processor cannot answer it, passes it to the shard."""
        answer = self.published_groups.sync_group(request)
        if answer is None:
            return shard.sync_group(request, waiter, self.now)
        effects = Effects()
        effects.answers.append(Answer(waiter, answer))
        return effects

    def _new_uuid(self) -> bytes:
        self._count += 1
        return hashlib.sha256(self._count.to_bytes(8, "big")).digest()[:16]

    # --- the network: it may lose some of a consumer's requests, and keeps the order of the others ---

    def ask(self, consumer: Consumer, call: Callable[[GroupShard, Any], Any], then: Callable[[Any], None]) -> None:
        self._count += 1
        number = self._count
        self._asked[number] = then
        consumer.outstanding = number
        self.later(JOIN_TIMEOUT_MS if consumer.joins else REQUEST_TIMEOUT_MS, lambda: self._give_up(consumer, number))
        if self.chance(0.1):
            self._straggle(consumer, number, call)
        if self.chance(0.03):
            return
        at = max(self._mailed.get(consumer, 0), self.now + self._delay())
        self._mailed[consumer] = at + 1  # the next request arrives after a copy of this one
        for copy in range(2 if self.chance(0.04) else 1):
            self.later(at - self.now + copy, lambda copy=copy: self._arrive((number, copy), call))  # type: ignore[misc]

    def _straggle(self, consumer: Consumer, number: int, call: Callable[[GroupShard, Any], Any]) -> None:
        """Delivers a late copy of a request from a broken connection. The state of the consumer has changed since it
        sent the request."""
        member_id, generation = consumer.member_id, consumer.generation

        def arrive() -> None:
            others = [each for each in self.consumers if each.instance and each.instance == consumer.instance]
            replaced = any(each.member_id != member_id and each.positions for each in others)
            if replaced or generation < self.generation:
                self._arrive((number, self.now), call)

        for _ in range(3):
            self.later(self.random.randint(1_000, 30_000), arrive)

    def _delay(self) -> int:
        return self.random.randint(1, 5 if self.calm else 60) + (4_000 if self.chance(0.02) else 0)

    def _arrive(self, waiter: tuple[int, int], call: Callable[[GroupShard, Any], Any]) -> None:
        if self.shard is None:
            return  # the connection is refused, and the consumer's timeout ends the request
        self.waiting[waiter] = self.now
        done = call(self.shard, waiter)
        if isinstance(done, Effects):
            self.carry_out(done)
        else:
            self.waiting.pop(waiter)
            self._respond(waiter, done)

    def _respond(self, waiter: tuple[int, int], response: Any) -> None:
        if not self.chance(0.03):
            self.later(self._delay(), lambda: self._receive(waiter[0], response))

    def _receive(self, number: int, response: Any) -> None:
        then = self._asked.pop(number, None)
        if then is not None:
            then(response)

    def _give_up(self, consumer: Consumer, number: int) -> None:
        if self._asked.pop(number, None) is not None and consumer.outstanding == number:
            consumer.retry()

    # --- invariants ---

    def note_owner(self, generation: int, partitions: list[int], owner: str) -> None:
        self.generation = max(self.generation, generation)
        for partition in partitions:
            before = self.owners.setdefault((generation, partition), owner)
            assert before == owner, f"partition {partition} of generation {generation} has {before} and {owner}"

    def check_log(self) -> None:
        """Checks that no offset in the log goes back, and that the log contains all acknowledged offsets."""
        last: dict[int, int] = {}
        for key, value in self.log:
            if records.kind_of(key) == records.OFFSET_COMMIT and value is not None:
                _, _, partition = records.read_offset_key(key)
                offset = records.read_offset(value).offset
                assert offset >= last.get(partition, 0), f"partition {partition} went back to {offset} from {last}"
                last[partition] = offset
        for partition, offset in self.committed.items():
            assert last.get(partition, 0) >= offset, f"partition {partition} lost {offset}, has {last.get(partition)}"

    def check_replay(self) -> None:
        """Checks that a new shard that has loaded the log has the same recorded state as this shard."""
        if self.shard is None or self.open:
            return
        other = GroupShard(SETTINGS, self._new_uuid)
        for offset, (key, value) in enumerate(self.log):
            other.replay(key, value, offset)
        assert committed_offsets(other) == committed_offsets(self.shard)
        mine, read = (each.describe_group(Client(), GROUP) for each in (self.shard, other))
        # The log may lack the record that a group became empty. After a load, the sessions of that group's members
        # expire again.
        if mine.group_state == "Stable":
            assert read == mine


class Consumer:
    """A consumer. With an `instance` it is a static member. It begins each step after the one before, and has at most
    one request in flight."""

    def __init__(self, world: World, name: str, instance: str | None = None) -> None:
        self.world, self.name, self.instance = world, name, instance
        self.client = Client(client_id=name)
        self.member_id, self.generation = "", -1
        self.step: Callable[[], None] = self.join
        self.outstanding = 0
        self.alive = True
        self.positions: dict[int, int] = {}  # by partition that the consumer owns: the next offset
        self.next_commit = 0
        world.consumers.append(self)
        world.later(world.random.randint(1, 2_000), self.join)

    @property
    def joins(self) -> bool:
        """Returns whether the consumer is joining. Its JoinGroup may have to wait for other members."""
        return self.step == self.join

    @property
    def owner(self) -> str:
        return self.instance or self.member_id

    # --- steps ---

    def join(self) -> None:
        self.step, self.positions = self.join, {}
        # The consumer sometimes joins with another subscription, which causes a rebalance.
        taste = b"%d" % self.world.random.randint(0, 1) if not self.world.calm else b"0"
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + taste)],
        )
        self._ask(lambda shard, waiter: shard.join_group(self.client, request, waiter, self.world.now), self._joined)

    def _joined(self, answer: Any) -> None:
        error = ErrorCode(answer.error_code)
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif error == ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            self.sync([each.member_id for each in answer.members] if leads else [])
        else:
            self._failed(error)

    def sync(self, members: list[str]) -> None:
        """Sends SyncGroup. The leader assigns the partitions to `members`."""
        self.step = lambda: self.sync(members)
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id=self.generation,
            group_instance_id=self.instance,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=member, assignment=bytes(range(place, PARTITIONS, len(members)))
                )
                for place, member in enumerate(members)
            ],
        )
        self._ask(lambda shard, waiter: self.world.sync_group(shard, request, waiter), self._synced)

    def _synced(self, answer: Any) -> None:
        if answer.error_code:
            self._failed(ErrorCode(answer.error_code))
            return
        partitions = list(answer.assignment)
        self.world.note_owner(self.generation, partitions, self.owner)
        self.fetch(partitions)

    def fetch(self, partitions: list[int]) -> None:
        self.step = lambda: self.fetch(partitions)
        topic = OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
        self._ask(lambda shard, waiter: shard.offset_fetch(group, True, waiter), self._fetched)

    def _fetched(self, answer: Any) -> None:
        if answer.error_code:
            self._failed(ErrorCode(answer.error_code))
            return
        for each in answer.topics[0].partitions:
            acknowledged = self.world.committed.get(each.partition_index, 0)
            assert max(each.committed_offset, 0) >= acknowledged, "OffsetFetch does not return an acknowledged offset"
            self.positions[each.partition_index] = max(each.committed_offset, 0)
        self.consume()

    def consume(self) -> None:
        """Consumes between heartbeats, and commits. Sometimes leaves the group or restarts."""
        self.step = self.consume
        if self.world.chance(0.02):
            self.leave()
        elif self.world.now >= self.next_commit and self.positions:
            self.commit()
        else:
            self.heartbeat()

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, generation_id=self.generation, group_instance_id=self.instance
        )
        self._ask(lambda shard, waiter: self.world.heartbeat(shard, request), self._goes_on)

    def commit(self) -> None:
        self.next_commit = self.world.now + COMMIT_MS
        self.positions = {partition: offset + 1 for partition, offset in self.positions.items()}
        sent = dict(self.positions)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                partition(partition_index=index, committed_offset=offset, committed_metadata="")
                for index, offset in sent.items()
            ],
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.generation,
            group_instance_id=self.instance,
            topics=[topic],
        )

        def then(answer: Any) -> None:
            error = answer.topics[0].partitions[0].error_code
            if not error:
                for index, offset in sent.items():
                    self.world.committed[index] = max(self.world.committed.get(index, 0), offset)
                self.heartbeat()  # only a heartbeat reports a rebalance; a commit does not
            else:
                self._failed(ErrorCode(error))

        self._ask(lambda shard, waiter: shard.offset_commit(arrived(request), waiter, self.world.now), then)

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)],
        )
        self._ask(lambda shard, waiter: shard.leave_group(request, waiter, self.world.now), lambda answer: None)
        self.member_id, self.generation, self.positions = "", -1, {}
        self.step = self.join
        self.world.later(self.world.random.randint(100, 5_000), self._wake(self.join))

    def _goes_on(self, answer: Any) -> None:
        if answer.error_code:
            self._failed(ErrorCode(answer.error_code))
        else:
            self.world.later(self.world.random.randint(HEARTBEAT_MS // 3, HEARTBEAT_MS), self._wake(self.consume))

    # --- faults ---

    def retry(self) -> None:
        self.world.later(RETRY_MS, self._wake(self.step))

    def die(self) -> None:
        self.alive = False
        self.world.consumers.remove(self)
        self.world.dead.append(self)

    def _failed(self, error: ErrorCode) -> None:
        if error == ErrorCode.FENCED_INSTANCE_ID:
            self.die()
        elif error in START_ANEW or error == ErrorCode.REBALANCE_IN_PROGRESS:
            if error == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id, self.generation = "", -1
            self.world.later(RETRY_MS, self._wake(self.join))
        else:
            assert error.retriable or error == ErrorCode.UNKNOWN_SERVER_ERROR, f"{self.name} got {error.name}"
            self.retry()

    def _ask(self, call: Callable[[GroupShard, Any], Any], then: Callable[[Any], None]) -> None:
        self.world.ask(self, call, lambda answer: then(answer) if self.alive else None)

    def _wake(self, step: Callable[[], None]) -> Callable[[], None]:
        """Returns a function that runs the step, unless the consumer has died or begun another step since this call."""
        was = self.outstanding
        return lambda: step() if self.alive and self.outstanding == was else None


def committed_offsets(shard: GroupShard) -> dict[int, int]:
    request = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    (answer,) = shard.offset_fetch(request, False, "all").answers
    return {
        each.partition_index: each.committed_offset for topic in answer.response.topics for each in topic.partitions
    }


def prefixes(log: list[GroupRecord], step: int) -> Iterator[list[GroupRecord]]:
    for end in range(0, len(log) + 1, step):
        yield log[:end]
