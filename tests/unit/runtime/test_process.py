"""The threads that all nodes of a process share, and how many of them serve the data plane."""

from __future__ import annotations

import os
from pathlib import Path

from kafkacore._fast.base import thread_priority as priority
from kafkacore.runtime.process import CONTROLLER, DATA, DATA_NICE, Runtime, default_processors
from processes import wait_until


def test_node_that_wants_most_processors_decides() -> None:
    first = Runtime.shared(1)
    try:
        before = first.processors(DATA)
        assert len(before) == 1
        assert Runtime.shared(3) is first
        assert first.processors(DATA)[:1] == before and len(first.processors(DATA)) == 3
        # The processors of the first node stay, even if a later node wants fewer.
        assert len(before) == 1
        Runtime.shared(2)
        assert len(first.processors(DATA)) == 3
        assert len(first.processors(CONTROLLER)) == 1
        first.release()
        first.release()
    finally:
        first.release()


def test_number_of_processors_depends_on_the_machine_by_default() -> None:
    runtime = Runtime.shared()
    try:
        assert len(runtime.processors(DATA)) == default_processors()
    finally:
        runtime.release()


def nice_by_name() -> dict[str, int]:
    tasks = Path("/proc/self/task")
    return {
        (task / "comm").read_text().strip(): os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks.iterdir()
    }


def test_data_plane_has_lower_priority_and_control_plane_short_slices() -> None:
    runtime = Runtime()
    try:
        for kind in (DATA, CONTROLLER):
            runtime.processors(kind)
        ordinary = priority.own()
        data, controller = (runtime.loop(kind).run(own_priority()) for kind in (DATA, CONTROLLER))
        ours = os.nice(0)
        lower = min(ours + DATA_NICE, 19)
        # A new thread sets its own priority, maybe after this thread has gone on.
        wait_until(lambda: nice_by_name()["kc-data-0"] == lower, what=f"a data plane thread with nice {lower}")
        found = nice_by_name()
        # Threads that may hold the GIL have normal priority.
        assert found["kc-controller-0"] == found["kc-loop-data"] == found["kc-loop-controll"[:15]] == ours
        # The time slices of this thread are short. So, if the kernel preempts it while it holds the GIL, other threads
        # do not wait for long.
        assert data == controller
        assert controller[1] < ordinary[1]
        if ordinary[0] > 0:  # this is true if the kernel supports time slices
            assert controller[0] < ordinary[0]
    finally:
        runtime.close()


async def own_priority() -> tuple[int, int]:
    return priority.own()
