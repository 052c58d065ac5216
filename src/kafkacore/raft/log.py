"""The interface of the log that the Raft core uses (append, read, truncate, ends of epochs, snapshots), and a log in
memory.

A log starts no syncs by itself: the driver syncs the log, and reports each sync to the core. Appended records can be
read immediately, but a power loss removes the records that are not synced.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from typing import NamedTuple, Protocol

from kafkacore._fast.record.batch import Batches


class OffsetAndEpoch(NamedTuple):
    """The end of a log, or the id of a snapshot. A snapshot holds all records below its end offset. Its id consists of
    this end offset and the epoch of the last record.
    """

    offset: int
    epoch: int


class RaftLog(Protocol):
    """The log of a replica. Offsets are record offsets. `data` holds whole batches of magic 2."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int:
        """The epoch of the last record. If the log is empty, the epoch of the snapshot before it, or 0 if there is no
        snapshot.
        """

    @property
    def committed_offset(self) -> int:
        """The offset of the last call of `note_committed`: records below it are committed. 0 before the first call."""

    def note_committed(self, offset: int) -> None:
        """Stores that the records below `offset` are committed and synced. The node relies on this at its next start.
        Can block."""

    def append(self, data: bytes) -> bool:
        """Appends batches that begin at `end_offset` and contain their epochs. Never waits for a disk. Returns False
        without appending anything if a new segment is needed first, or if the log refuses appends for a short time.
        Then call `begin_segment`, and append again."""

    def begin_segment(self) -> None:
        """Waits for the segment that a refused `append` needs. Blocks."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Returns whole batches, starting with the batch that contains `offset`. Returns at least one batch. If
        `offset` is the end of the log, returns b""."""

    def read_recent(self, offset: int, max_bytes: int) -> bytes | None:
        """Returns the same as `read`, but never waits for a disk. Returns None if a wait would be necessary."""

    def truncate(self, end_offset: int) -> None:
        """Removes the records from `end_offset` on. A batch must start at that offset."""

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Returns the greatest epoch that is at most `epoch` and has records in the log, with the end offset of that
        epoch."""

    def trim(self, start_offset: int) -> None:
        """Removes the records below `start_offset`, which must be the end offset of a snapshot."""

    def snapshots(self) -> list[OffsetAndEpoch]:
        """Returns the complete snapshots, oldest first."""

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int: ...
    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int) -> bytes: ...
    def write_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Writes a part of a snapshot that this replica downloads or makes, at byte `position`. A part at position 0
        discards all earlier parts."""

    def finish_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Completes a snapshot after all its parts were written, and makes it durable."""

    def abandon_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Removes the parts of a snapshot that will not be finished."""

    def begin_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Empties the log. The next record follows the snapshot."""


def replaces_log(snapshot_id: OffsetAndEpoch, log: RaftLog) -> bool:
    """Returns whether a snapshot makes all records of a log obsolete. It does so in three cases:

    - The last record of the snapshot has a later epoch than the last record of the log. The log may extend beyond the
      snapshot, but no later leader had those additional records.
    - Both last records have the same epoch, and the snapshot extends beyond the log.
    - The last record of the log has a later epoch, but the log ends below the snapshot. A snapshot holds only committed
      records, so the last records of such a log were never committed.
    """
    is_later = (snapshot_id.epoch, snapshot_id.offset) > (log.last_epoch, log.end_offset)
    return is_later or snapshot_id.offset > log.end_offset


class Epochs:
    """The start offset of each epoch of a log."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._epochs)

    @property
    def last(self) -> int:
        return self._epochs[-1]

    def entries(self) -> list[tuple[int, int]]:
        """Returns the pair (epoch, start offset) for each epoch, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def note(self, epoch: int, offset: int) -> bool:
        """Notes that `epoch` has records from `offset` on. Returns True if the epoch is new."""
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
        """Returns the same as `RaftLog.end_offset_for_epoch`, but None for an epoch before the first one in the log."""
        index = bisect_right(self._epochs, epoch)
        if index == 0:
            return None
        end = self._starts[index] if index < len(self._starts) else end_offset
        return OffsetAndEpoch(end, self._epochs[index - 1])


class LogEpochs(ABC):
    """A log with the start offset of each epoch. Subclasses update `epochs` with each append and truncation."""

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
        # The log has no records of this epoch or an earlier one. So the answer is the snapshot at the log's start, if
        # any.
        before = [each for each in self.snapshots() if each.offset == self.start_offset]
        return before[-1] if before else OffsetAndEpoch(self.start_offset, 0)


class RecentBatches:
    """Keeps the last batches of a log in memory, up to `max_bytes`. These batches serve most Fetches of replicas that
    keep up.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._batches: deque[tuple[int, int, bytes]] = deque()  # (base offset, next offset, bytes) of each batch

    def append(self, base_offset: int, next_offset: int, data: bytes) -> None:
        self._batches.append((base_offset, next_offset, data))
        self._bytes += len(data)
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._batches.popleft()[2])

    def read(self, offset: int, max_bytes: int) -> bytes | None:
        """Reads as `RaftLog.read_recent` does."""
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
    """A log for tests and simulations. `crash` has the effect of a power loss. Reads of offsets below `cold_below`
    behave as if they had to wait for a disk. After every `segment_appends` appends, the next append needs a new
    segment.
    """

    cold_below = 0
    segment_appends = 1 << 62

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[tuple[int, int, int, bytes]] = []  # (base offset, next offset, epoch, bytes) of each batch
        self._snapshots: dict[OffsetAndEpoch, bytes] = {}
        self._partial: dict[OffsetAndEpoch, bytearray] = {}
        self.start_offset = 0
        self.end_offset = 0
        self.committed_offset = 0
        self._appends = 0

    def append(self, data: bytes) -> bool:
        if self._appends >= self.segment_appends:
            return False
        self._appends += 1
        for batch in Batches(data):
            if batch.base_offset != self.end_offset:
                raise ValueError(
                    f"the batch at {batch.base_offset} cannot be appended to a log that ends at {self.end_offset}"
                )
            epoch = batch.partition_leader_epoch
            self.epochs.note(epoch, batch.base_offset)
            self._batches.append((batch.base_offset, batch.next_offset, epoch, bytes(batch.data)))
            self.end_offset = batch.next_offset
        return True

    def begin_segment(self) -> None:
        self._appends = 0

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

    def abandon_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._partial.pop(snapshot_id, None)

    def begin_at_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._batches.clear()
        self.epochs.clear()
        self.committed_offset = 0
        self.start_offset = self.end_offset = snapshot_id.offset

    def crash(self, synced_offset: int) -> None:
        """Removes the records that were not synced."""
        self._partial.clear()
        self.truncate(max(synced_offset, self.start_offset))
