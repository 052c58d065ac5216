"""A controller event whose work runs in slices of a few milliseconds. The work stops when the ZooKeeper session in
which it began has ended."""

import asyncio

import pytest

from kafkacore.controller.zookeeper.access import Access
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.events import SessionLostError
from kafkacore.controller.zookeeper.leadership import Assignment, first_leadership
from kafkacore.controller.zookeeper.state_store import StateStore
from kafkacore.controller.zookeeper.surroundings import ControllerSettings
from kafkacore.runtime import slices


class Recorder:
    """A stub of the ZooKeeper client. It records the requested operations, and never answers."""

    def __init__(self):
        self.submitted = []

    async def submit(self, operations):
        self.submitted += operations
        await asyncio.get_running_loop().create_future()


@pytest.fixture(autouse=True)
def short_slices(monkeypatch):
    monkeypatch.setattr(slices, "SLICE_S", 0.0)  # each step is a slice


def steps():
    for _ in range(5):
        yield
    return "done"


async def half_way(work):
    """Starts a task that does the work, and lets it run a few slices. Returns the task."""
    task = asyncio.ensure_future(work)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def test_long_work_gives_its_result_when_the_session_lasts():
    async def story():
        access = Access(Recorder())
        access.bind()
        task = await half_way(access.in_slices(steps()))
        assert await task == "done"

    asyncio.run(story())


def test_event_stops_after_long_work_when_the_session_has_ended_meanwhile():
    async def story():
        access = Access(Recorder())
        access.bind()
        task = await half_way(access.in_slices(steps()))
        access.end_session()
        with pytest.raises(SessionLostError):
            await task

    asyncio.run(story())


def test_no_state_is_written_when_the_session_ends_while_the_states_are_encoded():
    async def story():
        zookeeper, context = Recorder(), ControllerContext(epoch=7)
        access = Access(zookeeper)
        access.bind()
        topic = context.add_topic("events", None)
        rows = [context.add_partition(topic, number, Assignment((1, 2))) for number in range(1000)]
        changes = dict.fromkeys(rows, first_leadership(1, (1, 2), 7))
        task = await half_way(StateStore(access, ControllerSettings(9)).update(context, changes))
        access.end_session()
        with pytest.raises(SessionLostError):
            await task
        assert zookeeper.submitted == []

    asyncio.run(story())
