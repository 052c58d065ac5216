"""The checkers of partition leaders report the histories that break their invariants, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from checker_histories import Cases, keeps_still, names, objects_to_the_last
from kafkacore.simulation.checkers import leaders
from kafkacore.simulation.checkers.observations import (
    CommitAnswered,
    Entry,
    FollowerKnown,
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

A, B, C = Entry(0, 1, 1, 11), Entry(1, 3, 1, 12), Entry(3, 4, 2, 13)


def produced(node: int, epoch: int, arrived: int, answered: int, *, repeatable: bool = False) -> ProduceAnswered:
    return ProduceAnswered(node, "t-0", True, True, True, epoch, arrived, answered, repeatable)


def committed(
    node: int, epoch: int, arrived: int, answered: int, *, leads_now: bool = True, accepted: bool = True
) -> CommitAnswered:
    return CommitAnswered(node, "g", "o-0", epoch, leads_now, accepted, arrived, answered)


def leader(
    high_watermark: int, *followers: FollowerKnown, change: int = 0, min_isr: int = 1, epoch: int = 1, life: int = 1
) -> LeaderSeen:
    """Returns the observation that node 7 leads t-0. `change` is the partition epoch."""
    in_sync = 1 + sum(each.in_sync for each in followers)
    return LeaderSeen(7, life, "t-0", epoch, change, high_watermark, min_isr, in_sync, followers)


def follower(end: int, *, in_sync: bool = False, may_join: bool = False, broker: int = 8) -> FollowerKnown:
    return FollowerKnown(broker, end, in_sync, may_join)


def acknowledged(written_in: int, answered_ns: int = 0) -> ProduceAnswered:
    return ProduceAnswered(7, "t-0", True, True, True, 1, 0, answered_ns, True, written_in)


def roles(*seen: tuple[int, bool]) -> list[Any]:
    """Returns the observations that broker 7 has these roles for t-0: (leader epoch, whether it leads)."""
    return [RoleSeen(7, 1, "t-0", epoch, leads) for epoch, leads in seen]


LEADS = [ReplicaLogSeen(7, "t-0", 0, (A, B, C)), RoleSeen(7, 1, "t-0", 2, True)]
GOOD: Cases = [
    (
        leaders.FencedLeadersAreSilent,
        [
            ProduceAnswered(7, "t-0", True, False, True),
            ProduceAnswered(7, "t-0", False, True, True),
            ProduceAnswered(7, "t-0", False, False, False),
        ],
    ),
    (leaders.FencedLeadersAreSilent, [produced(8, 2, 5, 10), produced(7, 1, 9, 20), produced(7, 3, 30, 40)]),
    (leaders.FencedLeadersAreSilent, [produced(7, 2, 5, 10), produced(7, 1, 11, 20)]),
    (leaders.FencedLeadersAreSilent, [produced(8, 2, 5, 10), produced(7, 1, 11, 20, repeatable=True)]),
    (leaders.FencedLeadersAreSilent, [MayLoseRecords("t"), produced(8, 2, 5, 10), produced(7, 1, 11, 20)]),
    (leaders.OneOwnerForEachGroup, [committed(8, 2, 5, 10), committed(7, 1, 9, 20), committed(8, 2, 30, 40)]),
    (leaders.OneOwnerForEachGroup, [committed(8, -1, 5, 10), committed(7, -1, 5, 10, leads_now=False, accepted=False)]),
    (leaders.LatestWaitsForTheEpoch, [*LEADS, LatestListed("t-0", 2, 3, 0)]),
    (leaders.LatestWaitsForTheEpoch, [*LEADS, LatestListed("t-0", 1, 0, 0)]),
    (leaders.HighWatermarkNeedsMinIsr, [leader(4, follower(9), min_isr=2), leader(4, follower(9), min_isr=2)]),
    (leaders.HighWatermarkNeedsMinIsr, [leader(4, min_isr=2), leader(5, min_isr=2)]),
    (leaders.HighWatermarkNeedsMinIsr, [leader(4, follower(9), min_isr=2), leader(5, follower(9), change=1)]),
    (leaders.JoiningReplicasAreAwaited, [leader(4, follower(5)), leader(6, follower(5))]),
    (leaders.JoiningReplicasAreAwaited, [leader(4, follower(5, may_join=True)), leader(6, follower(6, may_join=True))]),
    (
        leaders.PositionsStay,
        [leader(4, follower(5)), leader(4, follower(5), change=1), leader(4, follower(-1), change=3)],
    ),
    (leaders.PositionsStay, [leader(4, follower(5)), leader(4, follower(-1), epoch=2)]),
    (leaders.JoiningReplicasAreAwaited, [leader(6, follower(5, may_join=True)), leader(6, follower(5, may_join=True))]),
    (
        leaders.PositionsAreFetched,
        [leader(4, follower(-1)), PositionsFetched(7, 8, (("t-0", 1),)), leader(4, follower(5))],
    ),
    (leaders.HighWatermarkIsSynced, [SyncedBelow(7, "t-0", 4, 4), SyncedBelow(7, "t-0", 4, 9)]),
    (leaders.AcknowledgedByTheirLeader, [*roles((2, True)), acknowledged(2), acknowledged(-1)]),
    (leaders.AcknowledgedByTheirLeader, [*roles((1, True), (2, True)), acknowledged(1)]),
    (leaders.AcknowledgedByTheirLeader, [*roles((1, True), (2, False)), acknowledged(1, 900_000_000)]),
]
BAD: Cases = [
    (leaders.FencedLeadersAreSilent, [ProduceAnswered(7, "t-0", False, False, True)]),
    (leaders.FencedLeadersAreSilent, [produced(8, 2, 5, 10), produced(7, 1, 11, 20)]),
    (leaders.OneOwnerForEachGroup, [committed(7, -1, 5, 10, leads_now=False)]),
    (leaders.OneOwnerForEachGroup, [committed(7, 1, 5, 10), committed(8, 1, 6, 10)]),
    (leaders.OneOwnerForEachGroup, [committed(8, 2, 5, 10), committed(7, 1, 11, 20)]),
    (leaders.LatestWaitsForTheEpoch, [*LEADS, LatestListed("t-0", 2, 2, 0)]),
    (leaders.HighWatermarkNeedsMinIsr, [leader(4, follower(9), min_isr=2), leader(5, follower(9), min_isr=2)]),
    (leaders.JoiningReplicasAreAwaited, [leader(4, follower(5, may_join=True)), leader(6, follower(5, may_join=True))]),
    (leaders.PositionsStay, [leader(4, follower(5)), leader(4, follower(-1), change=1)]),
    (leaders.JoiningReplicasAreAwaited, [leader(6, follower(5, may_join=True)), leader(7, follower(5, may_join=True))]),
    (leaders.PositionsAreFetched, [PositionsFetched(7, 8, (("t-0", 1),)), leader(4, follower(5), epoch=2)]),
    (leaders.PositionsAreFetched, [PositionsFetched(7, 9, (("t-0", 1),)), leader(4, follower(5))]),
    (leaders.HighWatermarkIsSynced, [SyncedBelow(7, "t-0", 4, 3)]),
    (leaders.AcknowledgedByTheirLeader, [*roles((2, True)), acknowledged(1)]),
    (leaders.AcknowledgedByTheirLeader, [*roles((1, True), (2, False), (3, True)), acknowledged(2)]),
    (leaders.AcknowledgedByTheirLeader, [*roles((1, True), (2, False)), acknowledged(1, 1_100_000_000)]),
]  # fmt: skip


@pytest.mark.parametrize(("checker", "history"), GOOD, ids=names(GOOD))
def test_checker_keeps_still_when_the_history_is_good(checker: type[Checker], history: Sequence[Any]) -> None:
    keeps_still(checker, history)


@pytest.mark.parametrize(("checker", "history"), BAD, ids=names(BAD))
def test_checker_objects_when_the_last_observation_breaks_its_invariant(
    checker: type[Checker], history: Sequence[Any]
) -> None:
    objects_to_the_last(checker, history)


def test_every_checker_of_leaders_has_a_good_and_a_bad_history() -> None:
    checkers = {each for each in vars(leaders).values() if isinstance(each, type) and issubclass(each, Checker)}
    checkers = {each for each in checkers if not each.__name__.startswith("_")} - {Checker}
    assert checkers == {checker for checker, _ in GOOD} == {checker for checker, _ in BAD}
