"""Loads a coordinator's state. Reads the records of its partition and replays them one by one into the shard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from kafkacore._fast.log.partition_handle import ReadBytes
from kafkacore._fast.record.batch import Batch, Batches, ControlRecordType, CorruptBatchError, InvalidRecordError
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, error_for

LOG: Final = logging.getLogger("kafkacore.coordinator")
SLICE_RECORDS: Final = 100  # the loop does other work after this many records
NO_PRODUCER: Final = -1
_READ_TO_LOG_END: Final = 2
# errors that a shard may raise for a record; any other error ends the load
_UNREADABLE: Final = (ProtocolError, KafkaError)


class LoadSummary(NamedTuple):
    """The size of a load, and the offset after the last batch."""

    records: int
    size_bytes: int
    end_offset: int


class Replayed(Protocol):
    """The part of a shard that a load needs."""

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int = ...) -> None: ...
    def replay_end_of_transaction(self, producer_id: int, committed: bool, offset: int) -> None: ...


class ReadableLog(Protocol):
    """The interface that loading requires of a partition. PartitionHandle implements it."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    def read(
        self, offset: int, max_bytes: int = ..., isolation: int = ..., min_one: bool = ..., current_epoch: int = ...
    ) -> ReadBytes: ...


RunBlocking = Callable[[Callable[[], ReadBytes]], Awaitable[ReadBytes]]


class Loader:
    """Loads one shard. `name` is the partition's name in log messages. `run_blocking` runs work that waits for a
    disk."""

    def __init__(
        self,
        name: str,
        log: ReadableLog,
        leader_epoch: int,
        shard: Replayed,
        buffer_bytes: int,
        run_blocking: RunBlocking,
    ) -> None:
        self._name = name
        self._log = log
        self._leader_epoch = leader_epoch
        self._shard = shard
        self._buffer_bytes = buffer_bytes
        self._run_blocking = run_blocking
        self._records = 0
        self._size_bytes = 0
        self._start_offset = self._next_offset = log.log_start_offset

    async def load(self) -> LoadSummary:
        """Reads from the log's start to its end. A further call reads what was appended since. Raises OSError,
        CorruptBatchError, InvalidRecordError, CodecError, or the KafkaError of a refused read if this node no longer
        leads the partition in that epoch."""
        while self._next_offset < self._log.end_offset:
            data = await self._read(self._next_offset)
            if not data:
                break
            batches = Batches(data)
            for batch in batches:
                await self._take(batch)
                self._next_offset = batch.next_offset
            if not batches.position:
                raise CorruptBatchError(f"there is no whole batch at offset {self._next_offset}")
            self._size_bytes += batches.position
        return LoadSummary(self._records, self._size_bytes, self._next_offset)

    async def _read(self, offset: int) -> bytes:
        def read() -> ReadBytes:
            return self._log.read(offset, self._buffer_bytes, _READ_TO_LOG_END, True, self._leader_epoch)

        done = await self._run_blocking(read)
        if done.error:
            raise error_for(ErrorCode(done.error))
        return done.records

    async def _take(self, batch: Batch) -> None:
        if not batch.crc_ok:
            raise CorruptBatchError(f"the checksum of the batch at offset {batch.base_offset} does not match its bytes")
        if batch.is_control:
            self._end_transaction(batch)
            return
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
        for record in batch:
            if record.offset >= self._start_offset:  # the log may start in the middle of its first batch
                self._replay(record.key, record.value, record.offset, producer_id)
                self._records += 1
                if self._records % SLICE_RECORDS == 0:
                    await asyncio.sleep(0)

    def _end_transaction(self, batch: Batch) -> None:
        for record in batch:
            if record.control_type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                committed = record.control_type == ControlRecordType.COMMIT
                self._shard.replay_end_of_transaction(batch.producer_id, committed, record.offset)

    def _replay(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        """Replays a record. A record that cannot be parsed is skipped, and the following records still count."""
        try:
            if key is None:
                raise InvalidRecordError("it has no key")
            self._shard.replay(key, value, offset, producer_id)
        except _UNREADABLE as error:
            LOG.warning("%s: the record at offset %d cannot be read and is skipped: %s", self._name, offset, error)
