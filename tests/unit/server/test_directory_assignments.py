"""A broker repeats the assignment of a replica to a directory until the controller has accepted it. Then the callers
that wait for it continue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.uuid import Uuid
from kafkacore.server import directory_assignments
from kafkacore.server.directory_assignments import DirectoryAssignments

LIMIT_S = 10
REPLICA = (Uuid(b"t" * 16), 3)
ONE, OTHER = Uuid(b"1" * 16), Uuid(b"2" * 16)


class Controller:
    """A stub of the controller. It answers `send` when the test calls `answer`."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()

    async def send(self, request: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((request, future))
        return await future

    async def answer(self, error: ErrorCode = ErrorCode.NONE) -> Uuid:
        """Answers the pending request. Returns the directory that the request assigned to the replica."""
        request, future = await self.asked.get()
        future.set_result(SimpleNamespace(error_code=error))
        [directory] = request.directories
        assert [each.partition_index for each in directory.topics[0].partitions] == [REPLICA[1]]
        return Uuid(directory.id)


def fail(error: BaseException) -> None:
    raise AssertionError("nothing was to fail") from error


def run(scene: Callable[[DirectoryAssignments, Controller], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        controller = Controller()
        assignments = DirectoryAssignments(1, lambda: 7, controller.send, fail)
        await scene(assignments, controller)
        assignments.close()

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_assignment_is_sent_again_when_the_controller_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "RETRY_S", 0)

    async def scene(assignments: DirectoryAssignments, controller: Controller) -> None:
        waiting = asyncio.create_task(assignments.told(REPLICA, ONE))
        assert await controller.answer(ErrorCode.STALE_BROKER_EPOCH) == ONE
        request, future = await controller.asked.get()
        assert request.broker_epoch == 7
        assert not waiting.done()
        future.set_result(SimpleNamespace(error_code=ErrorCode.NONE))
        await waiting

    run(scene)


def test_waiter_goes_on_when_the_replica_gets_another_directory() -> None:
    async def scene(assignments: DirectoryAssignments, controller: Controller) -> None:
        first = asyncio.create_task(assignments.told(REPLICA, ONE))
        request, future = await controller.asked.get()
        second = asyncio.create_task(assignments.told(REPLICA, OTHER))
        await first
        future.set_result(SimpleNamespace(error_code=ErrorCode.NONE))
        assert Uuid(request.directories[0].id) == ONE
        # By now the replica is in another directory than the one that the controller has recorded.
        assert await controller.answer() == OTHER
        await second

    run(scene)


def test_assignment_is_not_sent_when_it_comes_after_the_close() -> None:
    async def scene(assignments: DirectoryAssignments, controller: Controller) -> None:
        assignments.close()
        assignments.tell({REPLICA: ONE})
        await asyncio.sleep(0)
        assert controller.asked.empty(), "nobody would end the task that sends it"

    run(scene)


def test_unexpected_end_of_the_task_is_reported() -> None:
    async def play() -> BaseException:
        async def broken(request: Any) -> Any:
            raise ValueError("broken")

        failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        DirectoryAssignments(1, lambda: 7, broken, failed.set_result).tell({REPLICA: ONE})
        return await failed

    assert str(asyncio.run(asyncio.wait_for(play(), LIMIT_S))) == "broken"
