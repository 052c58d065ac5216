"""Reads, creates and updates the state znodes of partitions in bulk.

`/brokers/topics/TOPIC/partitions/N/state` holds the leader, the leader epoch, the ISR and the controller epoch. The
version of the znode is the partition epoch. Every update is conditional on the version that it replaces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkacore.controller.zookeeper.access import Access
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.leadership import LeaderAndIsr
from kafkacore.controller.zookeeper.surroundings import ControllerSettings
from kafkacore.runtime.slices import Work
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.fenced import Write
from kafkacore.zookeeper.operations import Code, Create, GetData, Result, SetData, ZooKeeperError

LOG: Final = logging.getLogger("kafkacore.controller")

_AT_ONCE: Final = 100  # the number of states to encode before the loop does other work
Changes = Mapping[int, LeaderAndIsr]  # keyed by the partition's row in the context


class Updated(NamedTuple):
    """The outcome of changes, by row. A conflict means that another node has changed the znode in the meantime."""

    written: dict[int, LeaderAndIsr]
    conflicts: list[int]
    failed: dict[int, Code]


class StateStore:
    """Reads and writes the state znodes of the partitions in a context."""

    def __init__(self, access: Access, settings: ControllerSettings) -> None:
        self._access = access
        self._settings = settings

    async def read(self, context: ControllerContext, rows: Sequence[int]) -> dict[int, LeaderAndIsr]:
        """Returns the states that exist. A state that cannot be read counts as missing, and is logged."""
        results = await self._access.read(_reads(context, rows))
        return _found(context, rows, results)

    async def read_all(self, context: ControllerContext, rows: Sequence[int]) -> dict[int, LeaderAndIsr]:
        """Returns the states that exist. A state with unreadable content counts as missing, and is logged. Raises
        ZooKeeperError if ZooKeeper refuses a read. If a new controller treated an existing state as missing, it would
        leave the partition without a leader."""
        operations = _reads(context, rows)
        results = await self._access.read(operations)
        for operation, result in zip(operations, results, strict=True):
            if result.code not in (Code.OK, Code.NO_NODE):
                raise ZooKeeperError(result.code, operation.path)
        return _found(context, rows, results)

    async def create(self, context: ControllerContext, states: Changes) -> dict[int, LeaderAndIsr]:
        """Creates the state znodes and their parents. Returns the states that were created."""
        if not states:
            return {}
        paths_of_topics, paths_of_states = _paths(context, states)
        writes = [self._node(path) for path in paths_of_topics]
        for path, data in zip(paths_of_states, _encoded(states.values()), strict=True):
            writes += [self._node(paths.parent(path)), self._node(path, data)]
        results = await self._access.write(writes, context.epoch_version)
        # Skip the results of the parents. A parent may already exist; if a parent is missing, the creation of its child
        # fails too.
        results = results[len(paths_of_topics) + 1 :: 2]
        created = {}
        for (row, state), result in zip(states.items(), results, strict=True):
            if result.is_ok:
                created[row] = state
            else:
                LOG.error("cannot create the state of %s: %s", context.name(row), result.code.name)
        return created

    def _node(self, path: str, data: bytes = b"") -> Create:
        return Create(path, data, acl=self._settings.acl(path))

    async def update(self, context: ControllerContext, changes: Changes) -> Updated:
        """Writes each change if the znode still has the version from which the change was made. The states in `written`
        have their new partition epochs."""
        updated = Updated({}, [], {})
        if not changes:
            return updated
        writes = await self._access.in_slices(_updates(context, changes))
        results = await self._access.write(writes, context.epoch_version)
        await self._access.in_slices(_note(updated, changes, results))
        return updated


def _updates(context: ControllerContext, changes: Changes) -> Work[list[Write]]:
    writes: list[Write] = []
    rows, states = list(changes), list(changes.values())
    for at in range(0, len(rows), _AT_ONCE):
        part = states[at : at + _AT_ONCE]
        writes += [
            SetData(_path(context, row), data, state.partition_epoch)
            for row, state, data in zip(rows[at : at + _AT_ONCE], part, _encoded(part), strict=True)
        ]
        yield
    return writes


def _note(updated: Updated, changes: Changes, results: Sequence[Result]) -> Work[None]:
    for (row, state), result in zip(changes.items(), results, strict=True):
        if result.is_ok:
            updated.written[row] = state.written_as(result.value.version)
        elif result.code is Code.BAD_VERSION:
            updated.conflicts.append(row)
        else:
            updated.failed[row] = result.code
        yield


def _reads(context: ControllerContext, rows: Iterable[int]) -> list[GetData]:
    return [GetData(_path(context, row)) for row in rows]


def _found(context: ControllerContext, rows: Iterable[int], results: Iterable[Result]) -> dict[int, LeaderAndIsr]:
    decoded = {row: _decoded(context, row, result) for row, result in zip(rows, results, strict=True)}
    return {row: state for row, state in decoded.items() if state is not None}


def _path(context: ControllerContext, row: int) -> str:
    name = context.name(row)
    return paths.partition_state(name.topic, name.partition)


def _paths(context: ControllerContext, states: Changes) -> tuple[list[str], list[str]]:
    """Returns the znodes above the states, without duplicates, and the znodes of the states."""
    topics = dict.fromkeys(context.name(row).topic for row in states)
    return [paths.partitions(topic) for topic in topics], [_path(context, row) for row in states]


def _encoded(states: Iterable[LeaderAndIsr]) -> list[bytes]:
    return znodes.encode_states(
        znodes.PartitionState(
            each.leader, each.leader_epoch, list(each.isr), each.controller_epoch, each.recovery_state
        )
        for each in states
    )


def _decoded(context: ControllerContext, row: int, result: Result) -> LeaderAndIsr | None:
    if result.code is Code.NO_NODE:
        return None
    if not result.is_ok:
        LOG.error("cannot read the state of %s: %s", context.name(row), result.code.name)
        return None
    data, stat = result.value
    try:
        state = znodes.decode_state(data)
    except znodes.MalformedZnodeError as error:
        LOG.warning("the state of %s counts as missing, as its znode cannot be read: %s", context.name(row), error)
        return None
    return LeaderAndIsr(
        state.leader, state.leader_epoch, tuple(state.isr), state.leader_recovery_state, stat.version,
        state.controller_epoch,
    )  # fmt: skip
