"""The controller continues its periodic work after a failure."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkacore.server.controller import ControllerServer

LIMIT_S = 20


class Failing:
    """A stub of a controller in which every other tick fails."""

    next_tick_ms = 1

    def __init__(self) -> None:
        self.ticks = 0
        self.enough = asyncio.Event()

    def tick(self) -> None:
        self.ticks += 1
        if self.ticks == 4:
            self.enough.set()
        if self.ticks % 2:
            raise ValueError("no decision")


def test_failed_tick_is_logged_and_the_next_one_comes(caplog) -> None:
    async def story() -> None:
        quorum = Failing()
        server: Any = ControllerServer.__new__(ControllerServer)
        server.quorum = quorum
        server._tick()
        async with asyncio.timeout(LIMIT_S):
            await quorum.enough.wait()
        server._ticking.cancel()

    asyncio.run(story())
    assert [str(each.exc_info[1]) for each in caplog.records if each.exc_info] == ["no decision"] * 2
