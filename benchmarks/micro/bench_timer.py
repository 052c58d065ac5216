"""Benchmarks of the timing wheel, compared with a heap. Some benchmarks set timers and cancel them, as happens to most
timers. The other benchmarks let the timers fire.

.venv/bin/python -m pytest benchmarks/micro/bench_timer.py --benchmark-group-by=group --benchmark-columns=min,median
"""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest

from kafkacore._fast.wait.timer import PyWheel

TIMERS = 10_000


@pytest.fixture(scope="module")
def deadlines() -> list[int]:
    source = random.Random(1)
    return [source.randrange(1, 60_000) for _ in range(TIMERS)]


def test_wheel_set_and_cancel(benchmark: Any, deadlines: list[int]) -> None:
    benchmark.group = "set and cancel"
    wheel = PyWheel(0, TIMERS)

    def run() -> None:
        for number, deadline in enumerate(deadlines):
            wheel.add(number, deadline)
        for number in range(TIMERS):
            wheel.cancel(number)

    benchmark(run)
    benchmark.extra_info["ns_per_timer"] = round(benchmark.stats["min"] / TIMERS * 1e9, 1)


def test_wheel_set_and_fire(benchmark: Any, deadlines: list[int]) -> None:
    benchmark.group = "set and fire"

    def run() -> None:
        wheel = PyWheel(0, TIMERS)
        for number, deadline in enumerate(deadlines):
            wheel.add(number, deadline)
        assert len(wheel.advance(60_000)) == TIMERS

    benchmark(run)
    benchmark.extra_info["ns_per_timer"] = round(benchmark.stats["min"] / TIMERS * 1e9, 1)


def test_heap_set_and_fire(benchmark: Any, deadlines: list[int]) -> None:
    benchmark.group = "set and fire"

    def run() -> None:
        heap: list[tuple[int, int]] = []
        for number, deadline in enumerate(deadlines):
            heapq.heappush(heap, (deadline, number))
        while heap:
            heapq.heappop(heap)

    benchmark(run)
    benchmark.extra_info["ns_per_timer"] = round(benchmark.stats["min"] / TIMERS * 1e9, 1)
