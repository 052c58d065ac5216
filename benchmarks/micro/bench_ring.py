"""Benchmarks of the bounded ring and of mail (messages between threads), with one sending thread and with several,
compared with queue.SimpleQueue.

.venv/bin/python -m pytest benchmarks/micro/bench_ring.py --benchmark-group-by=group --benchmark-columns=min,median
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from kafkacore._fast.wait.mail import PyInbox
from kafkacore._fast.wait.ring import PyRing

ITEMS = 100_000


def push_and_pop(ring: PyRing) -> None:
    """Pushes a full batch and pops a full batch, all in native code."""
    for first in range(1, ITEMS, 64):
        ring.push_all(first, 64)
        ring.pop(64)


def test_ring_alone(benchmark: Any) -> None:
    benchmark.group = "one thread"
    benchmark.pedantic(push_and_pop, args=(PyRing(500),), rounds=20, warmup_rounds=2)
    benchmark.extra_info["ns_per_item"] = round(benchmark.stats["min"] / ITEMS * 1e9, 1)


def test_queue_alone(benchmark: Any) -> None:
    benchmark.group = "one thread"
    box: queue.SimpleQueue[int] = queue.SimpleQueue()

    def run() -> None:
        for number in range(ITEMS):
            box.put(number)
            box.get()

    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    benchmark.extra_info["ns_per_item"] = round(benchmark.stats["min"] / ITEMS * 1e9, 1)


@pytest.mark.parametrize("producers", [1, 4])
@pytest.mark.parametrize("capacity", [20, 500])
def test_ring_between_threads(benchmark: Any, producers: int, capacity: int) -> None:
    benchmark.group = f"{producers} producers, capacity {capacity}"
    each = ITEMS // producers

    def run() -> None:
        ring = PyRing(capacity)
        threads = [threading.Thread(target=ring.push_all, args=(1, each)) for _ in range(producers)]
        for thread in threads:
            thread.start()
        left = each * producers
        while left:
            left -= len(ring.pop(64))
        for thread in threads:
            thread.join()

    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    benchmark.extra_info["ns_per_item"] = round(benchmark.stats["min"] / ITEMS * 1e9, 1)


def test_mail_alone(benchmark: Any) -> None:
    benchmark.group = "one thread"
    inbox = PyInbox(1 << 10)

    def run() -> None:
        for first in range(0, ITEMS, 64):
            inbox.post(first, 64)
            inbox.deliver()

    benchmark.pedantic(run, rounds=20, warmup_rounds=2)
    benchmark.extra_info["ns_per_item"] = round(benchmark.stats["min"] / ITEMS * 1e9, 1)
