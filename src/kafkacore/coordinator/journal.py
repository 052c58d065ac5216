"""The end of a coordinator's log: what its shard decides waits here, becomes batches, and is told once committed.

One append is under way at a time, and what is decided meanwhile becomes the next batch: under load many decisions share
one. `linger_ms` lets a batch wait for more (group.coordinator.append.linger.ms); -1 takes what has come in by the end
of the loop's turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kafkacore._fast.batch import RecordBatchBuilder
from kafkacore._fast.partition_handle import AppendResult
from kafkacore._named_tuple import NamedTuple
from kafkacore.protocol.errors import ErrorCode

LOG: Final = logging.getLogger("kafkacore.coordinator")
RECORD_OVERHEAD_BYTES: Final = 40  # at most, of a record beside its key and value
BATCH_OVERHEAD_BYTES: Final = 61
MAX_WAITING_BYTES: Final = 64 << 20  # of records that are not appended yet; nothing more is to be decided then
_ALL_ACKS: Final = -1
_PATIENCE_S: Final = 60.0  # of one wait for the high watermark; then another one begins

Records = Sequence[tuple[bytes, bytes | None]]
Acknowledgement = tuple[int, int]  # a kind of `watch` and an offset


class WritableLog(Protocol):
    """What a journal needs of a partition; a PartitionHandle is one."""

    @property
    def leader_epoch(self) -> int: ...
    def append(self, records: bytes, acks: int = ..., wait: bool = ..., coordinator: bool = ...) -> AppendResult: ...
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
    def failed(self, tokens: Sequence[int], error: ErrorCode) -> None:
        """They are not in the log. With the first that fails, all that were written after it do."""

    def timed_out(self, token: int) -> None:
        """It may still be committed, or fail."""


class _Write:
    __slots__ = ("base_offset", "deadline", "records", "size_bytes", "token", "told_late")

    def __init__(self, token: int, records: Records, deadline: float) -> None:
        self.token = token
        self.records = records
        self.deadline = deadline
        self.told_late = False
        self.base_offset = -1
        self.size_bytes = sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in records)


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
        self._waiting_bytes = 0
        self._appending: asyncio.Task[None] | None = None
        self._appended: deque[tuple[Acknowledgement, list[_Write]]] = deque()
        self._acknowledging: asyncio.Task[None] | None = None
        self._closed = False
        self._open: deque[_Write] = deque()  # nobody has been told what became of them, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self.batches = 0
        self.records = 0
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether as much waits as may."""
        return self._waiting_bytes >= MAX_WAITING_BYTES

    def write(self, token: int, records: Records) -> None:
        """They lie in one batch, behind all that was written before."""
        write = _Write(token, records, self._loop.time() + self._settings.timeout_ms / 1000)
        self._waiting.append(write)
        self._waiting_bytes += write.size_bytes
        self._open.append(write)
        self._arm()
        if self._appending is None and not self._closed:
            self._appending = self._loop.create_task(self._append_all())

    def close(self) -> None:
        """No more appends, and nobody is told anything more."""
        self._closed = True
        self._waiting.clear()
        self._appended.clear()
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._acknowledging is not None:
            self._acknowledging.cancel()

    async def closed(self) -> None:
        """Until nothing of this journal can reach the log any more."""
        if self._appending is not None:
            await asyncio.wait([self._appending])

    # --- appending ---

    async def _append_all(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(max(self._settings.linger_ms, 0) / 1000)
                writes = self._take()
                if not writes:
                    return
                error, ack = await self._append(writes)
                if self._closed:
                    return
                if error != ErrorCode.NONE:
                    self._fail(writes, error)
                else:
                    self._await_commit(writes, ack)
        finally:
            self._appending = None

    def _take(self) -> list[_Write]:
        """The oldest writes that fit into a batch."""
        room = self._max_batch_bytes() - BATCH_OVERHEAD_BYTES
        taken: list[_Write] = []
        while self._waiting and (not taken or self._waiting[0].size_bytes <= room):
            write = self._waiting.popleft()
            room -= write.size_bytes
            self._waiting_bytes -= write.size_bytes
            taken.append(write)
        return taken

    async def _append(self, writes: list[_Write]) -> tuple[ErrorCode, Acknowledgement | None]:
        builder = RecordBatchBuilder(codec=self._settings.codec)
        now_ms = self._ports.wall_ms()
        for write in writes:
            write.base_offset = builder.record_count
            for key, value in write.records:
                if not builder.append(now_ms, key, value):
                    return ErrorCode.MESSAGE_TOO_LARGE, None
        if self._log.leader_epoch != self._leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        count, batch = builder.record_count, builder.build()
        try:
            result = await self._ports.run_blocking(lambda: self._log.append(batch, _ALL_ACKS, False, True))
        except OSError:
            LOG.exception("a coordinator's batch was not appended")
            return ErrorCode.KAFKA_STORAGE_ERROR, None
        if result.error == ErrorCode.NONE:
            self.batches += 1
            self.records += count
            self.size_bytes += len(batch)
            for write in writes:
                write.base_offset += result.first_offset
        return ErrorCode(result.error), result.ack

    def _fail(self, writes: list[_Write], error: ErrorCode) -> None:
        """What was decided after them was decided on what did not come to be."""
        later, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        for _ in range(len(writes) + len(later)):
            self._open.pop()
        self._outcome.failed([write.token for write in (*writes, *later)], error)

    # --- committing ---

    def _await_commit(self, writes: list[_Write], ack: Acknowledgement | None) -> None:
        if ack is None or (not self._appended and self._log.satisfies(*ack)):
            self._tell_committed(writes)
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
                    self._tell_committed(writes)
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

    def _tell_committed(self, writes: list[_Write]) -> None:
        for write in writes:
            if self._closed:
                return
            self._open.popleft()
            self._outcome.committed(write.token, write.base_offset)
