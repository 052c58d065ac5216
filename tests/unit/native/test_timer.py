"""The timing wheel, compared with a list of deadlines."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.wait.timer import PyWheel

NUMBERS = st.integers(0, 19)
DELAYS = st.one_of(
    st.integers(-5, 70), st.integers(0, 5000), st.integers(0, 1 << 20), st.integers(0, 1 << 31), st.just(1 << 40)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NUMBERS, DELAYS),
        st.tuples(st.just("cancel"), NUMBERS, st.just(0)),
        st.tuples(st.just("advance"), st.just(0), DELAYS.filter(lambda ms: ms >= 0)),
    ),
    max_size=60,
)


@given(start_ms=st.integers(0, 1 << 41), steps=STEPS)
@settings(max_examples=300)
def test_wheel_behaves_like_a_list_of_deadlines(start_ms: int, steps: list[tuple[str, int, int]]) -> None:
    wheel = PyWheel(start_ms, 20)
    now_ms = start_ms
    deadlines: dict[int, int] = {}
    for what, number, ms in steps:
        if what == "add":
            wheel.add(number, now_ms + ms)
            # A timer whose time has already passed fires a millisecond later.
            deadlines[number] = max(now_ms + ms, now_ms + 1)
        elif what == "cancel":
            wheel.cancel(number)
            deadlines.pop(number, None)
        else:
            now_ms += ms
            due = {each for each, deadline in deadlines.items() if deadline <= now_ms}
            fired = wheel.advance(now_ms)
            assert sorted(fired) == sorted(due)
            assert [deadlines[each] for each in fired] == sorted(deadlines[each] for each in fired)
            for each in due:
                del deadlines[each]
        assert len(wheel) == len(deadlines)
        if deadlines:
            assert now_ms < wheel.next_ms() <= min(deadlines.values())
        else:
            assert wheel.next_ms() == -1


def test_alarm_fires_once_when_it_is_set_again() -> None:
    wheel = PyWheel(0)
    wheel.add(1, 10)
    wheel.add(1, 500)
    assert wheel.advance(499) == []
    assert wheel.advance(500) == [1]
    assert wheel.advance(100_000) == []
