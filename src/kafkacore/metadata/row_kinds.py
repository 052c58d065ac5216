"""Decides changes of many partitions with numpy. Partitions with the same pattern share one decision, and the changes
are made in columns.

The pattern of a partition is everything that a decision needs. Instead of broker ids, it contains places in the replica
list. For example, it contains the places of the ISR in the ISR's order, the places that can lead, the places whose
brokers have left, and the leader's place. If three of nine brokers are lost, 100,000 evenly distributed partitions have
about fifty patterns. `decide` makes the record for one partition of each pattern. In this record, this module turns
broker ids into places. For each other partition with the pattern, it copies the record, and turns the places back into
that partition's broker ids. Partitions that must be decided one by one, for example because they have too many
replicas, are called odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkacore.metadata.change_columns import LISTS, NULL, ChangeColumns, Indexes, Ints, ListColumn, spans
from kafkacore.metadata.image import TOPIC_CHUNK_ROWS, MetadataImage
from kafkacore.metadata.partitions import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NOTHING_RARE,
    Partition,
    PartitionChunk,
    Rare,
)
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.protocol.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
ByTopic = npt.NDArray[Any] | int | bool  # one value for each topic row, or a single value for all topics
MAX_REPLICAS: Final = 7  # a place in the replica list must fit into three bits, and a pattern into 64 bits
_PLACE_BITS: Final = 3
_DIRECT_IDS: Final = 1 << 16  # if all broker ids are smaller, a table replaces the binary search
_BUCKET_BITS: Final = 16
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


class Decided(NamedTuple):
    """The result of decide_by_kind. `columns` contains the changes, or is None if nothing changes. `odd` contains the
    rows that must be decided one by one.
    """

    columns: ChangeColumns | None
    odd: Rows


def decide_by_kind(
    image: MetadataImage,
    rows: Sequence[int] | Rows,
    *,
    leaders: Mapping[int, BrokerRegistration],
    gone: AbstractSet[int],
    least_isr: ByTopic,
    unclean: ByTopic,
    decide: Callable[[Partition], Any | None],
) -> Decided:
    """Decides changes of the partitions in `rows`. The brokers in `leaders` can lead if the directory of their replica
    works. The brokers in `gone` leave every ISR. `least_isr` contains min.insync.replicas of each topic. `unclean` says
    for each topic whether it allows unclean elections. `decide` returns a PartitionChangeRecord or None, and must
    depend only on the pattern of a partition. `rows` must be distinct and ascending.
    """
    made = Gathered(image, np.asarray(rows, np.int64))
    least = least_isr_of(image, made, least_isr)
    pattern = pattern_of(made, leaders, gone, least, _taken(unclean, made.topic))
    ordinary = ~made.odd
    kinds, examples = kinds_of(pattern, ordinary)
    plan = Plan(len(examples), made.width)
    for kind, example in enumerate(examples.tolist()):
        partition = image.partition_at(int(made.rows[example]))
        plan.put(kind, partition.replicas, decide(partition))
    odd = made.odd | plan.odd[kinds]
    changed = np.flatnonzero(plan.changes[kinds] & ~odd)
    columns = plan.columns(image, made, made.replicas, kinds, changed) if len(changed) else None
    return Decided(columns, made.rows[odd])


class Gathered:
    """The selected rows as vectors. `replicas[i]` is the vector of the broker ids at place i of the rows' replica
    lists."""

    def __init__(self, image: MetadataImage, rows: Rows) -> None:
        chunks = image.partition_chunks
        self.rows, count = rows, len(rows)
        parts = [(chunks[number], indexes, at) for number, indexes, at in spans(rows)]
        self.width = max([chunk.width for chunk, _, _ in parts], default=1)
        self.odd = np.zeros(count, bool)
        self.topic, self.partition, self.leader = (np.empty(count, np.int32) for _ in range(3))
        self.recovery = np.empty(count, np.uint8)
        self.replicas = np.full((self.width + 1, count), -1, np.int32)  # the last row stays -1, which means no broker
        self.isr = np.full((self.width, count), -1, np.int32)
        self.directories = np.zeros((self.width, 2, count), np.uint64)  # each directory id is stored as two halves
        self.rare = np.zeros(count, np.int32)
        self.rare_values: list[Rare] = [NOTHING_RARE]
        codes: dict[Rare | None, int] = {None: 0}
        for chunk, indexes, at in parts:
            self._take(chunk, indexes, at, codes)
        self.count = (self.replicas >= 0).sum(0, np.uint8)
        if self.width > MAX_REPLICAS:
            self.odd[:] = True

    def _take(self, chunk: PartitionChunk, indexes: Indexes, at: slice, codes: dict[Rare | None, int]) -> None:
        width = chunk.width
        self.topic[at] = np.frombuffer(chunk.topic, np.int32)[indexes]
        self.partition[at] = np.frombuffer(chunk.partition, np.int32)[indexes]
        self.leader[at] = np.frombuffer(chunk.leader, np.int32)[indexes]
        self.recovery[at] = np.frombuffer(chunk.recovery, np.uint8)[indexes]
        self.replicas[:width, at] = np.frombuffer(chunk.replicas, np.int32).reshape(-1, width)[indexes].T
        self.isr[:width, at] = np.frombuffer(chunk.isr, np.int32).reshape(-1, width)[indexes].T
        directories = np.frombuffer(chunk.directories, np.uint64).reshape(-1, width, 2)[indexes]
        self.directories[:width, :, at] = directories.transpose(1, 2, 0)
        if chunk.rare:
            each = range(indexes.start, indexes.stop) if isinstance(indexes, slice) else indexes.tolist()
            found = [codes.setdefault(rare, len(codes)) for rare in map(chunk.rare.get, each)]
            self.rare[at] = found
            self.rare_values += [rare for rare in list(codes)[len(self.rare_values) :] if rare is not None]

    def places_of(self, brokers: Ints) -> Bits:
        """`brokers` has one broker id for each row. Returns the place of each in its row's replica list, counted from
        1, or 0 if the broker is not a replica.
        """
        found = np.zeros(len(brokers), np.uint8)
        for place in range(self.width):
            found += (brokers == self.replicas[place]).view(np.uint8) * np.uint8(place + 1)
        # In `brokers`, -1 means no broker. Short replica lists are padded with -1, so the loop found a place for -1.
        found[brokers < 0] = 0
        return found


def pattern_of(
    made: Gathered,
    leaders: Mapping[int, BrokerRegistration],
    gone: AbstractSet[int],
    least_isr: Ints,
    unclean: npt.NDArray[Any],
) -> npt.NDArray[np.uint64]:
    pattern = np.zeros(len(made.rows), np.uint64)
    if made.width > MAX_REPLICAS:
        return pattern

    def add(values: npt.NDArray[Any], bits: int) -> None:
        np.left_shift(pattern, np.uint64(bits), out=pattern)
        np.bitwise_or(pattern, values.astype(np.uint64), out=pattern)

    for place in range(made.width):
        places = made.places_of(made.isr[place])
        made.odd |= (places == 0) & (made.isr[place] >= 0)
        add(places, _PLACE_BITS)
        add(_may_lead(made.replicas[place], made.directories[place], leaders), 1)
        add(_index_of(made.replicas[place], sorted(gone)) >= 0, 1)
    leader = made.places_of(made.leader)
    made.odd |= (leader == 0) & (made.leader != NO_LEADER)
    add(leader, _PLACE_BITS)
    add(made.count, _PLACE_BITS)
    add(made.recovery & 1, 1)
    add(unclean, 1)
    add(least_isr, _PLACE_BITS)
    _add_rare(made, add)
    return pattern


def by_topic(image: MetadataImage, told: tuple[int | bool, Mapping[str, int | bool]]) -> ByTopic:
    """Returns one value for each topic row, or a single value for all topics. Topics without a value of their own get
    the default.
    """
    usual, own = told
    different = {name: value for name, value in own.items() if value != usual}
    if not different:
        return usual
    made = np.full(image.topic_rows, usual)
    for name, value in different.items():
        row = image.topics_by_name.get(name)
        if row is not None:
            made[row] = value
    return made


def _taken(values: ByTopic, topics: Ints) -> npt.NDArray[Any]:
    return values[topics] if isinstance(values, np.ndarray) else np.full(len(topics), values)


def least_isr_of(image: MetadataImage, made: Gathered, wanted: ByTopic) -> Ints:
    """Returns min.insync.replicas for each row, limited to the number of replicas of the topic's first partition
    (KIP-966). If ELR is off, returns zeros, because no decision needs the values.
    """
    if not image.elr_enabled:
        return np.zeros(len(made.rows), np.int32)
    least = _taken(wanted, made.topic).astype(np.int32)
    bound = made.count.astype(np.int32)
    elsewhere = (made.partition != 0) & (least > 1)
    topics, inverse = np.unique(made.topic[elsewhere], return_inverse=True)
    bound[elsewhere] = np.array([_first_replicas(image, row) for row in topics.tolist()], np.int32)[inverse]
    # A topic without a first partition has no limit.
    least = np.minimum(least, np.where(bound == 0, least, bound))
    made.odd |= least > MAX_REPLICAS
    return np.clip(least, 0, MAX_REPLICAS).astype(np.int32)


def _first_replicas(image: MetadataImage, topic_row: int) -> int:
    return len(image.replicas(image.topic_at(topic_row), 0))


def _add_rare(made: Gathered, add: Callable[[npt.NDArray[Any], int], None]) -> None:
    """Adds two things to the pattern: a bit for each eligible replica's place, and the last known leader's place."""
    elr, last = np.zeros(len(made.rows), np.uint8), np.zeros(len(made.rows), np.uint8)
    if len(made.rare_values) > 1:
        values, codes = made.rare_values, made.rare
        moves = np.array([bool(each.removing or each.adding or len(each.last_known_elr) > 1) for each in values])
        made.odd |= moves[codes]
        for index in range(max(len(each.elr) for each in values)):
            brokers = np.array([each.elr[index] if index < len(each.elr) else -1 for each in values], np.int32)[codes]
            places = made.places_of(brokers)
            made.odd |= (places == 0) & (brokers >= 0)
            elr |= np.where(places > 0, 1 << (places.astype(np.int32) - 1).clip(0), 0).astype(np.uint8)
        brokers = np.array([each.last_known_elr[0] if each.last_known_elr else -1 for each in values], np.int32)[codes]
        last = made.places_of(brokers)
        made.odd |= (last == 0) & (brokers >= 0)
    add(elr, made.width)
    add(last, _PLACE_BITS)


def _may_lead(
    brokers: Ints, directories: npt.NDArray[np.uint64], leaders: Mapping[int, BrokerRegistration]
) -> npt.NDArray[np.bool_]:
    """Returns for each of many replicas whether the replica can lead: the broker must be in `leaders`, and the
    directory must be online. BrokerRegistration.has_online_directory checks the same for the directory of one replica.
    """
    ids = sorted(leaders)
    found = _index_of(brokers, ids)
    online = np.zeros(len(brokers), bool)
    for at in range(max((len(leaders[each].directories) for each in ids), default=0)):
        own = [leaders[each].directories for each in ids]
        table = np.array([_halves(each[at] if at < len(each) else LOST_DIRECTORY) for each in own])
        first, last = table[:, 0].take(found), table[:, 1].take(found)
        online |= (directories[0] == first) & (directories[1] == last)
    # All reserved directory ids have the same first half, so a comparison of this half rules out almost all other ids.
    if (directories[0] == _halves(LOST_DIRECTORY)[0]).any():
        online |= _equal(directories, _halves(MIGRATING_DIRECTORY)) | _equal(directories, _halves(UNASSIGNED_DIRECTORY))
        online &= ~_equal(directories, _halves(LOST_DIRECTORY))
    able: npt.NDArray[np.bool_] = (found >= 0) & online
    return able


def _index_of(brokers: Ints, ids: list[int]) -> npt.NDArray[np.int64]:
    """Returns the index of each broker in `ids`, or -1 if the broker is not in `ids`. `ids` must be ascending."""
    if not ids:
        return np.full(len(brokers), -1)
    if ids[-1] < _DIRECT_IDS:
        table = np.full(ids[-1] + 3, -1)  # the last two entries are for -1 and for larger ids
        table[ids] = np.arange(len(ids))
        return table.take(np.minimum(brokers, ids[-1] + 1))
    known = np.array(ids)
    at = np.searchsorted(known, brokers).clip(0, len(ids) - 1)
    return np.where(known[at] == brokers, at, -1)


def _halves(directory: bytes) -> npt.NDArray[np.uint64]:
    return np.frombuffer(directory, np.uint64)


def _equal(directories: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    equal: npt.NDArray[np.bool_] = (directories[0] == other[0]) & (directories[1] == other[1])
    return equal


def kinds_of(pattern: npt.NDArray[np.uint64], wanted: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], Rows]:
    """Returns the kind (the number of the pattern) of each row, and one example row of each kind. Rows that `wanted`
    does not select get a meaningless kind.
    """
    at = np.flatnonzero(wanted)
    kinds = np.zeros(len(pattern), np.intp)
    if not len(at):
        return kinds, np.zeros(0, np.int64)
    used = pattern[at]
    # Sorting would cost ten times as much as counting the few patterns in buckets.
    buckets = ((used * _MIX) >> np.uint64(64 - _BUCKET_BITS)).astype(np.intp)
    example = np.full(1 << _BUCKET_BITS, -1)
    example[buckets] = np.arange(len(at))
    if (used[example[buckets]] == used).all():
        taken = np.flatnonzero(example >= 0)
        number = np.zeros(1 << _BUCKET_BITS, np.intp)
        number[taken] = np.arange(len(taken))
        kinds[at] = number[buckets]
        return kinds, at[example[taken]]
    _, first, inverse = np.unique(used, return_index=True, return_inverse=True)
    kinds[at] = inverse
    return kinds, at[first]


class Plan:
    """Stores the record of each kind, with each broker id replaced by a place in a list of brokers. The list begins
    with the replicas. In a reassignment, the wanted brokers follow. The place `width` means no broker.
    """

    def __init__(self, kinds: int, width: int, lists: Iterable[str] = ("isr", "elr", "last_known_elr")) -> None:
        kinds = max(kinds, 1)  # at least one kind, because rows that are decided one by one also have kind 0
        self.width = width
        self.odd, self.changes = np.zeros(kinds, bool), np.zeros(kinds, bool)
        self.leader = np.full(kinds, NO_LEADER_CHANGE)
        self.recovery = np.full(kinds, -1, np.int8)
        self.lists = {name: (np.full((kinds, width), width), np.full(kinds, NULL, np.int32)) for name in lists}

    def put(self, kind: int, brokers: Iterable[int], record: Any | None) -> None:
        """Stores the record of a kind. `brokers` is the broker list of the partition for which the record was made. A
        broker that occurs twice in the list counts once.
        """
        if record is None:
            return
        self.changes[kind] = True
        places: dict[int, int] = {}
        for place, broker in enumerate(brokers):
            places.setdefault(broker, place)
        told = {name: getattr(record, field) for name, field in LISTS.items()}
        named = [each for ids in told.values() for each in ids or ()]
        named += [record.leader] if record.leader >= 0 else []
        others = [ids for name, ids in told.items() if name not in self.lists]
        moves = record.directories is not None and "replicas" not in self.lists
        if moves or any(ids is not None for ids in others) or not places.keys() >= set(named):
            self.odd[kind] = True
            return
        self.leader[kind] = places[record.leader] if record.leader >= 0 else record.leader
        self.recovery[kind] = record.leader_recovery_state
        for name, (values, counts) in self.lists.items():
            ids = told[name]
            if ids is not None:
                values[kind, : len(ids)] = [places[each] for each in ids]
                counts[kind] = len(ids)

    def columns(
        self,
        image: MetadataImage,
        made: Gathered,
        brokers: Ints,
        kinds: npt.NDArray[np.intp],
        at: npt.NDArray[np.intp],
    ) -> ChangeColumns:
        """Returns the changes of the rows `at`, which are indexes of the gathered rows. `brokers[i]` contains the
        broker id at place i for each row. The last element of `brokers` means no broker.
        """
        kinds, count = kinds[at], len(made.rows)
        topic_ids = _topic_ids(image, made.topic[at])
        columns = ChangeColumns(made.partition[at], topic_ids, made.rows[at])
        flat = brokers.ravel()
        leader = self.leader.take(kinds)
        columns.leader = np.where(leader >= 0, flat.take(leader * count + at), leader).astype(np.int32)
        columns.recovery = self.recovery.take(kinds)
        for name, (places, counts) in self.lists.items():
            if counts.max() > NULL:
                values = np.full((len(at), self.width), -1, np.int32)
                for index in range(int(counts.max())):
                    values[:, index] = flat.take((places[:, index] * count).take(kinds) + at)
                setattr(columns, name, ListColumn(values, counts.take(kinds)))
        columns.elr = sorted_ids(columns.elr)
        return columns


def sorted_ids(column: ListColumn) -> ListColumn:
    """Sorts the ids in each list in ascending order, the order that records use for lists that represent sets."""
    if column.values.shape[1] < 2:
        return column
    last = np.iinfo(np.int32).max
    values = np.sort(np.where(column.values < 0, last, column.values), axis=1)
    return ListColumn(np.where(values == last, -1, values).astype(np.int32), column.counts)


def _topic_ids(image: MetadataImage, topics: Ints) -> npt.NDArray[np.uint8]:
    numbers = topics // TOPIC_CHUNK_ROWS
    used = np.flatnonzero(np.bincount(numbers))  # finds the distinct numbers without sorting
    ids = np.frombuffer(b"".join([image.topic_ids[number] for number in used.tolist()]), "V16")
    first = np.zeros(len(image.topic_ids), np.int64)
    first[used] = np.arange(len(used)) * TOPIC_CHUNK_ROWS
    made: npt.NDArray[np.uint8] = ids[first[numbers] + topics % TOPIC_CHUNK_ROWS].view(np.uint8).reshape(-1, 16)
    return made


def rows_with(chunks: Sequence[PartitionChunk], column: str, brokers: AbstractSet[int]) -> Rows:
    """Returns, in row order, the rows in which a column such as "isr" or "replicas" contains at least one of the
    brokers.
    """
    return np.concatenate([np.zeros(0, np.int64), *_found(chunks, column, sorted(brokers))])


def _found(chunks: Sequence[PartitionChunk], column: str, brokers: list[int]) -> Iterator[Rows]:
    first = 0
    for chunk in chunks:
        values = np.frombuffer(getattr(chunk, column), np.int32)
        found = np.zeros(len(values), bool)
        for broker in brokers:
            found |= values == broker
        matches = found[:: chunk.width].copy()
        for place in range(1, chunk.width):
            matches |= found[place :: chunk.width]
        yield np.flatnonzero(matches) + first
        first += len(chunk)
