"""Deadlines that are postponed, advanced and cancelled, compared with a list that is sorted after each step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.coordinator.group.deadlines import Deadline, Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 7), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_deadline_fires_once_when_it_is_due(steps: list[tuple[str, int, int]]) -> None:
    deadlines, fired, now = Deadlines(), [], 0
    numbered = [Deadline().call(fired.append, number) for number in range(8)]
    expected: dict[int, int] = {}
    for what, number, ms in steps:
        if what == "set":
            deadlines.set(numbered[number], now + ms)
            expected[number] = now + ms
        elif what == "cancel":
            deadlines.cancel(numbered[number])
            expected.pop(number, None)
        else:
            now += ms
            due = {each for each, at in expected.items() if at <= now}
            deadlines.advance(now)
            assert sorted(fired) == sorted(due)
            fired.clear()
            for each in due:
                del expected[each]
        next_ms = deadlines.next_ms()
        if expected:
            assert next_ms is not None
            assert next_ms <= min(expected.values())


def test_dead_entries_never_outnumber_live_ones() -> None:
    deadlines = Deadlines()
    kept = [Deadline() for _ in range(100)]
    for round_number in range(100):
        for each in kept:
            deadlines.set(each, 1_000_000 + round_number)  # postponed
    assert len(deadlines) == 100
    for round_number in range(100):
        for each in kept:
            deadlines.set(each, 900_000 - round_number)  # advanced
    assert len(deadlines) <= 300
    for _ in range(10_000):
        passing = Deadline()
        deadlines.set(passing, 2_000_000)
        deadlines.cancel(passing)
    assert len(deadlines) <= 400


def test_deadline_does_not_fire_when_an_action_cancels_it_or_puts_it_off() -> None:
    deadlines, fired = Deadlines(), []
    second, third = Deadline().call(fired.append, 2), Deadline().call(fired.append, 3)

    def first_fires() -> None:
        deadlines.cancel(second)
        deadlines.set(third, 50)

    deadlines.set(Deadline().call(first_fires), 1)
    deadlines.set(second, 2)
    deadlines.set(third, 3)
    deadlines.advance(10)
    assert fired == []
    deadlines.advance(50)
    assert fired == [3]


def test_deadlines_after_a_failed_one_fire_in_the_next_turn() -> None:
    deadlines, fired = Deadlines(), []

    def fails() -> None:
        deadlines.cancel(cancelled)
        deadlines.set(put_off, 50)
        raise ValueError("one of many")

    cancelled, put_off = Deadline().call(fired.append, "cancelled"), Deadline().call(fired.append, "put off")
    deadlines.set(Deadline().call(fails), 1)
    deadlines.set(cancelled, 2)
    deadlines.set(put_off, 3)
    deadlines.set(Deadline().call(fired.append, "other"), 4)
    with pytest.raises(ValueError, match="one of many"):
        deadlines.advance(10)
    assert deadlines.next_ms() == 4
    deadlines.advance(10)
    assert fired == ["other"]
    deadlines.advance(50)
    assert fired == ["other", "put off"]
    assert len(deadlines) == 0


def test_deadline_with_patience_is_put_off_once_when_it_comes_up_late() -> None:
    deadlines, fired = Deadlines(), []
    deadlines.set(Deadline().call(fired.append, "chore"), 100)
    deadlines.set(Deadline().call(fired.append, "client"), 100, 30)
    deadlines.set(Deadline().call(fired.append, "slower client"), 105, 500)
    deadlines.advance(140)
    assert fired == ["chore"]
    deadlines.advance(169)
    assert fired == ["chore"]
    # The call was 40 ms late, which is more than the patience of 30 ms. So the deadline is put off by 30 ms.
    assert deadlines.next_ms() == 170
    deadlines.advance(170)
    assert fired == ["chore", "client"]
    deadlines.advance(300)  # late again, and now the patience has run out
    assert fired == ["chore", "client", "slower client"]


def test_deadline_has_its_patience_again_when_it_is_set_again() -> None:
    deadlines, fired = Deadlines(), []
    client = Deadline().call(fired.append, "client")
    deadlines.set(client, 100, 50)
    deadlines.advance(1_000)
    deadlines.set(client, 1_100, 50)
    deadlines.advance(2_000)
    assert fired == []
    deadlines.advance(2_050)
    assert fired == ["client"]


def test_deadline_with_patience_fires_at_once_when_it_comes_up_in_time() -> None:
    deadlines, fired = Deadlines(), []
    deadlines.set(Deadline().call(fired.append, "client"), 100, 50)
    deadlines.advance(100)
    assert fired == ["client"]
