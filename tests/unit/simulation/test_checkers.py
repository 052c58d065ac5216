"""Each checker reports the histories that break its invariant, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from checker_histories import Cases, names
from kafkacore.simulation.checkers import elections, logs, metadata, progress, records
from kafkacore.simulation.checkers.observations import (
    ActiveController,
    BrokerAlive,
    CommitAcknowledged,
    CommitFetched,
    ControllersAlive,
    Delivered,
    Entry,
    EpochSeen,
    HandlerFailed,
    Healed,
    HeartbeatAnswered,
    HighWatermark,
    ImageSeen,
    IsrAccepted,
    Leads,
    LogSeen,
    LogSurvived,
    MemberKnown,
    MetadataAcknowledged,
    MetadataMaybe,
    MetadataSurvived,
    NodeFailed,
    OnDisk,
    Progressed,
    RecordAcknowledged,
    RecordRead,
    RecordsDeleted,
    RecordsSent,
    ReplicaLogSeen,
    Started,
    StateOnDisk,
    TimePassed,
    Unfenced,
    ValuesRead,
    VoteGranted,
    VotersAre,
)
from kafkacore.simulation.checkers.violation import Checker, Violation
from kafkacore.simulation.judge import Judge

A, B, C = Entry(0, 1, 1, 11), Entry(1, 3, 1, 12), Entry(3, 4, 2, 13)
OTHER_B = Entry(1, 3, 1, 99)
QUORUM = [VotersAre(frozenset({0, 1, 2}))]


def has(node: int, *entries: Entry, start: int = 0, before: int | None = None) -> list[Any]:
    """Returns the observations that a node has these entries and that they are durable."""
    return [LogSeen(node, start, entries, before), OnDisk(node, entries[-1].end if entries else start)]


def image(offset: int, leader: int, *, node: int = 0, fenced: bool = False, epoch: int = 4) -> ImageSeen:
    contents = {"brokers": {7: (epoch, fenced), 8: (epoch, False)}, "partitions": {("t", 0): (leader, 0, (7, 8), (7,))}}
    return ImageSeen(node, "replayed", offset, contents)


TWO_HAVE_B = [*QUORUM, *has(0, A, B), *has(1, A, B)]
VOTE = VoteGranted(0, 1, 2, (0, 0), (0, 0))
SURVIVED: Any = MetadataSurvived("t", 1)


def wrote(*batches: tuple[int, int, int], start: int = 0) -> ReplicaLogSeen:
    """Returns the observation of a log with batches of two records: (base offset, producer epoch, sequence)."""
    entries = tuple(Entry(base, base + 2, 1, 0, 5, epoch, sequence) for base, epoch, sequence in batches)
    return ReplicaLogSeen(7, "t-0", start, entries)


GOOD: Cases = [
    (metadata.StaleReplicasStayOut, [IsrAccepted(0, 7, (MemberKnown(7, 4, 4), MemberKnown(8, -1, 6)))]),
    (metadata.StaleReplicasStayOut, [IsrAccepted(0, 7, (MemberKnown(8, 9, 6),))]),
    (
        records.RecordsWereSent,
        [
            RecordsSent("t", (b"a", b"b")),
            RecordRead("t", 0, b"a"),
            ValuesRead("t", (b"b",)),
            LogSurvived("t", {1: b"b"}),
        ],
    ),
    (records.ProducersWriteInOrder, [wrote((0, 0, 0), (2, 0, 2), (4, 1, 0)), wrote((6, 1, 2), start=6)]),
    (
        records.ProducersWriteInOrder,
        [wrote((0, 0, 0), (2, 0, 2)), wrote((2, 1, 0), start=2), wrote((9, 1, 8), start=9)],
    ),
    (records.ProducersWriteInOrder, [wrote((0, 0, 6)), ReplicaLogSeen(7, "t-0", 2, (Entry(2, 3, 1, 0),))]),
    (records.ProducersWriteInOrder, [wrote((0, 0, 0)), RecordsDeleted("t-0", 2), wrote((2, 1, 2), start=2)]),
    (elections.ElectionSafety, [Leads(0, 1), EpochSeen(1, 1, 0), EpochSeen(1, 2, -1), Leads(1, 2), Leads(0, 1)]),
    (elections.OneActiveController, [ActiveController(0, 1), ActiveController(0, 1), ActiveController(1, 2)]),
    (elections.EpochsGrow, [EpochSeen(0, 1, -1), EpochSeen(0, 1, 2), EpochSeen(0, 3, -1), EpochSeen(1, 2, -1)]),
    (
        elections.EpochsGrow,
        [EpochSeen(0, 1, -1), StateOnDisk(0, 1, -1), EpochSeen(0, 3, -1), Started(0, 2, 0), EpochSeen(0, 1, -1)],
    ),
    (
        elections.VotesPersist,
        [StateOnDisk(0, 1, 2), VoteGranted(0, 1, 2, (0, 0), (0, 0)), StateOnDisk(0, 2, 0), Leads(0, 2)],
    ),
    (elections.VotesPersist, [StateOnDisk(0, 1, 2), StateOnDisk(0, 1, -1, 2), StateOnDisk(0, 1, 2, 2)]),
    (elections.VotesPersist, [StateOnDisk(0, 1, 2), StateOnDisk(0, 5, -1), VoteGranted(0, 1, 2, (0, 0), (0, 0))]),
    (
        elections.VotesGoToCompleteLogs,
        [
            VoteGranted(0, 3, 1, (2, 5), (2, 5)),
            VoteGranted(0, 4, 1, (3, 1), (2, 5)),
            VoteGranted(0, 4, 1, (3, 1), (4, 2)),
        ],
    ),
    (elections.LeadersAreNew, [Leads(0, 1), Leads(0, 1), Started(0, 2, 0), Leads(0, 2)]),
    (
        logs.LogMatching,
        [*has(0, A, B, C), *has(1, A, B), *has(2, C, start=3, before=1), *has(1, OTHER_B._replace(epoch=3), start=1)],
    ),
    (
        logs.CommittedStays,
        [*QUORUM, *has(0, A, B), *has(1, A, B), HighWatermark(0, 0, 3, 1), HighWatermark(1, 0, 3, -1), Leads(1, 2)],
    ),
    (
        logs.CommittedStays,
        [
            *QUORUM,
            *has(0, A, B),
            *has(1, A, B),
            HighWatermark(0, 0, 3, 1),
            Started(0, 1, 3),
            HighWatermark(0, 1, 1, -1),
        ],
    ),
    (
        logs.CommittedStays,
        [
            *QUORUM,
            *has(0, A, B),
            *has(1, A, B),
            HighWatermark(0, 0, 3, 1),
            Delivered(0, 0, (A, B)),
            LogSeen(2, 3, (), 1),
            HighWatermark(2, 0, 3, -1),
            Leads(2, 2),
        ],
    ),
    (logs.DeliveredInOrder, [Delivered(0, 0, (A, B)), Delivered(0, 0, (C,)), Delivered(0, 1, (A,))]),
    (logs.DeliveredInOrder, [Delivered(0, 0, (A, B), "controller"), Delivered(0, 0, (A, B), "broker")]),
    (metadata.ImagesAreEqual, [image(9, 7), image(9, 7, node=1), image(10, -1)]),
    (metadata.BrokersInImage, [image(9, 7), image(10, -1, fenced=True), image(11, 7, epoch=11)]),
    (
        metadata.StaleBrokersAreRefused,
        [
            HeartbeatAnswered(0, 7, 4, True),
            HeartbeatAnswered(0, 7, 9, True),
            HeartbeatAnswered(0, 7, 4, False),
            HeartbeatAnswered(1, 7, 4, True),
        ],
    ),
    (metadata.BrokersCatchUpFirst, [HeartbeatAnswered(0, 7, 9, True, 8), HeartbeatAnswered(0, 7, 9, True, 9, False)]),
    (progress.NodesGoOn, [NodeFailed(0, "OSError: No space left on device", True)]),
    (
        metadata.AcknowledgedChangesStay,
        [MetadataAcknowledged("t", 1, 1), MetadataMaybe("t", 2, 2), MetadataSurvived("t", 1)],
    ),
    (
        metadata.AcknowledgedChangesStay,
        [MetadataAcknowledged("t", 1, 1, took_ms=500), MetadataAcknowledged("t", 2, 2), MetadataSurvived("t", 1)],
    ),
    (
        metadata.AcknowledgedChangesStay,
        [MetadataMaybe("t", 1, 1), MetadataAcknowledged("t", 2, 2), MetadataSurvived("t", 2)],
    ),
    (
        records.OneRecordForEachOffset,
        [RecordAcknowledged("t", 1, b"a"), RecordRead("t", 1, b"a"), RecordRead("u", 1, b"b")],
    ),
    (records.AcknowledgedRecordsStay, [RecordAcknowledged("t", 1, b"a"), LogSurvived("t", {1: b"a", 2: b"b"})]),
    (
        records.CommitsNeverGoBack,
        [CommitAcknowledged("g", "t", 5), CommitFetched("g", "t", 7, 5, 7), CommitFetched("g", "t", 5, 5, 7)],
    ),
]
BAD: Cases = [
    (progress.HandlersAnswer, [HandlerFailed("PRODUCE 9 of client 'c' failed", "KeyError: 1")]),
    (metadata.StaleReplicasStayOut, [IsrAccepted(0, 7, (MemberKnown(7, 4, 4), MemberKnown(8, 5, 6)))]),
    (records.RecordsWereSent, [RecordsSent("t", (b"a",)), RecordRead("t", 0, b"\0")]),
    (records.RecordsWereSent, [RecordsSent("t", (b"a",)), ValuesRead("t", (b"a", b"b"))]),
    (records.ProducersWriteInOrder, [wrote((0, 1, 0)), wrote((2, 0, 2), start=2)]),
    (records.ProducersWriteInOrder, [wrote((0, 0, 0), (2, 0, 2)), wrote((4, 0, 6), start=4)]),
    (records.ProducersWriteInOrder, [wrote((0, 0, 0)), wrote((2, 1, 2), start=2)]),
    (records.ProducersWriteInOrder, [wrote((0, 0, 0)), RecordsDeleted("t-0", 1), wrote((2, 1, 2), start=2)]),
    (elections.ElectionSafety, [Leads(0, 1), Leads(1, 1)]),
    (elections.ElectionSafety, [EpochSeen(2, 1, 0), EpochSeen(1, 1, 2)]),
    (elections.OneActiveController, [ActiveController(0, 1), ActiveController(1, 1)]),
    (elections.EpochsGrow, [EpochSeen(0, 3, -1), EpochSeen(0, 2, 1)]),
    (elections.EpochsGrow, [EpochSeen(0, 3, -1), StateOnDisk(0, 3, -1), Started(0, 2, 0), EpochSeen(0, 2, 1)]),
    (elections.VotesPersist, [StateOnDisk(0, 0, -1), VoteGranted(0, 1, 2, (0, 0), (0, 0))]),
    (elections.VotesPersist, [StateOnDisk(0, 1, -1), VoteGranted(0, 1, 2, (0, 0), (0, 0))]),
    (elections.VotesPersist, [StateOnDisk(0, 1, 2), VOTE, VoteGranted(0, 1, 1, (0, 0), (0, 0))]),
    (elections.VotesPersist, [StateOnDisk(0, 1, -1), Leads(0, 2)]),
    (elections.VotesPersist, [StateOnDisk(0, 1, 2), StateOnDisk(0, 1, -1)]),
    (elections.VotesPersist, [StateOnDisk(0, 2, -1), StateOnDisk(0, 1, -1)]),
    (elections.VotesGoToCompleteLogs, [VoteGranted(0, 3, 1, (2, 4), (2, 5))]),
    (elections.VotesGoToCompleteLogs, [VoteGranted(0, 3, 1, (1, 9), (2, 5))]),
    (elections.LeadersAreNew, [Leads(0, 1), Started(0, 2, 0), Leads(0, 1)]),
    (logs.LogMatching, [*has(0, A, B, C), *has(1, A, OTHER_B)]),
    (logs.LogMatching, [*has(0, A, B, C), *has(1, A, B._replace(epoch=0))]),
    (logs.LogMatching, [*has(0, A, B._replace(epoch=2), C._replace(epoch=3)), *has(1, A, B, C._replace(epoch=3))]),
    (logs.LogMatching, [*has(0, A, C)]),
    (logs.CommittedStays, [*QUORUM, *has(0, A, B), *has(1, A), HighWatermark(0, 0, 3, 1)]),
    (logs.CommittedStays, [*QUORUM, *has(0, A, B), *has(1, A, B), OnDisk(1, 1), HighWatermark(0, 0, 3, 1)]),
    (logs.CommittedStays, [*QUORUM, *has(0, A, B), *has(1, A, OTHER_B), HighWatermark(0, 0, 3, 1)]),
    (logs.CommittedStays, [*QUORUM, *has(0, A, B), *has(1, A, B), HighWatermark(0, 0, 3, 2)]),
    (logs.CommittedStays, [*TWO_HAVE_B, HighWatermark(0, 0, 3, 1), HighWatermark(0, 0, 1, 1)]),
    (logs.CommittedStays, [*QUORUM, *has(0, A, B), *has(1, A, B), HighWatermark(0, 0, 3, 1), *has(2, A), Leads(2, 2)]),
    (logs.CommittedStays, [*QUORUM, *has(0, A, B), *has(1, A, B), HighWatermark(0, 0, 3, 1), *has(0, A)]),
    (logs.CommittedStays, [*TWO_HAVE_B, HighWatermark(0, 0, 3, 1), *has(2, A, OTHER_B), HighWatermark(2, 0, 3, -1)]),
    (logs.CommittedStays, [*has(0, A, B), Delivered(0, 0, (A,))]),
    (logs.DeliveredInOrder, [Delivered(0, 0, (A, B)), Delivered(0, 0, (B,))]),
    (metadata.ImagesAreEqual, [image(9, 7), image(9, -1, node=1)]),
    (metadata.BrokersInImage, [image(9, 7, fenced=True)]),
    (metadata.BrokersInImage, [image(9, 8)]),
    (metadata.BrokersInImage, [image(9, 7, epoch=9), image(10, 7, epoch=4)]),
    (metadata.StaleBrokersAreRefused, [HeartbeatAnswered(0, 7, 9, True), HeartbeatAnswered(0, 7, 4, True)]),
    (metadata.StaleBrokersAreRefused, [HeartbeatAnswered(0, 7, 4, True, registered=9)]),
    (metadata.BrokersCatchUpFirst, [HeartbeatAnswered(0, 7, 9, True, 8, False)]),
    (progress.NodesGoOn, [NodeFailed(0, "OSError: broken", False)]),
    (metadata.AcknowledgedChangesStay, [MetadataAcknowledged("t", 1, 1), MetadataSurvived("t", None)]),
    (metadata.AcknowledgedChangesStay, [MetadataAcknowledged("t", each, each) for each in (1, 2)] + [SURVIVED]),
    (records.OneRecordForEachOffset, [RecordAcknowledged("t", 1, b"a"), RecordRead("t", 1, b"b")]),
    (records.AcknowledgedRecordsStay, [RecordAcknowledged("t", 1, b"a"), LogSurvived("t", {})]),
    (records.CommitsNeverGoBack, [CommitFetched("g", "t", 4, 5, 7)]),
    (records.CommitsNeverGoBack, [CommitFetched("g", "t", 8, 5, 7)]),
]  # fmt: skip


@pytest.mark.parametrize(("checker", "history"), GOOD, ids=names(GOOD))
def test_checker_keeps_still_when_the_history_is_good(checker: type[Checker], history: Sequence[Any]) -> None:
    made = checker()
    assert any(type(seen) in made.sees for seen in history)
    for seen in history:
        made.see(seen)


@pytest.mark.parametrize(("checker", "history"), BAD, ids=names(BAD))
def test_checker_objects_when_the_last_observation_breaks_its_invariant(
    checker: type[Checker], history: Sequence[Any]
) -> None:
    made = checker()
    for seen in history[:-2]:
        made.see(seen)
    with pytest.raises(Violation, match=checker.__name__):
        for seen in history[-2:]:
            made.see(seen)


def test_every_checker_has_a_good_and_a_bad_history() -> None:
    rooms = (elections, logs, metadata, progress, records)
    checkers = {
        each for room in rooms for each in vars(room).values() if isinstance(each, type) and issubclass(each, Checker)
    }
    timed = {Checker, metadata.SilentBrokersAreFenced, progress.Progress}
    never_good = {progress.HandlersAnswer}  # what this checker sees is always a violation
    # test_checkers_replication.py has histories for these checkers, with records on several replicas.
    replicated = {records.NoRecordTwice, records.ProducersGoOn, records.AcknowledgedInOrder, records.ReadsAreWhole}
    good, bad = ({checker for checker, _ in cases} for cases in (GOOD, BAD))
    assert checkers - timed - replicated == good | never_good == bad


def test_checker_of_fencing_objects_when_a_broker_is_gone_for_too_long() -> None:
    checker = metadata.SilentBrokersAreFenced(bound_ms=1_000)
    for seen in (ControllersAlive(True, 0), BrokerAlive(7, False, 500), Unfenced(frozenset({7, 8}), 1_400)):
        checker.see(seen)
    checker.see(ControllersAlive(False, 1_450))
    checker.see(ControllersAlive(True, 2_000))
    checker.see(Unfenced(frozenset({7, 8}), 2_900))
    with pytest.raises(Violation, match="broker 7 has been gone for 1001 ms"):
        checker.see(Unfenced(frozenset({7, 8}), 3_001))


def test_checker_of_fencing_keeps_still_when_the_broker_is_back_or_fenced() -> None:
    checker = metadata.SilentBrokersAreFenced(bound_ms=1_000)
    for seen in (
        ControllersAlive(True, 0),
        BrokerAlive(7, False, 500),
        BrokerAlive(7, True, 900),
        Unfenced(frozenset({7}), 9_000),
    ):
        checker.see(seen)
    checker.see(BrokerAlive(7, False, 9_500))
    checker.see(Unfenced(frozenset(), 20_000))


def test_checker_of_fencing_counts_again_when_the_network_delivers_a_heartbeat_late() -> None:
    checker = metadata.SilentBrokersAreFenced(bound_ms=1_000)
    for seen in (ControllersAlive(True, 0), BrokerAlive(7, False, 500), HeartbeatAnswered(1, 7, 3, True)):
        checker.see(seen)
    for seen in (BrokerAlive(7, False, 1_400), Unfenced(frozenset({7}), 2_400), HeartbeatAnswered(1, 7, 3, False)):
        checker.see(seen)
    with pytest.raises(Violation, match="broker 7 has been gone for 1001 ms"):
        checker.see(Unfenced(frozenset({7}), 2_401))


def test_judge_reports_a_violation_again_when_a_node_has_caught_it() -> None:
    judge = Judge()
    judge.check()
    with pytest.raises(Violation):
        judge.see(HeartbeatAnswered(1, 7, 3, True, registered=4))
    with pytest.raises(Violation, match="StaleBrokersAreRefused"):
        judge.check()


def test_checker_of_progress_names_what_is_missing_when_the_bound_is_over() -> None:
    checker = progress.Progress(["leader", "commit"], bound_ms=1_000)
    for seen in (TimePassed(99_000), Healed(100_000), Progressed("leader", 100_500), TimePassed(101_000)):
        checker.see(seen)
    with pytest.raises(Violation, match="1001 ms after the faults healed there was no commit"):
        checker.see(TimePassed(101_001))


def test_checker_of_progress_keeps_still_when_all_has_happened() -> None:
    checker = progress.Progress(["leader"], bound_ms=1_000)
    for seen in (Healed(0), Progressed("leader", 900), TimePassed(9_000)):
        checker.see(seen)
    assert checker.waits_for == []
