"""Work that is due at certain times, on a clock that the test advances."""

import asyncio
import random

import pytest

from kafkacore.runtime.clock import Environment, ManualClock
from kafkacore.runtime.randomness import backoff_ms, randomness
from kafkacore.runtime.scheduler import Scheduler


def test_once_and_periodic() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    done: list[str] = []
    scheduler.after(10, lambda: done.append("once"))
    tick = scheduler.every(4, lambda: done.append("tick"), delay_ms=0)
    for _ in range(12):
        scheduler.run_due()
        clock.advance_ms(1)
    assert done == ["tick", "tick", "tick", "once"]
    tick.cancel()
    clock.advance_ms(100)
    assert scheduler.run_due() == 0
    assert scheduler.next_due_ns() is None


def test_missed_periods_are_skipped() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    done: list[int] = []
    scheduler.every(10, lambda: done.append(1))
    clock.advance_ms(95)
    assert scheduler.run_due() == 1
    clock.advance_ms(5)
    assert scheduler.run_due() == 1


def test_failed_work_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    scheduler.every(1, lambda: 1 // 0, name="divide")
    for _ in range(2):
        clock.advance_ms(1)
        assert scheduler.run_due() == 1
    assert sum("divide failed" in record.message for record in caplog.records) == 2


def test_scheduler_wakes_by_itself_on_a_loop() -> None:
    async def story() -> list[int]:
        done: list[int] = []
        ended = asyncio.Event()
        scheduler = Scheduler(Environment(), asyncio.get_running_loop().call_later)
        scheduler.after(5, ended.set)
        scheduler.every(1, lambda: done.append(1))
        await asyncio.wait_for(ended.wait(), 10)
        scheduler.close()
        return done

    assert asyncio.run(story())


def test_scheduler_catches_up_when_its_clock_was_moved() -> None:
    async def story() -> list[str]:
        clock, done = ManualClock(), []
        scheduler = Scheduler(clock, asyncio.get_running_loop().call_later)
        scheduler.after(60_000, lambda: done.append("in a minute"))
        scheduler.after(61_000, lambda: done.append("a second later"))
        clock.advance_ms(60_999)
        assert scheduler.catch_up() == 1
        clock.advance_ms(1)
        assert scheduler.catch_up() == 1
        scheduler.close()
        return done

    assert asyncio.run(story()) == ["in a minute", "a second later"]


def test_cancelled_work_is_dropped_before_its_time() -> None:
    clock = ManualClock()
    scheduler = Scheduler(clock)
    done: list[int] = []
    for number in range(10_000):
        scheduled = scheduler.after(60_000 - number, lambda number=number: done.append(number))  # type: ignore[misc]
        if number % 1000:
            scheduled.cancel()
    assert scheduler.kept < 600
    clock.advance_ms(60_000)
    assert scheduler.run_due() == 10
    assert done == sorted(done, reverse=True)


def test_backoff_doubles_up_to_its_limit() -> None:
    source = random.Random(1)
    for attempt in range(8):
        assert 0.8 * 50 * 2**attempt <= backoff_ms(source, attempt, 50, 1e9) <= 1.2 * 50 * 2**attempt
    assert backoff_ms(source, 40, 50, 1000) == 1000


def test_a_seed_replays() -> None:
    assert randomness(5).random() == randomness(5).random()
