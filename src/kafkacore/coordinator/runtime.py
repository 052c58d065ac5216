"""Runs one shard of a coordinator for each partition of its topic that this node leads. Loads the shard, passes
requests to it, executes its effects, and unloads it when the leadership ends.

This module works for any kind of shard: it runs groups and transactions alike. A shard is deterministic: it has no
clock, loop or log. Everything in this module belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from kafkacore._fast.codec.compression import CodecError
from kafkacore._fast.log.partition_watch import ACKS
from kafkacore._fast.record.batch import CorruptBatchError, InvalidRecordError
from kafkacore.coordinator.journal import (
    COMMITTED,
    Acknowledgement,
    Journal,
    JournalPorts,
    JournalSettings,
    Records,
    WritableLog,
)
from kafkacore.coordinator.loader import Loader, LoadSummary, ReadableLog, Replayed
from kafkacore.coordinator.metrics import CoordinatorMetrics
from kafkacore.coordinator.steady_clock import SteadyClock
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.runtime.clock import Clock
from kafkacore.runtime.scheduler import Scheduled, Scheduler

LOG: Final = logging.getLogger("kafkacore.coordinator")
# At most this many shards load at the same time. One of them can read from disk while another replays its records.
LOADS_AT_ONCE: Final = 2
# The limit of answers in one iteration of the loop. The rebalance of a large group completes many answers.
ANSWERS_IN_A_TURN: Final = 256
_WATERMARK_PATIENCE_S: Final = 60.0
# After these errors, the shard must not write to the partition any longer.
_LOST: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
# A load that failed with one of these errors would fail again. Other errors may pass while this node still leads the
# partition, for example when no file descriptor, memory or thread was free. So the shard is loaded again, after a time
# that doubles with each attempt.
_UNREADABLE: Final = (CorruptBatchError, InvalidRecordError, CodecError)
_RETRY_MS: Final = 1_000
_MAX_RETRY_MS: Final = 60_000


class Effects(Protocol):
    """The effects of a shard's decisions. An append is (token, records, whether it is independent). An answer is
    (waiter, response)."""

    @property
    def appends(self) -> Sequence[tuple[int, Records, bool]]: ...
    @property
    def answers(self) -> Sequence[tuple[Any, Any]]: ...


class Shard(Replayed, Protocol):
    """The methods of every coordinator's shard; `group.shard` documents them."""

    def loaded(self, now_ms: int) -> Effects: ...
    def committed(self, token: int, base_offset: int, now_ms: int) -> Effects: ...
    def failed(self, token: int, error: int, now_ms: int) -> Effects: ...
    def timed_out(self, token: int, now_ms: int) -> Effects: ...
    def unload(self, error: int) -> Effects: ...
    def next_deadline_ms(self) -> int | None: ...
    def tick(self, now_ms: int) -> Effects: ...


class Log(ReadableLog, WritableLog, Protocol):
    """A partition, as the runtime uses it; PartitionHandle implements this."""

    @property
    def generation(self) -> int:
        """The number of times that this node has become the leader."""


class RuntimeSettings(NamedTuple):
    topic: str
    journal: JournalSettings
    load_buffer_bytes: int


class RuntimePorts(NamedTuple):
    """The functions that the runtime needs. `scheduler` provides the loop's timers. `run_blocking` runs work on a
    thread that can block. `wait` waits for an acknowledgement of a partition (log, acknowledgement, seconds).
    `max_batch_bytes` returns the topic's max.message.bytes."""

    clock: Clock
    scheduler: Scheduler
    run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
    wait: Callable[[Any, Acknowledgement, float], Awaitable[bool]]
    max_batch_bytes: Callable[[], int]


class State(enum.Enum):
    """The states of a shard, with Kafka's names, as in the tag of `num-partitions`."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


S = TypeVar("S", bound=Shard)


class CoordinatorRuntime(Generic[S]):
    """Runs the shards of one coordinator. `make_shard` makes an empty shard. `loaded` is called with each loaded shard
    and its partition. Waiters are futures of this loop."""

    def __init__(
        self,
        make_shard: Callable[[], S],
        settings: RuntimeSettings,
        ports: RuntimePorts,
        loaded: Callable[[int, S], None] = lambda index, shard: None,
    ) -> None:
        self._make_shard = make_shard
        self._loaded = loaded
        self._settings = settings
        self._ports = ports._replace(clock=SteadyClock(ports.clock))
        self._seats: dict[int, _Seat[S]] = {}
        self._going: set[asyncio.Task[None]] = set()
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE)
        self._loop = asyncio.get_running_loop()  # each call of get_running_loop is a system call
        self.metrics = CoordinatorMetrics()

    # --- partitions that this node leads ---

    def lead(self, index: int, leader_epoch: int, log: Log) -> None:
        """Loads the partition's shard. Does nothing if the shard is already loaded in this epoch, or if this node's
        leadership merely continues in a newer epoch."""
        seat = self._seats.get(index)
        if seat is not None and seat.log is log and (seat.leader_epoch >= leader_epoch or seat.rises(leader_epoch)):
            return
        self._leave(index, ErrorCode.NOT_COORDINATOR)
        self._load(index, leader_epoch, log, _RETRY_MS)

    def resign(self, index: int) -> None:
        """Unloads the partition's shard, and answers its waiters with NOT_COORDINATOR. Call this when this node no
        longer leads the partition, or when the partition was deleted."""
        self._leave(index, ErrorCode.NOT_COORDINATOR)

    def _load(self, index: int, leader_epoch: int, log: Log, retry_ms: int) -> None:
        made = self._seats[index] = _Seat(self, index, leader_epoch, log, self._make_shard(), retry_ms)
        self._start(made.load(self._loads, self._ending.get(index)))

    def _load_later(self, seat: _Seat[S]) -> None:
        """Loads the partition's shard again after a failure, unless the leadership ends before."""
        self._ports.scheduler.after(seat.retry_ms, lambda: self._load_again(seat), seat.name)

    def _load_again(self, seat: _Seat[S]) -> None:
        if self._seats.get(seat.index) is seat:
            self._leave(seat.index, ErrorCode.NOT_COORDINATOR)
            self._load(seat.index, seat.leader_epoch, seat.log, min(2 * seat.retry_ms, _MAX_RETRY_MS))

    def _leave(self, index: int, error: ErrorCode) -> None:
        seat = self._seats.pop(index, None)
        if seat is not None:
            seat.unload(error)
            # An append in progress may still reach the log, so the next load waits until the journal is closed.
            ending = self._start(_closed_after(self._ending.get(index), seat.journal))
            self._ending[index] = ending
            ending.add_done_callback(lambda done: self._ended(index, done))

    def _ended(self, index: int, done: asyncio.Task[None]) -> None:
        if self._ending.get(index) is done:
            del self._ending[index]

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._going.add(task)
        task.add_done_callback(self._going.discard)
        return task

    async def settled(self) -> None:
        """Waits until every decision made so far is committed or has failed."""
        while going := [task for seat in tuple(self._seats.values()) for task in seat.journal.flush()]:
            await asyncio.wait(going)

    async def close(self) -> None:
        """Answers every waiter with COORDINATOR_NOT_AVAILABLE, and waits for the appends in progress."""
        for index in tuple(self._seats):
            self._leave(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._ending:
            await asyncio.wait(tuple(self._ending.values()))
        for task in self._going:
            task.cancel()

    # --- requests ---

    def now_ms(self) -> int:
        """Returns the time that shards see. Callers that pass a time to a shard must use this method, so that only one
        clock measures a session."""
        return self._ports.clock.wall_ms()

    def shard(self, index: int) -> S:
        """Returns the partition's shard. Raises NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS."""
        return self._seat(index).shard

    def is_active(self, index: int) -> bool:
        seat = self._seats.get(index)
        return seat is not None and seat.state is State.ACTIVE

    def ask(self, index: int, operation: Callable[[S, asyncio.Future[Any], int], Effects]) -> asyncio.Future[Any]:
        """Calls `operation` with the shard, a waiter and the time in ms. Returns the waiter, a future that is done when
        the shard answers.

        Raises the same errors as `shard`, and COORDINATOR_LOAD_IN_PROGRESS while the journal is full.
        """
        seat = self._seat(index)
        if seat.journal.full:
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        waiter: asyncio.Future[Any] = self._loop.create_future()
        seat.carry_out(operation(seat.shard, waiter, self._ports.clock.wall_ms()))
        return waiter

    def tell(self, operation: Callable[[S, int], Effects]) -> None:
        """Runs the operation on every loaded shard. No request waits for the result."""
        for seat in tuple(self._seats.values()):
            if seat.state is State.ACTIVE:
                seat.carry_out(operation(seat.shard, self._ports.clock.wall_ms()))

    def active(self) -> Iterator[S]:
        for seat in self._seats.values():
            if seat.state is State.ACTIVE:
                yield seat.shard

    def states(self) -> dict[State, int]:
        counts = dict.fromkeys(State, 0)
        for seat in self._seats.values():
            counts[seat.state] += 1
        return counts

    @property
    def loading(self) -> bool:
        return any(seat.state is State.LOADING for seat in self._seats.values())

    def _seat(self, index: int) -> _Seat[S]:
        seat = self._seats.get(index)
        if seat is not None and seat.state is State.ACTIVE:
            return seat
        loading = seat is not None and seat.state is State.LOADING
        raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)


async def _closed_after(before: asyncio.Task[None] | None, journal: Journal) -> None:
    """Waits until the journal of an ended seat (a partition in one leader epoch) is closed. Waits for `before` first,
    because an earlier seat of the same partition may still append."""
    if before is not None:
        await asyncio.wait([before])
    await journal.closed()


class _Seat(Generic[S]):
    """A partition in one leader epoch, with its shard and its journal. `retry_ms` is the time from a failure to the
    next attempt to load the shard."""

    def __init__(
        self, runtime: CoordinatorRuntime[S], index: int, leader_epoch: int, log: Log, shard: S, retry_ms: int
    ) -> None:
        settings, ports = runtime._settings, runtime._ports
        self.leader_epoch = leader_epoch
        self.index = index
        self.retry_ms = retry_ms
        self._when_loaded = runtime._loaded
        self._load_later = runtime._load_later
        self._generation = log.generation
        self.log = log
        self.shard = shard
        self.state = State.LOADING
        self.name = f"{settings.topic}-{index}"
        self._loop = runtime._loop
        self._ports = ports
        self._settings = settings
        self._metrics = runtime.metrics
        self._left = False
        self._tick: Scheduled | None = None
        self._tick_ms = 0
        journal_ports = JournalPorts(
            ports.clock.wall_ms, ports.run_blocking, lambda ack, limit_s: ports.wait(log, ack, limit_s)
        )
        self.journal = Journal(log, leader_epoch, settings.journal, journal_ports, ports.max_batch_bytes, self)

    # --- loading and unloading ---

    def rises(self, leader_epoch: int) -> bool:
        """Continues in a newer leader epoch, for example after a reassignment has removed another replica. Returns
        False if nothing is loaded, or if another broker was the leader in between."""
        if self.state is not State.ACTIVE or self.log.generation != self._generation:
            return False
        self.leader_epoch = self.journal.leader_epoch = leader_epoch
        return True

    def left(self) -> bool:
        """Returns whether the seat (a partition in one leader epoch) is unloaded and makes no more decisions."""
        return self._left

    async def load(self, loads: asyncio.Semaphore, before: Awaitable[None] | None) -> None:
        """Loads the shard. First waits for `before`, the unfinished work of the partition's previous seat."""
        if before is not None:
            await before
        began_ns = self._ports.clock.monotonic_ns()
        try:
            summary = await self._replayed(loads)
        except Exception as error:  # noqa: BLE001 - any error only makes this partition unavailable
            self._load_failed(error)
            return
        if summary is None:
            return
        took_ms = (self._ports.clock.monotonic_ns() - began_ns) / 1e6
        self._metrics.loaded(took_ms)
        if summary.records:
            told = self.name, summary.records, summary.size_bytes, took_ms
            LOG.info("%s: %d records, %d bytes, loaded in %.0f ms", *told)
        self.state = State.ACTIVE
        self.retry_ms = _RETRY_MS
        self._when_loaded(self.index, self.shard)
        self.carry_out(self.shard.loaded(self._ports.clock.wall_ms()))

    async def _replayed(self, loads: asyncio.Semaphore) -> LoadSummary | None:
        """Replays the log, and returns when everything in it is replayed and committed. Returns None if the seat was
        unloaded meanwhile. During the wait for the commit, a transaction's marker may reach the log, because the append
        of the marker began in an earlier leadership of this broker. So this code checks the end of the log again."""
        loader = Loader(
            self.name, self.log, self.leader_epoch, self.shard, self._settings.load_buffer_bytes,
            self._ports.run_blocking,
        )  # fmt: skip
        end_offset = -1
        while True:
            async with loads:
                if self.left():
                    return None
                summary = await loader.load()
            await self._committed_up_to(summary.end_offset)
            if self.left():
                return None
            if summary.end_offset in (end_offset, self.log.end_offset):
                return summary
            end_offset = summary.end_offset

    async def _committed_up_to(self, end_offset: int) -> None:
        """Waits until the records below the offset are committed, because a later leader could truncate uncommitted
        records. Raises the error if the records can no longer be committed. Returns early if the seat is unloaded."""
        replayed = ACKS, end_offset, self._generation
        while (outcome := self.log.acknowledged(*replayed)) is None and not self.left():
            await self._ports.wait(self.log, replayed, _WATERMARK_PATIENCE_S)
        if outcome is not None and outcome not in COMMITTED:
            raise error_for(ErrorCode(outcome))

    def _load_failed(self, error: Exception) -> None:
        if self.left():
            return
        known = isinstance(error, (KafkaError, OSError, ValueError))
        passes = not isinstance(error, _UNREADABLE)
        LOG.error(
            "%s: its coordinator could not be loaded, so requests for its groups are refused: %s%s",
            self.name,
            error,
            f"; the next attempt is in {self.retry_ms // 1000} s" if passes else "",
            exc_info=None if known else error,
        )
        self.state = State.FAILED
        if passes:
            self._load_later(self)

    def unload(self, error: ErrorCode) -> None:
        """Answers every waiter. After this call, the seat makes no more decisions."""
        if self._left:
            return
        self._left = True
        self.journal.close()
        self._metrics.add(self.journal)
        if self._tick is not None:
            self._tick.cancel()
        if self.state is State.ACTIVE:
            self.state = State.FAILED
            self._answer(self.shard.unload(error))

    # --- the shard's decisions ---

    def carry_out(self, effects: Effects) -> None:
        for token, records, independent in effects.appends:
            self.journal.write(token, records, independent)
        self._answer(effects)
        self._arm()
        if effects.appends:
            self.journal.settle()

    def _answer(self, effects: Effects) -> None:
        self._give(effects.answers, 0)

    def _give(self, answers: Sequence[tuple[Any, Any]], begin: int) -> None:
        """Answers some waiters now, and the others in the next iterations of the loop, so that other requests do not
        have to wait."""
        end = begin + ANSWERS_IN_A_TURN
        for waiter, response in answers[begin:end]:
            if not waiter.done():
                waiter.set_result(response)
        if end < len(answers):
            self._loop.call_soon(self._give, answers, end)

    # --- results of appends (the seat is the Outcome of its journal) ---

    def committed(self, token: int, base_offset: int) -> None:
        try:
            effects = self.shard.committed(token, base_offset, self._ports.clock.wall_ms())
        except Exception:
            # The shard differs from the log now, and would refuse the results of all later appends.
            LOG.exception("%s: its coordinator failed to apply a committed record, and is loaded again", self.name)
            self._lose()
        else:
            self.carry_out(effects)

    def failed(self, failures: Sequence[tuple[int, ErrorCode]]) -> None:
        """Reports the failure of appends to the shard, one by one. In the meantime, the shard may make decisions that
        depend on an append whose failure it does not know yet. These decisions fail with the error of the last
        append."""
        left = deque(failures)
        error = left[0][1]
        LOG.warning("%s: %d appends of its coordinator failed: %s", self.name, len(left), error.name)
        while left:
            token, why = left.popleft()
            effects = self.shard.failed(token, why, self._ports.clock.wall_ms())
            if left:
                left.extend((later, left[-1][1]) for later, *_ in effects.appends)
                self._answer(effects)
            else:
                self.carry_out(effects)
        if error in _LOST:
            self._lose()

    def _lose(self) -> None:
        self.unload(ErrorCode.NOT_COORDINATOR)
        self._load_later(self)

    def timed_out(self, token: int) -> None:
        self.carry_out(self.shard.timed_out(token, self._ports.clock.wall_ms()))

    # --- time ---

    def _arm(self) -> None:
        due_ms = self.shard.next_deadline_ms()
        if due_ms is None or self._left or (self._tick is not None and self._tick_ms <= due_ms):
            return
        if self._tick is not None:
            self._tick.cancel()
        self._tick_ms = due_ms
        self._tick = self._ports.scheduler.after(due_ms - self._ports.clock.wall_ms(), self._fire, self.name)

    def _fire(self) -> None:
        self._tick = None
        try:
            self.carry_out(self.shard.tick(self._ports.clock.wall_ms()))
        finally:
            self._arm()  # an error in one deadline must not stop the others
