"""Counts and times that a replica records: commits, elections, leader changes, and rates over recent periods."""

import math

from kafkacore.raft.measures import Measures
from kafkacore.raft.roles import Candidate, Follower, Leader, Prospective, Unattached
from kafkacore.runtime.sampling import WINDOW_MS, Recent

LEADER = Leader(0, {}, frozenset(), 0)


def test_commit_is_timed_from_append_to_high_watermark():
    measures = Measures(0)
    measures.appended(3, 12, 100)
    measures.appended(1, 13, 110)
    measures.turned(LEADER, 1, 1, 13, 150)
    assert measures.commit_ms.average(150) == measures.commit_ms.maximum(150) == 50
    measures.turned(LEADER, 1, 1, 14, 310)
    assert (measures.commit_ms.average(310), measures.commit_ms.maximum(310)) == (125, 200)


def test_commit_of_a_former_leader_is_not_timed():
    measures = Measures(0)
    measures.appended(1, 5, 0)
    measures.turned(Follower(0), 2, 2, 0, 10)
    measures.turned(LEADER, 3, 1, 6, 20)
    assert math.isnan(measures.commit_ms.average(20))


def test_election_is_timed_from_its_first_round_to_a_leader():
    measures = Measures(0)
    for role, now_ms in ((Prospective(0), 100), (Candidate(0), 130), (Unattached(0), 150), (Candidate(0), 170)):
        measures.turned(role, 1, -1, 0, now_ms)
    assert math.isnan(measures.election_ms.average(170))
    measures.turned(Follower(0), 2, 3, 0, 220)
    assert measures.election_ms.maximum(220) == 120


def test_new_leader_counts_once_in_each_epoch():
    measures = Measures(0)
    for epoch, leader_id in ((1, 1), (1, 1), (1, -1), (2, 1), (3, 2)):
        measures.turned(Follower(0), epoch, leader_id, 0, 0)
    assert measures.new_leaders == 3


def test_average_and_maximum_forget_when_two_windows_are_over():
    recent = Recent(0)
    recent.record(10, 0)
    recent.record(2, WINDOW_MS)
    assert (recent.average(WINDOW_MS), recent.maximum(WINDOW_MS)) == (6, 10)
    assert recent.average(2 * WINDOW_MS) == recent.maximum(2 * WINDOW_MS) == 2
    assert math.isnan(recent.average(3 * WINDOW_MS))
    assert math.isnan(recent.maximum(3 * WINDOW_MS))


def test_rate_is_the_sum_for_each_second():
    recent = Recent(0)
    for second in range(60):
        recent.record(5, second * 1000)
    assert recent.rate(59_999) == 300 / 59.999
    assert recent.rate(10 * WINDOW_MS) == 0
