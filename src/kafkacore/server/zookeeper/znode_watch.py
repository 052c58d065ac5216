"""Reads a znode again whenever its content changes. This module runs on the controllers' loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kafkacore.runtime.watched import watch
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper.operations import WatchEvent

RETRY_S: Final = 1.0


class ZnodeWatch:
    """Reads a znode at the start, in each new session, and after each event of the znode's watch. The reads of a
    subclass set this watch. If the `ZnodeWatch` cannot go on, it passes the error to `on_fault`."""

    def __init__(self, session: BrokerSession, path: str, on_fault: Callable[[BaseException], None]) -> None:
        self._session = session
        self._path = path
        self._on_fault = on_fault
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the znode, and follows its changes from now on."""
        self._session.client.on_watch(self._fired)
        self._session.on_new_session.append(self._again)
        self._task = asyncio.create_task(self._follow())
        watch(self._task, self._on_fault)
        await self._read_all()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _read_all(self) -> None:
        """Reads everything, and sets the watch."""
        raise NotImplementedError

    async def _again(self) -> None:
        """Reads what may have changed before a new session began."""
        await self._read_all()

    async def _read_changes(self) -> None:
        """Reads what has changed since the last read, and sets the watch again."""
        await self._read_all()

    def _read_later(self) -> None:
        """Reads again after a while. A refused request sets no watch, so nothing else may cause another read."""
        asyncio.get_running_loop().call_later(RETRY_S, self._changed.set)

    def _fired(self, event: WatchEvent) -> None:
        if event.path == self._path:
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._read_changes()
