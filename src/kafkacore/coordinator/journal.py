"""Writes a coordinator's log. Collects the decisions of a shard, appends them in batches, and reports when they are
committed.

The first decision in an iteration of the event loop is appended immediately. Later decisions in the same iteration
share a batch. So a single request does not wait, and under load many requests share a batch. If `linger_ms` is
positive, every decision waits that long for others (group.coordinator.append.linger.ms).

The journal appends on the event loop. While the log is being opened or rolled, a thread appends, and the decisions made
in the meantime become the next batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from kafkacore._fast.log.partition_handle import AppendResult
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.protocol.errors import ErrorCode

LOG: Final = logging.getLogger("kafkacore.coordinator")
MAX_WAITING: Final = 10_000  # at most this many writes wait to be appended; at this limit the shard accepts no requests
_ALL_ACKS: Final = -1
_TOO_LARGE: Final = -2  # replaces the offset of a write that is too large for any batch
_PATIENCE_S: Final = 60.0  # the longest single wait for the high watermark; then the journal waits again

Records = Collection[tuple[bytes, bytes | None]]
# The condition for which a write waits: a kind of `partition_watch`, an offset, and the `generation` of the leadership
# in which the journal made the append.
Acknowledgement = tuple[int, int, int]
# With either code, the high watermark has passed the records, so they are committed. Only the client of a Produce needs
# to learn that the ISR has shrunk.
COMMITTED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class WritableLog(Protocol):
    """The part of a partition that a journal needs; PartitionHandle implements this."""

    @property
    def leader_epoch(self) -> int: ...
    def append(self, records: bytearray, acks: int = ..., wait: bool = ..., origin: str = ...) -> AppendResult: ...
    def append_now(self, records: bytearray, acks: int = ...) -> AppendResult | None: ...
    def acknowledged(self, kind: int, at: int, generation: int) -> int | None: ...


class JournalSettings(NamedTuple):
    linger_ms: int
    timeout_ms: int  # after this time without a commit, the decision's waiter gets an error
    codec: int = 0


class JournalPorts(NamedTuple):
    """The functions that a journal needs. `wall_ms` returns the wall-clock time. `run_blocking` runs work on a thread
    that can block. `wait` waits for an acknowledgement of the partition for some seconds, and returns False on
    timeout."""

    wall_ms: Callable[[], int]
    run_blocking: Callable[[Callable[[], AppendResult]], Awaitable[AppendResult]]
    wait: Callable[[Acknowledgement, float], Awaitable[bool]]


class Outcome(Protocol):
    """Receives the results of writes by token, in the order of the writes."""

    def committed(self, token: int, base_offset: int) -> None: ...
    def failed(self, failures: Sequence[tuple[int, ErrorCode]]) -> None:
        """Fails the writes with these tokens. If a write fails, every later write fails with it. The exception is an
        independent write that is too large: it fails alone."""

    def timed_out(self, token: int) -> None:
        """Notes that a write has taken too long. The write may still be committed or fail."""


class _Write:
    __slots__ = ("base_offset", "deadline", "independent", "records", "token", "told_late")

    def __init__(self, token: int, records: Records, independent: bool, deadline: float) -> None:
        self.token = token
        self.records = records
        self.independent = independent
        self.deadline = deadline
        self.told_late = False
        self.base_offset = -1


class Journal:
    """Belongs to one event loop. `max_batch_bytes` returns the topic's max.message.bytes."""

    def __init__(
        self,
        log: WritableLog,
        leader_epoch: int,
        settings: JournalSettings,
        ports: JournalPorts,
        max_batch_bytes: Callable[[], int],
        outcome: Outcome,
    ) -> None:
        self._log = log
        self.leader_epoch = leader_epoch
        self._settings = settings
        self._ports = ports
        self._max_batch_bytes = max_batch_bytes
        self._outcome = outcome
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Write] = deque()
        self._flush: asyncio.Handle | None = None
        self._appending: asyncio.Task[None] | None = None
        self._appended: deque[tuple[Acknowledgement, list[_Write]]] = deque()
        self._acknowledging: asyncio.Task[None] | None = None
        self._closed = False
        self._telling = False  # True while outcomes are reported; decisions that they cause are appended later
        self._open: deque[_Write] = deque()  # writes that are neither committed nor failed, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self.batches = 0
        self.records = 0
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the journal has reached its limit of waiting writes."""
        return len(self._waiting) >= MAX_WAITING

    def flush(self) -> list[asyncio.Task[None]]:
        """Appends the lingering writes now. Returns the tasks that report the writes in progress."""
        if self._flush is not None:
            self._flush.cancel()
            self._end_turn()
        return [task for task in (self._appending, self._acknowledging) if task is not None]

    def write(self, token: int, records: Records, independent: bool = False) -> None:
        """Queues one write. `settle` appends its records in one batch, after all earlier writes. If the write is
        `independent`, no later write may depend on it."""
        write = _Write(token, records, independent, self._loop.time() + self._settings.timeout_ms / 1000)
        self._waiting.append(write)
        self._open.append(write)
        if self._timer is None:
            self._arm()

    def settle(self) -> None:
        """Appends the waiting writes, or lets them wait for others to share their batch. May report a result before
        returning."""
        if not self._waiting or self._telling or self._flush is not None or self._appending is not None or self._closed:
            return
        if self._settings.linger_ms > 0:
            self._flush = self._loop.call_later(self._settings.linger_ms / 1000, self._end_turn)
        else:
            self._flush = self._loop.call_soon(self._end_turn)
            self._append_all()

    def close(self) -> None:
        """Stops the journal: it appends and reports nothing more."""
        self._closed = True
        self._waiting.clear()
        self._appended.clear()
        self._open.clear()
        for handle in (self._timer, self._flush):
            if handle is not None:
                handle.cancel()
        if self._acknowledging is not None:
            self._acknowledging.cancel()

    async def closed(self) -> None:
        """Waits for the append in progress. After that, this journal appends nothing more to the log."""
        if self._appending is not None:
            await asyncio.wait([self._appending])

    # --- appending ---

    def _end_turn(self) -> None:
        self._flush = None
        self._append_all()

    def _append_all(self) -> None:
        while self._waiting and self._appending is None and not self._closed:
            self._append_batch()

    def _append_batch(self) -> None:
        """Appends the oldest writes that fit into one batch."""
        if self._log.leader_epoch != self.leader_epoch:
            self._fail([], ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        builder = RecordBatchBuilder(codec=self._settings.codec, limit_bytes=self._max_batch_bytes())
        now_ms, writes = self._ports.wall_ms(), []
        while self._waiting:
            write = self._waiting[0]
            write.base_offset = builder.record_count
            if not builder.append_all(now_ms, write.records):
                break
            writes.append(self._waiting.popleft())
        if not writes:
            self._fail_oldest()
            return
        batch = bytearray(builder.build())
        result = self._log.append_now(batch, _ALL_ACKS)
        if result is None:
            self._appending = self._loop.create_task(self._append_elsewhere(batch, writes))
        else:
            self._appended_as(result, writes, len(batch))

    async def _append_elsewhere(self, batch: bytearray, writes: list[_Write]) -> None:
        result = None
        try:
            result = await self._ports.run_blocking(lambda: self._log.append(batch, _ALL_ACKS, False, "coordinator"))
        except Exception:
            LOG.exception("an append of a coordinator ended without a result; the client repeats its request")
        finally:
            self._appending = None
        if self._closed:
            return
        if result is None:
            # the log may have the batch; if the client repeats its request, the log has the batch twice
            self._fail(writes, ErrorCode.REQUEST_TIMED_OUT)
        else:
            self._appended_as(result, writes, len(batch))
            self._append_all()

    def _appended_as(self, result: AppendResult, writes: list[_Write], size_bytes: int) -> None:
        if result.error != ErrorCode.NONE:
            self._fail(writes, ErrorCode(result.error))
            return
        self.batches += 1
        self.records += result.last_offset - result.first_offset + 1
        self.size_bytes += size_bytes
        for write in writes:
            write.base_offset += result.first_offset
        self._await_commit(writes, result.ack)

    def _fail_oldest(self) -> None:
        """Fails the oldest write, which is too large for any batch. The failure is reported after the results of the
        writes that are already appended."""
        if self._waiting[0].independent:
            write = self._waiting.popleft()
            write.base_offset = _TOO_LARGE
            self._await_commit([write], None)
        else:
            self._fail([], ErrorCode.MESSAGE_TOO_LARGE)

    def _fail(self, writes: list[_Write], error: ErrorCode) -> None:
        """Fails `writes` and all waiting writes, because later decisions depend on earlier ones. If the reason is a
        single write that is too large, the later writes get an error that makes their clients retry."""
        later, self._waiting = self._waiting, deque()
        if error == ErrorCode.MESSAGE_TOO_LARGE and not writes:
            writes = [later.popleft()]
        for _ in range(len(writes) + len(later)):
            self._open.pop()
        with_them = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error == ErrorCode.MESSAGE_TOO_LARGE else error
        failures = [(write.token, error) for write in writes] + [(write.token, with_them) for write in later]
        self._outcome.failed(failures)

    # --- committing ---

    def _await_commit(self, writes: list[_Write], ack: Acknowledgement | None) -> None:
        if ack is None and self._appended:
            ack = self._appended[-1][0]  # so `writes` are reported after the writes that were appended earlier
        if ack is None or (not self._appended and self._log.acknowledged(*ack) in COMMITTED):
            self._tell(writes)
            return
        self._appended.append((ack, writes))
        if self._acknowledging is None:
            self._acknowledging = self._loop.create_task(self._acknowledge())

    async def _acknowledge(self) -> None:
        try:
            while self._appended:
                ack, writes = self._appended[0]
                outcome = self._log.acknowledged(*ack)
                if outcome in COMMITTED:
                    self._appended.popleft()
                    self._tell(writes)
                    self.settle()
                elif outcome is not None:
                    return  # the code that ended the leadership also unloads the shard
                else:
                    await self._ports.wait(ack, _PATIENCE_S)
        finally:
            self._acknowledging = None

    def _tell_late(self) -> None:
        """Reports the writes that have taken too long, and sets a timer for the next write."""
        now, self._timer = self._loop.time(), None
        late = [write for write in self._open if write.deadline <= now and not write.told_late]
        for write in late:
            write.told_late = True
            self._outcome.timed_out(write.token)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None or self._closed:
            return
        left = next((write for write in self._open if not write.told_late), None)
        if left is not None:
            self._timer = self._loop.call_at(left.deadline, self._tell_late)

    def _tell(self, writes: list[_Write]) -> None:
        self._telling = True
        try:
            for write in writes:
                if self._closed:
                    return
                self._open.popleft()
                if write.base_offset == _TOO_LARGE:
                    self._outcome.failed([(write.token, ErrorCode.MESSAGE_TOO_LARGE)])
                else:
                    self._outcome.committed(write.token, write.base_offset)
        finally:
            self._telling = False
