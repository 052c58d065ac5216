"""Checkers of partition leaders: when they may acknowledge, how far their high watermarks may rise, and which broker
coordinates a group."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from kafkacore.simulation.checkers.observations import (
    CommitAnswered,
    Entry,
    LatestListed,
    LeaderSeen,
    MayLoseRecords,
    PositionsFetched,
    ProduceAnswered,
    ReplicaLogSeen,
    RoleSeen,
    SyncedBelow,
)
from kafkacore.simulation.checkers.violation import Checker

SHORTLY_NS: Final = 1_000_000_000


class _Newest:
    """Stores, for each leader epoch of a log, when the first acknowledgement was sent, and which node sent it."""

    def __init__(self) -> None:
        # Maps each log and epoch to the time and the node of the first acknowledgement.
        self._first: dict[str, dict[int, tuple[int, int]]] = {}

    def later(self, log: str, epoch: int, node: int, arrived_ns: int) -> tuple[int, int] | None:
        """Returns the epoch and node of another leader that acknowledged something before `arrived_ns`, in an epoch
        later than `epoch`. Returns None if there is no such leader."""
        for later, (at_ns, leader) in self._first.get(log, {}).items():
            if later > epoch and leader != node and at_ns < arrived_ns:
                return later, leader
        return None

    def acknowledged(self, log: str, epoch: int, node: int, answered_ns: int) -> int:
        """Stores an acknowledgement. Returns the node that acknowledged first in this epoch."""
        return self._first.setdefault(log, {}).setdefault(epoch, (answered_ns, node))[1]


class FencedLeadersAreSilent(Checker):
    """Once a broker has learned that it no longer leads a partition, it acknowledges no Produce that arrives later. A
    deposed leader that has not learned this yet must also stop acknowledging once a later leader has acknowledged
    something, because the deposed leader's ISR can no longer be complete. However, the deposed leader may acknowledge
    again a batch that it already has."""

    def __init__(self) -> None:
        self._newest = _Newest()
        self._lossy: set[str] = set()

    def lossy(self, seen: MayLoseRecords) -> None:
        self._lossy.add(seen.topic)

    def answered(self, seen: ProduceAnswered) -> None:
        if not seen.accepted:
            return
        if not seen.led_then and not seen.leads_now:
            raise self.broken(
                f"broker {seen.node} acknowledged records of {seen.log}, although it knew that it was not the leader"
            )
        if not seen.led_then or seen.repeatable or seen.log.rpartition("-")[0] in self._lossy:
            return
        later = self._newest.later(seen.log, seen.epoch, seen.node, seen.arrived_ns)
        if later is not None:
            raise self.broken(
                f"broker {seen.node} acknowledged records of {seen.log} in epoch {seen.epoch}; they arrived after "
                f"broker {later[1]} had acknowledged others in epoch {later[0]}"
            )
        self._newest.acknowledged(seen.log, seen.epoch, seen.node, seen.answered_ns)

    sees: ClassVar = {MayLoseRecords: lossy, ProduceAnswered: answered}


class _Leadership(NamedTuple):
    """The role of a broker: whether it leads, and in which epoch and at which time this role began."""

    leads: bool = False
    epoch: int = -1
    at_ns: int = 0


class AcknowledgedByTheirLeader(Checker):
    """A broker acknowledges a batch only in the leadership in which it appended the batch. A leadership lasts until the
    broker follows another leader, even if the leader epoch rises meanwhile. Afterwards the batch may be truncated, and
    other records may have its offset."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, int], _Leadership] = {}

    def role(self, seen: RoleSeen) -> None:
        known = self._roles.get((seen.log, seen.node))
        if known is None or known.leads != seen.leads:
            self._roles[seen.log, seen.node] = _Leadership(seen.leads, seen.epoch, seen.at_ns)

    def answered(self, seen: ProduceAnswered) -> None:
        if not seen.accepted or not seen.led_then or seen.written_in < 0:
            return
        leads, epoch, at_ns = self._roles.get((seen.log, seen.node), _Leadership())
        what = f"broker {seen.node} acknowledged records of {seen.log}"
        if leads and seen.written_in < epoch:
            raise self.broken(
                f"{what} in the leadership that began in epoch {epoch}; the records at their offset are of epoch "
                f"{seen.written_in}"
            )
        # The broker may have decided to acknowledge the records shortly before it began to follow.
        if not leads and 0 <= seen.epoch < epoch and seen.answered_ns - at_ns > SHORTLY_NS:
            raise self.broken(f"{what}, although it has followed another leader since epoch {epoch}")

    sees: ClassVar = {RoleSeen: role, ProduceAnswered: answered}


class OneOwnerForEachGroup(Checker):
    """A broker accepts commits of a group only while it leads the group's partition of __consumer_offsets, according to
    its own metadata. In each leader epoch only one broker accepts commits of the group. After this broker has accepted
    a commit, no leader of an earlier epoch accepts one."""

    def __init__(self) -> None:
        self._newest = _Newest()

    def answered(self, seen: CommitAnswered) -> None:
        if not seen.accepted:
            return
        what = f"broker {seen.node} accepted a commit of group {seen.group}"
        if seen.epoch < 0:
            if not seen.leads_now:
                raise self.broken(f"{what}, although it knew that it was not the leader of {seen.log}")
            return
        owner = self._newest.acknowledged(seen.log, seen.epoch, seen.node, seen.answered_ns)
        later = self._newest.later(seen.log, seen.epoch, seen.node, seen.arrived_ns)
        if owner != seen.node:
            raise self.broken(f"{what} in epoch {seen.epoch} of {seen.log}, in which broker {owner} accepted one too")
        if later is not None:
            raise self.broken(
                f"{what} in epoch {seen.epoch} of {seen.log}, after broker {later[1]} had accepted "
                f"one in epoch {later[0]}"
            )

    sees: ClassVar = {CommitAnswered: answered}


class LatestWaitsForTheEpoch(Checker):
    """When a consumer asks for the end of a log, the leader never returns an offset below the start of the leader
    epoch. Until the high watermark reaches this start, the leader answers OFFSET_NOT_AVAILABLE (KIP-207). The epoch
    starts at the end of the leader's records of earlier epochs."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, int], list[Entry]] = {}
        self._starts: dict[tuple[str, int], int] = {}

    def log(self, seen: ReplicaLogSeen) -> None:
        kept = self._logs.get((seen.log, seen.node), [])
        self._logs[seen.log, seen.node] = [each for each in kept if each.end <= seen.start] + list(seen.entries)

    def role(self, seen: RoleSeen) -> None:
        """Stores where the leader's epoch starts. The watcher reports the leader's log before its role."""
        if seen.leads:
            earlier = (each.end for each in self._logs.get((seen.log, seen.node), ()) if each.epoch < seen.epoch)
            self._starts.setdefault((seen.log, seen.epoch), max(earlier, default=0))

    def listed(self, seen: LatestListed) -> None:
        start = self._starts.get((seen.log, seen.epoch), 0)
        if seen.offset < start:
            raise self.broken(
                f"the leader of {seen.log} in epoch {seen.epoch} returned {seen.offset} as the end, but its epoch "
                f"starts at {start}"
            )

    sees: ClassVar = {ReplicaLogSeen: log, RoleSeen: role, LatestListed: listed}


class _SameLeadership(Checker):
    """Compares an observation of a leader with earlier observations in the same leader epoch."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, str], LeaderSeen] = {}

    def leader(self, seen: LeaderSeen) -> None:
        key = (seen.node, seen.life, seen.log)
        before, self._seen[key] = self._seen.get(key), seen
        if before is not None and before.epoch == seen.epoch:
            self.compare(before, seen)

    def compare(self, old: LeaderSeen, new: LeaderSeen) -> None:
        raise NotImplementedError

    sees: ClassVar = {LeaderSeen: leader}


class HighWatermarkNeedsMinIsr(_SameLeadership):
    """The high watermark does not rise while the ISR is smaller than min(min.insync.replicas, number of replicas)
    (KIP-966)."""

    def compare(self, old: LeaderSeen, new: LeaderSeen) -> None:
        if old.partition_epoch != new.partition_epoch or new.high_watermark <= old.high_watermark:
            return
        if new.in_sync < min(new.min_isr, old.min_isr, len(new.followers) + 1):
            raise self.broken(
                f"the high watermark of {new.log} on {new.node} rose from {old.high_watermark} to "
                f"{new.high_watermark} with {new.in_sync} replicas in sync; min.insync.replicas is {new.min_isr}"
            )


class JoiningReplicasAreAwaited(_SameLeadership):
    """The high watermark does not rise above the end of a replica that may join the ISR: it is outside the ISR, it is
    caught up, and its broker may join. Otherwise this replica could never join (KIP-966)."""

    def compare(self, old: LeaderSeen, new: LeaderSeen) -> None:
        before = {each.broker: each for each in old.followers}
        for each in new.followers:
            known = before.get(each.broker)
            if known is None or each.in_sync or known.in_sync or not (each.may_join and known.may_join):
                continue
            if known.end == each.end < new.high_watermark > old.high_watermark:
                raise self.broken(
                    f"the high watermark of {new.log} on {new.node} rose to {new.high_watermark}, but broker "
                    f"{each.broker} has only the records below {each.end} and may join the ISR"
                )


class PositionsStay(_SameLeadership):
    """A leader that knows the end of a follower's log still knows it after one change of the ISR."""

    def compare(self, old: LeaderSeen, new: LeaderSeen) -> None:
        if new.partition_epoch > old.partition_epoch + 1:
            return  # the replica may have been removed and added again
        before = {each.broker: each.end for each in old.followers}
        for each in new.followers:
            if each.end < 0 <= before.get(each.broker, -1):
                raise self.broken(
                    f"broker {new.node} leads {new.log} in epoch {new.epoch}, and no longer knows that the log of "
                    f"broker {each.broker} ends at {before[each.broker]}"
                )


class PositionsAreFetched(Checker):
    """A leader knows where the log of a follower ends only from a Fetch request that the follower sent in the leader's
    epoch. In an earlier epoch the follower may have had records that it has truncated since."""

    def __init__(self) -> None:
        self._fetched: dict[tuple[int, int, str], int] = {}  # the newest epoch in a Fetch, by leader, follower and log

    def fetched(self, seen: PositionsFetched) -> None:
        for log, epoch in seen.epochs:
            key = (seen.node, seen.follower, log)
            self._fetched[key] = max(epoch, self._fetched.get(key, -1))

    def leader(self, seen: LeaderSeen) -> None:
        for each in seen.followers:
            if each.end >= 0 and self._fetched.get((seen.node, each.broker, seen.log), -1) < seen.epoch:
                raise self.broken(
                    f"broker {seen.node} leads {seen.log} in epoch {seen.epoch}, and takes {each.end} for the end of "
                    f"the log of broker {each.broker}, which has not fetched in this epoch"
                )

    sees: ClassVar = {PositionsFetched: fetched, LeaderSeen: leader}


class HighWatermarkIsSynced(Checker):
    """If each record must be synced (flush.messages=1), a leader raises its high watermark only over records that are
    on its disk. Otherwise a client could read a record that a power cut removes later."""

    def rises(self, seen: SyncedBelow) -> None:
        if seen.high_watermark > seen.end:
            raise self.broken(
                f"broker {seen.node} leads {seen.log} with the high watermark {seen.high_watermark}, but a power cut "
                f"would leave it only the records below {seen.end}"
            )

    sees: ClassVar = {SyncedBelow: rises}
