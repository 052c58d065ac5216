"""The log as the Raft core uses it: append, read, truncate, ends of epochs, snapshots. And a log in memory.

A log starts nothing by itself. Appended records can be read at once. A loss of power removes them unless the driver has
synced them; the driver reports each sync to the core.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from typing import NamedTuple, Protocol

from kafkacore._fast.record.batch import Batches


class OffsetAndEpoch(NamedTuple):
    """The id of a snapshot: its end offset (the snapshot holds the records below it) and the epoch of its last record.
    It also names the end of a log."""

    offset: int
    epoch: int


class RaftLog(Protocol):
    """Each offset is that of a record. `data` holds whole batches of magic 2."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot before an empty log; 0 for a log without either."""

    @property
    def committed_offset(self) -> int:
        """Records below this offset are committed, as the last `note_committed` said; 0 when nothing was noted."""

    def note_committed(self, offset: int) -> None:
        """Records below `offset` are committed and synced: the next start may rely on that. May block."""

    def append(self, data: bytes) -> None:
        """Appends batches that begin at `end_offset` and hold their epochs."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches, from the one that holds `offset`; at least one, unless `offset` is the end."""

    def read_recent(self, offset: int, max_bytes: int) -> bytes | None:
        """As `read`, but never waits for a disk. Returns None when it would have to."""

    def truncate(self, end_offset: int) -> None:
        """Removes the records from `end_offset` on. A batch begins at that offset."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The last epoch, at most `epoch`, of which the log has records, and the offset at which that epoch ends."""

    def trim(self, start_offset: int) -> None:
        """Removes records below `start_offset`, the end of a snapshot."""

    def snapshots(self) -> list[OffsetAndEpoch]:
        """The complete snapshots, oldest first."""

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int: ...
    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes: ...
    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Writes a part of a snapshot that this replica downloads or makes; position 0 begins the snapshot again."""

    def finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Completes a snapshot when all its parts are written, and makes it durable."""

    def begin_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Empties the log: the next record follows the snapshot."""


def replaces_log(snapshot_id: OffsetAndEpoch, log: RaftLog) -> bool:
    """Whether a snapshot makes a log and every record in it obsolete.

    It does if its last record has a later epoch than the log's, or the same epoch and a greater offset. (If the log
    then ends above the snapshot, the end of the log holds records that no later leader had.) It also does if the log
    ends below the snapshot in a later epoch: a snapshot holds only committed records, so the end of such a log was
    never committed.
    """
    is_later = (snapshot_id.epoch, snapshot_id.offset) > (log.last_epoch, log.end_offset)
    return is_later or snapshot_id.offset > log.end_offset


class Epochs:
    """Where each epoch of a log begins."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._epochs)

    @property
    def last(self) -> int:
        return self._epochs[-1]

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def note(self, epoch: int, offset: int) -> bool:
        """Notes that records of `epoch` are appended at `offset`. True when the epoch is new."""
        if self._epochs and self._epochs[-1] >= epoch:
            return False
        self._epochs.append(epoch)
        self._starts.append(offset)
        return True

    def truncate(self, end_offset: int) -> None:
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def end_of(self, epoch: int, end_offset: int) -> OffsetAndEpoch | None:
        """As `RaftLog.end_offset_for_epoch`, but returns None for an epoch before the first."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return None
        end = self._starts[index] if index < len(self._starts) else end_offset
        return OffsetAndEpoch(end, self._epochs[index - 1])


class LogEpochs(ABC):
    """The epochs of a log. Subclasses update `epochs` with each append and truncation."""

    start_offset: int
    end_offset: int

    def __init__(self) -> None:
        self.epochs = Epochs()

    @abstractmethod
    def snapshots(self) -> list[OffsetAndEpoch]: ...

    @property
    def last_epoch(self) -> int:
        if self.epochs:
            return self.epochs.last
        snapshots = self.snapshots()
        return snapshots[-1].epoch if snapshots else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        found = self.epochs.end_of(epoch, self.end_offset)
        if found is not None:
            return found
        # The log begins behind a snapshot, or has none before it.
        before = [each for each in self.snapshots() if each.offset == self.start_offset]
        return before[-1] if before else OffsetAndEpoch(self.start_offset, 0)


class RecentBatches:
    """The last batches of a log, up to `max_bytes` of them, so that replicas that keep up are served from memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._batches: deque[tuple[int, int, bytes]] = deque()  # base offset, next offset, bytes

    def append(self, base_offset: int, next_offset: int, data: bytes) -> None:
        self._batches.append((base_offset, next_offset, data))
        self._bytes += len(data)
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._batches.popleft()[2])

    def read(self, offset: int, max_bytes: int) -> bytes | None:
        """As `RaftLog.read_recent`."""
        if not self._batches or offset < self._batches[0][0]:
            return None
        made: list[bytes] = []
        size = 0
        first = next((i for i, batch in enumerate(reversed(self._batches)) if batch[0] <= offset), 0)
        for index in range(len(self._batches) - 1 - first, len(self._batches)):
            data = self._batches[index][2]
            if made and size + len(data) > max_bytes:
                break
            made.append(data)
            size += len(data)
        return b"".join(made)

    def truncate(self, end_offset: int) -> None:
        while self._batches and self._batches[-1][1] > end_offset:
            self._bytes -= len(self._batches.pop()[2])

    def clear(self) -> None:
        self._batches.clear()
        self._bytes = 0


class MemoryLog(LogEpochs):
    """A log for tests and simulations. `crash` has the effect of a power loss. Only reads below `cold_below` count as
    reads that wait for a disk."""

    cold_below = 0

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[tuple[int, int, int, bytes]] = []  # base offset, next offset, epoch, bytes
        self._snapshots: dict[OffsetAndEpoch, bytes] = {}
        self._partial: dict[OffsetAndEpoch, bytearray] = {}
        self.start_offset = 0
        self.end_offset = 0
        self.committed_offset = 0

    def append(self, data: bytes) -> None:
        for batch in Batches(data):
            if batch.base_offset != self.end_offset:
                raise ValueError(
                    f"the batch at {batch.base_offset} cannot be appended to a log that ends at {self.end_offset}"
                )
            epoch = batch.partition_leader_epoch
            self.epochs.note(epoch, batch.base_offset)
            self._batches.append((batch.base_offset, batch.next_offset, epoch, bytes(batch.data)))
            self.end_offset = batch.next_offset

    def note_committed(self, offset: int) -> None:
        self.committed_offset = offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        made = bytearray()
        for index in range(bisect_right(self._batches, offset, key=lambda batch: batch[1]), len(self._batches)):
            data = self._batches[index][3]
            if made and len(made) + len(data) > max_bytes:
                break
            made += data
        return bytes(made)

    def read_recent(self, offset: int, max_bytes: int) -> bytes | None:
        return None if offset < self.cold_below else self.read(offset, max_bytes)

    def truncate(self, end_offset: int) -> None:
        while self._batches and self._batches[-1][0] >= end_offset:
            self._batches.pop()
        self.end_offset = self._batches[-1][1] if self._batches else max(self.start_offset, end_offset)
        self.epochs.truncate(self.end_offset)

    def trim(self, start_offset: int) -> None:
        while self._batches and self._batches[0][1] <= start_offset:
            self._batches.pop(0)
        self.start_offset = max(self.start_offset, start_offset)

    def snapshots(self) -> list[OffsetAndEpoch]:
        return sorted(self._snapshots)

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int:
        return len(self._snapshots[snapshot_id])

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes:
        return self._snapshots[snapshot_id][position : position + max_bytes]

    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        partial = self._partial.setdefault(snapshot_id, bytearray())
        del partial[position:]
        partial += data

    def finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._snapshots[snapshot_id] = bytes(self._partial.pop(snapshot_id))

    def begin_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._batches.clear()
        self.epochs.clear()
        self.committed_offset = 0
        self.start_offset = self.end_offset = snapshot_id.offset

    def crash(self, synced_offset: int) -> None:
        """Removes the records that were not synced."""
        self._partial.clear()
        self.truncate(max(synced_offset, self.start_offset))
