"""A wall clock that follows small jumps of the system's clock slowly."""

from kafkacore.coordinator.steady_clock import SteadyClock

HOUR_MS = 3_600_000


class Time:
    def __init__(self) -> None:
        self.ns, self.ms = 5_000_000, 1_700_000_000_000

    def monotonic_ns(self) -> int:
        return self.ns

    def wall_ms(self) -> int:
        return self.ms

    def passes(self, ms: int) -> None:
        self.ns += ms * 1_000_000
        self.ms += ms


def test_steady_clock_follows_the_wall_clock_without_steps() -> None:
    time = Time()
    steady = SteadyClock(time)
    for ms in (0, 1, 17, 100_000):
        time.passes(ms)
        assert steady.wall_ms() == time.ms
        assert steady.monotonic_ns() == time.ns


def test_steady_clock_follows_a_step_forward_slowly() -> None:
    time = Time()
    steady = SteadyClock(time)
    before = steady.wall_ms()
    time.ms += HOUR_MS
    assert steady.wall_ms() == before
    time.passes(1_000)
    assert steady.wall_ms() == before + 1_100
    time.passes(10 * HOUR_MS)
    assert steady.wall_ms() == time.ms


def test_steady_clock_follows_a_step_back_slowly_and_never_goes_back() -> None:
    time = Time()
    steady = SteadyClock(time)
    time.ms -= 1_000
    told = []
    for _ in range(200):
        time.passes(100)
        told.append(steady.wall_ms())
    assert told == sorted(told)
    assert told[0] - (time.ms - 19_900) in range(985, 995)  # the difference shrinks by a tenth of the elapsed time
    assert told[-1] == time.ms


def test_steady_clock_follows_the_wall_clock_at_once_when_it_is_more_than_an_hour_behind() -> None:
    time = Time()
    steady = SteadyClock(time)
    time.ms += 8 * 24 * HOUR_MS  # the machine was suspended, and its monotonic clock stood still
    time.passes(1)
    assert steady.wall_ms() == time.ms
    time.passes(1_000)
    assert steady.wall_ms() == time.ms
