"""The actions that follow a change of a partition's state (redesign, PartitionStateMachine).

Every change sets the state. The change to ONLINE also chooses leaders and ISRs, writes them to ZooKeeper in bulk, and
adds the requests that inform the brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkacore.controller.zookeeper import elections
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.elections import Choice, Election
from kafkacore.controller.zookeeper.leadership import (
    NO_NEXT_EPOCH,
    RECOVERING,
    Assignment,
    Ids,
    LeaderAndIsr,
    first_leadership,
)
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.runtime.slices import Work

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.state.change")
# If an update fails because the leader changed the ISR at the same time, the controller tries again at most this many
# times.
MAX_CONFLICTS: Final = 16


class Elected(NamedTuple):
    """The outcome of an election for each row (a partition in the context): the new leadership, or the reason for the
    failure. The reason goes to the log and into the response to an operator."""

    led: dict[int, LeaderAndIsr]
    failed: dict[int, str]


async def bring_online(
    controller: ZooKeeperController,
    rows: Iterable[int],
    election: Election,
    *,
    unclean: bool = False,
) -> Elected:
    """Changes partitions to ONLINE, and elects a leader for each. A NEW partition gets its first leader; an OFFLINE or
    ONLINE partition gets another one. `unclean` says that an operator has allowed leaders from outside the ISR."""
    context = controller.context
    valid = context.may_move_partitions(rows, PartitionState.ONLINE)
    new = [row for row in valid if context.partition_states[row] == PartitionState.NEW]
    old = [row for row in valid if context.partition_states[row] != PartitionState.NEW]
    led, failed = await _give_first_leaders(controller, new)
    elected = await _elect(controller, old, election, unclean=unclean)
    for row, reason in (failed | elected.failed).items():
        LOG.warning("controller epoch %d: %s gets no leader: %s", context.epoch, context.name(row), reason)
    return Elected(led | elected.led, failed | elected.failed)


async def bring_online_where_possible(controller: ZooKeeperController, topic: str | None = None) -> Elected:
    """Elects leaders for the NEW and OFFLINE partitions. Skips topics that are being deleted
    (triggerOnlinePartitionStateChange)."""
    context = controller.context
    states = (PartitionState.NEW, PartitionState.OFFLINE)
    rows = context.rows() if topic is None else context.rows_of([topic])
    waiting = [row for row in rows if context.partition_states[row] in states and not context.is_deleted(row)]
    return await bring_online(controller, waiting, elections.offline_partition)


async def _give_first_leaders(controller: ZooKeeperController, rows: Iterable[int]) -> Elected:
    """Makes the first live replica of each partition the leader, and all its live replicas the ISR."""
    context, outcome = controller.context, Elected({}, {})
    wanted = {}
    for row in rows:
        live = context.online_replicas(row, context.assignments[row].replicas)
        if live:
            wanted[row] = first_leadership(live[0], live, context.epoch)
        else:
            outcome.failed[row] = "no assigned replica is alive"
    created = await controller.states.create(context, wanted)
    for row in wanted:
        if row not in created:
            outcome.failed[row] = "its state could not be created in ZooKeeper"
            continue
        now = context.leaderships[row] = created[row]
        controller.batch.leader_and_isr(now.isr, row, is_new=True)
        outcome.led[row] = now
    context.set_partition_states(created, PartitionState.ONLINE)
    return outcome


async def _elect(
    controller: ZooKeeperController, rows: Collection[int], election: Election, *, unclean: bool
) -> Elected:
    """Elects a leader for each partition, based on the cached leadership. If another node has changed the state znode,
    reads the znode and decides again."""
    context, outcome = controller.context, Elected({}, {})
    pending: Collection[int] = rows
    for _ in range(MAX_CONFLICTS):
        if not pending:
            return outcome
        topics = await _topics_that_allow_unclean(controller, pending, election, unclean=unclean)
        has_recovery = controller.settings.inter_broker_protocol.has_leader_recovery
        choices, changes = await controller.access.in_slices(
            _choose(context, pending, election, topics, outcome, has_recovery=has_recovery)
        )
        updated = await controller.states.update(context, changes)
        await controller.access.in_slices(_take(controller, choices, updated.written))
        outcome.led.update(updated.written)
        outcome.failed.update({row: f"ZooKeeper answers {code.name}" for row, code in updated.failed.items()})
        pending = await reload(controller, updated.conflicts, outcome.failed)
    outcome.failed.update(dict.fromkeys(pending, "other nodes keep changing its state"))
    return outcome


def _take(
    controller: ZooKeeperController, choices: Mapping[int, Choice], written: Mapping[int, LeaderAndIsr]
) -> Work[None]:
    # Keep these objects: if the session ends meanwhile, the controller gets another context and batch.
    context, batch, measures = controller.context, controller.batch, controller.measures
    for row, now in written.items():
        context.leaderships[row] = now
        measures.unclean_elections += choices[row].is_unclean
        batch.leader_and_isr(choices[row].recipients, row)
        yield
    context.set_partition_states(written, PartitionState.ONLINE)


def _choose(
    context: ControllerContext,
    rows: Collection[int],
    election: Election,
    topics: Collection[str],
    outcome: Elected,
    *,
    has_recovery: bool,
) -> Work[tuple[dict[int, Choice], dict[int, LeaderAndIsr]]]:
    """Returns the election's choice for each row, and the leaderships to write. `topics` are the topics that allow
    unclean elections."""
    # Partitions with the same replicas and ISR share one decision, if neither their topics nor failed directories can
    # make a difference.
    are_alike = not topics and not context.has_offline_directories
    decided: dict[tuple[Assignment, Ids], Choice] = {}
    choices: dict[int, Choice] = {}
    changes: dict[int, LeaderAndIsr] = {}
    for row in rows:
        yield
        was = context.leaderships[row]
        if was is None:
            outcome.failed[row] = "it has no state in ZooKeeper"
            continue
        if not was.has_next_epoch:
            outcome.failed[row] = NO_NEXT_EPOCH
            continue
        kind = context.assignments[row], was.isr
        choice = decided.get(kind) if are_alike else None
        if choice is None:
            choice = decided[kind] = election(context, row, was.isr, topics)
        if choice.chosen is None:
            outcome.failed[row] = "no eligible replica is alive"
            continue
        choices[row] = choice
        now = was.led_by(choice.chosen.leader, choice.chosen.isr, context.epoch)
        if choice.chosen.unclean and has_recovery:
            now = now._replace(recovery_state=RECOVERING)
        changes[row] = now
    return choices, changes


async def _topics_that_allow_unclean(
    controller: ZooKeeperController, rows: Collection[int], election: Election, *, unclean: bool
) -> Collection[str]:
    """Considers only topics with a partition whose ISR has no live replica. Returns such a topic if its settings allow
    unclean elections, or if `unclean` is true.
    """
    if election is not elections.MAY_BE_UNCLEAN:
        return ()
    context = controller.context
    live = context.live_broker_ids()
    lost = dict.fromkeys(context.name(row).topic for row in rows if _has_lost_its_isr(context, row, live))
    if not lost or unclean:
        return lost
    return await controller.topics.that_allow_unclean_elections(list(lost))


def _has_lost_its_isr(context: ControllerContext, row: int, live: set[int]) -> bool:
    """Returns whether no replica in the ISR is live. A member of the ISR that is no longer a replica does not count.
    Apache Kafka 3.9 leaves such a member in the ISR if a cancelled reassignment has deleted the last in-sync
    replica."""
    now = context.leaderships[row]
    if now is None:
        return False
    isr = frozenset(now.isr).intersection(context.assignments[row].replicas)
    return isr.isdisjoint(live) or (context.has_offline_directories and not context.online_replicas(row, tuple(isr)))


async def reload(controller: ZooKeeperController, rows: Collection[int], failed: dict[int, str]) -> list[int]:
    """Rereads from ZooKeeper the states of partitions that another node has changed. Returns the rows for which the
    caller must decide again. Adds the other rows to `failed`, with the reason."""
    if not rows:
        return []
    context = controller.context
    found = await controller.states.read(context, list(rows))
    again = []
    for row in rows:
        state = found.get(row)
        if state is None:
            failed[row] = "its state in ZooKeeper is gone"
        elif state.controller_epoch > context.epoch:
            failed[row] = f"the controller of epoch {state.controller_epoch} has written its state"
        else:
            context.leaderships[row] = state
            again.append(row)
    return again


def initial_states(context: ControllerContext) -> None:
    """Sets the states of partitions for a new controller (initializePartitionState)."""
    for row in context.rows():
        now = context.leaderships[row]
        if now is None:
            state = PartitionState.NEW
        else:
            state = PartitionState.ONLINE if context.is_online(row, now.leader) else PartitionState.OFFLINE
        context.partition_states[row] = state
