"""Offsets that nobody needs any more, and groups that have none (KIP-211), and offsets of topics that are no more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from kafkacore.coordinator.group import records
from kafkacore.coordinator.group.classic import EMPTY, NO_TIMESTAMP, STABLE, ClassicGroup
from kafkacore.coordinator.group.commits import offset_tombstones, remove
from kafkacore.coordinator.group.core import Core
from kafkacore.coordinator.group.deadlines import Deadline
from kafkacore.coordinator.group.records import CommittedOffset
from kafkacore.protocol.uuid import ZERO, Uuid

LOG: Final = logging.getLogger("kafkacore.coordinator.group")

OFFSETS_PER_TICK: Final = 1_000  # looked at before others have their turn
MAX_TOMBSTONES_PER_APPEND: Final = 1_000
MAX_OPEN_APPENDS: Final = 100  # with more of them the replicas have enough to do
_LATER_MS: Final = 1_000

_Removed: TypeAlias = list[tuple[str, list[int]]]


class Expiry:
    """Looks at everything once in each `offsets.retention.check.interval.ms`, a thousand offsets in a tick."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._deadline = Deadline().call(self._look)
        self._round: Iterator[str] | None = None  # group ids that are left of this round

    def start(self) -> None:
        self._core.set_deadline(self._deadline, self._core.settings.offsets_retention_check_interval_ms)

    def _look(self) -> None:
        if self._core.outbox.open_count > MAX_OPEN_APPENDS:
            self._core.set_deadline(self._deadline, _LATER_MS)
            return
        if self._round is None:
            self._round = iter(list(self._core.groups))
        looked_at = 0
        for group_id in self._round:
            group = self._core.classic(group_id)
            if group is not None and not group.deleting and group.recorded:
                looked_at += 1 + sum(len(each) for each in self._core.offsets.of(group_id).values())
                _expire(self._core, group)
            if looked_at >= OFFSETS_PER_TICK:
                self._core.set_deadline(self._deadline, 0)
                return
        self._round = None
        self.start()


def _expire(core: Core, group: ClassicGroup) -> None:
    expired = _expired(core, group)
    if expired is None:
        return
    held = core.offsets.of(group.group_id)
    remains = sum(len(each) for each in held.values()) - sum(len(indexes) for _, indexes in expired)
    under_way = core.outbox.last_of(group.group_id) is not None or any(core.offsets.open_of(group.group_id))
    ends = group.state == EMPTY and not remains and not under_way
    if ends:
        LOG.info("Group %s has no members and no offsets and is deleted.", group.group_id)
        begin_deletion(core, group)
        _append(core, group.group_id, expired, group)
    elif expired:
        _append(core, group.group_id, expired, None)


def _expired(core: Core, group: ClassicGroup) -> _Removed | None:
    """Topics and partitions. None: nothing of this group expires as it is now, not even the group."""
    held = core.offsets.of(group.group_id)
    if not held:
        return []
    since = _since(group)
    if since is None:
        return None
    retention_ms, now_ms = core.settings.offsets_retention_ms, core.now_ms
    pending = set(core.offsets.open_of(group.group_id)) | core.outbox.open_offsets(group.group_id)
    expired: _Removed = []
    for topic, partitions in held.items():
        if not group.is_subscribed(topic):
            indexes = [
                index
                for index, row in partitions.items()
                if _is_over(CommittedOffset(*row), since, retention_ms, now_ms) and (topic, index) not in pending
            ]
            if indexes:
                expired.append((topic, indexes))
    return expired


def _since(group: ClassicGroup) -> Callable[[CommittedOffset], int] | None:
    """From when an offset's retention counts: since its group is empty, or since its commit where the group has never
    had members, was written by a version that did not note the time, or does not consume the topic any more."""
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


def _append(core: Core, group_id: str, removed: _Removed, ending: ClassicGroup | None) -> None:
    """Tombstones, for which nobody waits; the last of them is that of the group that ends."""
    names = [(topic, index) for topic, indexes in removed for index in indexes]
    LOG.info("Group %s: %d offsets are deleted.", group_id, len(names))
    parts = [names[at : at + MAX_TOMBSTONES_PER_APPEND] for at in range(0, len(names), MAX_TOMBSTONES_PER_APPEND)]
    for number, part in enumerate(parts or [[]], 1):
        _append_part(core, group_id, part, ending if number >= len(parts) else None)


def _append_part(core: Core, group_id: str, names: list[tuple[str, int]], ending: ClassicGroup | None) -> None:
    removed = [(topic, (index,)) for topic, index in names]
    tombstones = offset_tombstones(group_id, removed)

    def apply(base_offset: int) -> None:
        remove(core, group_id, removed)
        if ending is not None:
            core.drop(ending)

    def revert() -> None:
        if ending is not None:
            ending.deleting = False

    if ending is not None:
        tombstones.append((records.group_key(group_id), None))
    core.outbox.append(tombstones, apply=apply, revert=revert, offsets={group_id: removed} if removed else {})


def begin_deletion(core: Core, group: ClassicGroup) -> None:
    """Nothing begins in it from now on; who was told an id and has not joined is told to begin anew then."""
    core.cancel_deadlines(group)
    group.pending_members.clear()
    group.deleting = True


def topics_deleted(core: Core, topics: Sequence[tuple[str, Uuid]]) -> None:
    """Also what is being committed for them, and what transactions would commit."""
    for group_id in sorted(core.outbox.group_ids() | core.offsets.group_ids()):
        held = core.offsets.of(group_id)
        pending = set(core.offsets.open_of(group_id)) | core.outbox.open_offsets(group_id)
        removed = []
        for name, topic_id in topics:
            rows = held[name].items() if name in held else ()
            indexes = {index for index, row in rows if CommittedOffset(*row).topic_id in (ZERO, topic_id)}
            indexes.update(index for topic, index in pending if topic == name)
            if indexes:
                removed.append((name, sorted(indexes)))
        if removed:
            _append(core, group_id, removed, None)
