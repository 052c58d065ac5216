"""The four leader selectors of the redesign: pure functions that choose a leader and an ISR."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kafkacore.controller.zookeeper.leadership import Ids


class Chosen(NamedTuple):
    """The chosen leader and ISR. An `unclean` leader was not in the ISR, so committed records may be lost."""

    leader: int
    isr: Ids
    unclean: bool = False


def offline_partition_leader(
    replicas: Ids, isr: Ids, live: Collection[int], unclean_allowed: bool = False
) -> Chosen | None:
    """Implements OfflinePartitionLeaderSelector: chooses the first live replica of the ISR. The ISR keeps its live
    members. If no live replica is in the ISR and unclean elections are allowed, the first live replica leads and is the
    only member of the ISR."""
    for replica in replicas:
        if replica in live and replica in isr:
            return Chosen(replica, tuple(each for each in isr if each in live))
    if unclean_allowed:
        for replica in replicas:
            if replica in live:
                return Chosen(replica, (replica,), unclean=True)
    return None


def reassigned_partition_leader(target: Ids, isr: Ids, live: Collection[int]) -> Chosen | None:
    """Implements ReassignedPartitionLeaderSelector: chooses the first target replica that is live and in the ISR."""
    return next((Chosen(replica, isr) for replica in target if replica in live and replica in isr), None)


def preferred_replica_leader(replicas: Ids, isr: Ids, live: Collection[int]) -> Chosen | None:
    """Implements PreferredReplicaPartitionLeaderSelector: chooses the first replica of the assignment, if it is live
    and in the ISR."""
    if replicas and replicas[0] in live and replicas[0] in isr:
        return Chosen(replicas[0], isr)
    return None


def controlled_shutdown_leader(
    replicas: Ids, isr: Ids, live_or_leaving: Collection[int], leaving: Collection[int]
) -> Chosen | None:
    """Implements ControlledShutdownLeaderSelector: chooses the first live replica of the ISR that is not leaving.
    Replicas that are leaving are removed from the ISR."""
    for replica in replicas:
        if replica in live_or_leaving and replica in isr and replica not in leaving:
            return Chosen(replica, tuple(each for each in isr if each not in leaving))
    return None
