"""Moves replicas from one log directory of this broker to another while they are in use (KIP-113, KIP-858).

When the new log has caught up, the broker first reports the new directory to the controller. Only then does the new log
replace the old one. So the controller always knows which replicas a failed disk takes offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kafkacore.protocol.uuid import Uuid
from kafkacore.storage.errors import reason
from kafkacore.storage.future_logs import MoveCancelled
from kafkacore.storage.log_manager import LogManager
from kafkacore.storage.managed_directory import Key
from kafkacore.storage.names import Kind

LOG: Final = logging.getLogger("kafkacore.replication")
PART_BYTES: Final = 16 << 20  # after this many bytes, a copy checks again whether the move may continue
LEAST_PAUSE_S: Final = 0.001
NEAR_BYTES: Final = 1 << 20  # when fewer bytes than this remain, appends wait until those bytes are copied

Replica = tuple[Uuid, int]


class Move:
    """The move of one replica. When the move is `finishing`, nothing can interrupt it. When `ending` is set, the move
    is not retried.
    """

    __slots__ = ("ending", "finishing", "path", "task", "told")

    def __init__(self, path: str, task: asyncio.Task[None]) -> None:
        self.path = path
        self.task = task
        self.finishing = self.ending = False
        # the replica and its old directory; set before the broker reports the new directory to the controller
        self.told: tuple[Replica, str] | None = None

    async def end(self) -> None:
        self.ending = True
        if not self.finishing:
            self.task.cancel()
        await asyncio.wait([self.task])


class LogDirMoves:
    """Belongs to one event loop. Copies up to `threads` replicas at the same time, on its own threads. `assign` reports
    the directory of a replica to the controller, and returns when the controller has accepted it. `limit` returns
    replica.alter.log.dirs.io.max.bytes.per.second.

    If a move fails although both directories work, it is retried after `backoff_ms` (replica.fetch.backoff.ms) until it
    succeeds or is cancelled.
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
        """Starts a move to a log directory that works and does not hold the replica yet. Raises MoveCancelled if the
        replica no longer exists, or is already moving to another directory.
        """
        self._manager.create_future(key, path)
        self._moves[key] = Move(path, asyncio.create_task(self._run(key)))

    async def cancel(self, key: Key) -> None:
        """Cancels a move. Deletes the copy, and reports to the controller that the replica stays in its directory. If
        another caller cancels the same move and begins a new one meanwhile, the new one goes on."""
        move, future = self._moves.get(key), self._manager.futures.get(key)
        if move is not None:
            await move.end()
            self._forget(key, move)  # `_run` has not done this if it was cancelled before its first step
            self._revert(key, move)
        if future is not None:
            await self._off(self._manager.drop_future, key, Kind.DELETE, future.name)

    def take_back(self, path: str) -> set[asyncio.Future[None]]:
        """Reports the old directories of the replicas that were about to move to `path`, which has failed. Returns the
        reports that the controller has not accepted yet."""
        for key, move in self._moves.items():
            if move.path == path and not move.finishing:
                self._revert(key, move)
        return set(self._reverts)

    def resume(self, leaving: Collection[Key] = ()) -> None:
        """Continues the moves that an earlier run of the node started. Leaves out the logs in `leaving`, which are
        being deleted."""
        for future in self._manager.futures.all():
            key = future.handle.topic, future.handle.index
            if key in leaving or self._manager.get(*key) is None:
                continue
            try:
                self.begin(key, future.directory.path)
            except MoveCancelled as error:
                LOG.warning("%s-%d: the move to %s does not continue: %s", *key, future.directory.path, error)
            else:
                LOG.info("%s-%d: the move to %s continues", *key, future.directory.path)

    async def _run(self, key: Key) -> None:
        move = self._moves[key]
        try:
            while not await self._try(key, move):
                await asyncio.sleep(self._backoff_ms / 1000)
                self._manager.create_future(key, move.path)  # creates the copy again if it no longer exists
        except MoveCancelled as error:
            LOG.info("the move to %s was cancelled: %s", move.path, error)
            self._revert(key, move)
        except Exception:
            LOG.exception("the move of %s-%d to %s has failed; request it again", *key, move.path)
            self._revert(key, move)
        finally:
            self._forget(key, move)

    def _forget(self, key: Key, move: Move) -> None:
        if self._moves.get(key) is move:
            del self._moves[key]

    async def _try(self, key: Key, move: Move) -> bool:
        """Makes one attempt to move the replica. Returns True if the move has ended. Raises MoveCancelled."""
        try:
            async with self._turns:
                # The checkpoint in the target directory may have an entry from an earlier log of the same partition.
                # That entry would be wrong for the new log.
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
            again = f"the broker tries again after {self._backoff_ms} ms" if goes_on else "the broker gives the move up"
            LOG.warning("%s-%d cannot move to %s: %s; %s", *key, move.path, reason(error), again)
            return not goes_on
        return True

    def _may_move(self, key: Key, move: Move) -> bool:
        current = self._manager.get(*key)
        serving = [path for path, serves in self._manager.directories() if serves]
        place = None if current is None else current.directory.path
        return place in serving and move.path in serving and place != move.path

    async def _copy(self, key: Key) -> None:
        """Copies until fewer than NEAR_BYTES bytes remain."""
        while True:
            limit = max(self._limit(), 1)
            copied = await self._off(self._manager.futures.copy, key, min(PART_BYTES, limit))
            await self._pause(copied / limit)
            if copied < min(NEAR_BYTES, limit):
                return

    async def _pause(self, share_s: float) -> None:
        """Pauses long enough to keep the total rate of all moves below the limit."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + share_s
        if share_s > LEAST_PAUSE_S:
            await asyncio.sleep(self._free_at - now)

    async def _announce(self, key: Key, move: Move) -> None:
        current = self._manager.get(*key)
        if current is None:
            raise MoveCancelled(f"{key[0]}-{key[1]} no longer exists")
        replica = current.topic_id, current.index
        move.told = replica, current.directory.path
        await self._assign(replica, move.path)

    def _revert(self, key: Key, move: Move) -> None:
        """Reports the old directory to the controller again, because the replica stays there."""
        current = self._manager.get(*key)
        if move.told is not None and current is not None and current.directory.path == move.told[1]:
            task = asyncio.ensure_future(self._assign(*move.told))
            self._reverts.add(task)
            task.add_done_callback(self._reverts.discard)

    async def _off(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def close(self) -> None:
        """Stops the moves. The node continues them after its next start."""
        for move in list(self._moves.values()):
            await move.end()
        for revert in list(self._reverts):
            revert.cancel()
        self._threads.shutdown(wait=False)
