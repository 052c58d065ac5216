"""Removes offsets whose retention has passed, groups without offsets (KIP-211), and the offsets of deleted topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.classic import EMPTY, NO_TIMESTAMP, STABLE, ClassicGroup
from kafkacore.coordinator.group.commits import drop, offset_tombstones, remove
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.deadlines import Deadline
from kafkacore.coordinator.group.outbox import Outcome
from kafkacore.coordinator.group.records import CommittedOffset
from kafkacore.protocol.uuid import ZERO, Uuid

LOG: Final = logging.getLogger("kafkacore.coordinator.group")

OFFSETS_PER_TICK: Final = 1_000  # the number of offsets to check before other work can run
MAX_TOMBSTONES_PER_APPEND: Final = 1_000
MAX_OPEN_APPENDS: Final = 100  # the expiry pauses while more appends than this are open
_LATER_MS: Final = 1_000

_Removed: TypeAlias = list[tuple[str, list[int]]]
_Names: TypeAlias = list[tuple[str, int]]


class Expiry:
    """Checks every offset once every `offsets.retention.check.interval.ms`, a thousand offsets in each tick."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._deadline = Deadline().call(self._look)
        self._round: Iterator[int] | None = None  # the groups that remain to be checked in this pass

    def start(self) -> None:
        self._core.set_deadline(self._deadline, self._core.settings.offsets_retention_check_interval_ms)

    def _look(self) -> None:
        if self._core.outbox.open_count > MAX_OPEN_APPENDS:
            self._core.set_deadline(self._deadline, _LATER_MS)
            return
        checks, self._round = self._round or _look_at_all(self._core), None
        looked_at = 0
        try:
            for count in checks:
                looked_at += count
                if looked_at >= OFFSETS_PER_TICK:
                    self._round = checks
                    return
        finally:
            if self._round is not None:
                self._core.set_deadline(self._deadline, 0)
            else:
                self.start()  # also after an error, because an error in one group must not end all later searches


def _look_at_all(core: Core) -> Iterator[int]:
    """Checks all groups. Yields the number of offsets that were checked since the last yield."""
    for group_id in list(core.groups):
        group = core.classic(group_id)
        if group is not None and _may_expire(core, group):
            if _held_count(core, group) > OFFSETS_PER_TICK:
                yield from _expire_in_parts(core, group)
            if _may_expire(core, group) and _held_count(core, group) <= OFFSETS_PER_TICK:
                count = 1 + _held_count(core, group)
                _expire(core, group)
                yield count


def _may_expire(core: Core, group: ClassicGroup) -> bool:
    return core.is_here(group) and not group.deleting and group.recorded


def _held_count(core: Core, group: ClassicGroup) -> int:
    return sum(len(each) for each in core.offsets.of(group.group_id).values())


def _expire_in_parts(core: Core, group: ClassicGroup) -> Iterator[int]:
    """Expires the offsets of a group that has too many offsets for one tick. Each tick uses the group and its offsets
    as they are at that time."""
    for part in _parts(core, group):
        expired = _expired(core, group, part) if _may_expire(core, group) else None
        if expired is None:
            return
        if expired:
            _append_expired(core, group.group_id, expired, None)
        yield OFFSETS_PER_TICK


def _parts(core: Core, group: ClassicGroup) -> Iterator[_Removed]:
    """Yields topics and partitions of the group, OFFSETS_PER_TICK at a time."""
    part: _Removed = []
    room = OFFSETS_PER_TICK
    for topic in list(core.offsets.of(group.group_id)):
        indexes = list(core.offsets.of(group.group_id).get(topic, ()))
        while indexes:
            part.append((topic, indexes[:room]))
            indexes = indexes[room:]
            room -= len(part[-1][1])
            if not room:
                yield part
                part, room = [], OFFSETS_PER_TICK
    if part:
        yield part


def _expire(core: Core, group: ClassicGroup) -> None:
    """Removes the group's expired offsets, and the group itself if it has nothing else."""
    held = core.offsets.of(group.group_id)
    expired = _expired(core, group, [(topic, list(partitions)) for topic, partitions in held.items()])
    if expired is None:
        return
    remains = _held_count(core, group) - sum(len(indexes) for _, indexes in expired)
    under_way = core.outbox.last_of(group.group_id) is not None or any(core.offsets.open_of(group.group_id))
    ends = group.state == EMPTY and not remains and not under_way
    if ends:
        LOG.info("Group %s has no members and no offsets and is deleted.", group.group_id)
        begin_deletion(core, group)
        _append_expired(core, group.group_id, expired, group)
    elif expired:
        _append_expired(core, group.group_id, expired, None)


def _expired(core: Core, group: ClassicGroup, asked: _Removed) -> _Removed | None:
    """Returns the topics and partitions in `asked` whose offsets have expired. Returns None if neither the group nor
    any of its offsets can expire in the group's current state."""
    held = core.offsets.of(group.group_id)
    if not held:
        return []
    since = _since(group)
    if since is None:
        return None
    retention_ms, now_ms = core.settings.offsets_retention_ms, core.now_ms
    pending = set(core.offsets.open_of(group.group_id)) | core.outbox.open_offsets(group.group_id)
    expired: _Removed = []
    for topic, indexes in asked:
        partitions = held.get(topic)
        if partitions is not None and not group.is_subscribed(topic):
            rows = ((index, partitions.get(index)) for index in indexes)
            over = [
                index
                for index, row in rows
                if row is not None
                and _is_over(CommittedOffset(*row), since, retention_ms, now_ms)
                and (topic, index) not in pending
            ]
            if over:
                expired.append((topic, over))
    return expired


def _since(group: ClassicGroup) -> Callable[[CommittedOffset], int] | None:
    """Returns a function that maps an offset to the time from which its retention counts, or None if no offset can
    expire. In an empty group, retention counts from the time at which the group became empty, if that time is recorded.
    In every other case, it counts from the commit: for example, if the group has never had members, or no longer
    consumes the topic."""
    if group.protocol_type is None:
        return _commit_timestamp
    if group.state == EMPTY:
        empty_since = group.state_timestamp
        return _commit_timestamp if empty_since == NO_TIMESTAMP else lambda offset: empty_since
    if group.state == STABLE and group.subscribed_topics is not None:
        return _commit_timestamp
    return None


def _commit_timestamp(offset: CommittedOffset) -> int:
    return offset.commit_timestamp


def _is_over(offset: CommittedOffset, since: Callable[[CommittedOffset], int], retention_ms: int, now_ms: int) -> bool:
    if offset.expire_timestamp != records.NO_EXPIRE_TIMESTAMP:
        return now_ms >= offset.expire_timestamp
    return now_ms - since(offset) >= retention_ms


def _append_expired(core: Core, group_id: str, expired: _Removed, ending: ClassicGroup | None) -> None:
    core.counts.expired_offsets += sum(len(indexes) for _, indexes in expired)
    _append(core, group_id, expired, ending)


def _append(core: Core, group_id: str, removed: _Removed, ending: ClassicGroup | None) -> None:
    LOG.info("Group %s: %d offsets are deleted.", group_id, sum(len(indexes) for _, indexes in removed))
    append_removal(core, group_id, removed, ending, ends=ending is not None)


def append_removal(
    core: Core,
    group_id: str,
    removed: _Removed,
    ending: ClassicGroup | None = None,
    outcome: Outcome | None = None,
    *,
    ends: bool,
) -> None:
    """Appends tombstones of offsets. With `ends`, the group's own tombstone is the last record. `ending` is the group
    that ends, or None if an append in progress will create it. The tombstones of many offsets need several batches,
    because one batch with all of them could be too large for the log. `outcome` gets the result of the last append."""
    *earlier, last = _batches(core, group_id, removed)
    for part in earlier:
        _append_part(core, group_id, part)
    if ends:
        _append_end(core, group_id, last, ending, outcome)
    else:
        _append_part(core, group_id, last, outcome)


def _batches(core: Core, group_id: str, removed: _Removed) -> list[_Names]:
    """Distributes the tombstones over batches. The tombstones fill only half of each batch, so that the last batch has
    room for the tombstone of the group."""
    most_bytes = core.max_batch_bytes() // 2
    batches: list[_Names] = [[]]
    size_bytes = 0
    for topic, indexes in removed:
        each_bytes = records.tombstone_bytes(group_id, topic)
        for index in indexes:
            batch = batches[-1]
            if batch and (len(batch) == MAX_TOMBSTONES_PER_APPEND or size_bytes + each_bytes > most_bytes):
                batches.append(batch := [])
                size_bytes = 0
            batch.append((topic, index))
            size_bytes += each_bytes
    return batches


def _append_part(core: Core, group_id: str, names: _Names, outcome: Outcome | None = None) -> None:
    removed = [(topic, (index,)) for topic, index in names]
    core.outbox.append(
        offset_tombstones(group_id, removed),
        outcome,
        apply=lambda base_offset: remove(core, group_id, removed, base_offset),
        offsets={group_id: removed} if removed else {},
    )


def _append_end(core: Core, group_id: str, names: _Names, ending: ClassicGroup | None, outcome: Outcome | None) -> None:
    removed = [(topic, (index,)) for topic, index in names]

    def apply(base_offset: int) -> None:
        remove(core, group_id, removed, base_offset)
        ended = ending or core.classic(group_id)
        if ended is not None and (ended.deleting or ended.is_simple):
            drop(core, ended)

    def revert() -> None:
        if ending is not None:
            ending.deleting = False

    core.outbox.append(
        [*offset_tombstones(group_id, removed), (records.group_key(group_id), None)],
        outcome,
        apply=apply,
        revert=revert,
        offsets={group_id: removed} if removed else {},
    )


def begin_deletion(core: Core, group: ClassicGroup) -> None:
    """Begins the deletion of a group, which accepts no requests from now on. Members that got an id but have not joined
    with it must request a new id."""
    core.cancel_deadlines(group)
    group.pending_members.clear()
    group.deleting = True


def topics_deleted(core: Core, topics: Sequence[tuple[str, Uuid]]) -> None:
    """Removes the offsets of deleted topics, including offsets in commits that are still in progress and in open
    transactions.
    """
    gone: dict[str, set[Uuid]] = {}
    for name, topic_id in topics:
        gone.setdefault(name, {ZERO}).add(topic_id)
    for group_id in sorted(core.outbox.group_ids() | core.offsets.groups_of(gone.keys())):
        removed = _of_topics(core, group_id, gone)
        if removed:
            _append(core, group_id, removed, None)


def _of_topics(core: Core, group_id: str, gone: Mapping[str, Collection[bytes]]) -> _Removed:
    """Returns the topics and partitions of the group's offsets that belong to deleted topics. `gone` has the names and
    ids of these topics. Thousands of topics can be deleted at once, and most groups have offsets of few topics. So this
    code looks only at the names that are both in `gone` and among the group's topics."""
    found: dict[str, set[int]] = {}
    held = core.offsets.of(group_id)
    for name in held.keys() & gone.keys():
        indexes = {index for index, row in held[name].items() if CommittedOffset(*row).topic_id in gone[name]}
        if indexes:
            found[name] = indexes
    for name, index in (*core.offsets.open_of(group_id), *core.outbox.open_offsets(group_id)):
        if name in gone:
            found.setdefault(name, set()).add(index)
    return [(name, sorted(found[name])) for name in sorted(found)]
