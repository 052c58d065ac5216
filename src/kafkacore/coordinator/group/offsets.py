"""The committed offsets in a partition of `__consumer_offsets`, and the offsets of open transactions.

Offsets are native data (`_fast.hot.offset_rows`). So a commit of hundreds of partitions creates no Python object for
each partition here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from kafkacore._fast.hot.offset_commit import OffsetCommit
from kafkacore._fast.hot.offset_rows import TopicOffsets
from kafkacore.coordinator.group.records import CommittedOffset

OffsetName: TypeAlias = tuple[str, str, int]  # group, topic, partition


class Pending(NamedTuple):
    """The offset that an open transaction would commit. `at` is the offset of the record that contains it."""

    at: int
    offset: CommittedOffset


class Offsets:
    """The offsets of all groups of a shard. Commits and deletions arrive when the replicas have them, but the offsets
    of a transaction arrive as soon as their batch is in the log. So the order of arrival can differ from the order in
    the log. The order in the log counts; `at` is the offset in the log."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, TopicOffsets]] = {}
        self._transactions: dict[int, dict[OffsetName, Pending]] = {}  # keyed by producer id
        # For each group and partition: the ids of the producers whose open transactions have an offset of it.
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        self._appending = 0  # the number of batches that may be in the log, but were not passed to `put_pending` yet
        self._removed: dict[OffsetName, int] = {}  # the offset of each tombstone that arrived during such appends

    # --- committed offsets ---

    def of(self, group_id: str) -> Mapping[str, TopicOffsets]:
        """Returns the offsets of a group, by topic. Callers must not change the result."""
        return self._groups.get(group_id, {})

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def groups_of(self, topics: KeysView[str]) -> set[str]:
        """Returns the groups that have offsets of any of these topics, or open transactions that would commit
        offsets."""
        return {
            *self._open,
            *(group_id for group_id, held in self._groups.items() if not topics.isdisjoint(held.keys())),
        }

    def commit(self, commit: OffsetCommit, at: int) -> None:
        """Stores the accepted offsets of a commit whose first record is at offset `at` of the log."""
        for number in commit.accepted():
            self._topic(commit.group_id, commit.names[number]).take(commit, number, at)

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset, at: int) -> None:
        self._topic(group_id, topic).put(partition, *offset, at)

    def _topic(self, group_id: str, topic: str) -> TopicOffsets:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        held = topics.get(topic)
        if held is None:
            held = topics[topic] = TopicOffsets()
        return held

    def remove(self, group_id: str, topic: str, partitions: Iterable[int], at: int) -> None:
        """Removes the offsets of these partitions, including those that open transactions would commit."""
        topics = self._groups.get(group_id, {})
        held = topics.get(topic)
        for partition in partitions:
            if held is not None:
                held.remove(partition, at)
            self._remove_pending((group_id, topic, partition), at)
        if not held:
            topics.pop(topic, None)
            if not topics:
                self._groups.pop(group_id, None)

    # --- transactions (KIP-447) ---

    @contextmanager
    def appending(self, producer_id: int, names: Collection[OffsetName]) -> Iterator[None]:
        """Surrounds the append of a transaction's batch and the call of `put_pending` for this batch. The partitions
        count as open from the beginning. Otherwise a new member could read an offset as stable although this batch is
        about to replace it. In the meantime, `remove` also notes deletions: a deletion may arrive before `put_pending`,
        although it comes after the batch in the log."""
        self._appending += 1
        for name in names:
            self._note_open(name, producer_id)
        try:
            yield
        finally:
            pending = self._transactions.get(producer_id, {})
            for name in names:
                if name not in pending:
                    self._close(name, producer_id)
            self._appending -= 1
            if not self._appending:
                self._removed.clear()

    def put_pending(self, producer_id: int, name: OffsetName, pending: Pending) -> None:
        if self._removed.get(name, pending.at) <= pending.at:
            self._transactions.setdefault(producer_id, {})[name] = pending
            self._note_open(name, producer_id)

    def end(self, producer_id: int, committed: bool, at: int) -> Iterator[OffsetName]:
        """Ends the producer's transaction whose marker is at the offset `at`. Yields the names of the offsets that the
        transaction committed. Offsets that come after the marker belong to the producer's next transaction: a second
        marker of an ended transaction may be applied late.

        If several commits concern one partition, the last commit in the log counts, and not the commit whose
        transaction ends last. Kafka's OffsetMetadataManager follows the same rule.
        """
        transaction = self._transactions.pop(producer_id, {})
        later = {name: pending for name, pending in transaction.items() if pending.at > at}
        if later:
            self._transactions[producer_id] = later
        for name, pending in transaction.items():
            if name in later:
                continue
            self._close(name, producer_id)
            if committed:
                self.put(*name, pending.offset, pending.at)
                yield name

    def open_of(self, group_id: str) -> Collection[tuple[str, int]]:
        """Returns the topics and partitions for which a transaction has pending offsets."""
        return self._open.get(group_id, {}).keys()

    def _remove_pending(self, name: OffsetName, at: int) -> None:
        group_id, topic, partition = name
        if self._appending:
            self._removed[name] = at
        for producer_id in tuple(self._open.get(group_id, {}).get((topic, partition), ())):
            transaction = self._transactions.get(producer_id, {})
            pending = transaction.get(name)
            if pending is not None and pending.at < at:
                del transaction[name]
                self._close(name, producer_id)

    def _note_open(self, name: OffsetName, producer_id: int) -> None:
        group_id, topic, partition = name
        self._open.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)

    def _close(self, name: OffsetName, producer_id: int) -> None:
        """Notes that the producer's open transaction has no pending offset of this name any longer."""
        group_id, topic, partition = name
        named = self._open.get(group_id, {})
        producers = named.get((topic, partition), set())
        producers.discard(producer_id)
        if not producers:
            named.pop((topic, partition), None)
            if not named:
                self._open.pop(group_id, None)
