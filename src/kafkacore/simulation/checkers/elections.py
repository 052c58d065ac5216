"""Checkers of elections in a Raft quorum: each epoch has one leader, votes are on disk, and epochs never go back
(sections 5.2 and 5.4.1 of the Raft paper)."""

from __future__ import annotations

from typing import ClassVar

from kafkacore.simulation.checkers.observations import (
    ActiveController,
    EpochSeen,
    Leads,
    Started,
    StateOnDisk,
    VoteGranted,
)
from kafkacore.simulation.checkers.violation import Checker

NOBODY = -1


class ElectionSafety(Checker):
    """An epoch has at most one leader, and all nodes report the same leader for it."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def leads(self, seen: Leads) -> None:
        self._one(seen.node, seen.epoch, seen.node)

    def epoch(self, seen: EpochSeen) -> None:
        if seen.leader != NOBODY:
            self._one(seen.node, seen.epoch, seen.leader)

    def _one(self, node: int, epoch: int, leader: int) -> None:
        known = self._leaders.setdefault(epoch, leader)
        if known != leader:
            raise self.broken(f"epoch {epoch} has leader {known}, but node {node} names leader {leader}")

    sees: ClassVar = {Leads: leads, EpochSeen: epoch}


class OneActiveController(Checker):
    """At most one controller is active in an epoch."""

    def __init__(self) -> None:
        self._active: dict[int, int] = {}

    def active(self, seen: ActiveController) -> None:
        known = self._active.setdefault(seen.epoch, seen.node)
        if known != seen.node:
            raise self.broken(f"controllers {known} and {seen.node} were both active in epoch {seen.epoch}")

    sees: ClassVar = {ActiveController: active}


class EpochsGrow(Checker):
    """The epoch of a node never decreases while the node runs. After a restart, the node may be in the epoch on its
    disk."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}
        self._disks: dict[int, int] = {}

    def state(self, seen: StateOnDisk) -> None:
        self._disks[seen.node] = seen.epoch

    def started(self, seen: Started) -> None:
        self._epochs[seen.node] = self._disks.get(seen.node, 0)

    def epoch(self, seen: EpochSeen) -> None:
        known = self._epochs.get(seen.node, 0)
        if seen.epoch < known:
            raise self.broken(f"node {seen.node} went back from epoch {known} to epoch {seen.epoch}")
        self._epochs[seen.node] = seen.epoch

    sees: ClassVar = {StateOnDisk: state, Started: started, EpochSeen: epoch}


class VotesPersist(Checker):
    """A node sends a vote only when the vote is on its disk, and it votes for only one candidate in an epoch. A leader
    also has its vote for itself on disk. A vote stays on disk until its epoch ends or has a leader."""

    def __init__(self) -> None:
        self._disks: dict[int, tuple[int, int]] = {}
        self._votes: dict[tuple[int, int], int] = {}

    def state(self, seen: StateOnDisk) -> None:
        epoch, voted = self._disks.get(seen.node, (0, NOBODY))
        forgotten = seen.voted == NOBODY and seen.leader == NOBODY
        changed = seen.voted not in (NOBODY, voted)
        if seen.epoch < epoch or (seen.epoch == epoch and voted != NOBODY and (forgotten or changed)):
            raise self.broken(
                f"the disk of node {seen.node} had a vote for {voted} in epoch {epoch}, but now has epoch {seen.epoch} "
                f"and vote {seen.voted}"
            )
        self._disks[seen.node] = (seen.epoch, seen.voted)

    def granted(self, seen: VoteGranted) -> None:
        known = self._votes.setdefault((seen.node, seen.epoch), seen.candidate)
        if known != seen.candidate:
            raise self.broken(f"node {seen.node} voted in epoch {seen.epoch} for both {known} and {seen.candidate}")
        self._on_disk(seen.node, seen.epoch, seen.candidate)

    def leads(self, seen: Leads) -> None:
        known = self._votes.setdefault((seen.node, seen.epoch), seen.node)
        if known != seen.node:
            raise self.broken(f"node {seen.node} leads epoch {seen.epoch}, but in this epoch voted for {known}")
        self._on_disk(seen.node, seen.epoch, seen.node)

    def _on_disk(self, node: int, epoch: int, candidate: int) -> None:
        on_disk = self._disks.get(node, (0, NOBODY))
        # A later epoch on the disk is also correct, because the node then cannot vote again in this epoch.
        if on_disk < (epoch, NOBODY) or (on_disk[0] == epoch and on_disk[1] != candidate):
            raise self.broken(
                f"the vote of node {node} for {candidate} in epoch {epoch} is not on its disk, which has "
                f"epoch {on_disk[0]} and vote {on_disk[1]}"
            )

    sees: ClassVar = {StateOnDisk: state, VoteGranted: granted, Leads: leads}


class VotesGoToCompleteLogs(Checker):
    """A voter grants its vote only to a candidate whose log does not end before the voter's own log (the election
    restriction)."""

    def granted(self, seen: VoteGranted) -> None:
        # A voter whose log already has records of this epoch may repeat its vote, because this epoch already has a
        # leader.
        if seen.candidate_end < seen.voter_end and seen.voter_end[0] < seen.epoch:
            raise self.broken(
                f"node {seen.node}, whose log ends at (epoch, offset) {seen.voter_end}, voted in epoch {seen.epoch} "
                f"for {seen.candidate}, whose log ends at {seen.candidate_end}"
            )

    sees: ClassVar = {VoteGranted: granted}


class LeadersAreNew(Checker):
    """After a restart, a node does not lead again in an epoch that it led before, because it may have lost records that
    it sent in that epoch (KIP-595)."""

    def __init__(self) -> None:
        self._led: dict[int, int] = {}
        self._before: dict[int, int] = {}

    def started(self, seen: Started) -> None:
        self._before[seen.node] = self._led.get(seen.node, NOBODY)

    def leads(self, seen: Leads) -> None:
        if seen.epoch <= self._before.get(seen.node, NOBODY):
            raise self.broken(f"node {seen.node} restarted, and leads epoch {seen.epoch} again")
        self._led[seen.node] = max(seen.epoch, self._led.get(seen.node, NOBODY))

    sees: ClassVar = {Started: started, Leads: leads}
