"""Keeps the PartitionChangeRecords of many topics in numpy columns. So vector operations can make, encode, decode and
replay them.

The failure of a broker can change one partition in each of 100,000 topics. A ChangeRun (equal changes of one topic)
cannot represent these records. This module, `row_kinds` and `move_kinds` import numpy, so the other modules import them
only for large changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kafkacore._fast.schema.columns import RowCodec
from kafkacore.metadata.partition_records import ColumnRun
from kafkacore.metadata.partitions import CHUNK_ROWS, NO_LEADER_CHANGE, NO_RECOVERY_CHANGE, Ids, PartitionChunk
from kafkacore.protocol.errors import ProtocolError
from kafkacore.protocol.messages import PartitionChangeRecord
from kafkacore.protocol.uuid import Uuid

if TYPE_CHECKING:
    from typing_extensions import Buffer

NAME: Final = "PartitionChangeRecord"
NULL: Final = -1  # the count of a list that the record does not change
UUID_BYTES: Final = 16
_LAST_EPOCH: Final = np.iinfo(np.int32).max
LISTS: Final = {
    "isr": "isr",
    "elr": "eligible_leader_replicas",
    "last_known_elr": "last_known_elr",
    "replicas": "replicas",
    "removing": "removing_replicas",
    "adding": "adding_replicas",
}
_RARE: Final = ("removing", "adding", "elr", "last_known_elr")

Ints = npt.NDArray[np.int32]
Rows = slice | npt.NDArray[np.intp]  # selects rows of columns
# Indexes of rows in a chunk. Consecutive indexes are a slice, which numpy reads without a copy.
Indexes = slice | npt.NDArray[np.int64]


class ListColumn:
    """A list of broker ids in each row: `values[i, :counts[i]]`. The rest of each row is filled with -1. If a record
    does not change the list, its count is NULL."""

    __slots__ = ("counts", "values")

    def __init__(self, values: Ints, counts: Ints) -> None:
        self.values, self.counts = values, counts

    @classmethod
    def unchanged(cls, rows: int, width: int = 1) -> ListColumn:
        return cls(np.full((rows, width), -1, np.int32), np.full(rows, NULL, np.int32))

    def get(self, row: int) -> list[int] | None:
        count = int(self.counts[row])
        return None if count < 0 else self.values[row, :count].tolist()

    def lists(self, told: Rows, wanted: npt.NDArray[np.bool_]) -> list[Ids | None]:
        """Takes the rows `told`, selects among them with `wanted`, and returns the lists of the selected rows. None
        stands for a list that does not change."""
        counts = self.counts[told][wanted].tolist()
        values = self.values[told][wanted].tolist()
        return [None if count < 0 else tuple(ids[:count]) for ids, count in zip(values, counts, strict=True)]


class DirectoryColumn:
    """A list of log directory ids in each row, similar to ListColumn. `values[i, j]` is an id of 16 bytes. The places
    after the last directory of a row contain zeros.
    """

    __slots__ = ("counts", "values")

    def __init__(self, values: npt.NDArray[np.uint8], counts: Ints) -> None:
        self.values, self.counts = values, counts

    @classmethod
    def unchanged(cls, rows: int, width: int = 1) -> DirectoryColumn:
        return cls(np.zeros((rows, width, UUID_BYTES), np.uint8), np.full(rows, NULL, np.int32))

    def get(self, row: int) -> list[Uuid] | None:
        count = int(self.counts[row])
        return None if count < 0 else [Uuid(each.tobytes()) for each in self.values[row, :count]]


class ChangeColumns:
    """The changes of many partitions. Row i changes partition `partition[i]` of the topic `topic_ids[i]`; a topic id
    has 16 bytes.

    `rows[i]` is the partition's row in the image on which the decision was based. `rows` is None for changes that were
    read from a log.
    """

    def __init__(self, partition: Ints, topic_ids: npt.NDArray[np.uint8], rows: npt.NDArray[np.int64] | None) -> None:
        count = len(partition)
        self.partition, self.topic_ids, self.rows = partition, topic_ids, rows
        self.leader = np.full(count, NO_LEADER_CHANGE, np.int32)
        self.recovery = np.full(count, NO_RECOVERY_CHANGE, np.int8)
        self.isr = self.elr = self.last_known_elr = ListColumn.unchanged(count)
        self.replicas = self.removing = self.adding = self.isr
        self.directories = DirectoryColumn.unchanged(count)
        self._encoded: tuple[int, tuple[bytes, array[int]]] | None = None

    def __len__(self) -> int:
        return len(self.partition)

    def topic_id(self, row: int) -> Uuid:
        return Uuid(self.topic_ids[row].tobytes())

    def record(self, row: int) -> Any:
        """Returns the change in one row as a record."""
        return PartitionChangeRecord(
            partition_id=int(self.partition[row]),
            topic_id=self.topic_id(row),
            leader=int(self.leader[row]),
            leader_recovery_state=int(self.recovery[row]),
            directories=self.directories.get(row),
            **{field: getattr(self, name).get(row) for name, field in LISTS.items()},
        )

    def encode(self, version: int, prefix: bytes) -> tuple[bytes, array[int]]:
        """Encodes each row as a record, and puts `prefix` before each record. Also returns the position at which each
        record ends. The result is cached, so runs that share these columns share one native call.
        """
        if self._encoded is None or self._encoded[0] != version:
            columns: dict[str, Any] = {
                "partition_id": self.partition,
                "topic_id": self.topic_ids,
                "leader": self.leader,
                "leader_recovery_state": self.recovery,
            }
            told = {field: getattr(self, name) for name, field in LISTS.items()} | {"directories": self.directories}
            for field, column in told.items():
                if column.counts.max(initial=NULL) > NULL:
                    columns[field] = np.ascontiguousarray(column.values), column.counts
            self._encoded = version, _codec(version).encode(columns, prefix=prefix)
        return self._encoded[1]

    @classmethod
    def decode(cls, version: int, data: Buffer, starts: array[int], ends: array[int]) -> ChangeColumns | None:
        """Reads the record at `data[starts[i]:ends[i]]` into row i. Returns None if a record has more replicas than the
        columns have room for; the caller then reads the records one by one. Raises ProtocolError."""
        count, width = len(starts), _width(version, memoryview(data), starts, ends)
        made = cls(np.zeros(count, np.int32), np.zeros((count, UUID_BYTES), np.uint8), None)
        lists = {name: ListColumn.unchanged(count, width) for name in LISTS}
        made.directories = DirectoryColumn.unchanged(count, width)
        columns: dict[str, Any] = {
            "partition_id": made.partition,
            "topic_id": made.topic_ids,
            "leader": made.leader,
            "leader_recovery_state": made.recovery,
            "directories": (made.directories.values, made.directories.counts),
        }
        columns |= {LISTS[name]: (each.values, each.counts) for name, each in lists.items()}
        try:
            _codec(version).decode(data, starts, ends, columns)
        except ProtocolError:
            return None  # malformed or too wide; the caller finds out by reading the records one by one
        for name, column in lists.items():
            setattr(made, name, column)
        return made


def located(run: ColumnRun, row_of: Callable[[Uuid, int], int]) -> npt.NDArray[np.int64]:
    """Finds the rows of a run's partitions in an image other than the one on which the decision was based. `row_of`
    returns the row of a topic's partition."""
    partitions = run.columns.partition[run.first : run.first + run.count].tolist()
    ids = run.columns.topic_ids[run.first : run.first + run.count].tobytes()
    told = [Uuid(ids[at : at + UUID_BYTES]) for at in range(0, len(ids), UUID_BYTES)]
    return np.fromiter(map(row_of, told, partitions), np.int64, run.count)


def ascending(rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.intp] | None]:
    """Sorts the rows, and returns them with the position that each row had before. The positions are None if the rows
    were already in order. Equal rows keep their order.
    """
    if (rows[1:] > rows[:-1]).all():
        return rows, None
    order = np.argsort(rows, kind="stable")
    return rows[order], order


def spans(rows: npt.NDArray[np.int64]) -> Iterator[tuple[int, Indexes, slice]]:
    """Groups rows by their chunk. Yields for each chunk its number, the indexes of the rows inside the chunk, and the
    positions of the rows in `rows`. `rows` must be distinct and ascending.
    """
    if not len(rows):
        return
    first, last = int(rows[0]) // CHUNK_ROWS, int(rows[-1]) // CHUNK_ROWS
    ends = np.searchsorted(rows, np.arange(first + 1, last + 2) * CHUNK_ROWS).tolist()
    at = 0
    for number, end in enumerate(ends, first):
        if end > at:
            first = int(rows[at]) - number * CHUNK_ROWS
            if rows[end - 1] - rows[at] == end - at - 1:
                yield number, slice(first, first + end - at), slice(at, end)
            else:
                yield number, rows[at:end] - number * CHUNK_ROWS, slice(at, end)
        at = end


def _picked(indexes: Indexes, wanted: npt.NDArray[np.bool_]) -> Indexes:
    if wanted.all():
        return indexes
    return np.flatnonzero(wanted) + indexes.start if isinstance(indexes, slice) else indexes[wanted]


def change_rows(chunk: PartitionChunk, indexes: Indexes, columns: ChangeColumns, told: Rows) -> None:
    """Applies the changes in the rows `told` of `columns` to the rows `indexes` of a chunk. No index may occur twice.
    Raises OverflowError if a partition already has the greatest epoch.
    """
    _move(chunk, indexes, columns, told)
    leader = columns.leader[told]
    leads = leader != NO_LEADER_CHANGE
    led = _picked(indexes, leads)
    leaders, leader_epochs = _ints(chunk.leader), _ints(chunk.leader_epoch)
    partition_epochs = _ints(chunk.partition_epoch)
    if _LAST_EPOCH in partition_epochs[indexes] or _LAST_EPOCH in leader_epochs[led]:
        raise OverflowError
    leaders[led] = leader[leads]
    leader_epochs[led] += 1
    partition_epochs[indexes] += 1
    recovery = columns.recovery[told]
    recovers = recovery != NO_RECOVERY_CHANGE
    if recovers.any():
        np.frombuffer(chunk.recovery, np.int8)[_picked(indexes, recovers)] = recovery[recovers]
    _change_isr(chunk, indexes, columns.isr, told)
    lists: list[ListColumn] = [getattr(columns, name) for name in _RARE]
    rare = np.logical_or.reduce([each.counts[told] > NULL for each in lists])
    if rare.any():
        each = zip(*[each.lists(told, rare) for each in lists], strict=True)
        for index, fields in zip(_numbers(indexes)[rare].tolist(), each, strict=True):
            chunk.change_rare(index, fields)


def _move(chunk: PartitionChunk, indexes: Indexes, columns: ChangeColumns, told: Rows) -> None:
    """Sets new replicas and directories in rows of a chunk."""
    replicas, directories = columns.replicas, columns.directories
    counts, located = replicas.counts[told], directories.counts[told]
    both = (counts > NULL) & (located == counts)
    if both.any():
        widest = int(counts[both].max())
        if widest > chunk.width:
            chunk.widen(widest)
        at = _picked(indexes, both)
        _fill(_ints(chunk.replicas).reshape(-1, chunk.width), at, replicas.values[told][both], -1)
        places = np.frombuffer(chunk.directories, np.uint8).reshape(-1, chunk.width, UUID_BYTES)
        _fill(places, at, directories.values[told][both], 0)
    one = ~both & ((counts > NULL) | (located > NULL))
    if one.any():
        numbers = np.arange(told.start, told.stop) if isinstance(told, slice) else told
        for index, row in zip(_numbers(indexes)[one].tolist(), numbers[one].tolist(), strict=True):
            chunk.move(index, replicas.get(row), directories.get(row))


def _numbers(indexes: Indexes) -> npt.NDArray[np.int64]:
    return np.arange(indexes.start, indexes.stop) if isinstance(indexes, slice) else indexes


def _fill(target: npt.NDArray[Any], indexes: Indexes, values: npt.NDArray[Any], nothing: int) -> None:
    """Overwrites rows of a column that has several values in each row. The rows of `values` can be narrower or wider
    than the rows of the column. If they are wider, their surplus places must be empty.
    """
    width = min(target.shape[1], values.shape[1])
    target[indexes, width:] = nothing
    target[indexes, :width] = values[:, :width]


def _change_isr(chunk: PartitionChunk, indexes: Indexes, isr: ListColumn, told: Rows) -> None:
    counts, values = isr.counts[told], isr.values[told]
    changed = counts > NULL
    if not changed.all():
        indexes, counts, values = _picked(indexes, changed), counts[changed], values[changed]
    widest = int(counts.max(initial=0))
    if widest > chunk.width:
        chunk.widen(widest)
    _fill(_ints(chunk.isr).reshape(-1, chunk.width), indexes, values, -1)


def _ints(values: array[int]) -> Ints:
    """Returns a view of the integers. Writing to the view changes `values`."""
    return np.frombuffer(values, np.int32)


def _width(version: int, view: memoryview, starts: array[int], ends: array[int]) -> int:
    """Returns the number of ids for which each row of the columns has room: a few more than the first record has."""
    first = PartitionChangeRecord.decode(view[starts[0] : ends[0]], version)
    return 2 + max(2, *[len(getattr(first, field) or ()) for field in (*LISTS.values(), "directories")])


@cache
def _codec(version: int) -> RowCodec:
    return RowCodec(NAME, version)
