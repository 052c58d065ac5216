"""The states of a partition and the transitions between them (redesign, PartitionStateMachine)."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final


class PartitionState(IntEnum):
    """The states of a partition. The numbers are those that Apache Kafka uses."""

    NEW = 0  # created: the partition has replicas, but no leader and no ISR yet
    ONLINE = 1  # the partition has a leader
    OFFLINE = 2  # the partition's leader has died
    NON_EXISTENT = 3  # the partition never existed, or was deleted


# Maps each state to the states that can follow it. Apache Kafka 3.9 has the same transitions as the redesign document.
TRANSITIONS: Final = MappingProxyType(
    {
        PartitionState.NON_EXISTENT: frozenset({PartitionState.NEW}),
        PartitionState.NEW: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE}),
        PartitionState.ONLINE: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE}),
        PartitionState.OFFLINE: frozenset({PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NON_EXISTENT}),
    }
)
