"""Partitions in columns, with one row for each partition. The columns are divided into chunks of some thousand rows.
Within a chunk, all replica lists and ISRs have the same width.

A chunk never changes once it is in an image, so a writer copies the chunks that it changes. Columns are arrays of the
standard library, which numpy can read without a copy. Importing numpy takes longer than scanning a small cluster, so
only scans of large clusters import it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kafkacore.protocol.uuid import MIGRATING_DIRECTORY, Uuid

CHUNK_ROWS: Final = 2048
VECTOR_ROWS: Final = 16 * CHUNK_ROWS  # scans of more rows than this import numpy

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
NO_RECOVERY_CHANGE: Final = -1
GONE: Final = -1  # the value of `topic` in an unused row
RECOVERED: Final = 0
RECOVERING: Final = 1

Ids = tuple[int, ...]


class Partition(NamedTuple):
    """The state of one partition. `directories[i]` is the directory of `replicas[i]`. `last_known_elr` contains the
    last known leader, or is empty.
    """

    topic_row: int
    partition: int
    replicas: Ids
    directories: tuple[Uuid, ...]
    isr: Ids
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int = RECOVERED
    removing: Ids = ()
    adding: Ids = ()
    elr: Ids = ()
    last_known_elr: Ids = ()

    def directory(self, broker_id: int) -> Uuid:
        """Returns the directory of the replica on a broker. Raises ValueError if the broker has no replica."""
        return self.directories[self.replicas.index(broker_id)]


class Rare(NamedTuple):
    """Fields that only few partitions have. They are stored outside the columns."""

    removing: Ids
    adding: Ids
    elr: Ids
    last_known_elr: Ids


NOTHING_RARE: Final = Rare((), (), (), ())


_NO_CHANGE: Final = (None, None, None, None)  # the fields of Rare in a record that changes none of them


def _blank(width: int, count: int) -> array[int]:
    return array("i", [-1]) * (width * count)


class PartitionColumns:
    """Columns of partitions. Each row has room for `width` replicas. The number -1 fills up shorter lists."""

    __slots__ = (
        "directories", "isr", "leader", "leader_epoch", "partition", "partition_epoch", "rare", "recovery", "replicas",
        "width",
    )  # fmt: skip

    def __init__(self) -> None:
        self.partition = array("i")
        self.leader = array("i")
        self.leader_epoch = array("i")
        self.partition_epoch = array("i")
        self.recovery = bytearray()
        self.width = 1
        self.replicas = array("i")
        self.isr = array("i")
        self.directories = bytearray()
        self.rare: dict[int, Rare] = {}

    def __len__(self) -> int:
        return len(self.partition)

    def row(self, index: int, topic_row: int) -> Partition:
        width, start = self.width, index * self.width
        replicas = _ids(self.replicas[start : start + width])
        isr = _ids(self.isr[start : start + width])
        at = start * 16
        directories = tuple(
            [Uuid(bytes(self.directories[at + 16 * i : at + 16 * i + 16])) for i in range(len(replicas))]
        )
        rare = self.rare.get(index, NOTHING_RARE)
        return Partition(
            topic_row, self.partition[index], replicas, directories, isr, self.leader[index],
            self.leader_epoch[index], self.partition_epoch[index], self.recovery[index], *rare,
        )  # fmt: skip

    def take(self, source: PartitionColumns, first: int, count: int) -> None:
        """Appends `count` rows of `source`, starting with row `first` of `source`."""
        end, at = first + count, len(self)
        self.widen(source.width)
        self.partition += source.partition[first:end]
        self.leader += source.leader[first:end]
        self.leader_epoch += source.leader_epoch[first:end]
        self.partition_epoch += source.partition_epoch[first:end]
        self.recovery += source.recovery[first:end]
        width = source.width
        self.replicas += _widened(source.replicas[first * width : end * width], width, self.width)
        self.isr += _widened(source.isr[first * width : end * width], width, self.width)
        wide = 16 * width
        self.directories += _widened_bytes(source.directories[first * wide : end * wide], wide, 16 * self.width)
        for index in source.rare:
            if first <= index < end:
                self.rare[at + index - first] = source.rare[index]

    def widen(self, width: int) -> None:
        """Makes room for `width` replicas in each row."""
        old = self.width
        if width > old:
            self.replicas, self.isr = _widened(self.replicas, old, width), _widened(self.isr, old, width)
            self.directories = _widened_bytes(self.directories, 16 * old, 16 * width)
            self.width = width


class PartitionChunk(PartitionColumns):
    """Up to CHUNK_ROWS partition rows of an image, with the topic row of each partition."""

    __slots__ = ("__weakref__", "topic")

    def __init__(self) -> None:
        super().__init__()
        self.topic = array("i")

    def copy(self) -> PartitionChunk:
        made = PartitionChunk.__new__(PartitionChunk)
        made.topic = self.topic[:]
        made.partition = self.partition[:]
        made.leader = self.leader[:]
        made.leader_epoch = self.leader_epoch[:]
        made.partition_epoch = self.partition_epoch[:]
        made.recovery = self.recovery[:]
        made.width = self.width
        made.replicas = self.replicas[:]
        made.isr = self.isr[:]
        made.directories = self.directories[:]
        made.rare = self.rare.copy()
        return made

    def get(self, index: int) -> Partition:
        return self.row(index, self.topic[index])

    def replicas_of(self, index: int) -> Ids:
        return _ids(self.replicas[index * self.width : (index + 1) * self.width])

    def isr_of(self, index: int) -> Ids:
        return _ids(self.isr[index * self.width : (index + 1) * self.width])

    def directory_of(self, index: int, replica: int) -> Uuid:
        start = 16 * (index * self.width + replica)
        return Uuid(self.directories[start : start + 16])

    def alike(self, index: int, count: int) -> bool:
        """Returns whether the `count` rows from `index` on all have the same replicas, directories, leader, ISR and
        epochs.
        """
        if count == 1:
            return True
        first, end, width = index, index + count, self.width
        for column in (self.leader, self.leader_epoch, self.partition_epoch):
            if column[first:end] != column[first : first + 1] * count:
                return False
        for column in (self.replicas, self.isr):
            if column[first * width : end * width] != column[first * width : (first + 1) * width] * count:
                return False
        start, wide = first * width * 16, width * 16
        return self.directories[start : end * wide] == self.directories[start : start + wide] * count

    def put(self, index: int, row: Partition) -> None:
        """Overwrites the existing row at `index`."""
        # No controller writes an ISR that is longer than the replica list. But even such an ISR must not overwrite
        # neighbouring rows.
        self.widen(max(len(row.replicas), len(row.isr), len(row.directories)))
        self.topic[index] = row.topic_row
        self.partition[index] = row.partition
        self.leader[index] = row.leader
        self.leader_epoch[index] = row.leader_epoch
        self.partition_epoch[index] = row.partition_epoch
        self.recovery[index] = row.recovery_state
        start, end = index * self.width, (index + 1) * self.width
        self.replicas[start:end] = _padded(row.replicas, self.width)
        self.isr[start:end] = _padded(row.isr, self.width)
        self.directories[16 * start : 16 * end] = b"".join(row.directories).ljust(16 * self.width, b"\0")
        self._put_rare(index, Rare(row.removing, row.adding, row.elr, row.last_known_elr))

    def replace(self, index: int, count: int, topic_row: int, source: PartitionColumns, first: int) -> None:
        """Overwrites `count` rows, starting with row `index`. The new contents are the rows of `source`, starting with
        row `first` of `source`.
        """
        self.widen(source.width)
        end, last, wide, narrow = index + count, first + count, self.width, source.width
        self.topic[index:end] = array("i", [topic_row]) * count
        self.partition[index:end] = source.partition[first:last]
        self.leader[index:end] = source.leader[first:last]
        self.leader_epoch[index:end] = source.leader_epoch[first:last]
        self.partition_epoch[index:end] = source.partition_epoch[first:last]
        self.recovery[index:end] = source.recovery[first:last]
        start, stop = index * wide, end * wide
        self.replicas[start:stop] = _widened(source.replicas[first * narrow : last * narrow], narrow, wide)
        self.isr[start:stop] = _widened(source.isr[first * narrow : last * narrow], narrow, wide)
        self.directories[16 * start : 16 * stop] = _widened_bytes(
            source.directories[16 * first * narrow : 16 * last * narrow], 16 * narrow, 16 * wide
        )
        if self.rare or source.rare:
            for each in range(count):
                self._put_rare(index + each, source.rare.get(first + each, NOTHING_RARE))

    def _put_rare(self, index: int, rare: Rare) -> None:
        if rare != NOTHING_RARE:
            self.rare[index] = rare
        else:
            self.rare.pop(index, None)

    def change(self, index: int, count: int, record: Any) -> None:
        """Applies a PartitionChangeRecord, in place, to the `count` rows from `index` on. If the record contains a
        leader, a new leader epoch starts, even if the leader stays the same.
        """
        end = index + count
        if record.replicas is not None or record.directories is not None:
            for each in range(index, end):
                self.move(each, record.replicas, record.directories)
        if record.isr is not None:
            self.widen(len(record.isr))
            self.isr[index * self.width : end * self.width] = _padded(record.isr, self.width) * count
        if record.leader != NO_LEADER_CHANGE:
            self.leader[index:end] = array("i", [record.leader]) * count
            self.leader_epoch[index:end] = array("i", [epoch + 1 for epoch in self.leader_epoch[index:end]])
        if record.leader_recovery_state != NO_RECOVERY_CHANGE:
            self.recovery[index:end] = bytes([record.leader_recovery_state]) * count
        self.partition_epoch[index:end] = array("i", [epoch + 1 for epoch in self.partition_epoch[index:end]])
        rare = record.removing_replicas, record.adding_replicas, record.eligible_leader_replicas, record.last_known_elr
        if rare != _NO_CHANGE:
            self._change_rare(index, end, tuple([None if ids is None else tuple(ids) for ids in rare]))

    def change_rare(self, index: int, told: tuple[Ids | None, ...]) -> None:
        """Changes the rarely used fields of a row. `told` contains the new values of the fields of a Rare. A field
        whose value is None does not change.
        """
        self._change_rare(index, index + 1, told)

    def _change_rare(self, index: int, end: int, told: tuple[Ids | None, ...]) -> None:
        before, after = None, NOTHING_RARE
        for each in range(index, end):
            had = self.rare.get(each, NOTHING_RARE)
            if had != before:  # usually all the rows have the same values in these fields
                before = had
                after = Rare(*[old if ids is None else ids for old, ids in zip(had, told, strict=True)])
            self._put_rare(each, after)

    def move(self, index: int, told: Sequence[int] | None, directories: Sequence[Uuid] | None) -> None:
        """Sets the row's replicas, the directories of the replicas, or both. If `directories` is None, each replica
        keeps its directory, and a new replica gets MIGRATING_DIRECTORY.
        """
        row = self.get(index)
        replicas = row.replicas if told is None else tuple(told)
        known = dict(zip(row.replicas, row.directories, strict=True))
        if directories is None:
            directories = [known.get(replica, MIGRATING_DIRECTORY) for replica in replicas]
        self.put(index, row._replace(replicas=replicas, directories=tuple(directories)))

    def free(self, index: int) -> None:
        self.topic[index] = GONE
        self.leader[index] = NO_LEADER
        start, end = index * self.width, (index + 1) * self.width
        self.replicas[start:end] = self.isr[start:end] = _blank(self.width, 1)
        self.rare.pop(index, None)

    def extend(self, topics: array[int], source: PartitionColumns, first: int) -> None:
        """Appends the rows of new partitions. A new partition that gets a freed row is stored by `put` instead."""
        self.topic += topics
        self.take(source, first, len(topics))


@lru_cache(maxsize=16)
def consecutive(first: int, count: int) -> array[int]:
    """Returns the numbers from `first` to `first + count - 1`. The array may be cached and shared, so callers must not
    change it."""
    return array("i", range(first, first + count))


def successive(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Splits `rows`, without reordering them, into runs of consecutive numbers. For each run, yields its first row and
    its number of rows. Each run lies within one chunk."""
    at = 0
    while at < len(rows):
        first = rows[at]
        most = min(len(rows) - at, CHUNK_ROWS - first % CHUNK_ROWS)
        count = 1
        while count < most and rows[at + count] == first + count:
            count += 1
        yield first, count
        at += count


def _ids(values: Sequence[int]) -> Ids:
    made = tuple(values)
    return made if -1 not in made else tuple([value for value in made if value >= 0])


def _widened(values: array[int], old: int, width: int) -> array[int]:
    """Converts rows with room for `old` numbers to rows with room for `width` numbers."""
    if width == old:
        return values
    made = _blank(width, len(values) // old)
    for place in range(old):
        made[place::width] = values[place::old]
    return made


def _widened_bytes(values: bytearray, old: int, width: int) -> bytearray:
    if width == old:
        return values
    return bytearray().join([values[at : at + old].ljust(width, b"\0") for at in range(0, len(values), old)])


def _padded(values: Sequence[int], width: int) -> array[int]:
    return array("i", values) + array("i", [-1]) * (width - len(values))


Chunks = Sequence[PartitionChunk]


def alike(chunks: Chunks, rows: Iterable[int]) -> Iterator[tuple[PartitionChunk, int, int]]:
    """Groups consecutive rows that are equal. For each group, yields the chunk, the index of the group's first row in
    the chunk, and the number of rows. Skips negative numbers, which stand for missing partitions.
    """
    left = sorted(rows)
    begin = at = bisect_left(left, 0)
    while at < len(left):
        row = left[at]
        chunk, index = chunks[row // CHUNK_ROWS], row % CHUNK_ROWS
        most = min(len(left) - at, CHUNK_ROWS - index)
        while left[at + most - 1] != row + most - 1:
            most = (most + 1) // 2
        # In a cluster with one broker all rows are equal, so the first comparison covers as many rows as possible. In
        # other clusters only a few neighbouring rows are equal. So each later comparison covers at most twice as many
        # rows as are known to be equal.
        count = most if at == begin and chunk.alike(index, most) else 1
        while count < most and chunk.alike(index, min(2 * count, most)):
            count = min(2 * count, most)
        yield chunk, index, count
        at += count


def rows_led_by(chunks: Chunks, broker_id: int) -> Iterator[int]:
    """Yields, in row order, the rows led by the given broker. If `broker_id` is NO_LEADER, yields the rows without a
    leader.
    """
    for first, found in _matches(chunks, "leader", broker_id):
        topic = chunks[first // CHUNK_ROWS].topic
        for index in found:
            if topic[index] != GONE:
                yield first + index


def rows_not_led_by_the_first(chunks: Chunks, from_row: int = 0) -> Iterator[int]:
    """Yields the rows, starting with `from_row`, that have no leader or are not led by their preferred leader."""
    for number in range(from_row // CHUNK_ROWS, len(chunks)):
        chunk = chunks[number]
        preferred = chunk.replicas[:: chunk.width]
        if chunk.leader != preferred:
            first = number * CHUNK_ROWS
            for index, (leader, wanted) in enumerate(zip(chunk.leader, preferred, strict=True)):
                if leader != wanted and first + index >= from_row:
                    yield first + index


def rows_with_isr(chunks: Chunks, *broker_ids: int) -> Sequence[int]:
    """Returns, in row order, the rows that have one of the brokers in their ISR."""
    if sum(map(len, chunks)) > VECTOR_ROWS:
        from kafkacore.metadata.row_kinds import rows_with  # noqa: PLC0415 - loads numpy: some 100 ms

        return rows_with(chunks, "isr", set(broker_ids))  # type: ignore[return-value]
    if len(broker_ids) == 1:
        return list(_wide_matches(chunks, "isr", broker_ids[0]))
    return sorted({row for broker_id in broker_ids for row in _wide_matches(chunks, "isr", broker_id)})


def rows_with_replica(chunks: Chunks, broker_id: int) -> Iterator[int]:
    return _wide_matches(chunks, "replicas", broker_id)


def rows_with_elr(chunks: Chunks, broker_id: int) -> Iterator[int]:
    for number, chunk in enumerate(chunks):
        for index, rare in sorted(chunk.rare.items()):
            if broker_id in rare.elr:
                yield number * CHUNK_ROWS + index


def rows_in_directories(chunks: Chunks, broker_id: int, directories: AbstractSet[Uuid]) -> Iterator[int]:
    """Yields the rows whose replica on the broker is in one of these log directories."""
    for row in rows_with_replica(chunks, broker_id):
        chunk, index = chunks[row // CHUNK_ROWS], row % CHUNK_ROWS
        start = index * chunk.width
        at = 16 * (start + chunk.replicas[start : start + chunk.width].index(broker_id))
        if bytes(chunk.directories[at : at + 16]) in directories:
            yield row


def _wide_matches(chunks: Chunks, column: str, broker_id: int) -> Iterator[int]:
    for first, found in _matches(chunks, column, broker_id):
        width = chunks[first // CHUNK_ROWS].width
        for index in found:
            yield first + index // width


def _matches(chunks: Chunks, column: str, value: int) -> Iterator[tuple[int, Iterable[int]]]:
    vector = sum(map(len, chunks)) > VECTOR_ROWS
    for number, chunk in enumerate(chunks):
        values: array[int] = getattr(chunk, column)
        if vector:
            import numpy as np  # noqa: PLC0415 - takes some 100 ms

            yield number * CHUNK_ROWS, np.flatnonzero(np.frombuffer(values, np.int32) == value).tolist()
        elif value in values:
            yield number * CHUNK_ROWS, [index for index, each in enumerate(values) if each == value]
