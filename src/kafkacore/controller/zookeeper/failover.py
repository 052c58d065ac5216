"""Controller failover: loads the state of the cluster from ZooKeeper into a newly elected controller, in few round
trips. The controller then takes over (onControllerFailover)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkacore.controller.zookeeper import features, partition_changes, registrations, replica_changes
from kafkacore.controller.zookeeper.protocols import (
    partition_reassignment,
    preferred_election,
    topic_creation,
    topic_deletion,
)
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.zookeeper import paths

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")


async def take_over(controller: ZooKeeperController) -> None:
    """Takes over as the controller. The reads also set watches, so any later change becomes an event."""
    await features.set_up(controller)
    await _drop_notifications(controller)
    await _load(controller)
    await _find_deletions(controller)
    controller.batch.update_metadata()
    # Send UpdateMetadata first: a broker must know the live brokers before a LeaderAndIsr request makes it follow one
    # of them.
    controller.batch.flush()
    await _start_state_machines(controller)
    LOG.info("broker %d is the controller with epoch %d: %d brokers, %d topics, %d partitions",
             controller.settings.broker_id, controller.context.epoch, len(controller.context.brokers),
             len(controller.context.topics), sum(1 for _ in controller.context.rows()))  # fmt: skip
    await _resume_operations(controller)
    controller.schedule(preferred_election.FIRST_CHECK_MS, preferred_election.AutoPreferredElection)


async def _drop_notifications(controller: ZooKeeperController) -> None:
    """Deletes old notification znodes. They are not needed, because the new controller reads all states of
    partitions."""
    for path in (paths.LOG_DIR_EVENTS, paths.ISR_CHANGES):
        names = await controller.topics.children(path)
        await controller.topics.delete(controller.context, [f"{path}/{name}" for name in names])


async def _load(controller: ZooKeeperController) -> None:
    """Loads brokers, topics with their partitions, and the states of the partitions, in five bulk reads."""
    context = controller.context
    ids = registrations.broker_ids(await controller.topics.children(paths.BROKER_IDS))
    for broker in (await controller.registrations.read(ids)).values():
        if not registrations.fits(broker, context.finalized_features):
            LOG.warning("broker %d is ignored: it does not support the finalized features", broker.broker_id)
            continue
        context.brokers[broker.broker_id] = broker
        controller.senders.add(broker)
    names = await controller.topics.children(paths.TOPICS)
    rows = await topic_creation.adopt_topics(controller, await controller.topics.assignments(names))
    context.begin_moves(row for row in rows if context.assignments[row].is_reassigned)
    for row, state in (await controller.states.read_all(context, rows)).items():
        context.leaderships[row] = state


async def _find_deletions(controller: ZooKeeperController) -> None:
    """Finds the topics in `/admin/delete_topics`; `_resume_operations` continues their deletion."""
    context = controller.context
    names = await controller.topics.children(paths.DELETE_TOPICS)
    if not controller.settings.delete_topic_enable:
        await controller.topics.delete(context, [paths.delete_topic(name) for name in names])
        return
    context.topics_to_delete |= context.topics.keys() & set(names)
    context.ineligible_topics |= set(filter(context.is_moved, context.topics_to_delete))
    gone = [name for name in names if name not in context.topics]
    await controller.topics.delete(context, [paths.delete_topic(name) for name in gone])


async def _start_state_machines(controller: ZooKeeperController) -> None:
    """Informs every broker of all its replicas and of all partitions. Removes replicas that are down from their
    partitions' ISRs."""
    context = controller.context
    replica_changes.initial_states(context)
    replicas = [each for each in context.replicas_of(context.rows()) if not context.is_deleted(each.row)]
    online = [each for each in replicas if context.replica_state(each) is ReplicaState.ONLINE]
    replica_changes.bring_online(controller, online)
    partition_changes.initial_states(context)
    await partition_changes.bring_online_where_possible(controller)
    down = [each for each in replicas if context.replica_state(each) is ReplicaState.DELETION_INELIGIBLE]
    await replica_changes.take_offline(controller, down)
    controller.batch.update_metadata(context.rows())


async def _resume_operations(controller: ZooKeeperController) -> None:
    context = controller.context
    begun = await partition_reassignment.process_znode(controller)
    waiting = sorted(context.reassigned - begun)
    if not controller.settings.inter_broker_protocol.has_alter_partition:
        await partition_reassignment.watch_isrs(controller, waiting)
    await partition_reassignment.reassign(controller, {row: context.assignments[row] for row in waiting})
    await topic_deletion.resume(controller)
    await preferred_election.process_znode(controller)
