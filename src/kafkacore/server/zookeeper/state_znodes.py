"""Writes the ISRs of leaders directly to ZooKeeper, if inter.broker.protocol.version is below 2.7-IV2, the first
version with AlterPartition.

The leader overwrites the state znode of its partition, if the znode still has the version that the leader knows. It
then lists the partition in `/isr_change_notification`, so that the controller reads the new state (Kafka's
ZkAlterPartitionManager). Everything runs on the controllers' loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kafkacore.protocol.errors import ErrorCode
from kafkacore.server.zookeeper.session import BrokerSession
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, Create, CreateMode, GetData, Operation, Result, SetData

LOG: Final = logging.getLogger("kafkacore.server")
# As in Apache Kafka's IsrChangePropagationConfig: a few changes are reported to the controller soon, and many changes
# are reported together.
CHECK_S: Final = 2.5
LINGER_S: Final = 5.0
MAX_DELAY_S: Final = 60.0
TIMES_S: Final = (CHECK_S, LINGER_S, MAX_DELAY_S)


class StateChange(NamedTuple):
    """The state that a leader wants to write, provided the znode still has version `version`."""

    topic: str
    partition: int
    state: znodes.PartitionState
    version: int


class Written(NamedTuple):
    error: ErrorCode
    version: int = -1


class StateZnodes:
    """Writes state znodes and notifies the controller. `limits` are three times in seconds. The first is the time
    between two checks. A check notifies the controller once the last change is older than the second time, or once the
    last notification is older than the third time."""

    def __init__(self, session: BrokerSession, limits: tuple[float, float, float] = TIMES_S) -> None:
        self._session = session
        self._check_s, self._linger_s, self._max_delay_s = limits
        self._untold: dict[tuple[str, int], None] = {}
        self._changed_s = self._told_s = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_closed = False

    async def write(self, changes: Sequence[StateChange]) -> list[Written]:
        """Writes each state if its znode still has the version of the change."""
        states = znodes.encode_states(each.state for each in changes)
        writes = [
            SetData(paths.partition_state(each.topic, each.partition), data, each.version)
            for each, data in zip(changes, states, strict=True)
        ]
        outcome: list[Written | None] = [None] * len(changes)
        pending = list(range(len(changes)))
        while pending:
            operations: list[Operation] = [writes[at] for at in pending]
            for at, result in zip(pending, await self._session.client.submit(operations), strict=True):
                outcome[at] = _outcome(result)
            unsure = [at for at in pending if outcome[at] is None]
            reads: list[Operation] = [GetData(writes[at].path) for at in unsure]
            for at, found in zip(unsure, await self._session.sure(reads), strict=True):
                outcome[at] = _read_back(changes[at], found)
            pending = [at for at in unsure if outcome[at] is None]
        done = [each for each in outcome if each is not None]
        self._note(change for change, each in zip(changes, done, strict=True) if each.error == ErrorCode.NONE)
        return done

    # --- the controller ---

    def _note(self, changes: Iterable[StateChange]) -> None:
        self._untold.update(dict.fromkeys((each.topic, each.partition) for each in changes))
        if self._untold:
            self._changed_s = asyncio.get_running_loop().time()
            self._arm()

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._check_s, self._check)

    def _check(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        is_due = self._changed_s + self._linger_s < now_s or self._told_s + self._max_delay_s < now_s
        if is_due and self._telling is None:
            self._telling = asyncio.ensure_future(self._tell())
        elif self._untold:
            self._arm()

    async def _tell(self) -> None:
        untold, self._untold = self._untold, {}
        path = paths.isr_change()
        note = Create(path, znodes.encode_isr_change(untold), CreateMode.PERSISTENT_SEQUENTIAL, self._session.acl(path))
        try:
            # A repeated notification does no harm: the controller reads the states.
            [made] = await self._session.sure([note])
            if made.is_ok:
                untold = {}
                self._told_s = asyncio.get_running_loop().time()
            else:
                LOG.warning("%s: %s; the broker notifies the controller later", path, made.code.name)
        finally:
            self._untold = {**untold, **self._untold}
            self._telling = None
            if self._untold and not self._is_closed:
                self._arm()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            self._telling.cancel()


def _outcome(result: Result) -> Written | None:
    """Returns the outcome of a write, or None if the znode must be read to find it out."""
    if result.is_ok:
        return Written(ErrorCode.NONE, result.value.version)
    if result.code is Code.NO_NODE:
        return Written(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if result.code in (Code.BAD_VERSION, Code.CONNECTION_LOSS):
        return None
    return Written(ErrorCode.UNKNOWN_SERVER_ERROR)


def _read_back(change: StateChange, found: Result) -> Written | None:
    """Returns the outcome of a write, as the znode shows it. None means that nothing was written, so the write may be
    repeated."""
    if not found.is_ok:
        return _outcome(found) or Written(ErrorCode.UNKNOWN_SERVER_ERROR)
    data, stat = found.value
    try:
        if znodes.decode_state(data) == change.state:
            return Written(ErrorCode.NONE, stat.version)
    except znodes.MalformedZnodeError as error:
        LOG.warning("the state of %s-%d cannot be read: %s", change.topic, change.partition, error)
    return None if stat.version == change.version else Written(ErrorCode.INVALID_UPDATE_VERSION)
