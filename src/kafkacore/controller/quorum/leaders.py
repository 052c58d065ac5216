"""Changes partitions after a broker joined, left, or lost a directory. The image stores partitions in columns, with a
row for each partition. This module scans the columns once, and makes one decision for all partitions of a topic that
have equal rows. Each changed partition gets its own record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kafkacore.controller.common.partition_change import Election, Rules, Target, change
from kafkacore.controller.quorum.decisions import (
    MIN_IN_SYNC_REPLICAS,
    UNCLEAN_ELECTION,
    Settings,
    min_isr,
    topic_values,
    unclean_elections,
    wanted_isr,
)
from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partition_records import ChangeRun, ColumnRun, Record
from kafkacore.metadata.partitions import VECTOR_ROWS, Partition, PartitionChunk, alike
from kafkacore.metadata.registrations import BrokerRegistration
from kafkacore.protocol.uuid import UNASSIGNED_DIRECTORY, Uuid

if TYPE_CHECKING:
    from kafkacore.metadata.move_kinds import Moved, Wanted
    from kafkacore.metadata.row_kinds import ByTopic, Decided

NO_BROKERS: Final[frozenset[int]] = frozenset()
MAX_SINGLE_DECISIONS: Final = 512  # more decisions than this, made one by one, cost more than the import of numpy


class LeaderChanges:
    """Elects leaders for many partitions at once. The brokers in `removed` are about to leave, and those in `added` are
    about to join. The image does not contain these changes yet. The brokers in `unclean` came back without a clean
    shutdown and may have lost records. No broker is in both `removed` and `unclean`. If `election` is None, the
    configuration of each topic decides whether an unclean election is allowed."""

    def __init__(
        self, image: MetadataImage, settings: Settings, *,
        removed: AbstractSet[int] = NO_BROKERS, added: AbstractSet[int] = NO_BROKERS,
        unclean: AbstractSet[int] = NO_BROKERS, election: Election | None = None,
    ) -> None:  # fmt: skip
        self._image, self._settings = image, settings
        self._added, self._unclean = added, frozenset(unclean)
        self._gone = frozenset(removed | unclean)
        self._election = election
        self._topic_rules: dict[int, tuple[int, bool]] = {}

    def records(self, rows: Sequence[int]) -> list[Record]:
        """Returns the records for the partitions in `rows`. The rows must be distinct and in ascending order. All
        partitions with equal inputs share one decision."""
        if len(rows) > VECTOR_ROWS:
            return self.in_columns(rows)
        made: list[Record] = []
        done = 0
        for chunk, at, count in alike(self._image.partition_chunks, rows):
            if len(made) >= MAX_SINGLE_DECISIONS:
                return made + self.in_columns(rows[done:])
            done += count
            for first, same in _of_one_kind(chunk, at, count):
                record = self._change(chunk.get(first))
                if record is not None:
                    made.append(record if same == 1 else ChangeRun(record, chunk.partition[first : first + same]))
        return made

    def in_columns(self, rows: Sequence[int]) -> list[Record]:
        columns, odd = self.by_kind(rows)
        made: list[Record] = [] if columns is None else [ColumnRun(columns, 0, len(columns))]
        changes = map(self._change, map(self._image.partition_at, odd.tolist()))
        return made + [record for record in changes if record is not None]

    def by_kind(self, rows: Sequence[int]) -> Decided:
        """Decides about many rows at once, with numpy. Returns their changes in columns, and the rows that must be
        decided one by one."""
        from kafkacore.metadata import row_kinds  # noqa: PLC0415 - loads numpy: some 100 ms

        return row_kinds.decide_by_kind(
            self._image,
            rows,
            leaders=self._candidates(),
            gone=self._gone,
            least_isr=self._least_isr,
            unclean=self._unclean_elections,
            decide=self._change,
        )

    def moves(self, rows: Sequence[int], wanted: Wanted, decide: Callable[[int], Any | None]) -> Moved:
        """Assigns new replicas to the partitions in `rows`; see `decide_moves`."""
        from kafkacore.metadata import move_kinds  # noqa: PLC0415 - loads numpy: some 100 ms

        return move_kinds.decide_moves(
            self._image,
            rows,
            wanted,
            leaders=self._candidates(),
            least_isr=self._least_isr,
            decide=decide,
            default_directory=lambda broker_id: default_directory(self._image, broker_id),
        )

    # These values are cached, because a large decision needs them once for each slice.

    @cached_property
    def _least_isr(self) -> ByTopic:
        if not self._image.elr_enabled:
            return 0  # no decision needs the value
        return self._by_topic(MIN_IN_SYNC_REPLICAS, wanted_isr)

    @cached_property
    def _unclean_elections(self) -> ByTopic:
        return self._by_topic(UNCLEAN_ELECTION, unclean_elections)

    def _by_topic(self, key: str, value_of: Callable[[MetadataImage, Settings, str], int]) -> ByTopic:
        from kafkacore.metadata import row_kinds  # noqa: PLC0415 - loads numpy: some 100 ms

        return row_kinds.by_topic(self._image, topic_values(self._image, self._settings, key, value_of))

    def _candidates(self) -> dict[int, BrokerRegistration]:
        return {each.broker_id: each for each in self._image.brokers.values() if self._is_candidate(each)}

    def _change(self, partition: Partition) -> Any | None:
        topic = self._image.topic_at(partition.topic_row)
        least, unclean_allowed = self.rules_of(partition, topic)
        target = Target(
            isr=self._isr(partition),
            ineligible=self._unclean | self._ineligible(partition, least),
            election=self._election or (Election.UNCLEAN if unclean_allowed else Election.ONLINE),
        )
        return change(partition, topic.topic_id, target, self.rules(partition, least))

    def _ineligible(self, partition: Partition, least_isr: int) -> frozenset[int]:
        """Returns the members of the ISR and ELR that are not eligible leaders after several brokers leave together.
        The result is the same as if the brokers had left one after another, the leader last. If the ISR still had at
        least min.insync.replicas members after a member left, that member is ineligible. The rest of the ISR could have
        acknowledged records that this member does not have."""
        leaving = [each for each in partition.isr if each in self._gone]
        if len(leaving) < 2:
            return NO_BROKERS
        leaving.sort(key=lambda each: each == partition.leader)
        enough = len(partition.isr) - least_isr
        return frozenset([*leaving[: max(0, enough)], *(partition.elr if enough > 0 else ())])

    def _isr(self, partition: Partition) -> list[int]:
        left = [each for each in partition.isr if each not in self._gone]
        if left or self._unclean or self._image.elr_enabled or len(partition.isr) < 2:
            return left
        # All members of the ISR leave in one decision. One of them stays in the ISR, as it would if the brokers had
        # left one after another. The leader stays, because it has the most records.
        return [partition.leader if partition.leader in partition.isr else partition.isr[0]]

    def rules(self, partition: Partition, least_isr: int) -> Rules:
        def may_lead(broker_id: int) -> bool:
            return broker_id in partition.replicas and self._may_lead(broker_id, partition.directory(broker_id))

        return Rules(
            may_lead, lambda broker_id: default_directory(self._image, broker_id), least_isr, self._image.elr_enabled
        )

    def _may_lead(self, broker_id: int, directory: Uuid) -> bool:
        broker = self._image.brokers.get(broker_id)
        return broker is not None and self._is_candidate(broker) and broker.has_online_directory(directory)

    def _is_candidate(self, broker: BrokerRegistration) -> bool:
        return broker.broker_id not in self._gone and (broker.broker_id in self._added or broker.active)

    def rules_of(self, partition: Partition, topic: Topic) -> tuple[int, bool]:
        """Returns min.insync.replicas of a partition's topic, and whether the topic allows unclean elections."""
        known = self._topic_rules.get(partition.topic_row)
        if known is None:
            least = min_isr(self._image, self._settings, topic)
            known = least, unclean_elections(self._image, self._settings, topic.name)
            self._topic_rules[partition.topic_row] = known
        return known


def _of_one_kind(chunk: PartitionChunk, at: int, count: int) -> Iterator[tuple[int, int]]:
    """Splits the rows, whose columns are equal, into groups that also have the same topic, recovery state and rare
    fields. Yields the first row and the length of each group. The decision for the first row applies to the whole
    group."""
    topics, recovery, rare = chunk.topic, chunk.recovery, chunk.rare
    kinds = [(topics[row], recovery[row], rare.get(row)) for row in range(at, at + count)]
    for _, same in groupby(kinds):
        count = len(list(same))
        yield at, count
        at += count


def default_directory(image: MetadataImage, broker_id: int) -> Uuid:
    """Returns the default directory of a broker, or UNASSIGNED_DIRECTORY if the broker is not registered."""
    broker = image.brokers.get(broker_id)
    return UNASSIGNED_DIRECTORY if broker is None else broker.default_directory
