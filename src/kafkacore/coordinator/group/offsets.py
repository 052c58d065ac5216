"""The committed offsets of a partition of `__consumer_offsets`, and those of open transactions.

Offsets are rows of `_fast.hot.offset_rows`: a commit of hundreds of partitions makes no object for each partition here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.hot.offset_rows import TopicOffsets
from kafkacore.coordinator.group.records import CommittedOffset

OffsetName: TypeAlias = tuple[str, str, int]  # group, topic, partition


class Pending(NamedTuple):
    """The offset that an open transaction would commit; None if the transaction no longer commits one. `at` is the
    offset of its record."""

    at: int
    offset: CommittedOffset | None


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[str, TopicOffsets]] = {}
        self._transactions: dict[int, dict[OffsetName, Pending]] = {}  # by producer id
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}  # producer ids by a group's partitions

    # --- committed offsets ---

    def of(self, group_id: str) -> Mapping[str, TopicOffsets]:
        """By topic. Callers must not change it."""
        return self._groups.get(group_id, {})

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def group_ids(self) -> set[str]:
        """The groups that have offsets, or open transactions that would commit some."""
        return {*self._groups, *self._open}

    def commit(self, commit: OffsetCommit) -> None:
        """Stores the accepted offsets of a commit."""
        for number, topic in enumerate(commit.names):
            if commit.accepted(number):
                self._topic(commit.group_id, topic).take(commit, number)
                if self._transactions:
                    self._supersede(commit.group_id, topic, commit.partitions(number))

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        self._topic(group_id, topic).put(partition, *offset)
        if self._transactions:
            self._supersede(group_id, topic, (partition,))

    def _topic(self, group_id: str, topic: str) -> TopicOffsets:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        held = topics.get(topic)
        if held is None:
            held = topics[topic] = TopicOffsets()
        return held

    def remove(self, group_id: str, topic: str, partitions: Iterable[int]) -> None:
        """Removes them, and also the offsets that open transactions would commit there."""
        topics = self._groups.get(group_id, {})
        held = topics.get(topic)
        for partition in partitions:
            if held is not None:
                held.remove(partition)
            for producer_id in self._close(group_id, topic, partition):
                self._transactions[producer_id].pop((group_id, topic, partition), None)
        if not held:
            topics.pop(topic, None)
            if not topics:
                self._groups.pop(group_id, None)

    # --- transactions (KIP-447) ---

    def put_pending(self, producer_id: int, name: OffsetName, pending: Pending) -> None:
        group_id, topic, partition = name
        self._transactions.setdefault(producer_id, {})[name] = pending
        self._open.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def end(self, producer_id: int, committed: bool) -> Iterator[OffsetName]:
        """Ends a producer's transaction; returns the names of the offsets that it committed.

        When several commits name one partition, the last one in the log counts, not the one whose transaction ends
        last: `put` and this method drop the earlier ones.
        """
        for name, pending in self._transactions.pop(producer_id, {}).items():
            group_id, topic, partition = name
            producers = self._open.get(group_id, {}).get((topic, partition), set())
            producers.discard(producer_id)
            if not producers:
                self._close(group_id, topic, partition)
            if committed and pending.offset is not None:
                for other in producers:
                    others = self._transactions[other]
                    if others[name].at < pending.at:
                        others[name] = Pending(others[name].at, None)
                self._topic(group_id, topic).put(partition, *pending.offset)
                yield name

    def open_of(self, group_id: str) -> Iterable[tuple[str, int]]:
        """The topics and partitions for which a transaction is open."""
        return self._open.get(group_id, {})

    def _supersede(self, group_id: str, topic: str, partitions: Iterable[int]) -> None:
        """A plain commit comes after every open transactional commit in the log. It makes their offsets void, but the
        transactions remain open."""
        named = self._open.get(group_id)
        if named:
            for partition in partitions:
                for producer_id in named.get((topic, partition), ()):
                    transaction = self._transactions[producer_id]
                    name = (group_id, topic, partition)
                    transaction[name] = Pending(transaction[name].at, None)

    def _close(self, group_id: str, topic: str, partition: int) -> set[int]:
        named = self._open.get(group_id, {})
        producers = named.pop((topic, partition), set())
        if not named:
            self._open.pop(group_id, None)
        return producers
