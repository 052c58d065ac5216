"""The memory budget grants requests in the order of their arrival, and never exceeds its limit. Frames are recycled."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacore._fast.wait import memory
from kafkacore._fast.wait.memory import PyBudget


def test_budget_grants_in_order_of_arrival() -> None:
    budget = PyBudget(10)
    assert budget.reserve(0, 8)
    assert not budget.reserve(1, 5)
    assert not budget.reserve(2, 1)  # these bytes would fit, but an earlier request is waiting
    budget.release(8)
    assert budget.delivered() == [1, 2]
    assert budget.used == 6


def test_budget_grants_the_next_claim_when_one_is_cancelled() -> None:
    budget = PyBudget(10)
    assert budget.reserve(0, 5)
    assert not budget.reserve(1, 10)
    assert not budget.reserve(2, 5)
    assert budget.cancel(1)
    assert budget.delivered() == [2]
    assert not budget.cancel(2)


def test_budget_grants_frames_under_way_before_new_ones() -> None:
    budget = PyBudget(10)
    assert budget.reserve(0, 4)
    assert budget.reserve(1, 4)
    assert budget.reserve(2, 2)
    assert not budget.reserve(3, 2)
    assert budget.grow(0, 1, 4)  # may exceed the limit: grants all the bytes that are missing
    assert not budget.grow(1, 4, 4)
    budget.release(2)
    assert budget.delivered() == []
    budget.release(8, overdraft=True)
    assert budget.delivered() == [1, 3]
    assert budget.granted_bytes(1) == (4, False)
    assert budget.used == 10


def test_parked_requests_fill_half_of_the_budget_at_most() -> None:
    budget = PyBudget(100)
    assert budget.park(30)
    assert budget.park(20)
    assert not budget.park(1)
    assert budget.used == 50  # the bytes of a refused request do not count
    assert budget.park(10, must=True)  # a Produce that waits for acknowledgements
    assert budget.used == 60
    assert not budget.reserve(0, 50)
    budget.unpark(30)
    assert budget.delivered() == [0]
    assert budget.park(10)
    assert budget.used == 90


def test_budget_lets_one_frame_overdraw_when_all_wait_for_each_other() -> None:
    budget = PyBudget(10)
    assert all(budget.reserve(number, 3) for number in range(3))
    assert budget.grow(0, 3, 5)
    assert budget.granted_bytes(0) == (5, True)
    assert not budget.grow(1, 3, 5)
    assert not budget.grow(2, 3, 5)
    assert budget.used == 14  # the budget may exceed its limit by one frame, but never by two
    budget.release(8, overdraft=True)
    assert budget.delivered() == [1, 2]
    assert [budget.granted_bytes(number) for number in (1, 2)] == [(3, False), (5, True)]
    assert not budget.grow(1, 2, 2)
    budget.release(8, overdraft=True)
    assert budget.delivered() == [1]
    budget.release(8, overdraft=budget.granted_bytes(1)[1])
    assert budget.used == 0


def test_budget_grants_the_next_frame_under_way_when_one_is_cancelled() -> None:
    budget = PyBudget(10)
    assert budget.reserve(0, 6)
    assert budget.reserve(1, 4)
    assert budget.grow(0, 6, 6)
    assert not budget.grow(1, 4, 4)
    assert not budget.reserve(2, 1)
    budget.release(8)
    assert budget.delivered() == []
    assert budget.cancel(1)
    assert budget.delivered() == [2]
    assert not budget.cancel(1)


@given(st.lists(st.tuples(st.sampled_from(["reserve", "release", "cancel"]), st.integers(0, 255), st.integers(1, 40))))
@settings(max_examples=200)
def test_budget_behaves_like_a_plain_queue(steps: list[tuple[str, int, int]]) -> None:
    limit = 40
    budget = PyBudget(limit)
    held: dict[int, int] = {}
    waiting: list[tuple[int, int]] = []
    free: list[int] = list(range(256))

    def grant() -> list[int]:
        granted = []
        while waiting and sum(held.values()) + waiting[0][1] <= limit:
            number, size = waiting.pop(0)
            held[number] = size
            granted.append(number)
        return granted

    for what, pick, size in steps:
        if what == "reserve" and free:
            number = free.pop()
            if budget.reserve(number, size):
                assert not waiting
                held[number] = size
            else:
                waiting.append((number, size))
                assert sum(held.values()) + waiting[0][1] > limit
            assert budget.delivered() == []
        elif what == "release" and held:
            number = sorted(held)[pick % len(held)]
            budget.release(held.pop(number))
            assert budget.delivered() == grant()
        elif what == "cancel" and waiting:
            number, _ = waiting.pop(pick % len(waiting))
            assert budget.cancel(number)
            assert budget.delivered() == grant()
        assert budget.used == sum(held.values()) <= limit


def test_budget_stays_within_its_limit_under_threads() -> None:
    budget = PyBudget(3)
    over = []

    def take_and_give(number: int) -> None:
        for _ in range(2000):
            if budget.reserve(number, 1):
                if budget.used > 3:
                    over.append(budget.used)
                budget.release(1)
            elif budget.cancel(number):
                continue
            else:  # the budget has granted the request meanwhile
                budget.release(1)

    threads = [threading.Thread(target=take_and_give, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert over == []
    assert budget.used == 0


def test_frame_is_recycled_by_its_thread() -> None:
    before = memory.live()
    addresses = memory.frame_addresses([1 << 20] * 10)
    assert len(set(addresses)) == 1
    assert memory.live() == before


@pytest.mark.parametrize("size", [100, 1_000_000, (1 << 20) - 200, 32 << 20])
@pytest.mark.parametrize("skew", [0, 1, 63])
def test_frame_data_begins_at_the_requested_place_in_a_cache_line(size: int, skew: int) -> None:
    (address,) = memory.frame_addresses([size], skew)
    assert address % 64 == skew


def test_frame_data_begins_behind_the_header_when_the_block_is_full() -> None:
    # With its header the frame has exactly one megabyte, so a single byte more would need the next size class.
    addresses = memory.frame_addresses([(1 << 20) - 64] * 2, 63)
    assert len(set(addresses)) == 1


def test_small_and_huge_frames_are_recycled_apart() -> None:
    small, huge, small_again = memory.frame_addresses([100, 32 << 20, 100])
    assert small == small_again != huge
