"""Work that an event loop does in slices of a few milliseconds. The loop runs other tasks between the slices, and the
result is the same as without slices.
"""

import asyncio
import random
import time

import pytest

from kafkacore.runtime import slices
from kafkacore.runtime.slices import Slice, Work, finish, finish_now, in_slices, sorted_in_slices


def busy(steps: int, step_s: float = 0.0) -> Work[int]:
    for _ in range(steps):
        end = time.perf_counter() + step_s
        while time.perf_counter() < end:
            pass
        yield
    return steps


def broken(steps: int) -> Work[int]:
    yield from busy(steps, 0.001)
    raise ValueError("broken")


def test_short_work_is_done_at_once() -> None:
    assert in_slices(busy(3)) == 3
    assert finish_now(busy(3)) == 3


def test_long_work_lets_the_loop_go_on_in_between() -> None:
    async def run() -> tuple[int, int]:
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        result = in_slices(busy(30, 0.001))
        assert not isinstance(result, int)
        done = await result
        task.cancel()
        return done, others

    done, others = asyncio.run(run())
    assert done == 30
    assert others >= 30 * 0.001 / slices.SLICE_S / 2


def test_a_turn_of_the_loop_has_one_slice_when_many_works_wait() -> None:
    async def run() -> list[int]:
        turn, seen = 0, []

        def work() -> Work[None]:
            for _ in range(3):
                until = time.perf_counter() + slices.SLICE_S
                while time.perf_counter() < until:
                    pass
                yield
                seen.append(turn)

        async def count() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.gather(*(finish(work()) for _ in range(8)))
        counting.cancel()
        return seen

    seen = asyncio.run(run())
    assert len(seen) == 24
    assert len(set(seen)) == 24, "two pieces of work ran in the same iteration of the loop"


@pytest.mark.parametrize("steps", [0, 30])
def test_error_of_the_work_reaches_its_caller(steps: int) -> None:
    async def run() -> None:
        await finish(broken(steps))

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run())


def test_coroutine_gives_way_when_its_slice_is_over() -> None:
    async def run() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        slice_ = Slice()
        for _ in range(20):
            await slice_.give_way()
            time.sleep(0.001)  # noqa: ASYNC251 - stands for real work
        task.cancel()
        return turns

    assert 2 <= asyncio.run(run()) <= 20


@pytest.mark.parametrize("count", [0, 10, 5_000])
def test_sorting_in_slices_sorts(count: int) -> None:
    names = [f"{random.Random(count).random()}{number}" for number in range(count)]
    random.Random(1).shuffle(names)
    assert finish_now(sorted_in_slices(names)) == sorted(names)
