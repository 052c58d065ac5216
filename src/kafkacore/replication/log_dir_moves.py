"""Replicas that move from one log directory of this broker to another while they are in use (KIP-113, KIP-858).

The controller is told of the new directory before the log is there for good, and after it has caught up: a disk that
fails in between takes the right replicas along.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kafkacore.protocol.uuid import Uuid
from kafkacore.storage.errors import reason
from kafkacore.storage.future_logs import MoveCancelled
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.managed_directory import Key

LOG: Final = logging.getLogger("kafkacore.replication")
PART_BYTES: Final = 16 << 20  # copied without a look at whether to go on
LEAST_PAUSE_S: Final = 0.001
NEAR_BYTES: Final = 1 << 20  # what may be missing when appends are made to wait for the rest

Replica = tuple[Uuid, int]


class Move:
    """Of one replica. `finishing`: what is left is not interrupted any more. `ending`: nor is it tried again."""

    __slots__ = ("ending", "finishing", "path", "task", "told")

    def __init__(self, path: str, task: asyncio.Task[None]) -> None:
        self.path = path
        self.task = task
        self.finishing = self.ending = False
        self.told: tuple[Replica, str] | None = None  # that it moves, and where it lies while it has not

    async def end(self) -> None:
        self.ending = True
        if not self.finishing:
            self.task.cancel()
        await asyncio.wait([self.task])


class LogDirMoves:
    """Belongs to one loop; copies on threads of its own, `threads` replicas at once.

    `assign` tells the controller the path where a replica lies, and returns when it has taken it. `limit` gives
    replica.alter.log.dirs.io.max.bytes.per.second. A move that fails where both directories serve is tried again after
    `backoff_ms` (replica.fetch.backoff.ms), until it is cancelled.
    """

    def __init__(
        self,
        manager: LogManager,
        assign: Callable[[Replica, str], Awaitable[None]],
        threads: int,
        limit: Callable[[], int],
        backoff_ms: int,
    ) -> None:
        self._manager = manager
        self._assign = assign
        self._limit = limit
        self._backoff_ms = backoff_ms
        self._threads = ThreadPoolExecutor(threads, "kafkacore-alter")
        self._turns = asyncio.Semaphore(threads)
        self._moves: dict[Key, Move] = {}
        self._reverts: set[asyncio.Future[None]] = set()
        self._free_at = 0.0

    def destination(self, key: Key) -> str | None:
        move = self._moves.get(key)
        return None if move is None else move.path

    def begin(self, key: Key, path: str) -> None:
        """To a directory that serves, and where the replica is not. Raises MoveCancelled where it is not here any more,
        or on its way elsewhere."""
        self._manager.create_future(key, path)
        self._moves[key] = Move(path, asyncio.create_task(self._run(key)))

    async def cancel(self, key: Key) -> None:
        """What was copied is deleted, and the controller told that the replica stays where it is."""
        move = self._moves.get(key)
        if move is not None:
            await move.end()
            self._revert(key, move)
        await self._off(self._manager.drop_future, key)

    def resume(self) -> None:
        """What an earlier run began."""
        for future in self._manager.futures.all():
            key = future.handle.topic, future.handle.index
            if self._manager.get(*key) is not None:
                LOG.info("%s-%d: the move to %s goes on", *key, future.directory.path)
                self.begin(key, future.directory.path)

    async def _run(self, key: Key) -> None:
        move = self._moves[key]
        try:
            while not await self._try(key, move):
                await asyncio.sleep(self._backoff_ms / 1000)
                self._manager.create_future(key, move.path)  # unless what was copied is still there
        except MoveCancelled as error:
            LOG.info("the move to %s ends: %s", move.path, error)
        except Exception:
            LOG.exception("the move of %s-%d to %s has failed; ask for it again", *key, move.path)
        finally:
            self._moves.pop(key, None)

    async def _try(self, key: Key, move: Move) -> bool:
        """Whether there is nothing more to be done. Raises MoveCancelled."""
        try:
            async with self._turns:
                # What a checkpoint says of a former log of the partition there is not true of the future one.
                await self._off(self._manager.checkpoint_recovery_points)
                await self._copy(key)
                await self._announce(key, move)
                await self._copy(key)
                move.finishing = True
                await self._off(self._manager.replace_with_future, key)
                move.told = None
        except (OSError, MemoryError) as error:
            move.finishing = False
            await self._off(self._manager.check_directories)
            self._revert(key, move)
            goes_on = not move.ending and self._may_move(key, move)
            again = f"it is tried again after {self._backoff_ms} ms" if goes_on else "it is given up"
            LOG.warning("%s-%d cannot move to %s: %s; %s", *key, move.path, reason(error), again)
            return not goes_on
        return True

    def _may_move(self, key: Key, move: Move) -> bool:
        current = self._manager.get(*key)
        serving = [path for path, serves in self._manager.directories() if serves]
        place = None if current is None else current.directory.path
        return place in serving and move.path in serving and place != move.path

    async def _copy(self, key: Key) -> None:
        """Until little is missing."""
        while True:
            limit = max(self._limit(), 1)
            copied = await self._off(self._manager.futures.copy, key, min(PART_BYTES, limit))
            await self._pause(copied / limit)
            if copied < min(NEAR_BYTES, limit):
                return

    async def _pause(self, share_s: float) -> None:
        """All moves together keep to the limit."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + share_s
        if share_s > LEAST_PAUSE_S:
            await asyncio.sleep(self._free_at - now)

    async def _announce(self, key: Key, move: Move) -> None:
        current = self._manager.get(*key)
        if current is None:
            raise MoveCancelled(f"{key[0]}-{key[1]} is gone")
        replica = current.topic_id, current.index
        move.told = replica, current.directory.path
        await self._assign(replica, move.path)

    def _revert(self, key: Key, move: Move) -> None:
        """The controller may have heard of a place where the replica does not come to lie."""
        current = self._manager.get(*key)
        if move.told is not None and current is not None and current.directory.path == move.told[1]:
            task = asyncio.ensure_future(self._assign(*move.told))
            self._reverts.add(task)
            task.add_done_callback(self._reverts.discard)

    async def _off(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def close(self) -> None:
        """What is under way goes on at the next start."""
        for move in list(self._moves.values()):
            await move.end()
        for revert in list(self._reverts):
            revert.cancel()
        self._threads.shutdown(wait=False)
