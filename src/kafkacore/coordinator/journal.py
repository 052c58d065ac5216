"""The end of a coordinator's log: what its shard decides waits here, becomes batches, and is told once committed.

What comes first in a turn of the loop is appended at once, and what follows in the same turn shares a batch: who is
alone does not wait, and under load many share. `linger_ms` lets all of it wait for more
(group.coordinator.append.linger.ms; -1 and 0 do not). It is appended on the loop, as processors append what clients
produce; while its log is opened or rolled, elsewhere, and what is decided meanwhile becomes the next batch.
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
MAX_WAITING: Final = 10_000  # writes that are not appended yet; nothing more is to be decided then
_ALL_ACKS: Final = -1
_TOO_LARGE: Final = -2  # in the place of a write's offset
_PATIENCE_S: Final = 60.0  # of one wait for the high watermark; then another one begins

Records = Collection[tuple[bytes, bytes | None]]
Acknowledgement = tuple[int, int]  # a kind of `watch` and an offset


class WritableLog(Protocol):
    """What a journal needs of a partition; a PartitionHandle is one."""

    @property
    def leader_epoch(self) -> int: ...
    def append(
        self, records: bytearray, acks: int = ..., wait: bool = ..., coordinator: bool = ...
    ) -> AppendResult: ...
    def append_now(self, records: bytearray, acks: int = ...) -> AppendResult | None: ...
    def satisfies(self, kind: int, at: int) -> bool: ...


class JournalSettings(NamedTuple):
    linger_ms: int
    timeout_ms: int  # from a decision to its being committed; then who waits for it is told
    codec: int = 0


class JournalPorts(NamedTuple):
    """The world of a journal: the date, a thread that may wait, and a wait for its partition (kind, offset, seconds):
    False when nothing has changed there before the time was over."""

    wall_ms: Callable[[], int]
    run_blocking: Callable[[Callable[[], AppendResult]], Awaitable[AppendResult]]
    wait: Callable[[int, int, float], Awaitable[bool]]


class Outcome(Protocol):
    """Who is told what became of each write, by its token and in the order of the writes."""

    def committed(self, token: int, base_offset: int) -> None: ...
    def failed(self, failures: Sequence[tuple[int, ErrorCode]]) -> None:
        """Tokens that are not in the log. With the first that fails, all that were written after it do, but for an
        independent one that fails for its size."""

    def timed_out(self, token: int) -> None:
        """It may still be committed, or fail."""


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
    """Belongs to one loop. `max_batch_bytes` gives the topic's max.message.bytes."""

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
        self._leader_epoch = leader_epoch
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
        self._telling = False  # what comes of it is appended when all of a batch have been told
        self._open: deque[_Write] = deque()  # nobody has been told what became of them, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self.batches = 0
        self.records = 0
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether as much waits as may."""
        return len(self._waiting) >= MAX_WAITING

    def flush(self) -> list[asyncio.Task[None]]:
        """Appends now what lingers; the tasks that see to what has not been told by then."""
        if self._flush is not None:
            self._flush.cancel()
            self._end_turn()
        return [task for task in (self._appending, self._acknowledging) if task is not None]

    def write(self, token: int, records: Records, independent: bool = False) -> None:
        """They lie in one batch, behind all that was written before. `settle` has them appended. On `independent` ones
        nothing counts that is written later."""
        write = _Write(token, records, independent, self._loop.time() + self._settings.timeout_ms / 1000)
        self._waiting.append(write)
        self._open.append(write)
        if self._timer is None:
            self._arm()

    def settle(self) -> None:
        """What was written is appended, or waits for what it shares a batch with. Its outcome may be told before this
        returns."""
        if not self._waiting or self._telling or self._flush is not None or self._appending is not None or self._closed:
            return
        if self._settings.linger_ms > 0:
            self._flush = self._loop.call_later(self._settings.linger_ms / 1000, self._end_turn)
        else:
            self._flush = self._loop.call_soon(self._end_turn)
            self._append_all()

    def close(self) -> None:
        """No more appends, and nobody is told anything more."""
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
        """Until nothing of this journal can reach the log any more."""
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
        """The oldest writes that fit into one."""
        if self._log.leader_epoch != self._leader_epoch:
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
            result = await self._ports.run_blocking(lambda: self._log.append(batch, _ALL_ACKS, False, True))
        except Exception:
            LOG.exception("an append of a coordinator ended without a result; who asked for it comes again")
        finally:
            self._appending = None
        if self._closed:
            return
        if result is None:
            self._fail(writes, ErrorCode.REQUEST_TIMED_OUT)  # the log may have it; who comes again has it there twice
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
        """It fits into no batch. Told behind those that are appended."""
        if self._waiting[0].independent:
            write = self._waiting.popleft()
            write.base_offset = _TOO_LARGE
            self._await_commit([write], None)
        else:
            self._fail([], ErrorCode.MESSAGE_TOO_LARGE)

    def _fail(self, writes: list[_Write], error: ErrorCode) -> None:
        """With all that wait: what was decided after one was decided on what did not come to be. Who was only behind
        one that is too large had better come again."""
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
            ack = self._appended[-1][0]  # not before those that are
        if ack is None or (not self._appended and self._log.satisfies(*ack)):
            self._tell(writes)
            return
        self._appended.append((ack, writes))
        if self._acknowledging is None:
            self._acknowledging = self._loop.create_task(self._acknowledge())

    async def _acknowledge(self) -> None:
        try:
            while self._appended:
                (kind, offset), writes = self._appended[0]
                if self._log.satisfies(kind, offset):
                    self._appended.popleft()
                    self._tell(writes)
                    self.settle()
                elif self._log.leader_epoch != self._leader_epoch:
                    return  # whoever took the leadership away unloads the shard, too
                else:
                    await self._ports.wait(kind, offset, _PATIENCE_S)
        finally:
            self._acknowledging = None

    def _tell_late(self) -> None:
        """Whoever is over time; and comes again for those who may be."""
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
