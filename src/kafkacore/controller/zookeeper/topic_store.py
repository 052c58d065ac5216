"""The znodes of topics: their names and assignments, the settings that affect elections, and their deletion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from kafkacore.controller.zookeeper.access import Access
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.leadership import Assignment
from kafkacore.controller.zookeeper.surroundings import ControllerSettings
from kafkacore.protocol.uuid import Uuid
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.fenced import Write
from kafkacore.zookeeper.operations import (
    Code,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Operation,
    Result,
    SetData,
    ZooKeeperError,
)
from kafkacore.zookeeper.znodes import MalformedZnodeError, TopicAssignment

LOG: Final = logging.getLogger("kafkacore.controller")
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_GONE: Final = frozenset({Code.OK, Code.NO_NODE})


class TopicStore:
    """Reads topics in bulk. Fences every write."""

    def __init__(self, access: Access, settings: ControllerSettings) -> None:
        self._access = access
        self._settings = settings

    async def children(self, path: str, *, watch: bool = True) -> list[str]:
        """Returns the sorted names of the children, or an empty list if the znode does not exist. Sets a watch for the
        next change of the children."""
        (result,) = await self._access.read([GetChildren(path, watch)])
        if result.code is Code.NO_NODE:
            return []
        if not result.is_ok:
            raise ZooKeeperError(result.code, path)
        return sorted(result.value[0])

    async def contents(self, wanted: Sequence[str]) -> dict[str, bytes]:
        """Returns the data of those znodes that exist. Raises ZooKeeperError if ZooKeeper refuses a read."""
        operations: list[Operation] = [GetData(path) for path in wanted]
        found = {}
        for path, result in zip(wanted, await self._access.read(operations), strict=True):
            if result.is_ok:
                found[path] = result.value[0]
            elif result.code is not Code.NO_NODE:
                raise ZooKeeperError(result.code, path)
        return found

    async def assignments(self, names: Sequence[str], *, watch: bool = True) -> dict[str, TopicAssignment]:
        """Returns the assignments by topic, and watches each topic. Leaves out a topic that was deleted, or whose znode
        cannot be read."""
        operations: list[Operation] = [GetData(paths.topic(name), watch) for name in names]
        found = {}
        for name, result in zip(names, await self._access.read(operations), strict=True):
            if result.code is Code.NO_NODE:
                continue
            if not result.is_ok:
                raise ZooKeeperError(result.code, paths.topic(name))
            try:
                found[name] = znodes.decode_topic(result.value[0])
            except MalformedZnodeError as error:
                LOG.warning("topic %s is left out, because its znode cannot be read: %s", name, error)
        return found

    async def give_ids(
        self, context: ControllerContext, found: dict[str, TopicAssignment], new_id: Callable[[], Uuid]
    ) -> None:
        """Writes an id to the znode of each topic without one (KIP-516), and adds the id to `found`."""
        wanted = {name: topic._replace(topic_id=new_id()) for name, topic in found.items() if topic.topic_id is None}
        if not wanted:
            return
        writes = [SetData(paths.topic(name), znodes.encode_topic(topic)) for name, topic in wanted.items()]
        results = await self._access.write(writes, context.epoch_version)
        for (name, topic), result in zip(wanted.items(), results, strict=True):
            if result.is_ok:
                found[name] = topic
            else:
                LOG.error("topic %s gets no id: ZooKeeper answers %s", name, result.code.name)

    async def write_assignments(self, context: ControllerContext, names: Sequence[str]) -> dict[str, Code]:
        """Writes the assignments that the context holds for these topics. Returns the topics that could not be
        written."""
        writes = [SetData(paths.topic(name), encode_assignments(context, name)) for name in names]
        results = await self._access.write(writes, context.epoch_version)
        return {name: result.code for name, result in zip(names, results, strict=True) if not result.is_ok}

    async def that_allow_unclean_elections(self, names: Sequence[str]) -> set[str]:
        """Returns the topics whose own setting allows unclean elections, or that use a default which allows them."""
        operations: list[Operation] = [GetData(paths.config("topics", name)) for name in names]
        results = await self._access.read(operations)
        return {name for name, result in zip(names, results, strict=True) if self._allows_unclean(name, result)}

    def _allows_unclean(self, name: str, result: Result) -> bool:
        """Returns whether the topic allows unclean elections. If the topic's configuration cannot be read, returns
        False, so that no record is lost."""
        if result.code is Code.NO_NODE:
            return self._settings.unclean_leader_election_enable
        if not result.is_ok:
            LOG.error("topic %s allows no unclean election: ZooKeeper answers %s", name, result.code.name)
            return False
        try:
            text = znodes.decode_config(result.value[0]).get(UNCLEAN_ELECTION)
        except MalformedZnodeError as error:
            LOG.warning("topic %s allows no unclean election, as its configuration cannot be read: %s", name, error)
            return False
        return self._settings.unclean_leader_election_enable if text is None else text.strip().lower() == "true"

    async def remove(self, context: ControllerContext, names: Sequence[str]) -> list[str]:
        """Removes topics with their partitions and configurations, and finally their znodes in `/admin/delete_topics`.
        Returns the topics that were removed; the other topics stay queued."""
        reads: list[Operation] = [GetChildren(paths.partitions(name)) for name in names]
        reads += [Exists(paths.config("topics", name)) for name in names]
        found = await self._access.read(reads)
        writes: list[Write] = []
        owners: list[str] = []
        for name, listed, config in zip(names, found, found[len(names) :], strict=False):
            numbers = listed.value[0] if listed.is_ok else []
            parts = [f"{paths.partitions(name)}/{number}" for number in numbers]
            doomed = [f"{part}/state" for part in parts] + parts
            doomed += [paths.partitions(name)] if listed.is_ok else []
            # The topic's znode goes last: as soon as it is gone, a client can create the topic again, with other
            # settings.
            doomed += [paths.config("topics", name)] if config.is_ok else []
            doomed.append(paths.topic(name))
            writes += [Delete(path) for path in doomed]
            owners += [name] * len(doomed)
        results = await self._access.write(writes, context.epoch_version)
        failed = {
            owner: (write.path, result.code)
            for owner, write, result in zip(owners, writes, results, strict=True)
            if result.code not in _GONE
        }
        for name, (path, code) in failed.items():
            LOG.error("topic %s is not gone yet: ZooKeeper answers %s for %s", name, code.name, path)
        gone = [name for name in names if name not in failed]
        await self.delete(context, [paths.delete_topic(name) for name in gone])
        return gone

    async def delete(self, context: ControllerContext, doomed: Sequence[str]) -> None:
        """Deletes these znodes. Ignores znodes that no longer exist."""
        results = await self._access.write([Delete(path) for path in doomed], context.epoch_version)
        for path, result in zip(doomed, results, strict=True):
            if result.code not in _GONE:
                LOG.error("cannot delete %s: ZooKeeper answers %s", path, result.code.name)


def encode_assignments(context: ControllerContext, name: str) -> bytes:
    topic = context.topics[name]
    return znodes.encode_topic(
        TopicAssignment(
            topic.topic_id,
            {
                number: znodes.Assignment(list(assignment.replicas), assignment.adding, assignment.removing)
                for number, row in sorted(topic.rows.items())
                for assignment in (context.assignments[row],)
            },
        )
    )


def assignment_of(read: znodes.Assignment) -> Assignment:
    return Assignment(tuple(read.replicas), tuple(read.adding), tuple(read.removing))
