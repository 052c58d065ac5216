"""Runs: each run is an object that represents the records of many partitions. With runs, one call encodes, decodes or
replays many records.

A PartitionRun represents consecutive PartitionRecords of one topic. The runs of one request, or of one batch, share
their columns. A ChangeRun represents PartitionChangeRecords that make the same change in partitions of one topic. Such
records occur when a broker leaves or returns. A ColumnRun represents PartitionChangeRecords of many topics.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kafkacore._fast.schema.columns import RowCodec
from kafkacore.metadata.partitions import NOTHING_RARE, Ids, PartitionColumns, Rare, consecutive
from kafkacore.protocol.errors import ProtocolError
from kafkacore.protocol.messages import Message, message_class
from kafkacore.protocol.uuid import Uuid

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafkacore.metadata.change_columns import ChangeColumns

NAME: Final = "PartitionRecord"
API_KEY: Final = 3  # the type number of PartitionRecord
_RARE: Final = {
    "removing_replicas": "removing",
    "adding_replicas": "adding",
    "eligible_leader_replicas": "elr",
    "last_known_elr": "last_known_elr",
}


_LISTS: Final = ("replicas", "isr", "directories", *_RARE)
# A row of the columns has room for at most this many replicas. If a record of a batch has more replicas, the batch is
# read record by record.
MAX_WIDTH: Final = 64


class PartitionRecords(PartitionColumns):
    """The columns of PartitionRecords. `topic_ids` has 16 bytes for each row."""

    __slots__ = ("topic_ids",)

    def __init__(self) -> None:
        super().__init__()
        self.topic_ids = bytearray()

    def number(self, topic_id: Uuid, first: int, count: int) -> None:
        """Appends `count` rows for new partitions of a topic; the first partition has the number `first`. `place` later
        fills the other columns.
        """
        self.topic_ids += topic_id * count
        self.partition += consecutive(first, count)

    def place(self, count: int, replicas: Ids, isr: Ids, leader: int, directories: Sequence[Uuid]) -> None:
        """Fills the other columns of the first `count` rows that `number` has appended and that are not filled yet."""
        self.widen(len(replicas))
        room = self.width - len(replicas)
        self.leader += array("i", [leader]) * count
        self.leader_epoch += array("i", [0]) * count
        self.partition_epoch += array("i", [0]) * count
        self.recovery += bytes(count)
        self.replicas += array("i", [*replicas, *[-1] * room]) * count
        self.isr += array("i", [*isr, *[-1] * (self.width - len(isr))]) * count
        self.directories += b"".join([*directories, bytes(16 * room)]) * count

    def add_record(self, record: Any) -> None:
        """Appends a record as a row."""
        self.add_records((record,))

    def add_records(self, records: Sequence[Any]) -> None:
        """Appends records as rows. Records from before KIP-858 have no directories."""
        if not records:
            return
        self.widen(max([max(len(each.replicas), len(each.isr), len(each.directories)) for each in records]))
        width, first = self.width, len(self)
        self.topic_ids += b"".join([each.topic_id for each in records])
        self.partition.extend([each.partition_id for each in records])
        self.leader.extend([each.leader for each in records])
        self.leader_epoch.extend([each.leader_epoch for each in records])
        self.partition_epoch.extend([each.partition_epoch for each in records])
        self.recovery.extend([each.leader_recovery_state for each in records])
        for at, record in enumerate(records, first):
            self.replicas.extend([*record.replicas, *[-1] * (width - len(record.replicas))])
            self.isr.extend([*record.isr, *[-1] * (width - len(record.isr))])
            # A missing directory is stored as MIGRATING_DIRECTORY, which is 16 zero bytes.
            self.directories += b"".join(record.directories).ljust(16 * width, b"\0")
            if (
                record.removing_replicas
                or record.adding_replicas
                or record.eligible_leader_replicas
                or record.last_known_elr
            ):
                self.rare[at] = Rare(
                    tuple(record.removing_replicas),
                    tuple(record.adding_replicas),
                    tuple(record.eligible_leader_replicas or ()),
                    tuple(record.last_known_elr or ()),
                )

    @classmethod
    def decode(cls, version: int, data: Buffer, starts: array[int], ends: array[int]) -> PartitionRecords:
        """Reads the record at `data[starts[i]:ends[i]]` into row i. Raises ProtocolError."""
        first = _record_class().decode(memoryview(data)[starts[0] : ends[0]], version)
        width = max(1, *[len(getattr(first, name) or ()) for name in _LISTS])
        while width <= MAX_WIDTH:
            try:
                return cls._decoded(width, version, data, starts, ends)
            except ProtocolError:
                width *= 2  # a later record has more replicas than there is room for, or is malformed
        made = cls()
        for start, end in zip(starts, ends, strict=True):
            made.add_record(_record_class().decode(memoryview(data)[start:end], version))
        return made

    @classmethod
    def _decoded(cls, width: int, version: int, data: Buffer, starts: array[int], ends: array[int]) -> PartitionRecords:
        """Decodes as `decode` does, but raises ProtocolError for a row with more than `width` replicas."""
        made, count = cls(), len(starts)
        made.width = width
        made.topic_ids, made.directories = bytearray(16 * count), bytearray(16 * count * width)
        made.recovery = bytearray(count)
        made.partition, made.leader, made.leader_epoch, made.partition_epoch = (_zeros(count) for _ in range(4))
        made.replicas, made.isr = _zeros(count * width), _zeros(count * width)
        rare = {field: (_zeros(count * width), _zeros(count)) for field in _RARE.values()}
        columns: dict[str, Any] = {
            "partition_id": made.partition,
            "topic_id": made.topic_ids,
            "replicas": _wide(made.replicas, "i", count, width),
            "isr": _wide(made.isr, "i", count, width),
            "leader": made.leader,
            "leader_recovery_state": made.recovery,
            "leader_epoch": made.leader_epoch,
            "partition_epoch": made.partition_epoch,
            "directories": (_wide(made.directories, "B", count, width, 16), _zeros(count)),
        }
        for name, field in _RARE.items():
            values, used = rare[field]
            columns[name] = (_wide(values, "i", count, width), used)
        _codec(version).decode(data, starts, ends, columns)
        made._keep_rare(rare)
        return made

    def _keep_rare(self, columns: dict[str, tuple[array[int], array[int]]]) -> None:
        nothing = _zeros(len(self)), array("i", [-1]) * len(self)
        for field, (values, used) in columns.items():
            if used in nothing:
                continue
            for index, count in enumerate(used):
                if count > 0:
                    ids = tuple(values[index * self.width : index * self.width + count])
                    self.rare[index] = self.rare.get(index, NOTHING_RARE)._replace(**{field: ids})

    def encode(self, version: int, prefix: bytes) -> tuple[bytes, array[int]]:
        """Encodes each row as a record, and puts `prefix` before each record. Also returns the position at which each
        record ends.
        """
        count, width = len(self), self.width
        missing = self.replicas.count(-1)
        used = array("i", [width]) * count
        if missing:
            for at, replica in enumerate(self.replicas):
                if replica < 0:
                    used[at // width] -= 1
        columns: dict[str, Any] = {
            "partition_id": self.partition,
            "topic_id": self.topic_ids,
            "replicas": _wide(self.replicas, "i", count, width),
            "isr": _wide(self.isr, "i", count, width),
            "leader": self.leader,
            "leader_recovery_state": self.recovery,
            "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch,
            "directories": (_wide(self.directories, "B", count, width, 16), used),
        }
        if self.rare:
            columns |= {name: self._rare_column(field) for name, field in _RARE.items()}
        return _codec(version).encode(columns, prefix=prefix)

    def _rare_column(self, field: str) -> tuple[memoryview, array[int]]:
        """Returns one of the fields of Rare as a column. An empty list becomes null, as in a record."""
        told = {index: getattr(rare, field) for index, rare in self.rare.items()}
        width = max(1, *map(len, told.values()))
        values = array("i", [-1]) * (width * len(self))
        # The lists of `removing` and `adding` are never null, so an empty list stays empty there.
        counts = array("i", [0 if field in ("removing", "adding") else -1]) * len(self)
        for index, ids in told.items():
            if ids:
                values[index * width : index * width + len(ids)] = array("i", ids)
                counts[index] = len(ids)
        return _wide(values, "i", len(self), width), counts


class PartitionRun:
    """Represents `count` PartitionRecords of one topic: the rows of `columns` from row `first` on."""

    NAME, API_KEY = NAME, API_KEY
    __slots__ = ("columns", "count", "first", "topic_id")

    def __init__(self, topic_id: Uuid, columns: PartitionRecords, first: int, count: int) -> None:
        self.topic_id, self.columns, self.first, self.count = topic_id, columns, first, count

    @classmethod
    def of(cls, record: Any) -> PartitionRun:
        """Returns a run for a single PartitionRecord."""
        columns = PartitionRecords()
        columns.add_record(record)
        return cls(record.topic_id, columns, 0, 1)

    def __repr__(self) -> str:
        told = self.columns.partition[self.first : self.first + self.count]
        return f"PartitionRecord(topic_id={self.topic_id!r}, partition_id={', '.join(map(str, told))})"


class ChangeRun:
    """Represents one PartitionChangeRecord for each of `partitions`, in order. All these records make the same change
    as `record`. The partition number in `record` itself is ignored.
    """

    NAME, API_KEY = "PartitionChangeRecord", 5
    PARTITION_BYTES = 4  # a record begins with its partition number; the rest is the same in all records of a run
    __slots__ = ("count", "partitions", "record")

    def __init__(self, record: Any, partitions: array[int]) -> None:
        self.record, self.partitions, self.count = record, partitions, len(partitions)

    def part(self, first: int, end: int) -> ChangeRun:
        return ChangeRun(self.record, self.partitions[first:end])

    def __repr__(self) -> str:
        return f"{self.record!r}, of partitions {', '.join(map(str, self.partitions))}"

    def encode(self, version: int, prefix: bytes) -> tuple[bytes, array[int]]:
        """Encodes the represented records, and puts `prefix` before each record. Also returns the position at which
        each record ends.
        """
        common = self.record.encode(version)[self.PARTITION_BYTES :]
        size = len(prefix) + self.PARTITION_BYTES + len(common)
        numbers = struct.pack(f">{self.count}i", *self.partitions)
        each = [numbers[at : at + self.PARTITION_BYTES] for at in range(0, len(numbers), self.PARTITION_BYTES)]
        return prefix + (common + prefix).join(each) + common, array("q", range(size, size * self.count + 1, size))


class ColumnRun:
    """Represents `count` PartitionChangeRecords: the rows of `columns` from row `first` on."""

    NAME, API_KEY = "PartitionChangeRecord", 5
    __slots__ = ("columns", "count", "first")

    def __init__(self, columns: ChangeColumns, first: int, count: int) -> None:
        self.columns, self.first, self.count = columns, first, count

    def part(self, first: int, end: int) -> ColumnRun:
        return ColumnRun(self.columns, self.first + first, end - first)

    def __repr__(self) -> str:
        return f"{self.columns.record(self.first)!r}, the first of {self.count}"


# An element of a metadata batch.
Record = Message | PartitionRun | ChangeRun | ColumnRun
Records = Sequence[Record]


def record_count(records: Iterable[Any]) -> int:
    """Returns the number of records that the elements will have in the log. A run represents several records."""
    return sum([1 if isinstance(record, Message) else record.count for record in records])


def parted(records: Records, most: int) -> Iterator[list[Record]]:
    """Splits the elements, in order, into parts of at most `most` log records each. Only runs of changes are split."""
    part: list[Record] = []
    room = most
    for record in records:
        taken, count = 0, record_count((record,))
        while taken < count:
            splits = isinstance(record, ChangeRun | ColumnRun)
            if room <= 0 or (not splits and part and count > room):
                yield part
                part, room = [], most
            some = min(room, count - taken) if splits else count
            part.append(record.part(taken, taken + some) if some < count else record)  # type: ignore[union-attr]
            taken += some
            room -= some
    if part:
        yield part


@cache
def _codec(version: int) -> RowCodec:
    return RowCodec(NAME, version)


@cache
def _record_class() -> type[Message]:
    made: type[Message] = message_class(NAME)
    return made


def _zeros(count: int) -> array[int]:
    return array("i", bytes(4 * count))


def _wide(values: array[int] | bytearray, code: str, *shape: int) -> memoryview:
    return memoryview(values).cast("B").cast(code, shape)  # type: ignore[call-overload, no-any-return]
