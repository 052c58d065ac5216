"""The records, requests and bytes of each topic of this broker, and of all topics together.

Each partition has its own counts (`_fast/log/traffic.pxd`), which are summed on demand. When a partition leaves this
broker, the sum of all topics keeps the partition's counts for ever. The sum of the partition's topic keeps them while
the broker has another partition of that topic. So a broker's counts never decrease, and their memory depends only on
the topics that the broker hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore._fast.log.traffic_counts import TrafficCounts, traffic_of

NOTHING: Final = TrafficCounts()


class TopicTraffic(NamedTuple):
    """The counts of one topic. `leads` says whether this broker leads at least one of the topic's partitions."""

    topic: str
    leads: bool
    counts: TrafficCounts


class Traffic:
    """The counts of partitions, including partitions that have left. Only one thread calls `retire`. Any thread can
    call `sum`.
    """

    __slots__ = ("_shown", "gone")

    def __init__(self) -> None:
        self.gone = self._shown = NOTHING

    def retire(self, counts: TrafficCounts) -> None:
        """Keeps the counts of partitions that leave this broker."""
        self.gone = plus(self.gone, counts)

    def sum(self, partitions: Iterable[PartitionHandle]) -> TrafficCounts:
        return self.show(self.gone, traffic_of(partitions))

    def show(self, gone: TrafficCounts, here: TrafficCounts) -> TrafficCounts:
        """Returns the sum of the counts of partitions that have left and of partitions that are here. Read `gone`
        before you list the partitions that are here.

        If a partition leaves between these two steps, it may be in neither group. Then the previous sum is returned
        again, because a decreasing counter would look like a restart of the process.
        """
        self._shown = TrafficCounts(*map(max, self._shown, plus(gone, here)))
        return self._shown


def plus(one: TrafficCounts, other: TrafficCounts) -> TrafficCounts:
    return TrafficCounts(*(a + b for a, b in zip(one, other, strict=True)))
