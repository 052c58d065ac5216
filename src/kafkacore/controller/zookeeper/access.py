"""The controller's access to ZooKeeper: reads and fenced writes within one session. One call can contain many
operations.

Every write goes in a multi that first checks the version of `/controller_epoch`. So the writes of a deposed controller
have no effect. When a connection breaks, the outcome of the requests in flight is unknown. The controller then repeats
its reads. To learn the outcome of a write, it first reads the znode, and sends the write again only if necessary
(redesign, "use vanilla ZooKeeper client").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

from kafkacore.controller.zookeeper.events import SessionLostError
from kafkacore.controller.zookeeper.surroundings import ZooKeeper
from kafkacore.runtime.slices import Work, finish
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.fenced import Write, write_fenced
from kafkacore.zookeeper.operations import (
    ANY_VERSION,
    Code,
    Create,
    Created,
    Delete,
    GetData,
    Operation,
    Result,
    Sync,
)

if TYPE_CHECKING:
    from kafkacore.zookeeper.client import ZooKeeperClient

T = TypeVar("T")
_SESSION_IS_OVER: Final = frozenset({Code.SESSION_EXPIRED, Code.AUTH_FAILED, Code.SESSION_MOVED})


class Access:
    """A controller has one Access for its whole life. After `end_session`, every further access of the running event
    fails."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._session = 0  # the number of sessions that have ended
        self._bound = 0  # the session in which the running event started
        self.read_back = 0  # the number of writes whose outcome was unknown

    def bind(self) -> None:
        """Binds the event that starts now to the current session. Call this when an event starts."""
        self._bound = self._session

    def end_session(self) -> None:
        self._session += 1

    async def submit(self, operations: Sequence[Operation]) -> list[Result]:
        """Sends the operations once and returns their results, which may have the code CONNECTION_LOSS. Raises
        SessionLostError if the session has ended."""
        self._check_session()
        results = await self._zookeeper.submit(operations)
        self._check_session()
        if any(result.code in _SESSION_IS_OVER for result in results):
            raise SessionLostError
        return results

    async def in_slices(self, work: Work[T]) -> T:
        """Does long work of the running event, and lets the loop do other work in between. If the session ends
        meanwhile, the work still runs to its end, and then SessionLostError is raised. So the work must keep using the
        context and the batch with which it began."""
        result = await finish(work)
        self._check_session()
        return result

    def _check_session(self) -> None:
        if self._session != self._bound:
            raise SessionLostError

    async def read(self, operations: Sequence[Operation]) -> list[Result]:
        """Returns the results of these reads, which may have error codes. Repeats the reads whose connection broke."""
        if not operations:
            return []
        results = await self.submit(operations)
        while lost := [index for index, each in enumerate(results) if each.code is Code.CONNECTION_LOSS]:
            again = await self.submit([operations[index] for index in lost])
            for index, result in zip(lost, again, strict=True):
                results[index] = result
        return results

    async def write(self, writes: Sequence[Write], epoch_version: int) -> list[Result]:
        """Makes the writes in order. Returns a result for each write: OK, or why the write failed. Raises
        ControllerMovedError at the first write that finds another version of `/controller_epoch`; no later write is
        made."""
        outcome: list[Result | None] = [None] * len(writes)
        pending = list(range(len(writes)))
        while pending:
            tried = await write_fenced(
                cast("ZooKeeperClient", self), [writes[index] for index in pending], epoch_version
            )
            lost = []
            for index, result in zip(pending, tried, strict=True):
                if result.code is Code.CONNECTION_LOSS:
                    lost.append(index)
                else:
                    outcome[index] = result
            found = await self._read_back([writes[index] for index in lost])
            for index, effect in zip(lost, found, strict=True):
                outcome[index] = effect
            pending = [index for index in lost if outcome[index] is None]
        return [result for result in outcome if result is not None]

    async def _read_back(self, writes: Sequence[Write]) -> list[Result | None]:
        """Finds out which of these writes took effect, after a connection broke. Returns a result for each write, or
        None for a write that did not take effect and can be sent again.

        The session now has a new connection. So if the first attempt of a write arrives late, ZooKeeper refuses it.
        `sync` brings the new server up to date with ZooKeeper's leader.
        """
        if not writes:
            return []
        self.read_back += len(writes)
        sync: Operation = Sync(paths.CONTROLLER_EPOCH)
        _, *found = await self.read([sync, *(GetData(write.path) for write in writes)])
        return [_effect(write, result) for write, result in zip(writes, found, strict=True)]


def _effect(write: Write, found: Result) -> Result | None:
    """Returns the outcome of a write, judged from the znode that was read. None means that the write did not happen."""
    if found.code not in {Code.OK, Code.NO_NODE}:
        return Result(found.code)
    if isinstance(write, Delete):
        return Result(Code.OK) if found.code is Code.NO_NODE else None
    if found.code is Code.NO_NODE:
        return None if isinstance(write, Create) else Result(Code.NO_NODE)
    data, stat = found.value
    is_ours = data == write.data
    if isinstance(write, Create):
        return Result(Code.OK, Created(write.path, stat)) if is_ours else Result(Code.NODE_EXISTS)
    if write.version == ANY_VERSION:
        return Result(Code.OK, stat) if is_ours else None
    if stat.version == write.version:
        return None
    return Result(Code.OK, stat) if is_ours and stat.version == write.version + 1 else Result(Code.BAD_VERSION)
