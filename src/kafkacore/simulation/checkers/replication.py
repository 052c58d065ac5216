"""Checkers of replicated partitions: their leaders, their epochs, and the equality of committed records on all
replicas."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from kafkacore.simulation.checkers.deletions import Deletions
from kafkacore.simulation.checkers.observations import (
    Entry,
    FetcherSeen,
    ImageSeen,
    InSync,
    LatestListed,
    MayLoseRecords,
    RecordAcknowledged,
    RecordsDeleted,
    ReplicaCommits,
    ReplicaLogSeen,
    ReplicaSettled,
    RoleSeen,
)
from kafkacore.simulation.checkers.violation import Checker

NOBODY = -1


class _Row:
    """A partition in a metadata image. Gives names to the values of `ImageSeen.contents["partitions"]`."""

    def __init__(self, topic: str, partition: Any) -> None:
        self.topic = topic
        self.leader, rest, self.replicas, isr = partition
        self.epoch, self.partition_epoch, elr = rest[0], rest[1], rest[5]
        self.recovers = rest[2] != 0  # LeaderRecoveryState (KIP-704)
        self.is_reassigned = bool(rest[3] or rest[4])
        self.last_leader = self.leader
        self.isr = frozenset(isr)
        self.eligible = self.isr | frozenset(elr)


def _rows(contents: dict[str, object]) -> Iterator[tuple[str, _Row]]:
    """Yields each partition of an image. The key contains the topic's id, because a topic that is deleted and created
    again is a new topic."""
    topics: Any = contents.get("topics", {})
    partitions: Any = contents.get("partitions", {})
    for (topic, index), partition in partitions.items():
        yield f"{topic}-{index} ({topics[topic]})", _Row(topic, partition)


class OneLeaderForEachEpoch(Checker):
    """Each leader epoch of a partition has only one leader, in all metadata images and among the brokers that act as
    leaders."""

    def __init__(self) -> None:
        # Maps each pair (log, epoch) to the leader and to the metadata offset of the image that shows it.
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self._roles: dict[tuple[str, int], int] = {}

    def image(self, seen: ImageSeen) -> None:
        for log, row in _rows(seen.contents):
            leader, offset = self._leaders.setdefault((log, row.epoch), (row.leader, seen.offset))
            if leader != row.leader:
                raise self.broken(
                    f"epoch {row.epoch} of {log} has leader {leader} after offset {offset} of the metadata, and "
                    f"{row.leader} after {seen.offset}"
                )

    def role(self, seen: RoleSeen) -> None:
        if seen.leads:
            leader = self._roles.setdefault((seen.log, seen.epoch), seen.node)
            if leader != seen.node:
                raise self.broken(f"brokers {leader} and {seen.node} both led {seen.log} in epoch {seen.epoch}")

    sees: ClassVar = {ImageSeen: image, RoleSeen: role}


class FetchersFollowLeaders(Checker):
    """A broker fetches a partition only from the leader that the broker's role names, and fetches nothing that it
    leads. Some time after the faults, it fetches every partition that it follows."""

    def fetcher(self, seen: FetcherSeen) -> None:
        leads = seen.leader == seen.node
        if seen.source >= 0 and (leads or seen.source != seen.leader):
            raise self.broken(f"broker {seen.node} fetches {seen.log} from {seen.source}, but {seen.leader} leads it")
        if seen.is_settled and not leads and seen.source < 0:
            raise self.broken(f"broker {seen.node} does not fetch {seen.log}, which {seen.leader} leads")

    sees: ClassVar = {FetcherSeen: fetcher}


class PartitionEpochsGrow(Checker):
    """From one image to a later image, the epochs of a partition never decrease. Each change of a partition has a new
    partition epoch, and a change of the leader also has a new leader epoch. A broker's role for a partition never goes
    back to an earlier leader epoch."""

    def __init__(self) -> None:
        self._newest = NOBODY
        self._rows: dict[str, _Row] = {}
        self._roles: dict[tuple[int, int, str], int] = {}

    def image(self, seen: ImageSeen) -> None:
        if seen.offset <= self._newest:
            return
        self._newest = seen.offset
        rows = dict(_rows(seen.contents))
        for log, row in rows.items():
            known = self._rows.get(log)
            if known is not None:
                self._compare(f"after offset {seen.offset} {log}", known, row)
        self._rows = rows

    def _compare(self, where: str, old: _Row, new: _Row) -> None:
        if new.epoch < old.epoch or new.partition_epoch < old.partition_epoch:
            raise self.broken(
                f"{where} has the epochs {new.epoch} and {new.partition_epoch}, but had {old.epoch} and "
                f"{old.partition_epoch} before"
            )
        if new.partition_epoch == old.partition_epoch and (new.leader, new.isr) != (old.leader, old.isr):
            raise self.broken(f"{where} changed without a new partition epoch, in epoch {old.partition_epoch}")

    def role(self, seen: RoleSeen) -> None:
        key = (seen.node, seen.life, seen.log)
        known = self._roles.get(key, NOBODY)
        if seen.epoch < known:
            raise self.broken(f"broker {seen.node} went back from epoch {known} of {seen.log} to {seen.epoch}")
        self._roles[key] = seen.epoch

    sees: ClassVar = {ImageSeen: image, RoleSeen: role}


class CleanElections(Checker):
    """A new leader comes from the ISR or from the eligible leader replicas, ELR (KIP-966). After each change, at least
    one former member of the ISR or ELR is still in one of them. However, the change that ends a reassignment may
    replace all members.

    When the power of all members has failed, ISR and ELR are empty. Then a former member may lead again. The last known
    leader may also lead again, marked as recovering. If unclean elections are allowed, any other replica may lead. It
    is then the only member of the ISR, and is marked as recovering (KIP-704).
    """

    def __init__(self) -> None:
        self._newest = NOBODY
        self._rows: dict[str, _Row] = {}
        self._lossy: set[str] = set()

    def lossy(self, seen: MayLoseRecords) -> None:
        self._lossy.add(seen.topic)

    def image(self, seen: ImageSeen) -> None:
        if seen.offset <= self._newest:
            return
        self._newest = seen.offset
        rows = dict(_rows(seen.contents))
        for log, new in rows.items():
            old = self._rows.get(log)
            if old is not None:
                new.eligible = new.eligible or old.eligible
                if new.leader == NOBODY and new.partition_epoch <= old.partition_epoch + 1:
                    new.last_leader = old.last_leader
            # Only images that differ by one change are compared. Between other images, there may have been changes that
            # the checker has missed.
            if old is None or new.partition_epoch != old.partition_epoch + 1:
                continue
            # The last leader is unknown if the checker has missed the image in which it led.
            if new.recovers and old.last_leader in (new.leader, NOBODY):
                continue
            ends = old.is_reassigned and not new.is_reassigned
            self._compare(f"after offset {seen.offset} ", log, new, old.eligible.union(old.replicas if ends else ()))
        self._rows = rows

    def _compare(self, when: str, log: str, new: _Row, eligible: frozenset[int]) -> None:
        is_lossy = new.topic in self._lossy
        if is_lossy and new.recovers and new.isr == {new.leader}:
            return
        if new.leader != NOBODY and new.leader not in eligible:
            raise self.broken(f"{when}{new.leader} leads {log}, but the eligible replicas were {sorted(eligible)}")
        if not is_lossy and not new.eligible & eligible:
            raise self.broken(
                f"{when}{sorted(new.eligible)} may lead {log}, but none of the replicas that could lead "
                f"before: {sorted(eligible)}"
            )

    sees: ClassVar = {MayLoseRecords: lossy, ImageSeen: image}


class CommittedRecordsAgree(Deletions, Checker):
    """Any two replicas hold the same entries below their high watermarks. If an entry was ever below the high watermark
    of any replica, every member of the ISR in the newest metadata has the entry. A log starts above offset 0 only if a
    client deleted the records below its log start offset. The replicas need not agree about records that a client
    deleted: a broker that is killed before it saves its log start offset has some of these records again, but no longer
    knows their epochs."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: dict[tuple[str, int], list[Entry]] = {}
        self._first: dict[tuple[str, int], int] = {}
        # Maps each node and log to the offset below which the replica agrees with the committed entries.
        self._compared: dict[tuple[str, int], int] = {}
        self._committed: dict[str, dict[int, Entry]] = {}  # the committed entries of each log, by base offset
        self._top: dict[str, int] = {}
        self._in_sync: dict[str, frozenset[int]] = {}

    def log(self, seen: ReplicaLogSeen) -> None:
        key = (seen.log, seen.node)
        kept = self._logs.get(key, [])
        kept = kept[: bisect_right(kept, seen.start, key=lambda entry: entry.end)]
        self._logs[key] = kept + list(seen.entries)
        self._compared[key] = min(self._compared.get(key, 0), seen.start)
        self._first[key] = seen.first
        if seen.first > self.deleted_below(seen.log):
            raise self.broken(
                f"replica {seen.node} of {seen.log} begins at {seen.first}, but nobody deleted records from "
                f"{self.deleted_below(seen.log)} on"
            )
        if seen.node in self._in_sync.get(seen.log, ()):
            self._holds_everything(seen.log, (seen.node,))

    def commits(self, seen: ReplicaCommits) -> None:
        agreed = self._agree(seen.log, seen.node, seen.offset)
        if agreed < seen.offset:
            raise self.broken(
                f"replica {seen.node} of {seen.log} has the high watermark {seen.offset}, but only the "
                f"records below {agreed}"
            )
        if seen.offset > self._top.get(seen.log, 0):
            self._top[seen.log] = seen.offset
            self._holds_everything(seen.log, self._in_sync.get(seen.log, ()))

    def in_sync(self, seen: InSync) -> None:
        self._in_sync[seen.log] = seen.isr
        self._holds_everything(seen.log, seen.isr)

    def _holds_everything(self, log: str, members: Iterable[int]) -> None:
        top = self._top.get(log, 0)
        for member in sorted(members):
            agreed = self._agree(log, member, top)
            if agreed < top:
                raise self.broken(
                    f"replica {member} is in the ISR of {log} but holds only the records below {agreed}; those below "
                    f"{top} are committed"
                )

    def _agree(self, log: str, node: int, offset: int) -> int:
        """Compares the replica's entries below `offset` with the known committed entries. An entry at a new offset
        becomes a known committed entry. Returns the offset below which the replica agrees with all others."""
        key = (log, node)
        first = max(self._first.get(key, 0), self.deleted_below(log))
        entries, agreed = self._logs.get(key, []), max(self._compared.get(key, 0), first)
        if agreed >= offset:
            return agreed
        committed = self._committed.setdefault(log, {})
        for entry in entries[bisect_right(entries, agreed, key=lambda entry: entry.end) :]:
            if entry.end > offset:
                break
            known = committed.setdefault(entry.base, entry)
            if known != entry:
                raise self.broken(
                    f"replica {node} of {log} has committed {entry}, but another replica has committed {known}"
                )
            # The batch that contains the record at the log start offset may begin below that offset. Retention may also
            # keep whole batches below the log start offset.
            if agreed and entry.base > agreed:
                raise self.broken(f"replica {node} of {log} has a hole from {agreed} to {entry.base}")
            agreed = self._compared[key] = entry.end
        return agreed

    sees: ClassVar = {ReplicaLogSeen: log, RecordsDeleted: Deletions.deleted, ReplicaCommits: commits, InSync: in_sync}


class ReplicasConverge(Deletions, Checker):
    """Some time after the last write, all replicas of a partition have the same high watermark, and any two replicas
    have equal records at every offset that both have, except the records that a client deleted. This also holds after
    an unclean election. A follower's log never begins before its leader's log. It may begin later than its leader's log
    if a former leader did not finish a deletion of records."""

    def __init__(self) -> None:
        super().__init__()
        self._settled: dict[str, list[ReplicaSettled]] = {}

    def settled(self, seen: ReplicaSettled) -> None:
        others = self._settled.setdefault(seen.log, [])
        for other in others:
            self._compare(seen, other)
        others.append(seen)

    def _compare(self, seen: ReplicaSettled, other: ReplicaSettled) -> None:
        begins_early = (seen.leads and other.first < seen.first) or (other.leads and seen.first < other.first)
        first = max(seen.first, other.first, self.deleted_below(seen.log))
        here, there = (tuple(each for each in one.entries if each.end > first) for one in (seen, other))
        for what, differs, values in (
            ("begin at", begins_early, (seen.first, other.first)),
            ("have high watermarks", seen.high_watermark != other.high_watermark,
             (seen.high_watermark, other.high_watermark)),
            ("hold", here != there, (here, there)),
        ):  # fmt: skip
            if differs:
                raise self.broken(
                    f"replicas {seen.node} and {other.node} of {seen.log} {what} {values[0]} and {values[1]}"
                )

    sees: ClassVar = {ReplicaSettled: settled, RecordsDeleted: Deletions.deleted}


class LatestCoversAcknowledged(Checker):
    """A leader's answer to ListOffsets(latest) covers all records that leaders of its epoch or an earlier one had
    acknowledged before the client sent the request (KIP-207). A deposed leader may return a lower offset until it
    learns of its successor."""

    def __init__(self) -> None:
        self._newest = NOBODY
        self._epochs: dict[str, int] = {}
        # For each log and acknowledgement: its time, the leader epoch at that time, and the offset after the record.
        self._ends: dict[str, list[tuple[int, int, int]]] = {}

    def image(self, seen: ImageSeen) -> None:
        if seen.offset > self._newest:
            self._newest = seen.offset
            partitions: Any = seen.contents.get("partitions", {})
            self._epochs = {f"{topic}-{index}": row[1][0] for (topic, index), row in partitions.items()}

    def acknowledged(self, seen: RecordAcknowledged) -> None:
        epoch = self._epochs.get(seen.log, NOBODY)
        self._ends.setdefault(seen.log, []).append((seen.heard_ns, epoch, seen.offset + 1))

    def listed(self, seen: LatestListed) -> None:
        known = self._ends.get(seen.log, ())
        end = max((end for heard, epoch, end in known if epoch <= seen.epoch and heard <= seen.sent_ns), default=0)
        if seen.offset < end:
            raise self.broken(
                f"the leader of {seen.log} in epoch {seen.epoch} returned {seen.offset} as the end, but records "
                f"below {end} were acknowledged before the request"
            )

    sees: ClassVar = {ImageSeen: image, RecordAcknowledged: acknowledged, LatestListed: listed}
