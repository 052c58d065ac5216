"""The checkers of replicated partitions report the histories that break their invariants, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from checker_histories import Cases, keeps_still, names, objects_to_the_last
from kafkacore.simulation.checkers import records, replication
from kafkacore.simulation.checkers.observations import (
    Entry,
    FetcherSeen,
    ImageSeen,
    InSync,
    LatestListed,
    LogRead,
    LogSurvived,
    MayLoseRecords,
    ProducerRefused,
    RecordAcknowledged,
    RecordRead,
    RecordsDeleted,
    ReplicaCommits,
    ReplicaLogSeen,
    ReplicaSettled,
    RoleSeen,
)
from kafkacore.simulation.checkers.violation import Checker

A, B, C = Entry(0, 1, 1, 11), Entry(1, 3, 1, 12), Entry(3, 4, 2, 13)
OTHER_B = Entry(1, 3, 2, 99)


def image(
    offset: int,
    leader: int,
    epoch: int,
    change: int,
    isr: Sequence[int] = (7, 8),
    elr: Sequence[int] = (),
    topic_id: str = "i",
    recovery: int = 0,
    removing: Sequence[int] = (),
) -> ImageSeen:
    """Returns the observation of an image with the partition t-0. `change` is the partition epoch, and `recovery` is
    the LeaderRecoveryState."""
    rest = (epoch, change, recovery, tuple(removing), (), tuple(elr), ())
    contents: dict[str, object] = {
        "topics": {"t": topic_id},
        "partitions": {("t", 0): (leader, rest, (7, 8, 9), tuple(isr))},
    }
    return ImageSeen(0, "replayed", offset, contents)


def has(node: int, *entries: Entry, start: int = 0) -> ReplicaLogSeen:
    return ReplicaLogSeen(node, "t-0", start, entries)


def settled(node: int, first: int, high_watermark: int, *entries: Entry) -> ReplicaSettled:
    """Returns the observations of a partition at rest, which node 7 leads."""
    return ReplicaSettled(node, "t-0", first, high_watermark, entries, node == 7)


def acknowledged(offset: int, value: bytes, sent: int = 0, heard: int = 0) -> RecordAcknowledged:
    return RecordAcknowledged("t-0", offset, value, sent, heard)


BOTH = [has(7, A, B), has(8, A, B), InSync("t-0", frozenset({7, 8})), ReplicaCommits(7, "t-0", 3)]
GOOD: Cases = [
    (records.NoRecordTwice, [acknowledged(1, b"a"), RecordRead("t-0", 1, b"a"), LogSurvived("t-0", {1: b"a"})]),
    (records.AcknowledgedInOrder, [acknowledged(5, b"a", 0, 10), acknowledged(4, b"b", 10, 20)]),
    (records.AcknowledgedInOrder, [acknowledged(5, b"a", 0, 10), acknowledged(6, b"b", 11, 20)]),
    (records.ProducersGoOn, [image(9, 7, 1, 0), ProducerRefused("t-0", "OUT_OF_ORDER_SEQUENCE_NUMBER", 8)]),
    (records.ReadsAreWhole, [LogRead("t-0", 4, (4, 5, 6), 7), LogRead("t-0", 7, (), 7)]),
    (
        replication.OneLeaderForEachEpoch,
        [image(9, 7, 1, 0), image(10, 8, 2, 1), RoleSeen(7, 1, "t-0", 1, True), RoleSeen(8, 1, "t-0", 1, False)],
    ),
    (replication.FetchersFollowLeaders, [FetcherSeen(7, "t-0", 8, -1, False), FetcherSeen(7, "t-0", 8, 8, True)]),
    (replication.FetchersFollowLeaders, [FetcherSeen(7, "t-0", 7, -1, True)]),
    (replication.OneLeaderForEachEpoch, [image(9, 7, 1, 0), image(10, 8, 1, 0, topic_id="made again")]),
    (
        replication.PartitionEpochsGrow,
        [image(9, 7, 1, 0), image(11, 8, 2, 1), image(10, 7, 1, 0), RoleSeen(7, 1, "t-0", 2, True)],
    ),
    (
        replication.PartitionEpochsGrow,
        [image(9, 7, 1, 0), RoleSeen(7, 1, "t-0", 2, True), RoleSeen(7, 2, "t-0", 1, True)],
    ),
    (replication.CleanElections, [image(9, 7, 1, 0), image(10, 8, 2, 1), image(11, -1, 3, 2, (8,), (7,))]),
    (replication.CleanElections, [image(9, -1, 1, 0, (), (7,)), image(10, 7, 2, 1, (7,)), image(12, 9, 3, 3, (9,))]),
    (replication.CleanElections, [image(9, 7, 1, 0, (7,)), image(10, -1, 2, 1, ()), image(11, 7, 3, 2, (7,))]),
    (
        replication.CleanElections,
        [image(9, 7, 1, 0, (7,), (8,)), image(10, -1, 2, 1, (), (8,)), image(11, 7, 3, 2, (7,), recovery=1)],
    ),
    (replication.CommittedRecordsAgree, [*BOTH, has(7, C, start=3), has(8, start=3), ReplicaCommits(8, "t-0", 3)]),
    (
        replication.CommittedRecordsAgree,
        [
            *BOTH,
            InSync("t-0", frozenset({8})),
            has(7, start=1),
            has(7, B, C, start=1),
            InSync("t-0", frozenset({7, 8})),
        ],
    ),
    (
        replication.CommittedRecordsAgree,
        [*BOTH, RecordsDeleted("t-0", 2), ReplicaLogSeen(9, "t-0", 0, (B,), 2), InSync("t-0", frozenset({7, 9}))],
    ),
    (replication.CleanElections, [image(9, 7, 1, 0, (7,), removing=(7,)), image(10, 9, 2, 1, (9,))]),
    (
        replication.CleanElections,
        [MayLoseRecords("t"), image(9, 7, 1, 0, (7,)), image(10, 9, 2, 1, (9,), recovery=1)],
    ),
    # The checker has missed the images in which node 7 led.
    (replication.CleanElections, [image(9, -1, 1, 2, ()), image(10, 7, 2, 3, (7,), recovery=1)]),
    (
        replication.CleanElections,
        [image(9, 8, 1, 0, (8,)), image(10, -1, 3, 4, ()), image(11, 7, 4, 5, (7,), recovery=1)],
    ),
    (replication.ReplicasConverge, [settled(7, 1, 3, B), settled(8, 1, 3, B)]),
    (replication.ReplicasConverge, [settled(7, 0, 3, A, B), settled(8, 1, 3, B)]),
    (
        replication.LatestCoversAcknowledged,
        [
            image(9, 7, 1, 0),
            acknowledged(4, b"a", 0, 10),
            LatestListed("t-0", 1, 5, 11),
            LatestListed("t-0", 1, 4, 9),
            image(10, 8, 2, 1),
            acknowledged(5, b"b", 12, 20),
            LatestListed("t-0", 1, 5, 30),
        ],
    ),
]
BAD: Cases = [
    (records.NoRecordTwice, [acknowledged(1, b"a"), RecordRead("t-0", 2, b"a")]),
    (records.NoRecordTwice, [LogSurvived("t-0", {1: b"a", 2: b"a"})]),
    (
        records.AcknowledgedInOrder,
        [acknowledged(5, b"a", 0, 10), acknowledged(3, b"b", 0, 15), acknowledged(4, b"c", 11, 20)],
    ),
    (records.ProducersGoOn, [image(9, 7, 1, 0), ProducerRefused("t-0", "OUT_OF_ORDER_SEQUENCE_NUMBER", 7)]),
    (records.ReadsAreWhole, [LogRead("t", 4, (), 6, False)]),
    (records.ReadsAreWhole, [LogRead("t-0", 4, (4, 6), 7)]),
    (records.ReadsAreWhole, [LogRead("t-0", 4, (5, 6), 7)]),
    (records.ReadsAreWhole, [LogRead("t-0", 4, (4, 5, 6), 6)]),
    (replication.FetchersFollowLeaders, [FetcherSeen(7, "t-0", 7, 8, False)]),
    (replication.FetchersFollowLeaders, [FetcherSeen(7, "t-0", 8, 9, False)]),
    (replication.FetchersFollowLeaders, [FetcherSeen(7, "t-0", 8, -1, True)]),
    (replication.OneLeaderForEachEpoch, [image(9, 7, 1, 0), image(10, 8, 1, 1)]),
    (replication.OneLeaderForEachEpoch, [RoleSeen(7, 1, "t-0", 1, True), RoleSeen(8, 1, "t-0", 1, True)]),
    (replication.PartitionEpochsGrow, [image(9, 7, 2, 1), image(10, 7, 1, 2)]),
    (replication.PartitionEpochsGrow, [image(9, 7, 2, 1), image(10, 7, 2, 0)]),
    (replication.PartitionEpochsGrow, [image(9, 7, 2, 1), image(10, 7, 2, 1, (7,))]),
    (replication.PartitionEpochsGrow, [RoleSeen(7, 1, "t-0", 2, True), RoleSeen(7, 1, "t-0", 1, False)]),
    (replication.CleanElections, [image(9, 7, 1, 0), image(10, 9, 2, 1, (9,))]),
    (replication.CleanElections, [image(9, 7, 1, 0, (7,)), image(10, -1, 2, 1, (8,))]),
    (
        replication.CleanElections,
        [image(9, 7, 1, 0, (7,), (8,)), image(10, -1, 2, 1, (), (8,)), image(11, 9, 3, 2, (9,), recovery=1)],
    ),
    (replication.CleanElections, [image(9, 7, 1, 0, (7,)), image(10, -1, 2, 1, ()), image(11, 8, 3, 2, (8,))]),
    (replication.CommittedRecordsAgree, [has(7, A), ReplicaCommits(7, "t-0", 3)]),
    (replication.CommittedRecordsAgree, [has(7, A, C), ReplicaCommits(7, "t-0", 4)]),
    (replication.CommittedRecordsAgree, [*BOTH, has(9, A, OTHER_B), ReplicaCommits(9, "t-0", 3)]),
    (replication.CommittedRecordsAgree, [*BOTH, has(8, start=1)]),
    (replication.CommittedRecordsAgree, [*BOTH, has(9, A), InSync("t-0", frozenset({7, 9}))]),
    (replication.CommittedRecordsAgree, [*BOTH, has(7, C, start=3), ReplicaCommits(7, "t-0", 4)]),
    (replication.CommittedRecordsAgree, [RecordsDeleted("t-0", 1), ReplicaLogSeen(9, "t-0", 0, (B,), 2)]),
    (replication.CleanElections, [image(9, 7, 1, 0, (7,), removing=(7,)), image(10, 9, 2, 1, (9,), removing=(7,))]),
    (replication.CleanElections, [MayLoseRecords("t"), image(9, 7, 1, 0, (7,)), image(10, 9, 2, 1, (9,))]),
    (
        replication.CleanElections,
        [MayLoseRecords("t"), image(9, 7, 1, 0, (7,)), image(10, 9, 2, 1, (8, 9), recovery=1)],
    ),
    (replication.ReplicasConverge, [settled(7, 1, 3, B), settled(8, 0, 3, B)]),
    (replication.ReplicasConverge, [settled(7, 0, 3, A, B), settled(8, 0, 1, A, B)]),
    (replication.ReplicasConverge, [settled(7, 0, 3, A, B), settled(8, 0, 3, A, OTHER_B)]),
    (
        replication.LatestCoversAcknowledged,
        [image(9, 7, 1, 0), acknowledged(4, b"a", 0, 10), LatestListed("t-0", 2, 4, 11)],
    ),
]


@pytest.mark.parametrize(("checker", "history"), GOOD, ids=names(GOOD))
def test_checker_keeps_still_when_the_history_is_good(checker: type[Checker], history: Sequence[Any]) -> None:
    keeps_still(checker, history)


@pytest.mark.parametrize(("checker", "history"), BAD, ids=names(BAD))
def test_checker_objects_when_the_last_observation_breaks_its_invariant(
    checker: type[Checker], history: Sequence[Any]
) -> None:
    objects_to_the_last(checker, history)


def test_every_checker_of_replication_has_a_good_and_a_bad_history() -> None:
    checkers = {each for each in vars(replication).values() if isinstance(each, type) and issubclass(each, Checker)}
    of_records = {records.NoRecordTwice, records.ProducersGoOn, records.AcknowledgedInOrder, records.ReadsAreWhole}
    checkers = checkers - {Checker} | of_records
    assert checkers == {checker for checker, _ in GOOD} == {checker for checker, _ in BAD}
