"""The actions that follow a change of a replica's state (redesign, ReplicaStateMachine).

The changes to NEW and ONLINE inform the replica's broker. The change to OFFLINE removes the replica from the ISR, with
one bulk write for all partitions. The change to DELETION_STARTED tells the broker to delete the replica. The other
changes only set the state.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkacore.controller.zookeeper.context import ControllerContext, Replica
from kafkacore.controller.zookeeper.leadership import NO_LEADER, NO_NEXT_EPOCH, LeaderAndIsr, without
from kafkacore.controller.zookeeper.partition_changes import MAX_CONFLICTS, reload
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.controller.zookeeper.request_batches import RequestBatch
from kafkacore.runtime.slices import Work

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

_AT_ONCE: Final = 100  # replicas whose transitions are checked together
LOG: Final = logging.getLogger("kafkacore.state.change")


def make_new(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    """Makes replicas NEW. If the partition has a leader, the new replica starts to follow that leader."""
    context = controller.context
    made = []
    for replica in context.may_move_replicas(replicas, ReplicaState.NEW):
        now = context.leaderships[replica.row]
        if now is not None and now.leader == replica.broker_id:
            LOG.error("%s: its leader %d cannot become a new replica", context.name(replica.row), replica.broker_id)
            continue
        if now is not None:
            controller.batch.leader_and_isr((replica.broker_id,), replica.row, is_new=True)
        made.append(replica)
    context.set_replica_states(made, ReplicaState.NEW)


def bring_online(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    """Makes replicas ONLINE and informs their brokers of the leader. A NEW replica already knows the leader."""
    context = controller.context
    valid = context.may_move_replicas(replicas, ReplicaState.ONLINE)
    for replica in valid:
        row, broker_id = replica
        if context.replica_state(replica) is ReplicaState.NEW:
            assignment = context.assignments[row]
            if broker_id not in assignment.replicas:
                LOG.error("%s gets replica %d, which is not in its assignment", context.name(row), broker_id)
                context.assignments[row] = assignment._replace(replicas=(*assignment.replicas, broker_id))
        elif context.leaderships[row] is not None:
            controller.batch.leader_and_isr((broker_id,), row)
    context.set_replica_states(valid, ReplicaState.ONLINE)


async def take_offline(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    """Stops the replicas and removes them from their ISRs, with one decision and one bulk write for all partitions.

    A replica keeps its state if its partition's state znode cannot be changed, for example because a later controller
    has written that znode.
    """
    context, batch = controller.context, controller.batch
    leaving: dict[int, set[int]] = {}
    valid = await controller.access.in_slices(_stop(context, batch, list(replicas), leaving))
    known = [row for row in leaving if context.leaderships[row] is not None]
    shrunk, failed = await _leave_isrs(controller, known, leaving)
    await controller.access.in_slices(_inform(context, batch, leaving, shrunk))
    # The remaining partitions keep their leader and ISR. Brokers must still learn that a replica is offline.
    batch.update_metadata(row for row in leaving if row not in shrunk and row not in failed)
    for row, reason in failed.items():
        LOG.error("replicas %s of %s stay as they are: %s", sorted(leaving[row]), context.name(row), reason)
    context.set_replica_states((each for each in valid if each.row not in failed), ReplicaState.OFFLINE)


def _stop(
    context: ControllerContext, batch: RequestBatch, replicas: Sequence[Replica], leaving: dict[int, set[int]]
) -> Work[list[Replica]]:
    """Adds StopReplica requests for the replicas whose state can change to OFFLINE. Returns these replicas. Adds their
    broker ids to `leaving`, keyed by row."""
    valid: list[Replica] = []
    for at in range(0, len(replicas), _AT_ONCE):
        valid += context.may_move_replicas(replicas[at : at + _AT_ONCE], ReplicaState.OFFLINE)
        yield
    for row, broker_id in valid:
        if broker_id in context.brokers:
            batch.stop_replica(broker_id, row)
        leaving.setdefault(row, set()).add(broker_id)
        yield
    return valid


def _inform(
    context: ControllerContext, batch: RequestBatch, leaving: Mapping[int, set[int]], shrunk: Iterable[int]
) -> Work[None]:
    for row in shrunk:
        if not context.is_deleted(row):
            batch.leader_and_isr(without(context.assignments[row].replicas, leaving[row]), row)
        yield


async def _leave_isrs(
    controller: ZooKeeperController, rows: Collection[int], leaving: dict[int, set[int]]
) -> tuple[dict[int, LeaderAndIsr], dict[int, str]]:
    """Removes the replicas from the ISRs. Returns the new leaderships of the partitions whose ISR has changed, and the
    reason for each failure."""
    context = controller.context
    written: dict[int, LeaderAndIsr] = {}
    failed: dict[int, str] = {}
    pending: Collection[int] = rows
    for _ in range(MAX_CONFLICTS):
        changes = await controller.access.in_slices(_smaller(context, pending, leaving, failed))
        if not changes:
            return written, failed
        updated = await controller.states.update(context, changes)
        for row, now in updated.written.items():
            context.leaderships[row] = written[row] = now
        for row, code in updated.failed.items():
            # The state znode of a topic that is being deleted may already be gone.
            if not context.is_deleted(row):
                failed[row] = f"ZooKeeper answers {code.name}"
        pending = await reload(controller, updated.conflicts, failed)
    failed.update(dict.fromkeys(pending, "other nodes keep changing its state"))
    return written, failed


def _smaller(
    context: ControllerContext, rows: Iterable[int], leaving: Mapping[int, set[int]], failed: dict[int, str]
) -> Work[dict[int, LeaderAndIsr]]:
    changes: dict[int, LeaderAndIsr] = {}
    for row in rows:
        yield
        was = context.leaderships[row]
        if was is None or (now := _left_by(was, leaving[row], context.epoch)) is was:
            continue
        if was.has_next_epoch:
            changes[row] = now
        elif not context.is_deleted(row):
            failed[row] = NO_NEXT_EPOCH
    return changes


def _left_by(was: LeaderAndIsr, leaving: Collection[int], controller_epoch: int) -> LeaderAndIsr:
    """Returns the leadership without the replicas in `leaving`, or `was` itself if nothing changes. If all members
    leave, the last one remains in the ISR, because it has every committed record."""
    isr = without(was.isr, leaving)
    if not isr:
        isr = (was.leader,) if was.leader in was.isr else was.isr[:1]
    leader = NO_LEADER if was.leader in leaving else was.leader
    if isr == was.isr and leader == was.leader:
        return was
    return was.led_by(leader, isr, controller_epoch)


def start_deletion(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    moved = controller.context.move_replicas(replicas, ReplicaState.DELETION_STARTED)
    for row, broker_id in moved:
        controller.batch.stop_replica(broker_id, row, delete=True)


def forget(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    """Changes replicas from DELETION_SUCCESSFUL to NON_EXISTENT, and removes them from the assignments in memory."""
    context = controller.context
    for row, broker_id in context.move_replicas(replicas, ReplicaState.NON_EXISTENT):
        context.assignments[row] = context.assignments[row].without_replica(broker_id)


def initial_states(context: ControllerContext) -> None:
    """Sets the states of replicas for a new controller. A replica that is down gets DELETION_INELIGIBLE, because the
    former controller may have started to delete it (initializeReplicaState)."""
    for replica in context.replicas_of(context.rows()):
        online = context.is_online(*replica)
        context.set_replica_states((replica,), ReplicaState.ONLINE if online else ReplicaState.DELETION_INELIGIBLE)
