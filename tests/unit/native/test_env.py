"""Clocks that stand still until a test moves them."""

import pytest

from kafkacore._fast.env import Environment, ManualClock


def test_a_manual_clock_moves_when_told() -> None:
    clock = ManualClock(wall_ms=1000, monotonic_ns=5)
    environment = Environment(clock)
    clock.advance_ms(1.5)
    assert (environment.wall_ms(), environment.monotonic_ns()) == (1001, 1_500_005)
    clock.step_wall_ms(-500)
    assert (environment.wall_ms(), environment.monotonic_ns()) == (501, 1_500_005)
    with pytest.raises(ValueError, match="forward only"):
        clock.advance_ms(-1)


def test_the_real_clock_goes_forward() -> None:
    environment = Environment()
    assert environment.monotonic_ns() <= environment.monotonic_ns()
    assert environment.wall_ms() > 1_700_000_000_000
