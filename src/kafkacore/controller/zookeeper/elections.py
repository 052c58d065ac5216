"""Applies the leader selectors to partitions of the context. For each kind of election, decides which replicas can be
chosen, and which brokers learn of the new leader."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from kafkacore.controller.zookeeper import leader_selectors
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.leader_selectors import Chosen
from kafkacore.controller.zookeeper.leadership import Ids


class Choice(NamedTuple):
    """The result of an election. `chosen` is None if no replica can lead."""

    chosen: Chosen | None
    recipients: Ids

    @property
    def is_unclean(self) -> bool:
        return self.chosen is not None and self.chosen.unclean


class Election(Protocol):
    """A function that elects a leader for one partition. `unclean_topics` are the topics that allow a leader from
    outside the ISR."""

    def __call__(self, context: ControllerContext, row: int, isr: Ids, unclean_topics: Collection[str]) -> Choice: ...


def offline_partition(context: ControllerContext, row: int, isr: Ids, unclean_topics: Collection[str]) -> Choice:
    replicas = context.assignments[row].replicas
    live = context.online_replicas(row, replicas)
    unclean_allowed = bool(unclean_topics) and context.name(row).topic in unclean_topics
    return Choice(leader_selectors.offline_partition_leader(replicas, isr, live, unclean_allowed), live)


def reassigned_partition(context: ControllerContext, row: int, isr: Ids, unclean_topics: Collection[str]) -> Choice:
    del unclean_topics
    target = context.assignments[row].target
    live = context.online_replicas(row, target)
    return Choice(leader_selectors.reassigned_partition_leader(target, isr, live), target)


def preferred_replica(context: ControllerContext, row: int, isr: Ids, unclean_topics: Collection[str]) -> Choice:
    del unclean_topics
    replicas = context.assignments[row].replicas
    live = context.online_replicas(row, replicas)
    return Choice(leader_selectors.preferred_replica_leader(replicas, isr, live), replicas)


def controlled_shutdown(context: ControllerContext, row: int, isr: Ids, unclean_topics: Collection[str]) -> Choice:
    del unclean_topics
    replicas = context.assignments[row].replicas
    present = context.online_replicas(row, replicas, or_shutting_down=True)
    return Choice(leader_selectors.controlled_shutdown_leader(replicas, isr, present, context.shutting_down), present)


# The only election that may choose a leader from outside the ISR.
MAY_BE_UNCLEAN: Final = offline_partition
