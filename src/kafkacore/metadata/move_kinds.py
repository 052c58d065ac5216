"""Decides reassignments of many partitions with numpy. Reassignments with the same pattern share one decision.
`row_kinds` explains patterns.

Here the pattern also says which of the wanted brokers (the brokers that will have the replicas) already have a replica,
and where these replicas are in the replica list. A wanted broker without a replica cannot lead yet. So all wanted
brokers without a replica are treated alike, apart from their log directories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkacore.metadata.change_columns import LISTS, NULL, UUID_BYTES, ChangeColumns, DirectoryColumn, Ints, ListColumn
from kafkacore.metadata.image import MetadataImage
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.metadata.row_kinds import (
    MAX_REPLICAS,
    ByTopic,
    Gathered,
    Plan,
    kinds_of,
    least_isr_of,
    pattern_of,
    sorted_ids,
)
from kafkacore.protocol.uuid import Uuid

_PLACE_BITS: Final = 4
# A code describes one wanted broker of a row. The codes 1 to 14 are the broker's place in the replica list. _NEW means
# that the broker has no replica yet. _NOTHING fills up the codes of a row with fewer wanted brokers than other rows.
_NEW, _NOTHING = 0, 15
Wanted = Sequence[tuple[int, ...]]


class Moved(NamedTuple):
    """The result of decide_moves. `columns` contains the changes, or is None if nothing changes. `odd` contains the
    indexes (in `rows`) of the rows that must be decided one by one.
    """

    columns: ChangeColumns | None
    odd: list[int]


def decide_moves(
    image: MetadataImage,
    rows: Sequence[int],
    wanted: Wanted,
    *,
    leaders: Mapping[int, BrokerRegistration],
    least_isr: ByTopic,
    decide: Callable[[int], Any | None],
    default_directory: Callable[[int], Uuid],
) -> Moved:
    """Decides reassignments. `wanted[i]` are the brokers that will have the replicas of row `rows[i]`, without
    duplicates. `rows` must be distinct and ascending. `decide` returns the record for an index of `rows`. It returns
    None if nothing changes, or if the row must be decided separately.
    """
    made = Gathered(image, np.array(rows, np.int64))
    target = _padded(wanted)
    if target.shape[1] > MAX_REPLICAS:
        made.odd[:] = True
        target = target[:, :MAX_REPLICAS]
    least = least_isr_of(image, made, least_isr)
    pattern = pattern_of(made, leaders, frozenset(), least, np.zeros(len(rows), bool))
    kinds, examples = kinds_of(_with_wanted(made, target, pattern), ~made.odd)
    brokers = np.concatenate([made.replicas[: made.width], target.T, np.full((1, len(rows)), -1, np.int32)])
    plan = Plan(len(examples), len(brokers) - 1, LISTS)
    for kind, example in enumerate(examples.tolist()):
        record = decide(example)
        if record is None or _depends_on_ids(record):
            plan.odd[kind] = True
        plan.put(kind, brokers[:-1, example].tolist(), record)
    odd = made.odd | plan.odd[kinds]
    at = np.flatnonzero(plan.changes[kinds] & ~odd)
    left = np.flatnonzero(odd).tolist()
    if not len(at):
        return Moved(None, left)
    columns = plan.columns(image, made, brokers, kinds, at)
    columns.removing, columns.adding = sorted_ids(columns.removing), sorted_ids(columns.adding)
    _sort_the_removed(columns)
    _locate(columns, plan, made, target, kinds, at, default_directory)
    return Moved(columns, left)


def _depends_on_ids(record: Any) -> bool:
    """Returns whether the new leader is one of several replicas that will be removed. The order of these replicas in
    the replica list decides which of them leads, and they are sorted by id. So another partition with the same pattern
    can have its leader at another place."""
    removing = record.removing_replicas or ()
    return len(removing) > 1 and record.leader in removing


def _padded(wanted: Wanted) -> Ints:
    made = np.full((len(wanted), max(map(len, wanted))), -1, np.int32)
    by_length: dict[int, list[int]] = {}
    for index, brokers in enumerate(wanted):
        by_length.setdefault(len(brokers), []).append(index)
    for length, indexes in by_length.items():
        made[indexes, :length] = [wanted[index] for index in indexes]
    return made


def _with_wanted(made: Gathered, target: Ints, pattern: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Returns a number for each combination of a row's pattern and the places of its wanted brokers."""
    asked = np.zeros(len(pattern), np.uint64)
    for column in target.T:
        code = made.places_of(column).astype(np.uint64)
        code[column < 0] = _NOTHING
        asked = (asked << np.uint64(_PLACE_BITS)) | code
    pairs = np.stack([_numbered(pattern), _numbered(asked)])
    combined: npt.NDArray[np.uint64] = pairs[0] * np.uint64(len(pattern) + 1) + pairs[1]
    return combined


def _numbered(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Replaces the values by numbers from 0 on. Equal values get equal numbers."""
    return np.unique(values, return_inverse=True)[1].astype(np.uint64)


def _sort_the_removed(columns: ChangeColumns) -> None:
    """Orders each replica list: first the wanted replicas, then the replicas that will be removed, sorted by id."""
    values, counts, leaving = columns.replicas.values, columns.replicas.counts, columns.removing.counts
    for count, gone in {*zip(counts.tolist(), leaving.tolist(), strict=True)}:
        if gone > 1 and count >= gone:
            those = (counts == count) & (leaving == gone)
            values[those, count - gone : count] = np.sort(values[those, count - gone : count], axis=1)


def _locate(
    columns: ChangeColumns,
    plan: Plan,
    made: Gathered,
    target: Ints,
    kinds: npt.NDArray[np.intp],
    at: npt.NDArray[np.intp],
    default_directory: Callable[[int], Uuid],
) -> None:
    """Sets the directories. A replica keeps its directory, and a new replica gets the default directory of its broker.
    If the directories of a row do not change, the row's record contains no directories."""
    replicas, counts = columns.replicas.values, columns.replicas.counts
    if counts.max() <= NULL:
        return
    width = int(counts.max())
    directories = np.zeros((len(at), width, 2), np.uint64)
    for place in range(width):
        brokers = replicas[:, place]
        there = brokers >= 0
        for broker in np.unique(target[at]).tolist():
            if broker >= 0:
                directories[brokers == broker, place] = np.frombuffer(default_directory(broker), np.uint64)
        for old in range(made.width):
            same = there & (made.replicas[old, at] == brokers)
            directories[same, place] = made.directories[old][:, at[same]].T
    before = np.zeros((len(at), max(width, made.width), 2), np.uint64)
    before[:, : made.width] = made.directories[:, :, at].transpose(2, 0, 1)
    equal = (counts == made.count[at]) & (before[:, :width] == directories).all(axis=(1, 2))
    told = np.where((counts == NULL) | equal, NULL, counts).astype(np.int32)
    columns.directories = DirectoryColumn(directories.view(np.uint8).reshape(len(at), width, UUID_BYTES), told)
    columns.replicas = ListColumn(np.ascontiguousarray(replicas[:, :width]), counts)
