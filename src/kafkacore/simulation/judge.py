"""The judge of a run: passes observations to all checkers, and keeps the last events for the report about a
violation."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from kafkacore.simulation.checkers import elections, leaders, logs, metadata, records, replication
from kafkacore.simulation.checkers.observations import (
    InSync,
    LatestListed,
    LogSurvived,
    MayLoseRecords,
    ProducerRefused,
    RecordAcknowledged,
    RecordRead,
    ReplicaCommits,
    ReplicaLogSeen,
    SyncedBelow,
)
from kafkacore.simulation.checkers.progress import HandlersAnswer, NodesGoOn, Progress
from kafkacore.simulation.checkers.violation import Checker, Violation

# The judge drops observations of these kinds about topics that can lose records.
OF_KEPT_RECORDS: Final = frozenset({
    InSync, LatestListed, LogSurvived, ProducerRefused, RecordAcknowledged, RecordRead, ReplicaCommits, ReplicaLogSeen,
    SyncedBelow,
})  # fmt: skip
LAST_EVENTS: Final = 40
FENCED_WITHIN_MS: Final = 10_000
PROGRESS_WITHIN_MS: Final = 120_000


class Judge:
    """Passes each observation to the checkers of its kind. `progress` lists the things that must happen within
    `progress_ms` after the faults end. `unpromised` lists checkers whose invariants the cluster does not promise."""

    def __init__(
        self,
        progress: Iterable[str] = (),
        progress_ms: int = PROGRESS_WITHIN_MS,
        unpromised: Collection[type[Checker]] = (),
    ) -> None:
        self.progress = Progress(progress, progress_ms)
        self.checkers: list[Checker] = [
            elections.ElectionSafety(),
            elections.OneActiveController(),
            elections.EpochsGrow(),
            elections.VotesPersist(),
            elections.VotesGoToCompleteLogs(),
            elections.LeadersAreNew(),
            logs.LogMatching(),
            logs.CommittedStays(),
            logs.DeliveredInOrder(),
            metadata.ImagesAreEqual(),
            metadata.BrokersInImage(),
            metadata.StaleBrokersAreRefused(),
            metadata.StaleReplicasStayOut(),
            metadata.BrokersCatchUpFirst(),
            metadata.SilentBrokersAreFenced(FENCED_WITHIN_MS),
            metadata.AcknowledgedChangesStay(),
            records.OneRecordForEachOffset(),
            records.AcknowledgedRecordsStay(),
            records.RecordsWereSent(),
            records.ProducersWriteInOrder(),
            records.NoRecordTwice(),
            records.ProducersGoOn(),
            records.AcknowledgedInOrder(),
            records.ReadsAreWhole(),
            records.CommitsNeverGoBack(),
            replication.OneLeaderForEachEpoch(),
            replication.FetchersFollowLeaders(),
            replication.PartitionEpochsGrow(),
            replication.CleanElections(),
            replication.CommittedRecordsAgree(),
            replication.ReplicasConverge(),
            replication.LatestCoversAcknowledged(),
            leaders.FencedLeadersAreSilent(),
            leaders.AcknowledgedByTheirLeader(),
            leaders.OneOwnerForEachGroup(),
            leaders.LatestWaitsForTheEpoch(),
            leaders.HighWatermarkNeedsMinIsr(),
            leaders.JoiningReplicasAreAwaited(),
            leaders.PositionsStay(),
            leaders.PositionsAreFetched(),
            leaders.HighWatermarkIsSynced(),
            NodesGoOn(),
            HandlersAnswer(),
            self.progress,
        ]
        self._by_kind: dict[type, list[Checker]] = {}
        for checker in self.checkers:
            for kind in checker.sees if type(checker) not in unpromised else ():
                self._by_kind.setdefault(kind, []).append(checker)
        self.on_event: Callable[[str], None] | None = None
        self.seen: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=LAST_EVENTS)
        self.under_faults: Counter[tuple[str, str]] = Counter()
        self._faults: Counter[str] = Counter()
        self._lossy: set[str] = set()
        self._violation: Violation | None = None

    def see(self, observation: Any) -> None:
        """Passes an observation to its checkers. Raises Violation. If this is called while a node sends bytes, that
        node's code may catch the error. So `check` raises it again."""
        kind = type(observation)
        name = kind.__name__
        if self.on_event is not None:
            self.on_event(repr(observation))
        if kind is MayLoseRecords:
            self._lossy.add(observation.topic)
        elif self._lossy and kind in OF_KEPT_RECORDS and observation.log.rpartition("-")[0] in self._lossy:
            return
        self.seen[name] += 1
        for fault in self._faults or ("no fault",):
            self.under_faults[fault, name] += 1
        for checker in self._by_kind.get(kind, ()):
            try:
                checker.see(observation)
            except Violation as violation:
                self._violation = self._violation or violation
                raise

    def check(self) -> None:
        """Raises the first violation."""
        if self._violation is not None:
            raise self._violation

    def note(self, at_ms: int, text: str) -> None:
        """Stores an event for the report about a violation."""
        line = f"{at_ms:>9} ms  {text}"
        self.last.append(line)
        if self.on_event is not None:
            self.on_event(line)

    def fault_begins(self, kind: str) -> None:
        """Stores that a fault of this kind starts. Later observations are counted as made during this fault."""
        self._faults[kind] += 1

    def fault_ends(self, kind: str) -> None:
        self._faults[kind] -= 1
        if self._faults[kind] <= 0:
            del self._faults[kind]
