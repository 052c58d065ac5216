"""A simulated event loop whose machine dies."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Coroutine
from random import Random
from typing import Any

from kafkacore.simulation.machine import Machine
from kafkacore.simulation.schedule import Schedule


def test_coroutine_is_closed_with_its_arguments_when_the_machine_dies_before_its_first_step() -> None:
    begun = []

    async def answer() -> None:
        begun.append("answer")

    async def finish(answering: Coroutine[Any, Any, None]) -> None:
        begun.append("finish")
        await answering

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        machine = Machine(Schedule(Random(1)), "a")
        loop = machine.loop("data")
        loop.create_task(finish(answer()))
        loop.submit(finish(answer()))
        machine.kill()
        loop.submit(finish(answer()))
        gc.collect()
    assert (begun, [str(each.message) for each in warned]) == ([], [])
