"""The committed offsets of a partition of `__consumer_offsets`, and those of open transactions.

An offset is kept as its record's value and read when somebody asks for it: a commit of hundreds of partitions makes no
object of its own for each of them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from kafkacore._named_tuple import NamedTuple

TopicOffsets: TypeAlias = dict[str, dict[int, bytes]]
OffsetName: TypeAlias = tuple[str, str, int]  # group, topic, partition


class Pending(NamedTuple):
    """What an open transaction would commit; `offset` is its record's."""

    offset: int
    value: bytes


class Offsets:
    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}
        self._transactions: dict[int, dict[OffsetName, Pending]] = {}  # by producer id
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}  # a group's partitions: producer ids

    # --- what is committed ---

    def of(self, group_id: str) -> TopicOffsets:
        """Not to be changed."""
        return self._groups.get(group_id, {})

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def group_ids(self) -> set[str]:
        """Of groups that have offsets, or open transactions that would commit some."""
        return {*self._groups, *self._open}

    def put(self, group_id: str, topic: str, partitions: Sequence[int], values: Sequence[bytes]) -> None:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        held = topics.get(topic)
        if held is None:
            held = topics[topic] = {}
        held.update(zip(partitions, values, strict=True))
        if self._transactions:
            self._supersede(group_id, topic, partitions)

    def remove(self, group_id: str, topic: str, partitions: Iterable[int]) -> None:
        """What open transactions would commit there is dropped, too."""
        topics = self._groups.get(group_id, {})
        held = topics.get(topic, {})
        for partition in partitions:
            held.pop(partition, None)
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
        """Ends a producer's transaction; gives the names of what it committed.

        Of several commits of one partition the one that is last in the log counts, not the one whose transaction ends
        last: `put` and this drop what lies before them.
        """
        for name, pending in self._transactions.pop(producer_id, {}).items():
            group_id, topic, partition = name
            producers = self._open.get(group_id, {}).get((topic, partition), set())
            producers.discard(producer_id)
            if not producers:
                self._close(group_id, topic, partition)
            if committed and pending.value:
                for other in producers:
                    others = self._transactions[other]
                    if others[name].offset < pending.offset:
                        others[name] = Pending(others[name].offset, b"")
                self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = pending.value
                yield name

    def open_of(self, group_id: str) -> Iterable[tuple[str, int]]:
        """Topics and partitions for which a transaction is open."""
        return self._open.get(group_id, {})

    def _supersede(self, group_id: str, topic: str, partitions: Iterable[int]) -> None:
        """A plain commit lies behind every transactional one that is open: those are void, but remain open."""
        named = self._open.get(group_id)
        if named:
            for partition in partitions:
                for producer_id in named.get((topic, partition), ()):
                    transaction = self._transactions[producer_id]
                    name = (group_id, topic, partition)
                    transaction[name] = Pending(transaction[name].offset, b"")

    def _close(self, group_id: str, topic: str, partition: int) -> set[int]:
        named = self._open.get(group_id, {})
        producers = named.pop((topic, partition), set())
        if not named:
            self._open.pop(group_id, None)
        return producers
