"""The values of the metric group raft-metrics, which come from the replica's state, its measurements and its loop
(KIP-595, KIP-853).
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.protocol.uuid import ZERO, Uuid
from kafkacore.raft.measures import Measures
from kafkacore.raft.roles import NOBODY, Candidate, Follower, Leader, Prospective, Role, Unattached
from kafkacore.raft.voters import ReplicaKey
from kafkacore.runtime.sampling import Share
from kafkacore.server import quorum_metrics
from kafkacore.server.quorum_metrics import ReplicaMetrics

NS_OF_A_S = 1_000_000_000
ONE, TWO = Uuid(b"1" * 16), Uuid(b"2" * 16)
ENDPOINTS = (("CONTROLLER", "h", 9093),)


class Voters:
    def __init__(self, *endpoints: Any) -> None:
        self._voters = [SimpleNamespace(endpoints=each) for each in endpoints]

    def voters(self) -> list[Any]:
        return self._voters

    def __len__(self) -> int:
        return len(self._voters)


def values(
    role: Role, *, vote: ReplicaKey | None = None, leader: int = NOBODY, is_voter: bool = True, measures: Any = None
) -> dict[str, Any]:
    """Returns the values of raft-metrics, by name, for a replica in epoch 7 with 3 voters. Values with a label contain
    the label instead. The time is 10,000 ms."""
    raft = SimpleNamespace(
        role=role, leader_id=leader, epoch=7, high_watermark=40, is_voter=is_voter,
        log=SimpleNamespace(last_epoch=6),
        replica=SimpleNamespace(term=SimpleNamespace(voted=vote)),
        voters=SimpleNamespace(latest=Voters(ENDPOINTS, ENDPOINTS, ())),
    )  # fmt: skip
    driver = SimpleNamespace(started=True, raft=raft, measures=measures or Measures(0), end_offset=42)
    replica: Any = SimpleNamespace(raft=driver, now_ms=lambda: 10_000)
    loop: Any = SimpleNamespace(idle_ns=lambda: 0)
    return {
        each.name: each.tags[-1][1] if each.name in ("current-state", "current-vote-directory-id") else each.value
        for each in ReplicaMetrics(replica, loop)()
        if each.type == "raft-metrics"
    }


@pytest.mark.parametrize(
    ("role", "vote", "is_voter", "state"),
    [
        (Leader(0, {}, frozenset(), 0), None, True, "leader"),
        (Candidate(0), ReplicaKey(1, ONE), True, "candidate"),
        (Prospective(0), None, True, "prospective"),
        (Prospective(0), ReplicaKey(1, ONE), True, "prospective-voted"),
        (Follower(0), None, True, "follower"),
        (Follower(0), None, False, "observer"),
        (Unattached(0), None, True, "unattached"),
        (Unattached(0), ReplicaKey(2, TWO), True, "unattached-voted"),
    ],
)
def test_state_is_named_as_in_apache_kafka(role: Role, vote: ReplicaKey | None, is_voter: bool, state: str) -> None:
    assert values(role, vote=vote, is_voter=is_voter)["current-state"] == state


def test_vote_epoch_log_and_voters_are_those_of_the_replica() -> None:
    found = values(Follower(0), vote=ReplicaKey(2, TWO), leader=2)
    assert (found["current-leader"], found["current-vote"], found["current-epoch"]) == (2, 2, 7)
    assert found["current-vote-directory-id"] == str(TWO)
    assert (found["high-watermark"], found["log-end-offset"], found["log-end-epoch"]) == (40, 42, 6)
    assert (found["number-of-voters"], found["number-unknown-voter-connections"]) == (3, 1)
    assert "number-of-observers" not in found
    assert "uncommitted-voter-change" not in found


def test_values_are_the_defaults_when_the_replica_knows_no_leader_and_has_not_voted() -> None:
    found = values(Unattached(0))
    assert (found["current-leader"], found["current-vote"], found["high-watermark"]) == (-1, -1, -1)
    assert found["current-vote-directory-id"] == str(ZERO)
    assert math.isnan(found["commit-latency-avg"])
    assert math.isnan(found["election-latency-max"])
    assert found["fetch-records-rate"] == found["append-records-rate"] == 0


def test_leader_counts_its_observers_and_shows_a_change_of_the_voters() -> None:
    leader = Leader(0, {}, frozenset(), 0)
    assert values(leader)["uncommitted-voter-change"] == 0
    seen: Any = object()
    leader.observers[ReplicaKey(101, ONE)] = leader.observers[ReplicaKey(102, TWO)] = seen
    leader.change = seen
    found = values(leader, leader=1)
    assert (found["number-of-observers"], found["uncommitted-voter-change"]) == (2, 1)


def test_latencies_and_rates_are_those_that_the_replica_has_measured() -> None:
    measures = Measures(0)
    measures.appended(60, 59, 1_000)
    measures.turned(Leader(0, {}, frozenset(), 0), 7, 1, 60, 1_040)
    measures.turned(Candidate(0), 8, NOBODY, 60, 2_000)
    measures.turned(Follower(0), 9, 2, 60, 2_300)
    measures.fetched(90, 3_000)
    found = values(Follower(0), measures=measures)
    assert (found["commit-latency-avg"], found["commit-latency-max"]) == (40, 40)
    assert (found["election-latency-avg"], found["election-latency-max"]) == (300, 300)
    assert (found["append-records-rate"], found["fetch-records-rate"]) == (2, 3)


def test_idle_ratio_covers_the_time_since_the_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_ns=0, idle_ns=0)
    monkeypatch.setattr(quorum_metrics.time, "monotonic_ns", lambda: clock.now_ns)
    driver = SimpleNamespace(started=True)
    loop: Any = SimpleNamespace(idle_ns=lambda: clock.idle_ns)
    source = ReplicaMetrics(SimpleNamespace(raft=driver), loop)  # type: ignore[arg-type]
    monkeypatch.setattr(quorum_metrics, "_raft_metrics", lambda replica: iter(()))

    def read(passed_s: float, idle_s: float) -> float:
        clock.now_ns += int(passed_s * NS_OF_A_S)
        clock.idle_ns += int(idle_s * NS_OF_A_S)
        (found,) = source()
        return float(found.value)  # type: ignore[arg-type]

    assert read(0, 0) == 1.0
    assert read(100, 0) == 0.0
    assert read(10, 5) == 0.5
    assert read(0.5, 0.5) == 0.5
    assert read(9.5, 9.5) == 1.0


def test_share_of_several_threads_is_their_mean_and_never_above_1() -> None:
    share = Share(0, 0, threads=2)
    assert share.read(NS_OF_A_S, NS_OF_A_S) == 0.5
    assert share.read(9 * NS_OF_A_S, 2 * NS_OF_A_S) == 1.0


def test_replica_shows_nothing_when_it_has_not_started() -> None:
    replica: Any = SimpleNamespace(raft=SimpleNamespace(started=False))
    loop: Any = SimpleNamespace(idle_ns=lambda: 0)
    assert list(ReplicaMetrics(replica, loop)()) == []
