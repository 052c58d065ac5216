"""When a process runs a full garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafkacore.runtime.collecting import BUSY_LOOKS, FullCollections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Process:
    def __init__(self) -> None:
        self.cpu_ns = self.now_ns = self.collected = 0
        self.collections = FullCollections(lambda: self.cpu_ns, lambda: self.now_ns, self.collect)

    def collect(self) -> None:
        self.collected += 1

    def pass_time(self, busy_share: float) -> None:
        gc.collect(1)  # moves objects to the oldest generation
        self.now_ns += 1_000_000_000
        self.cpu_ns += int(1_000_000_000 * busy_share)
        self.collections.look()


def test_process_collects_when_it_is_idle_and_waits_while_it_is_busy() -> None:
    process = Process()
    process.pass_time(0.9)
    assert process.collected == 0
    process.pass_time(0.01)
    assert process.collected == 1


def test_process_collects_in_the_end_when_it_is_never_idle() -> None:
    process = Process()
    for _ in range(BUSY_LOOKS - 1):
        process.pass_time(1.5)
    assert process.collected == 0
    process.pass_time(1.5)
    assert process.collected == 1
    process.pass_time(1.5)
    assert process.collected == 1


def test_process_does_not_collect_when_no_object_is_old() -> None:
    process = Process()
    gc.collect()
    process.now_ns += 1_000_000_000
    process.collections.look()
    assert process.collected == 0


def test_full_collection_begins_only_by_a_check() -> None:
    FullCollections.postpone()
    full: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        full.append(info["generation"])

    gc.callbacks.append(note)
    try:
        kept = [[[]] for _ in range(400_000)]
    finally:
        gc.callbacks.remove(note)
    assert kept and 1 in full and 2 not in full
