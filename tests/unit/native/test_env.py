"""Clocks that stand still until a test advances them."""

import pytest

from kafkacore._fast.world.environment import Environment, ManualClock, RunningClock


def test_manual_clock_moves_only_when_it_is_moved() -> None:
    clock = ManualClock(wall_ms=1000, monotonic_ns=5)
    environment = Environment(clock)
    clock.advance_ms(1.5)
    assert (environment.wall_ms(), environment.monotonic_ns()) == (1001, 1_500_005)
    clock.step_wall_ms(-500)
    assert (environment.wall_ms(), environment.monotonic_ns()) == (501, 1_500_005)
    with pytest.raises(ValueError, match="forward only"):
        clock.advance_ms(-1)


def test_running_clock_is_ahead_of_the_real_clock_by_the_moved_time() -> None:
    clock, real = RunningClock(), Environment()
    environment = Environment(clock)
    assert 0 <= environment.wall_ms() - real.wall_ms() < 1000
    clock.advance_ns(3_600_000_000_001)
    for mine, other, ahead in (
        (environment.monotonic_ns, real.monotonic_ns, 3_600_000_000_001),
        (clock.monotonic_ns, real.monotonic_ns, 3_600_000_000_001),
        (environment.wall_ms, real.wall_ms, 3_600_000),
        (clock.wall_ms, real.wall_ms, 3_600_000),
    ):
        before = other()
        moved = mine()
        # The one nanosecond that was added can complete a millisecond.
        assert before + ahead <= moved <= other() + ahead + 1


def test_real_clock_goes_forward() -> None:
    environment = Environment()
    assert environment.monotonic_ns() <= environment.monotonic_ns()
    assert environment.wall_ms() > 1_700_000_000_000
