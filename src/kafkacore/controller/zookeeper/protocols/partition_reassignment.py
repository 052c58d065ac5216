"""Partition reassignment: an administrator moves partitions to other brokers, with `/admin/reassign_partitions` or with
AlterPartitionReassignments (KIP-455).

First the controller expands the partition. In a new leader epoch the partition has both its old and its new replicas,
and the new replicas start to follow. When all target replicas are in sync, the controller contracts the partition: it
makes a target replica the leader, and stops and deletes the old replicas. A reassignment starts only if its topic is
not being deleted and the replicas change. A new request replaces a reassignment in progress; a repeated request has no
effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper import elections, partition_changes, replica_changes
from kafkacore.controller.zookeeper.context import ControllerContext, Replica
from kafkacore.controller.zookeeper.events import Event, Notification, Priority, Request
from kafkacore.controller.zookeeper.leadership import (
    NO_ASSIGNMENT,
    NO_LEADER,
    NO_NEXT_EPOCH,
    Assignment,
    Ids,
    LeaderAndIsr,
    TopicPartition,
    without,
)
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.protocols import topic_deletion
from kafkacore.controller.zookeeper.protocols.limits import limit_partitions
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import AlterPartitionReassignmentsResponse, ListPartitionReassignmentsResponse
from kafkacore.runtime.slices import Work
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.fenced import Write
from kafkacore.zookeeper.operations import Code, Delete, Exists, GetData, Operation, SetData, ZooKeeperError
from kafkacore.zookeeper.znodes import MalformedZnodeError

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
Errors = dict[TopicPartition, tuple[ErrorCode, str | None]]
Targets = dict[TopicPartition, Collection[int] | None]
_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_DUPLICATE: Final = (ErrorCode.INVALID_REQUEST, "Duplicate partition.")
_IDS_IN_A_MESSAGE: Final = 100  # a response has no room for a message of more than 32,767 bytes


class ZkPartitionReassignment(Notification):
    """`/admin/reassign_partitions` was created or changed."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "AlterPartitionReassignment"

    async def process(self, controller: ZooKeeperController) -> None:
        if controller.is_active:
            await process_znode(controller)


async def process_znode(controller: ZooKeeperController) -> set[int]:
    """Starts the reassignments that the znode lists, and removes from the znode the entries that cannot be carried out.
    Returns the rows (in the context) of the partitions whose reassignment has started. Watches the znode, even if it
    does not exist.

    This controller writes the znode whenever a reassignment ends, and the watch then causes another call. This call
    does not start reassignments in progress again. Otherwise the end of one reassignment would begin a new leader epoch
    of every other partition in the znode.
    """
    targets, _ = await _read_znode(controller)
    if not targets:
        return set()
    context = controller.context
    errors: Errors = {}
    built = await controller.access.in_slices(_build(context, targets, errors))
    wanted = {
        row: each for row, each in built.items() if row not in context.reassigned or context.assignments[row] != each
    }
    errors |= await reassign(controller, wanted)
    if errors:
        LOG.warning(
            "reassignments that are not made: %s", "; ".join(f"{name}: {why[0].name}" for name, why in errors.items())
        )
        await _take_out(controller, lambda name, _: name in errors)
    return {row for row in wanted if context.name(row) not in errors}


class IsrOfReassignment(Event):
    """A leader has written the state znode of a partition that is being reassigned. Below inter.broker.protocol.version
    2.7-IV2 leaders write ISRs themselves, so the controller watches these znodes."""

    priority: ClassVar = Priority.LEADERSHIP
    state: ClassVar = "AlterPartitionReassignment"

    def __init__(self, state_paths: Iterable[str]) -> None:
        self.paths = set(state_paths)

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.paths |= later.paths

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        rows = [row for row in sorted(context.reassigned) if paths.partition_state(*context.name(row)) in self.paths]
        await watch_isrs(controller, rows)
        await complete_where_possible(controller, rows)


class AlterReassignments(Request):
    """Handles AlterPartitionReassignmentsRequest, version 0. If a partition has several entries, only the first entry
    counts."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "AlterPartitionReassignment"

    async def decide(self, controller: ZooKeeperController) -> Any:
        context = controller.context
        errors: Errors = {}
        in_slices = controller.access.in_slices
        targets = await in_slices(_targets(context, self.request.topics, errors))
        wanted = await in_slices(_build(context, targets, errors))
        names = set(map(context.name, wanted))
        if names:
            await _take_out(controller, lambda name, _: name in names)
        errors |= await reassign(controller, wanted)
        return await in_slices(_answer(self.request.topics, errors))


class ListReassignments(Request):
    """Handles ListPartitionReassignmentsRequest, version 0."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "ListPartitionReassignment"

    async def decide(self, controller: ZooKeeperController) -> Any:
        return await controller.access.in_slices(_listed_reassignments(controller.context, self.request.topics))


async def resume(controller: ZooKeeperController, joined: Collection[int]) -> None:
    """Continues reassignments to brokers that have joined."""
    context = controller.context
    waiting = [row for row in context.reassigned if not set(context.assignments[row].target).isdisjoint(joined)]
    await reassign(controller, {row: context.assignments[row] for row in sorted(waiting)})


async def complete_where_possible(controller: ZooKeeperController, rows: Iterable[int]) -> None:
    """Completes the reassignments whose target replicas are all in sync."""
    context = controller.context
    complete = [row for row in rows if row in context.reassigned and _is_complete(context, row)]
    if complete:
        await reassign(controller, {row: context.assignments[row] for row in complete})


async def reassign(controller: ZooKeeperController, wanted: Mapping[int, Assignment]) -> Errors:
    """Contracts the partitions whose target replicas are all in sync, and expands the others (onPartitionReassignment).
    Returns the errors.

    A reassignment in progress continues even if its topic is to be deleted, because the deletion waits for the
    reassignment.
    """
    context = controller.context
    errors: Errors = {}
    if not wanted:
        return errors
    topic_deletion.halt(controller, {context.name(row).topic for row in wanted}, "a reassignment is under way")
    began = await _begin(controller, wanted, errors)
    await _give_first_leaders(controller, [row for row in began if context.leaderships[row] is None])
    await _contract(controller, [row for row in began if _is_complete(context, row)], errors)
    await _expand(controller, [row for row in began if row in context.reassigned and not _is_complete(context, row)])
    return errors


async def _begin(controller: ZooKeeperController, wanted: Mapping[int, Assignment], errors: Errors) -> list[int]:
    """Writes the assignments that have changed. Deletes the new replicas of reassignments that were replaced or
    cancelled."""
    context = controller.context
    before = {row: context.assignments[row] for row in wanted if context.assignments[row] != wanted[row]}
    for row in before:
        context.assignments[row] = wanted[row]
    failed = await controller.topics.write_assignments(context, _topics(context, before))
    unneeded = []
    for row, was in before.items():
        name = context.name(row)
        if name.topic in failed:
            context.assignments[row] = was
            errors[name] = (ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper answers {failed[name.topic].name}")
        else:
            unneeded += [Replica(row, each) for each in without(was.replicas, wanted[row].replicas)]
    await _delete_replicas(controller, unneeded)
    began = [row for row in wanted if context.name(row) not in errors]
    context.begin_moves(began)
    if not controller.settings.inter_broker_protocol.has_alter_partition:
        await watch_isrs(controller, began)
    return began


async def watch_isrs(controller: ZooKeeperController, rows: Collection[int]) -> None:
    """Watches the state znodes of these partitions until their reassignments are complete, because below 2.7-IV2 the
    leader writes the ISR itself."""
    context = controller.context
    names = [context.name(row) for row in rows]
    await controller.access.read([GetData(paths.partition_state(*name), watch=True) for name in names])
    for row, state in (await controller.states.read(context, list(rows))).items():
        context.leaderships[row] = state


async def _give_first_leaders(controller: ZooKeeperController, rows: Collection[int]) -> None:
    """Elects leaders for partitions that never had one, because all their replicas were down. One of the new replicas
    may be live. Apache Kafka 3.9 waits for a broker that joins. If that broker has an old replica, all replicas become
    in-sync at once. The leader then has no new ISR to propose, so the reassignment never ends."""
    _make_new(controller, rows)
    await partition_changes.bring_online(controller, rows, elections.offline_partition)


async def _expand(controller: ZooKeeperController, rows: Collection[int]) -> None:
    """Starts a new leader epoch with the old and the new replicas, and informs all of them. The new replicas start to
    follow."""
    context = controller.context
    for row in await next_leader_epochs(controller, rows):
        assignment = context.assignments[row]
        controller.batch.leader_and_isr(assignment.origin, row)
        controller.batch.leader_and_isr(assignment.adding, row, is_new=True)
    _make_new(controller, rows)


def _make_new(controller: ZooKeeperController, rows: Iterable[int]) -> None:
    """Makes the new replicas NEW, unless they exist already."""
    context = controller.context
    adding = [Replica(row, each) for row in rows for each in context.assignments[row].adding]
    absent = [each for each in adding if context.replica_state(each) is ReplicaState.NON_EXISTENT]
    replica_changes.make_new(controller, absent)


async def _contract(controller: ZooKeeperController, rows: Collection[int], errors: Errors) -> None:
    """Removes the old replicas. The target replicas are now in sync."""
    context = controller.context
    expanded = {row: context.assignments[row] for row in rows}
    for row, was in expanded.items():
        replica_changes.bring_online(controller, [Replica(row, each) for each in was.adding])
        context.assignments[row] = Assignment(was.target)
    await _move_leaders(controller, rows)
    rows = _led_by_target(context, expanded)
    if not rows:
        return
    await _delete_replicas(controller, [Replica(row, each) for row in rows for each in expanded[row].removing])
    # Brokers are asked to delete the data of the old replicas before these replicas are removed from ZooKeeper. If this
    # controller fails in between, the next controller sends the deletions again.
    controller.batch.flush()
    failed = await controller.topics.write_assignments(context, _topics(context, rows))
    done = [row for row in rows if context.name(row).topic not in failed]
    for row in rows:
        if row not in done:
            errors[context.name(row)] = (ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper refuses the new assignment")
    context.end_moves(done)
    finished = {context.name(row): context.assignments[row].replicas for row in done}
    await _take_out(controller, lambda name, replicas: finished.get(name) == tuple(replicas))
    controller.batch.update_metadata(done)
    await topic_deletion.resume_topics(controller, _topics(context, done))


def _led_by_target(context: ControllerContext, expanded: Mapping[int, Assignment]) -> list[int]:
    """Returns the rows whose old replicas can be removed now. The other partitions stay expanded, because no target
    replica leads them: the target brokers are down, or a leader has just written a smaller ISR to the state znode. The
    old replicas may then be the only ones with every acknowledged record."""
    ready = []
    for row, was in expanded.items():
        now = context.leaderships[row]
        if was.removing and (now is None or now.leader not in was.target):
            LOG.warning("%s keeps its old replicas, because no target replica leads it", context.name(row))
            context.assignments[row] = was
        else:
            ready.append(row)
    return ready


async def _move_leaders(controller: ZooKeeperController, rows: Collection[int]) -> None:
    """Elects a new leader if the old leader is being removed or is down. A leader that remains gets a new leader epoch,
    which fences the removed replicas."""
    context = controller.context
    leave: list[int] = []
    stay: list[int] = []
    for row in rows:
        now = context.leaderships[row]
        stays = (
            now is not None and now.leader in context.assignments[row].replicas and context.is_online(row, now.leader)
        )
        (stay if stays else leave).append(row)
    await partition_changes.bring_online(controller, leave, elections.reassigned_partition)
    for row in await next_leader_epochs(controller, stay):
        controller.batch.leader_and_isr(context.assignments[row].replicas, row)


async def next_leader_epochs(controller: ZooKeeperController, rows: Collection[int]) -> list[int]:
    """Writes the next leader epoch of each partition, with the same leader and ISR. Returns the rows that were
    written."""
    context = controller.context
    written: list[int] = []
    failed: dict[int, str] = {}
    pending: Collection[int] = [row for row in rows if context.leaderships[row] is not None]
    for _ in range(partition_changes.MAX_CONFLICTS):
        changes: dict[int, LeaderAndIsr] = {}
        for row in pending:
            was = context.leaderships[row]
            if was is not None and was.has_next_epoch:
                changes[row] = was.next_epoch(context.epoch)
            elif was is not None:
                failed[row] = NO_NEXT_EPOCH
        updated = await controller.states.update(context, changes)
        for row, now in updated.written.items():
            context.leaderships[row] = now
        written += updated.written
        failed |= {row: f"ZooKeeper answers {code.name}" for row, code in updated.failed.items()}
        pending = await partition_changes.reload(controller, updated.conflicts, failed)
        if not pending:
            break
    for row, reason in failed.items():
        LOG.error("%s keeps its leader epoch: %s", context.name(row), reason)
    return written


async def _delete_replicas(controller: ZooKeeperController, replicas: Collection[Replica]) -> None:
    """Deletes replicas that left their assignments. Does not wait for their brokers to reply. If one of these replicas
    has led its partition, another in-sync replica becomes the leader. Apache Kafka 3.9 elects nobody when a later
    reassignment removes the leader. The new replicas then have no leader to follow, so that reassignment never ends."""
    context = controller.context
    known = [each for each in replicas if context.replica_state(each) is not ReplicaState.NON_EXISTENT]
    led = [each.row for each in known if each.broker_id == _leader(context, each.row)]
    await replica_changes.take_offline(controller, known)
    replica_changes.start_deletion(controller, known)
    context.move_replicas(known, ReplicaState.DELETION_SUCCESSFUL)
    replica_changes.forget(controller, known)
    leaderless = [row for row in led if _leader(context, row) == NO_LEADER]
    context.move_partitions(leaderless, PartitionState.OFFLINE)
    electable = [row for row in leaderless if context.online_replicas(row, _isr(context, row))]
    await partition_changes.bring_online(controller, electable, elections.offline_partition)


def _leader(context: ControllerContext, row: int) -> int | None:
    now = context.leaderships[row]
    return None if now is None else now.leader


def _isr(context: ControllerContext, row: int) -> Ids:
    now = context.leaderships[row]
    return () if now is None else now.isr


def _is_complete(context: ControllerContext, row: int) -> bool:
    """Returns whether every target replica is in sync."""
    assignment, now = context.assignments[row], context.leaderships[row]
    return not assignment.is_reassigned or (now is not None and set(assignment.target) <= set(now.isr))


def _topics(context: ControllerContext, rows: Iterable[int]) -> list[str]:
    return list(dict.fromkeys(context.name(row).topic for row in rows))


# --- the znode ---


async def _read_znode(controller: ZooKeeperController) -> tuple[Targets, int]:
    """Returns the target replicas of each partition, and the version of the znode. Returns no partitions if the znode
    does not exist or cannot be read."""
    path = paths.REASSIGN_PARTITIONS
    reads: list[Operation] = [Exists(path, watch=True), GetData(path)]
    _, found = await controller.access.read(reads)
    if found.code is Code.NO_NODE:
        return {}, -1
    if not found.is_ok:
        raise ZooKeeperError(found.code, path)
    data, stat = found.value
    try:
        decoded = znodes.decode_reassignments(data)
    except MalformedZnodeError as error:
        LOG.warning("%s is ignored, because it cannot be read; correct or delete it: %s", path, error)
        return {}, stat.version
    return {TopicPartition(*name): replicas for name, replicas in decoded.items()}, stat.version


async def _take_out(controller: ZooKeeperController, which: Callable[[TopicPartition, Collection[int]], bool]) -> None:
    """Removes the entries that `which` selects. If no entry remains, deletes the znode. If an administrator writes at
    the same time, reads the new content and tries again."""
    for _ in range(partition_changes.MAX_CONFLICTS):
        targets, version = await _read_znode(controller)
        rest = {name: each for name, each in targets.items() if not which(name, each or ())}
        if len(rest) == len(targets):
            return
        path = paths.REASSIGN_PARTITIONS
        write: Write = Delete(path, version)
        if rest:
            write = SetData(
                path, znodes.encode_reassignments({name: list(each or ()) for name, each in rest.items()}), version
            )
        (result,) = await controller.access.write([write], controller.context.epoch_version)
        if result.code is not Code.BAD_VERSION:
            return


# --- requests ---


def _targets(context: ControllerContext, topics: Iterable[Any], errors: Errors) -> Work[Targets]:
    """Returns the target of each partition's first entry. Raises POLICY_VIOLATION if the request names too many
    partitions."""
    targets: Targets = {}
    for topic in topics:
        yield
        for each in topic.partitions:
            yield
            name = TopicPartition(topic.name, each.partition_index)
            if name in targets or name in errors:
                continue
            problem = None if each.replicas is None else _problem(context, name, each.replicas)
            if problem is None:
                targets[name] = each.replicas
            else:
                errors[name] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            limit_partitions(len(targets) + len(errors))
    return targets


def _build(context: ControllerContext, targets: Targets, errors: Errors) -> Work[dict[int, Assignment]]:
    """Returns the assignments to start, by row. The target None cancels a reassignment."""
    wanted: dict[int, Assignment] = {}
    for name, target in targets.items():
        yield
        row = context.row(*name)
        if row is None or context.is_doomed(row):
            errors[name] = _GONE
            continue
        now = context.assignments[row]
        if target is None and not now.is_reassigned:
            errors[name] = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
            continue
        replicas = now.origin if target is None else tuple(target)
        problem = _shape_problem(replicas)
        becomes = now.reassign_to(replicas)
        problem = problem or _loss(context, row, becomes)
        if problem is not None:
            errors[name] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            continue
        wanted[row] = becomes
    return wanted


def _loss(context: ControllerContext, row: int, becomes: Assignment) -> str | None:
    """Returns the reason to refuse an assignment that would delete every in-sync replica at once, and so the
    acknowledged records. This can happen if a reassignment that is now cancelled or replaced has added these replicas.
    Apache Kafka 3.9 deletes them, and the partition then has no leader."""
    now = context.leaderships[row]
    if now is None or not now.isr or not set(now.isr).isdisjoint(becomes.replicas):
        return None
    return (
        f"Unable to revert partition assignment for {context.name(row)} because it would delete all in-sync replicas: "
        f"{_listed(now.isr)}"
    )


def _listed(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, ids[:_IDS_IN_A_MESSAGE]))
    return f"[{shown}, ...]" if len(ids) > _IDS_IN_A_MESSAGE else f"[{shown}]"


def _shape_problem(replicas: Sequence[int]) -> str | None:
    if not replicas:
        return "Empty replica list specified in partition reassignment."
    if len(set(replicas)) != len(replicas):
        return f"Duplicate replica ids in partition reassignment replica list: {_listed(replicas)}"
    if min(replicas) < 0:
        return f"Invalid broker id in replica list: {_listed(replicas)}"
    return None


def _problem(context: ControllerContext, name: TopicPartition, replicas: Sequence[int]) -> str | None:
    """Returns the reason to refuse a target, or None. A request can add only live brokers. The znode can also contain
    brokers that join later.

    A valid target of a request contains only live brokers and present replicas. The beginning of a longer list already
    contains an error, so the rest is not checked.
    """
    row = context.row(*name)
    now = NO_ASSIGNMENT if row is None else context.assignments[row]
    live = context.live_broker_ids()
    checked = replicas[: len(live) + len(now.replicas) + 1]
    problem = _shape_problem(checked)
    if problem is not None or row is None:
        return problem
    adding = now.reassign_to(checked).adding
    if not live.issuperset(adding):
        return (
            "Replica assignment has brokers that are not alive. "
            f"Replica list: {_listed(adding)}, live broker list: {_listed(sorted(live))}"
        )
    return None


def _answer(topics: Iterable[Any], errors: Errors) -> Work[Any]:
    by_topic: dict[str, list[Any]] = {}
    seen: set[TopicPartition] = set()
    for topic in topics:
        yield
        for each in topic.partitions:
            yield
            name = TopicPartition(topic.name, each.partition_index)
            code, message = errors.get(name, (ErrorCode.NONE, None)) if name not in seen else _DUPLICATE
            seen.add(name)
            by_topic.setdefault(name.topic, []).append(
                AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                    partition_index=name.partition, error_code=code, error_message=message
                )
            )
    return AlterPartitionReassignmentsResponse(
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]
    )


def _listed_reassignments(context: ControllerContext, topics: Iterable[Any] | None) -> Work[Any]:
    """Returns the reassignments in progress, either all or those of the named partitions."""
    by_topic: dict[str, list[Any]] = {}
    for row in (yield from _reassigned_rows(context, topics)):
        yield
        name, assignment = context.name(row), context.assignments[row]
        by_topic.setdefault(name.topic, []).append(
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=name.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        topics=[
            ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]
    )


def _reassigned_rows(context: ControllerContext, topics: Iterable[Any] | None) -> Work[Iterable[int]]:
    """Returns the rows that are being reassigned, each once. If `topics` is None, considers all topics."""
    if topics is None:
        return [row for row in sorted(context.reassigned) if context.assignments[row].is_reassigned]
    found: dict[int, None] = {}
    for topic in topics:
        yield
        for number in topic.partition_indexes:
            yield
            row = context.row(topic.name, number)
            if row is not None and context.assignments[row].is_reassigned:
                found[row] = None
    return found
