"""Preferred replica leader election: the first replica of the assignment becomes the leader again.

An administrator requests an election with `/admin/preferred_replica_election` or ElectLeaders (KIP-460). The controller
also holds elections on its own for imbalanced brokers. A broker is imbalanced if other brokers lead too many of the
partitions whose preferred replica is on this broker. Partitions of topics that are being deleted are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper import elections, partition_changes
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.elections import Election
from kafkacore.controller.zookeeper.events import Event, Notification, Priority, Request
from kafkacore.controller.zookeeper.leadership import NO_LEADER, TopicPartition
from kafkacore.controller.zookeeper.protocols.limits import limit_partitions
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import ElectLeadersResponse
from kafkacore.runtime.slices import Work, distinct
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.operations import Code, Exists, GetData, Operation, ZooKeeperError
from kafkacore.zookeeper.znodes import MalformedZnodeError

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
PREFERRED: Final = 0
UNCLEAN: Final = 1
FIRST_CHECK_MS: Final = 5_000
Errors = dict[TopicPartition, tuple[ErrorCode, str | None]]


class ZkPreferredElection(Notification):
    """`/admin/preferred_replica_election` was created or changed."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "ManualLeaderBalance"

    async def process(self, controller: ZooKeeperController) -> None:
        if controller.is_active:
            await process_znode(controller)


async def process_znode(controller: ZooKeeperController) -> None:
    """Holds the elections that the znode lists. Then deletes the znode, whether the elections succeed or not. Watches
    the znode, even if it does not exist."""
    path = paths.PREFERRED_ELECTION
    reads: list[Operation] = [Exists(path, watch=True), GetData(path)]
    _, found = await controller.access.read(reads)
    if found.code is Code.NO_NODE:
        return
    if not found.is_ok:
        raise ZooKeeperError(found.code, path)
    try:
        named = [TopicPartition(*name) for name in znodes.decode_preferred_election(found.value[0])]
    except MalformedZnodeError as error:
        LOG.warning("%s is ignored, because it cannot be read; correct or delete it: %s", path, error)
        return
    errors = await elect(controller, dict.fromkeys(named), PREFERRED)
    for name, (code, message) in errors.items():
        if code is not ErrorCode.ELECTION_NOT_NEEDED:
            LOG.warning("no preferred election for %s: %s", name, message or code.name)
    await controller.topics.delete(controller.context, [path])


class ElectLeaders(Request):
    """Handles ElectLeadersRequest, versions 0 to 2. A request without partitions means all partitions."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "ManualLeaderBalance"

    async def decide(self, controller: ZooKeeperController) -> Any:
        context = controller.context
        kind = self.request.election_type if self.api_version >= 1 else PREFERRED
        if kind not in (PREFERRED, UNCLEAN):
            return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked, in_slices = self.request.topic_partitions, controller.access.in_slices
        names = await in_slices(distinct(map(context.name, context.rows())) if asked is None else _named(asked))
        errors = await elect(controller, names, kind)
        return await in_slices(_answer(names, errors, wants_all=asked is None))


def _named(topics: Iterable[Any]) -> Work[dict[TopicPartition, None]]:
    """Returns each partition of a request once. Raises POLICY_VIOLATION if the request names too many partitions."""
    names: dict[TopicPartition, None] = {}
    for topic in topics:
        yield
        for number in topic.partitions:
            yield
            names[TopicPartition(topic.topic, number)] = None
            limit_partitions(len(names))
    return names


def _answer(names: Iterable[TopicPartition], errors: Errors, *, wants_all: bool) -> Work[Any]:
    by_topic: dict[str, list[Any]] = {}
    for name in names:
        yield
        code, message = errors.get(name, (ErrorCode.NONE, None))
        if wants_all and code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        by_topic.setdefault(name.topic, []).append(
            ElectLeadersResponse.PartitionResult(partition_id=name.partition, error_code=code, error_message=message)
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )


class UncleanElectionsAllowed(Event):
    """`unclean.leader.election.enable` became true for some topics. None stands for the default, which affects all
    topics."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "UncleanLeaderElectionEnable"

    def __init__(self, topic: str | None) -> None:
        self.topics = {topic}

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.topics |= later.topics

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        for topic in (None,) if None in self.topics else sorted(filter(None, self.topics)):
            await partition_changes.bring_online_where_possible(controller, topic)


class AutoPreferredElection(Notification):
    """Runs every `leader.imbalance.check.interval.seconds` and looks for imbalance."""

    priority: ClassVar = Priority.UPKEEP
    state: ClassVar = "AutoLeaderBalance"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        settings = controller.settings
        controller.schedule(settings.leader_imbalance_check_interval_seconds * 1000, AutoPreferredElection)
        if settings.auto_leader_rebalance_enable:
            rows = imbalanced(controller.context, settings.leader_imbalance_per_broker_percentage)
            await partition_changes.bring_online(controller, rows, elections.preferred_replica)


def imbalanced(context: ControllerContext, percentage: int) -> list[int]:
    """Returns the partitions that can return to their preferred leader. Considers only imbalanced brokers. A broker is
    imbalanced if other brokers lead more than `percentage` per cent of the partitions that it should lead."""
    by_broker: dict[int, list[int]] = {}
    for row in context.rows():
        if context.assignments[row].replicas and not context.is_deleted(row):
            by_broker.setdefault(context.assignments[row].replicas[0], []).append(row)
    found = []
    for preferred, rows in by_broker.items():
        elsewhere = [row for row in rows if _leader(context, row) not in (preferred, None)]
        if len(elsewhere) * 100 > percentage * len(rows):
            found += [row for row in elsewhere if _can_lead(context, row)]
    return found


def _can_lead(context: ControllerContext, row: int) -> bool:
    now = context.leaderships[row]
    return now is not None and elections.preferred_replica(context, row, now.isr, ()).chosen is not None


async def elect(controller: ZooKeeperController, names: Iterable[TopicPartition], kind: int) -> Errors:
    """Holds the elections that are possible and needed. Returns an error for each of the other partitions."""
    context = controller.context
    errors: Errors = {}
    rows = await controller.access.in_slices(_electable(context, names, kind, errors))
    election: Election = elections.preferred_replica if kind == PREFERRED else elections.offline_partition
    elected = await partition_changes.bring_online(controller, rows, election, unclean=kind == UNCLEAN)
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if kind == PREFERRED else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    for row in rows:
        if row not in elected.led:
            name = context.name(row)
            errors[name] = (
                code,
                f"Failed to elect leader for partition {name}: {elected.failed.get(row, 'wrong state')}",
            )
    return errors


def _electable(
    context: ControllerContext, names: Iterable[TopicPartition], kind: int, errors: Errors
) -> Work[list[int]]:
    """Returns the rows of the partitions that need an election. Adds an error for each other partition to `errors`."""
    rows = []
    for name in names:
        yield
        row = context.row(*name)
        if row is None:
            errors[name] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        elif context.is_doomed(row):
            errors[name] = (ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        elif not _is_needed(context, row, kind):
            errors[name] = (ErrorCode.ELECTION_NOT_NEEDED, None)
        else:
            rows.append(row)
    return rows


def _is_needed(context: ControllerContext, row: int, kind: int) -> bool:
    leader = _leader(context, row)
    if kind == PREFERRED:
        # An administrator can write a partition without replicas, which no election can help.
        return context.assignments[row].replicas[:1] != (leader,)
    return leader is None or leader == NO_LEADER or not context.is_live(leader)


def _leader(context: ControllerContext, row: int) -> int | None:
    now = context.leaderships[row]
    return None if now is None else now.leader
