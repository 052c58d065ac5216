"""Broker sessions. A broker's session ends when no heartbeat arrives in time. But it does not end if the controller
itself was unable to receive heartbeats.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.controller.quorum.liveness import Liveness

SESSION_MS = 9_000
PULSE_MS = SESSION_MS // 8
HOUR_MS = 3_600_000


class Clock:
    """A stand-in for the controller's timer. It calls `expired` at each time for which a call was requested."""

    def __init__(self, liveness: Liveness) -> None:
        self.liveness, self.now_ms = liveness, 0

    def run(self, ms: int) -> list[tuple[int, int]]:
        """Advances the time by `ms` in steps, so that every check runs on time. Returns the sessions that ended."""
        end_ms, over = self.now_ms + ms, list(self.liveness.expired(self.now_ms))
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + max(self.liveness.wait_ms(self.now_ms), 1), end_ms)
            over += self.liveness.expired(self.now_ms)
        return over

    def jump(self, ms: int) -> list[tuple[int, int]]:
        """Advances the time by `ms` in one jump, so that the checks run late. Returns the sessions that ended."""
        self.now_ms += ms
        return self.liveness.expired(self.now_ms)


@pytest.mark.parametrize("epoch", [6, 8])
def test_liveness_counts_the_heartbeats_of_the_registered_epoch_only(epoch: int) -> None:
    liveness = Liveness(SESSION_MS)
    clock = Clock(liveness)
    liveness.registered(1, 7, 0)
    clock.run(8_900)
    liveness.heard(1, epoch, clock.now_ms)
    assert not liveness.has_session(1, 7, clock.now_ms)
    liveness.heard(1, 7, clock.now_ms)
    assert clock.run(100) == []
    assert liveness.has_session(1, 7, clock.now_ms) and not liveness.has_session(1, epoch, clock.now_ms)


def test_session_ends_exactly_when_its_time_is_over() -> None:
    liveness = Liveness(SESSION_MS)
    clock = Clock(liveness)
    liveness.registered(1, 7, 0)
    assert clock.run(1_234) == []
    liveness.heard(1, 7, clock.now_ms)
    assert clock.run(SESSION_MS - 1) == []
    assert clock.run(1) == [(1, 7)]


@pytest.mark.parametrize("heard_before_ms", [0, 1, PULSE_MS, SESSION_MS // 2, SESSION_MS - PULSE_MS - 1])
def test_session_does_not_end_when_an_hour_passes_at_once(heard_before_ms: int) -> None:
    liveness = Liveness(SESSION_MS)
    clock = Clock(liveness)
    liveness.registered(1, 7, 0)
    liveness.registered(2, 8, 0)
    assert clock.run(heard_before_ms) == []
    assert clock.jump(HOUR_MS) == []
    assert liveness.has_session(1, 7, clock.now_ms) is False  # this controller has not heard from the broker yet
    liveness.heard(1, 7, clock.now_ms)
    # The controller did not run during this hour, so only one check interval counts. The silent broker keeps the rest
    # of its session.
    assert clock.run(SESSION_MS - heard_before_ms - PULSE_MS) == [(2, 8)]
    assert liveness.has_session(1, 7, clock.now_ms)


def test_heartbeat_that_comes_before_the_late_check_does_not_end_the_other_sessions() -> None:
    liveness = Liveness(SESSION_MS)
    clock = Clock(liveness)
    liveness.registered(1, 7, 0)
    liveness.registered(2, 8, 0)
    clock.now_ms = HOUR_MS
    liveness.heard(1, 7, clock.now_ms)
    assert liveness.expired(clock.now_ms) == []


def test_silent_broker_is_found_by_a_controller_that_is_always_late() -> None:
    liveness = Liveness(SESSION_MS)
    clock = Clock(liveness)
    liveness.registered(1, 7, 0)
    assert [clock.jump(10 * PULSE_MS) for _ in range(8)] == [[]] * 7 + [[(1, 7)]]


def test_broker_is_returned_again_by_the_next_pulse_when_it_could_not_be_fenced() -> None:
    liveness = Liveness(SESSION_MS)
    clock = Clock(liveness)
    liveness.registered(1, 7, 0)
    assert clock.run(SESSION_MS) == [(1, 7)]
    assert clock.run(PULSE_MS) == [(1, 7)]
    liveness.gone(1)
    assert clock.run(SESSION_MS) == []


@given(
    st.lists(st.tuples(st.sampled_from(["register", "hear", "gone", "wait"]), st.integers(0, 3), st.integers(0, 40)))
)
def test_sessions_end_as_in_a_simple_model(steps: list[tuple[str, int, int]]) -> None:
    """A check runs in every millisecond. So the controller was able to receive heartbeats all the time."""
    liveness, now_ms, epochs = Liveness(80), 0, 0
    ends: dict[int, tuple[int, int]] = {}  # by broker id: the end of its session, and its broker epoch
    for what, broker_id, number in steps:
        if what == "register":
            epochs += number % 2
            if broker_id not in ends or ends[broker_id][1] != epochs:
                ends[broker_id] = now_ms + 80, epochs
            liveness.registered(broker_id, epochs, now_ms)
        elif what == "hear" and broker_id in ends:
            ends[broker_id] = now_ms + 80, ends[broker_id][1]
            liveness.heard(broker_id, ends[broker_id][1], now_ms)
        elif what == "gone":
            ends.pop(broker_id, None)
            liveness.gone(broker_id)
        else:
            for _ in range(number):
                now_ms += 1
                over = liveness.expired(now_ms)
                assert over == sorted((each, epoch) for each, (end, epoch) in ends.items() if end <= now_ms)
                for each, _ in over:
                    del ends[each]
                    liveness.gone(each)
