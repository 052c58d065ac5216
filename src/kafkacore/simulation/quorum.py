"""A quorum of Raft cores (the state machines in `raft.core`) without nodes around them. This is the fastest simulation.
It tests only the rules of Raft.

Each replica has a disk that can lose unsynced data, a clock with its own speed, and a state machine of numbered values.
Messages are encoded when they are sent and decoded when they arrive. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from kafkacore.protocol.messages import SnapshotFooterRecord, SnapshotHeaderRecord
from kafkacore.protocol.uuid import Uuid
from kafkacore.raft.control import control_batch, data_batch
from kafkacore.raft.core import Answer, Raft, RaftConfig, Send
from kafkacore.raft.effects import Work
from kafkacore.raft.log import MemoryLog, OffsetAndEpoch
from kafkacore.raft.roles import Leader
from kafkacore.raft.voters import ReplicaKey, Voter, VoterSet
from kafkacore.simulation.checkers import batches
from kafkacore.simulation.checkers.observations import (
    EpochSeen,
    HighWatermark,
    ImageSeen,
    Leads,
    LogSeen,
    OnDisk,
    Progressed,
    RecordAcknowledged,
    Started,
    StateOnDisk,
    VoteGranted,
    VotersAre,
)
from kafkacore.simulation.judge import Judge
from kafkacore.storage.quorum_state import QuorumState

CLUSTER: Final = "simulated"
NOBODY: Final = -1
NEVER_MS: Final = 1 << 40
LOG_NAME: Final = "metadata"
SEGMENT_APPENDS: Final = 7  # small, so that segments roll in every part of a run


class Weather(NamedTuple):
    """The quality of all links: the shares of lost and duplicated messages, and the range of delays in ms."""

    loss: float = 0.0
    repeats: float = 0.0
    delays: tuple[int, ...] = (1, 2, 3)


class Token(NamedTuple):
    """A request that needs an answer: the receiver of the answer, and the end of the voter's log when the request
    arrived."""

    source: Replica
    life: int
    correlation: int
    request: Any
    end: tuple[int, int]


class Disk(MemoryLog):
    """A log on a simulated disk. It records how far it is synced, and from which offset it has changed since the last
    observation."""

    def __init__(self) -> None:
        super().__init__()
        self.synced = 0
        self.changed_from = 0
        self.changed = True

    def append(self, data: bytes) -> bool:
        end_offset = self.end_offset
        appended = super().append(data)
        if appended:
            self._touch(end_offset)
        return appended

    def truncate(self, end_offset: int) -> None:
        super().truncate(end_offset)
        self._touch(self.end_offset)
        self.synced = min(self.synced, self.end_offset)

    def begin_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        super().begin_at_snapshot(snapshot_id)
        self._touch(self.end_offset if not self._batches else self.start_offset)
        self.synced = self.end_offset

    def _touch(self, offset: int) -> None:
        self.changed_from = min(self.changed_from, offset) if self.changed else offset
        self.changed = True

    def epoch_before(self, offset: int) -> int | None:
        if offset == 0:
            return 0
        for _, end, epoch, _ in reversed(self._batches):
            if end == offset:
                return epoch
        return next((each.epoch for each in self.snapshots() if each.offset == offset), None)


class Replica:
    """One replica, including the work of its driver. Its state machine is `values`, which holds the value at each
    offset below `applied`."""

    def __init__(self, world: QuorumWorld, node: int, votes: bool) -> None:
        self.world, self.node, self.votes = world, node, votes
        self.disk = Disk()
        self.disk.cold_below = 1 << 62 if node % 2 else 0
        self.disk.segment_appends = SEGMENT_APPENDS
        self.state: QuorumState | None = None
        self.raft: Raft | None = None
        self.life = 0
        self.rate = 1.0
        self.paused = False
        self.slow_disk = False
        self.held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.values: dict[int, bytes | None] = {}
        self.applied = 0
        self._persisting = False
        self._timer_ms = NEVER_MS
        self._offset_ms = 0.0
        self._seen: tuple[int, int, int] = (-1, -1, -1)  # the last observed epoch, leader and high watermark
        self._waiting: list[tuple[int, int, bytes]] = []  # offset, epoch and value of appends that have no answer yet

    @property
    def now_ms(self) -> int:
        return int(self._offset_ms + self.world.now_ms * self.rate)

    def skew(self, rate: float) -> None:
        """Changes the speed of the clock. The clock's current time does not jump."""
        self._offset_ms += self.world.now_ms * (self.rate - rate)
        self.rate = rate

    # --- life ---

    def start(self) -> None:
        world = self.world
        self.life += 1
        self.disk.synced = self.disk.end_offset  # a start syncs the whole log
        self.values, self.applied, self._waiting = {}, 0, []
        self._seen = (-1, -1, -1)
        self._timer_ms, self._persisting = NEVER_MS, False
        self.disk.changed_from, self.disk.changed = self.disk.start_offset, True
        world.see(Started(self.node, self.life, self.disk.end_offset))
        for snapshot in self.disk.snapshots()[-1:]:
            self._load(snapshot)
        config = RaftConfig(
            node_id=self.node, directory_id=directory(self.node), cluster_id=CLUSTER, voters=world.voters,
            can_vote=self.votes, fetch_max_bytes=world.random.choice((1, 150, 1 << 20)),
            fetch_snapshot_max_bytes=world.random.choice((200, 1 << 20)),
            append_linger_ms=world.random.choice((0, 25)),
        )  # fmt: skip
        self.raft = Raft(config, self.disk, self.state, world.random, self.now_ms, lambda: world.now_ms)
        self.settle()

    def stop(self, power: bool) -> None:
        """Ends the replica. With `power`, the replica loses its unsynced data. Otherwise the operating system keeps
        everything that the process wrote."""
        self.raft, self.paused = None, False
        self.held.clear()
        if power:
            self.disk.crash(self.disk.synced)
            self.disk.truncate(max(self.disk.synced, self.disk.start_offset))

    def settle(self) -> None:
        """Does the driver's work after each input: sends messages, writes and syncs the log, and sets a timer."""
        raft, world = self.raft, self.world
        assert raft is not None
        self.watch()
        while outputs := raft.take_outputs():
            for output in outputs:
                world.carry(self, output)
        state = None if self._persisting else raft.take_state()
        if state is not None:
            self._persisting = True
            world.later(world.disk_delay(self), self, self._state_written, state)
        for work in raft.take_work():
            world.later(world.disk_delay(self), self, self._worked, work)
        sync = raft.take_sync()
        if sync is not None:
            world.later(world.disk_delay(self), self, self._log_synced, sync, self.disk.end_offset)
        self._set_timer(raft)
        self.watch()

    def _set_timer(self, raft: Raft) -> None:
        delay = max(0, raft.next_tick_ms - self.now_ms)
        due = self.world.now_ms + int(delay / self.rate) + 1
        # A timer that is already set for an earlier time remains. When that timer fires, this code sets the next one.
        if delay < NEVER_MS and due < self._timer_ms:
            self._timer_ms = due
            self.world.later(due - self.world.now_ms, self, self._ticked)

    def _state_written(self, state: tuple[int, QuorumState]) -> None:
        raft = self.raft
        assert raft is not None
        self.state, self._persisting = state[1], False
        self.world.see(StateOnDisk(self.node, state[1].leader_epoch, state[1].voted_id, state[1].leader_id))
        raft.persisted(state[0], self.now_ms)
        self.settle()

    def _worked(self, work: Work) -> None:
        raft = self.raft
        assert raft is not None
        raft.done(work.number, work.effect.perform(self.disk), self.now_ms)
        self.settle()

    def _log_synced(self, sync: tuple[int, int], end: int) -> None:
        raft = self.raft
        assert raft is not None
        if not raft.is_moot(sync):
            self.disk.synced = max(self.disk.synced, min(end, self.disk.end_offset))
            self.world.see(OnDisk(self.node, self.disk.synced))
        raft.durable(sync, self.now_ms)
        self.settle()

    def _ticked(self) -> None:
        raft = self.raft
        assert raft is not None
        self._timer_ms = NEVER_MS
        if raft.next_tick_ms <= self.now_ms:
            raft.tick(self.now_ms)
            self.settle()
        else:
            self._set_timer(raft)

    def received(self, source: Replica, life: int, correlation: int, request: Any) -> None:
        raft = self.raft
        assert raft is not None
        end = (self.disk.last_epoch, self.disk.end_offset)
        raft.request(Token(source, life, correlation, request, end), request, self.now_ms)
        self.settle()

    def answered(self, correlation: int, response: Any) -> None:
        raft = self.raft
        assert raft is not None
        raft.response(correlation, response, self.now_ms)
        self.settle()

    # --- clients and snapshots ---

    def append(self, value: bytes) -> None:
        raft = self.raft
        if raft is not None and raft.is_leader and not self.paused:
            offset = raft.append([value])
            assert offset is not None
            self._waiting.append((offset, raft.epoch, value))
            self.settle()

    def make_snapshot(self) -> None:
        """Writes a snapshot of the state machine, and deletes the part of the log that the snapshot covers."""
        raft = self.raft
        if raft is None or not self.applied or self.paused or self.applied <= self.disk.start_offset:
            return
        epoch = self.disk.epoch_before(self.applied)
        snapshot = OffsetAndEpoch(self.applied, epoch or 0)
        if epoch is None or snapshot in self.disk.snapshots():
            return
        held = [b"%d %s" % (offset, value) for offset, value in sorted(self.values.items())]
        data = data_batch(held, 1, 0, 0) if held else b""
        assert data is not None
        whole = control_batch([SnapshotHeaderRecord()], 0, 0, 0) + data
        whole += control_batch([SnapshotFooterRecord()], 1 + len(held), 0, 0)
        self.disk.write_snapshot(snapshot, 0, whole)
        self.disk.finish_snapshot(snapshot)
        self.disk.trim(snapshot.offset)

    # --- what checkers see ---

    def watch(self) -> None:
        raft, world, disk = self.raft, self.world, self.disk
        assert raft is not None
        if disk.changed:
            disk.changed = False
            start = max(disk.changed_from, disk.start_offset)
            made = tuple(batches.entries(disk.read(start, 1 << 30))) if start < disk.end_offset else ()
            world.see(LogSeen(self.node, start, made, disk.epoch_before(start)))
            world.see(OnDisk(self.node, disk.synced))
        loaded = raft.take_loaded_snapshot()
        if loaded is not None:
            self._load(loaded)
        epoch, leader, mark = self._seen
        if (raft.epoch, raft.leader_id) != (epoch, leader):
            world.see(EpochSeen(self.node, raft.epoch, raft.leader_id))
        leads = isinstance(raft.role, Leader)
        if leads and world.leading.get(self.node) != (self.life, raft.epoch):
            world.leading[self.node] = (self.life, raft.epoch)
            world.see(Leads(self.node, raft.epoch))
            world.note(f"node {self.node} leads epoch {raft.epoch}")
            world.see(Progressed("leader", world.now_ms))
        if raft.high_watermark != mark:
            world.see(HighWatermark(self.node, self.life, raft.high_watermark, raft.epoch if leads else NOBODY))
            self._apply(raft.high_watermark)
        self._seen = (raft.epoch, raft.leader_id, raft.high_watermark)
        self._answer_clients(raft, leads)

    def _apply(self, high_watermark: int) -> None:
        if self.applied < high_watermark:
            data = self.disk.read(self.applied, 1 << 30)
            for offset, value in batches.values(data):
                if self.applied <= offset < high_watermark:
                    self.values[offset] = value
            self.applied = high_watermark
        contents: dict[str, object] = {str(offset): value for offset, value in self.values.items()}
        self.world.see(ImageSeen(self.node, "applied", self.applied, contents))

    def _load(self, snapshot: OffsetAndEpoch) -> None:
        self.values = {}
        data = self.disk.read_snapshot(snapshot, 0, 1 << 30)
        for _, held in batches.values(data):
            offset, _, value = (held or b"").partition(b" ")
            self.values[int(offset)] = value
        self.applied = snapshot.offset
        self.world.note(f"node {self.node} loads snapshot {tuple(snapshot)}")

    def _answer_clients(self, raft: Raft, leads: bool) -> None:
        waiting, self._waiting = self._waiting, []
        for offset, epoch, value in waiting:
            if not leads or raft.epoch != epoch:
                continue  # the client gets an error, because the leader has changed
            if raft.high_watermark > offset:
                self.world.see(RecordAcknowledged(LOG_NAME, offset, value))
                self.world.see(Progressed("commit", self.world.now_ms))
            else:
                self._waiting.append((offset, epoch, value))


def directory(node: int) -> Uuid:
    return Uuid((1000 + node).to_bytes(16, "big"))


class QuorumWorld:
    """A world of Raft replicas. The first `voters` nodes vote, and the next `observers` nodes only follow. Ids count
    from 0. Every method may raise Violation."""

    def __init__(self, random: Random, judge: Judge, voters: int = 3, observers: int = 1) -> None:
        self.random, self.judge = random, judge
        self.now_ms = 0
        self.events = 0
        self.weather = Weather()
        self.voters = VoterSet(Voter(ReplicaKey(n), (("CONTROLLER", f"node{n}", 9093),)) for n in range(voters))
        self.replicas = [Replica(self, node, node < voters) for node in range(voters + observers)]
        self.leading: dict[int, tuple[int, int]] = {}
        self.cuts: set[tuple[int, int]] = set()
        self._queue: list[tuple[int, int, Replica, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._written = 0
        self.see(VotersAre(frozenset(range(voters))))
        for replica in self.replicas:
            self.see(StateOnDisk(replica.node, 0, NOBODY))

    def see(self, observation: Any) -> None:
        self.judge.see(observation)

    def note(self, text: str) -> None:
        self.judge.note(self.now_ms, text)

    # --- the world ---

    def later(self, delay_ms: int, replica: Replica, what: Callable[..., None], *arguments: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._count, replica, replica.life, what, arguments))

    def disk_delay(self, replica: Replica) -> int:
        return self.random.randrange(200) if replica.slow_disk else self.random.randrange(3)

    def carry(self, source: Replica, output: Send | Answer) -> None:
        if isinstance(output, Send):
            target = self.replicas[int(output.to.host.removeprefix("node"))]
            what: Callable[..., None] = target.received
            arguments: tuple[Any, ...] = (source, source.life, output.correlation, copied(output.request))
            self._send(source, target, target.life, what, arguments)
            return
        token: Token = output.token
        self._judge_vote(source, token, output.response)
        arguments = (token.correlation, copied(output.response))
        self._send(source, token.source, token.life, token.source.answered, arguments)

    def _judge_vote(self, voter: Replica, token: Token, response: Any) -> None:
        if token.request.NAME != "VoteRequest" or not response.topics:
            return
        asked = token.request.topics[0].partitions[0]
        if response.topics[0].partitions[0].vote_granted and not asked.pre_vote:
            candidate_end = (asked.last_offset_epoch, asked.last_offset)
            self.see(VoteGranted(voter.node, asked.replica_epoch, asked.replica_id, candidate_end, token.end))

    def _send(
        self, source: Replica, target: Replica, life: int, what: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        if (source.node, target.node) in self.cuts or self.random.random() < self.weather.loss:
            return
        for _ in range(2 if self.random.random() < self.weather.repeats else 1):
            self._count += 1
            at_ms = self.now_ms + self.random.choice(self.weather.delays)
            heapq.heappush(self._queue, (at_ms, self._count, target, life, what, arguments))

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            self.now_ms, _, replica, life, what, arguments = heapq.heappop(queue)
            if replica.life != life or replica.raft is None:
                continue
            if replica.paused:
                replica.held.append((what, arguments))
                continue
            self.events += 1
            what(*arguments)
        self.now_ms = end_ms

    # --- faults and clients ---

    def start(self, node: int) -> None:
        if self.replicas[node].raft is None:
            self.replicas[node].start()

    def kill(self, node: int, power: bool = False) -> None:
        self.replicas[node].stop(power)

    def pause(self, node: int) -> None:
        self.replicas[node].paused = True

    def resume(self, node: int) -> None:
        replica = self.replicas[node]
        replica.paused = False
        held, replica.held = replica.held, []
        for what, arguments in held:
            self.later(0, replica, what, *arguments)

    def write(self) -> None:
        """Writes a value to every replica that believes itself to be the leader, as clients with outdated metadata
        do."""
        for replica in self.replicas:
            if replica.raft is not None and replica.raft.is_leader:
                self._written += 1
                replica.append(b"value %d" % self._written)

    def survived(self) -> dict[int, bytes]:
        """Returns all values, by offset, from a replica that has applied every committed record."""
        latest = max(self.replicas, key=lambda each: each.applied)
        return {offset: value or b"" for offset, value in latest.values.items()}


def copied(message: Any) -> Any:
    version = message.VERSIONS[1]
    return type(message).decode(message.encode(version), version)
