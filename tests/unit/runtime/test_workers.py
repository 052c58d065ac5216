"""A pool of threads whose number changes while they work."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future

import pytest

from kafkacore.runtime.workers import Workers

LIMIT_S = 20


class Held:
    """Work that starts, and then waits until the test releases it."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.futures: list[Future[bool]] = []

    def submit(self, count: int) -> None:
        self.futures += [self.workers.submit(self._work) for _ in range(count)]

    def _work(self) -> bool:
        self.begun.release()
        return self.go.wait(LIMIT_S)

    def begin(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=LIMIT_S)
        assert not self.begun.acquire(blocking=False)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_new_number_of_threads_works_at_once_after_a_change(threads: int) -> None:
    workers = Workers(3, "test")
    workers.resize(threads)
    work = Held(workers)
    work.submit(threads + 1)
    work.begin(threads)
    work.go.set()
    assert all(future.result(LIMIT_S) for future in work.futures)
    workers.shutdown()


def test_work_from_before_a_change_is_finished() -> None:
    workers = Workers(1, "test")
    work = Held(workers)
    work.submit(2)
    work.begin(1)
    workers.resize(2)
    work.submit(2)
    work.begin(2)
    work.go.set()
    assert all(future.result(LIMIT_S) for future in work.futures)
    workers.shutdown()


def test_shutdown_waits_for_earlier_threads_and_drops_work_that_has_not_begun() -> None:
    workers = Workers(1, "test")
    work = Held(workers)
    work.submit(2)
    work.begin(1)
    workers.resize(2)
    ended = threading.Event()

    def end() -> None:
        workers.shutdown(cancel_futures=True)
        ended.set()

    ending = threading.Thread(target=end)
    ending.start()
    begun, waiting = work.futures
    with pytest.raises(CancelledError):
        waiting.result(LIMIT_S)
    assert waiting.cancelled()
    assert not ended.is_set()
    work.go.set()
    ending.join(LIMIT_S)
    assert ended.is_set() and begun.result(0)
