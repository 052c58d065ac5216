"""Moves of replicas between the log directories of a broker, at the moments that an integration test rarely hits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkacore._fast.base.uuid import Uuid
from kafkacore._fast.log.settings import LogSettings
from kafkacore._fast.world.environment import Environment
from kafkacore.replication.log_dir_moves import LogDirMoves
from kafkacore.storage.future_logs import MoveCancelled
from kafkacore.storage.log_manager import LogManager

KEY = ("orders", 0)
LIMIT_S = 30


async def assigned(replica: Any, path: str) -> None:
    """Accepts the report, as a controller does."""


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    made = [str(tmp_path / name) for name in "abc"]
    for path in made:
        Path(path).mkdir()
    return made


@pytest.fixture
def manager(paths: list[str]) -> Iterator[LogManager]:
    made = LogManager(Environment(), paths, lambda topic: LogSettings())
    made.load()
    made.create(*KEY[:1], Uuid.random(), [KEY[1]], paths[0])
    yield made
    made.close()


def test_move_goes_on_when_two_requests_cancel_the_one_before_it(paths: list[str], manager: LogManager) -> None:
    drop, calls, go = manager.drop_future, [], threading.Event()

    def second_is_late(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            assert go.wait(LIMIT_S)
        drop(*arguments)

    manager.drop_future = second_is_late  # type: ignore[method-assign]

    async def run() -> None:
        moves = LogDirMoves(manager, assigned, 2, lambda: 1 << 30, 1)
        manager.futures.copy = lambda key, max_bytes: max_bytes  # type: ignore[method-assign]
        moves.begin(KEY, paths[1])
        first, second = (asyncio.create_task(moves.cancel(KEY)) for _ in range(2))
        await first
        moves.begin(KEY, paths[2])
        go.set()
        await second
        future = manager.futures.get(KEY)
        assert future is not None, "the second request must not cancel the new move"
        assert future.directory.path == moves.destination(KEY) == paths[2]
        await moves.close()

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


def test_move_can_be_requested_again_when_it_was_cancelled_before_its_first_step(
    paths: list[str], manager: LogManager
) -> None:
    """One request can begin a move and cancel it, before the event loop runs the task of the move."""

    async def run() -> None:
        moves = LogDirMoves(manager, assigned, 2, lambda: 1 << 30, 1)
        moves.begin(KEY, paths[1])
        await moves.cancel(KEY)
        assert moves.destination(KEY) is None
        assert manager.futures.all() == []
        await moves.close()

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))


@pytest.mark.parametrize("leaves", [False, True])
def test_start_does_not_continue_the_move_of_a_log_that_is_being_deleted(
    paths: list[str], manager: LogManager, leaves: bool
) -> None:
    def deleted(key: Any, path: str) -> None:
        assert not leaves
        raise MoveCancelled("it no longer exists")

    async def run() -> None:
        manager.create_future(KEY, paths[1])
        manager.create_future = deleted  # type: ignore[method-assign]
        moves = LogDirMoves(manager, assigned, 2, lambda: 1 << 30, 1)
        moves.resume({KEY} if leaves else ())
        assert moves.destination(KEY) is None
        await moves.close()

    asyncio.run(asyncio.wait_for(run(), LIMIT_S))
