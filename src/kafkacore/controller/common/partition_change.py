"""Decides the next leader, ISR and ELR (eligible leader replicas) of a partition when its ISR, its replicas or the live
brokers change (KIP-966).

A new leader comes from the ISR, or from the ELR if the ISR is empty. If both are empty, the last known leader is
elected and marked as recovering. If the topic allows unclean elections, any live replica may be elected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, NamedTuple

from kafkacore.metadata.partitions import NO_LEADER, NO_LEADER_CHANGE, RECOVERING, Partition
from kafkacore.protocol.messages import PartitionChangeRecord
from kafkacore.protocol.uuid import Uuid


class Election(Enum):
    """How a leader is chosen. PREFERRED elects the first replica if that replica can lead. UNCLEAN may elect a replica
    that lacks records."""

    PREFERRED = 0
    ONLINE = 1
    UNCLEAN = 2


class Target(NamedTuple):
    """The wanted state of a partition; None leaves a field unchanged. Replicas in `ineligible` do not enter the ELR. A
    replica is ineligible if its broker restarted without a clean shutdown, or if the replica left the ISR while the ISR
    still had min.insync.replicas members."""

    isr: Iterable[int] | None = None
    replicas: Iterable[int] | None = None
    removing: Iterable[int] | None = None
    adding: Iterable[int] | None = None
    directories: dict[int, Uuid] | None = None
    recovery_state: int | None = None
    ineligible: frozenset[int] = frozenset()
    election: Election = Election.ONLINE


class Rules(NamedTuple):
    """The conditions of a change. `may_lead` says whether a broker is active and the directory of its replica works.
    `default_directory` returns the directory of a new replica."""

    may_lead: Callable[[int], bool]
    default_directory: Callable[[int], Uuid]
    min_isr: int
    elr_enabled: bool


class _Elected(NamedTuple):
    leader: int
    unclean: bool


def change(partition: Partition, topic_id: Uuid, target: Target, rules: Rules) -> Any | None:
    """Returns the PartitionChangeRecord that turns `partition` into `target`; None if nothing changes."""
    return _Change(partition, target, rules).build(topic_id)


class _Change:
    def __init__(self, partition: Partition, target: Target, rules: Rules) -> None:
        self.was, self.target, self.rules = partition, target, rules
        self.isr = list(partition.isr if target.isr is None else target.isr)
        self.replicas = list(partition.replicas if target.replicas is None else target.replicas)
        self.removing = list(partition.removing if target.removing is None else target.removing)
        self.adding = list(partition.adding if target.adding is None else target.adding)
        self.elr = list(partition.elr)

    def build(self, topic_id: Uuid) -> Any | None:
        record = PartitionChangeRecord(topic_id=topic_id, partition_id=self.was.partition)
        self._complete_reassignment()
        self._populate_elr()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(self.was.replicas) <= set(self.replicas):
            # The leader stays, but starts a new leader epoch, which fences the removed replicas.
            record.leader = self.was.leader
        self._record_elr(record)
        if record.isr is None and (self.isr or self.rules.elr_enabled) and tuple(self.isr) != self.was.isr:
            record.isr = self.isr
        self._record_last_known_leader(record)
        self._record_assignment(record)
        recovery = self.target.recovery_state
        if recovery is not None and recovery != self.was.recovery_state:
            record.leader_recovery_state = recovery
        return None if _is_nothing(record) else record

    def _complete_reassignment(self) -> None:
        """Removes the old replicas when all new replicas are in sync (KIP-455).

        A later reassignment can remove a replica that an earlier one still adds. Such a replica is in both lists and
        need not be in sync. In Apache Kafka 4.3 such a reassignment never ends.
        """
        if not self.removing and not self.adding:
            return
        isr = [replica for replica in self.isr if replica not in self.removing]
        replicas = [replica for replica in self.replicas if replica not in self.removing]
        added = set(self.adding) - set(self.removing)
        if not isr or not replicas or not added <= set(isr):
            return
        # If the new replica set is smaller, all its members must be in sync first. Otherwise the ISR would shrink
        # unnecessarily.
        if len(added) < len(self.removing) and not set(replicas) <= set(isr):
            return
        self.isr, self.replicas, self.removing, self.adding = isr, replicas, [], []

    def _populate_elr(self) -> None:
        if not self.rules.elr_enabled:
            return
        if len(self.isr) >= self.rules.min_isr:
            self.elr = []
            return
        # A replica that was in sync when the ISR fell below its minimum has every acknowledged record. But a replica
        # that a reassignment removes deletes its log, so it must leave the ELR. Apache Kafka 4.3 keeps the removed
        # replica in the ELR. If another reassignment adds the replica again, Apache Kafka can elect it with an empty
        # log.
        candidates = {*self.elr, *self.was.isr} & set(self.replicas)
        self.elr = sorted(candidates - set(self.isr) - self.target.ineligible)

    def _may_lead(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self.rules.may_lead(replica)

    def _choose(self) -> _Elected:
        was, election = self.was, self.target.election
        if election is Election.PREFERRED and self._may_lead(self.replicas[0]):
            return _Elected(self.replicas[0], False)
        if self._may_lead(was.leader):
            return _Elected(was.leader, False)
        for replica in self.replicas:
            if self._may_lead(replica):
                return _Elected(replica, False)
        if self._may_elect_last_known_leader():
            return _Elected(was.last_known_elr[0], True)
        if election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.rules.may_lead(replica):
                    return _Elected(replica, True)
        return _Elected(NO_LEADER, False)

    def _may_elect_last_known_leader(self) -> bool:
        last = self.was.last_known_elr
        return (
            self.rules.elr_enabled and not self.elr and not self.isr and len(last) == 1
            and last[0] in self.replicas and self.rules.may_lead(last[0])
        )  # fmt: skip

    def _elect(self, record: Any) -> None:
        leader, unclean = self._choose()
        if leader == self.was.leader:
            return
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [each for each in self.elr if each != leader]
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self.was.recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _record_elr(self, record: Any) -> None:
        if record.isr is not None or not self.rules.elr_enabled:
            self.elr = []
        if set(self.elr) != set(self.was.elr):  # Apache Kafka does not sort an ELR
            record.eligible_leader_replicas = self.elr

    def _record_last_known_leader(self, record: Any) -> None:
        if not self.rules.elr_enabled:
            return
        leader = self.was.leader if record.leader == NO_LEADER_CHANGE else record.leader
        if leader == NO_LEADER:
            last = [each for each in self.was.last_known_elr if self._may_have_records(each)] or self._last_leader()
            if tuple(last) != self.was.last_known_elr:
                record.last_known_elr = last
        elif record.leader >= 0 and self.was.last_known_elr:
            record.last_known_elr = []

    def _may_have_records(self, replica: int) -> bool:
        """Returns whether the replica may be remembered as the last leader. A replica that has just lost its directory
        has no records, so it may not. But the only replica of a partition always stays electable."""
        emptied = replica in self.target.ineligible and replica in (self.target.directories or {})
        return replica in self.replicas and not (emptied and len(self.replicas) > 1)

    def _last_leader(self) -> list[int]:
        """Returns the last leader of a partition without a leader. If that leader is not known and this change empties
        the ISR and the ELR, returns one of their former members. But if the change sets directories, returns no such
        member, because a replica that has just lost its directory has no records."""
        last: Iterable[int] = (self.was.leader,)
        if self.was.leader == NO_LEADER:
            last = () if self.isr or self.elr or self.target.directories else (*self.was.isr, *self.was.elr)
        return [each for each in last if each in self.replicas][:1]

    def _record_assignment(self, record: Any) -> None:
        known = dict(zip(self.was.replicas, self.was.directories, strict=True)) | (self.target.directories or {})
        directories = [known.get(each) or self.rules.default_directory(each) for each in self.replicas]
        if tuple(directories) != self.was.directories:
            record.directories = directories
        if tuple(self.replicas) != self.was.replicas:
            record.replicas = self.replicas
        if tuple(self.removing) != self.was.removing:
            record.removing_replicas = self.removing
        if tuple(self.adding) != self.was.adding:
            record.adding_replicas = self.adding


def _is_nothing(record: Any) -> bool:
    return (
        record.isr is None and record.leader == NO_LEADER_CHANGE and record.replicas is None
        and record.removing_replicas is None and record.adding_replicas is None
        and record.leader_recovery_state == -1 and record.directories is None
        and record.eligible_leader_replicas is None and record.last_known_elr is None
    )  # fmt: skip
