"""The bounded ring buffer: its exact capacity, its order, several threads, and wake-ups that are never lost."""

import select
import threading

import pytest

from kafkacore._fast.wait.ring import PyRing


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 20, 64])
def test_ring_holds_exactly_its_capacity(capacity: int) -> None:
    ring = PyRing(capacity)
    for turn in range(5):
        assert all(ring.push(turn * 100 + i + 1) for i in range(capacity))
        assert not ring.push(9999)
        assert len(ring) == capacity
        assert ring.pop() == [turn * 100 + i + 1 for i in range(capacity)]
        assert len(ring) == 0


def test_ring_refuses_a_capacity_below_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PyRing(0)


def test_failed_push_gets_one_notice_of_room() -> None:
    ring = PyRing(2)
    assert ring.push(1)
    assert ring.push(2)
    assert not ring.push(3)
    assert not ring.push(3)
    assert ring.room() == 0
    assert ring.pop(1) == [1]
    assert ring.room() == 1
    assert ring.pop(1) == [2]
    assert ring.room() == 0


def test_consumer_may_not_sleep_while_the_ring_has_items() -> None:
    ring = PyRing(4)
    assert ring.may_sleep()
    assert ring.push(1)
    readable, _, _ = select.select([ring.fileno()], [], [], 1)
    assert readable
    ring.awake()
    assert not ring.may_sleep()
    assert ring.pop() == [1]
    assert ring.may_sleep()
    assert select.select([ring.fileno()], [], [], 0)[0] == []


@pytest.mark.parametrize("capacity", [1, 3, 128])
def test_ring_keeps_every_item_in_order_between_threads(capacity: int) -> None:
    """The items of each producer arrive in the producer's order. The consumer sleeps whenever it may, and is always
    woken."""
    ring = PyRing(capacity)
    each, producers = 20_000 if capacity > 1 else 3_000, 4
    threads = [
        threading.Thread(target=ring.push_all, args=(1 + number * each, each), daemon=True)
        for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    last = [0] * producers
    received = 0
    while received < each * producers:
        batch = ring.pop()
        for number in batch:
            owner = (number - 1) // each
            assert number > last[owner]
            last[owner] = number
        received += len(batch)
        if not batch and ring.may_sleep():
            assert select.select([ring.fileno()], [], [], 10)[0], "a wake-up was lost"
            ring.awake()
    assert last == [(number + 1) * each for number in range(producers)]
    for thread in threads:
        thread.join()
