"""Broker failure: brokers have lost their registrations in `/brokers/ids`, or their log directories have failed.

The controller processes all partitions of the failed brokers together: first the leaders, then the ISRs, each with one
bulk write. It then informs the affected replicas, and updates the metadata of all brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kafkacore.controller.zookeeper import partition_changes, replica_changes
from kafkacore.controller.zookeeper.context import Replica
from kafkacore.controller.zookeeper.events import Event, Notification, Priority
from kafkacore.controller.zookeeper.leadership import TopicPartition
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.protocols import topic_deletion
from kafkacore.controller.zookeeper.surroundings import LiveBroker
from kafkacore.protocol.errors import ErrorCode
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.znodes import MalformedZnodeError

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")


async def on_broker_failure(controller: ZooKeeperController, broker_ids: Collection[int]) -> None:
    """Ends the generations of these brokers. (A generation is the time between two registrations of a broker.) From now
    on, the controller sends these generations no requests."""
    context = controller.context
    LOG.info("brokers have failed: %s", sorted(broker_ids))
    failed = set(broker_ids)
    for broker_id in failed:
        controller.senders.remove(broker_id)
        context.brokers.pop(broker_id, None)
        context.shutting_down.discard(broker_id)
        context.rows_on_offline_directories.pop(broker_id, None)
    replicas = [
        Replica(row, broker_id)
        for row in context.rows()
        for broker_id in context.assignments[row].replicas
        if broker_id in failed
    ]
    await on_replicas_offline(controller, replicas)
    controller.batch.update_metadata()  # needed even without changed partitions, because the live brokers have changed


async def on_replicas_offline(controller: ZooKeeperController, replicas: Collection[Replica]) -> None:
    """Takes replicas offline. Elects leaders first, so that partitions are without a leader for the shortest time
    (onReplicasBecomeOffline)."""
    context = controller.context
    context.move_partitions(context.rows_with_offline_leader(), PartitionState.OFFLINE)
    await partition_changes.bring_online_where_possible(controller)
    await replica_changes.take_offline(controller, [each for each in replicas if not context.is_deleted(each.row)])
    deleted = [each for each in replicas if context.is_deleted(each.row)]
    if deleted:
        await topic_deletion.fail(controller, deleted)


class LeaderAndIsrResult(NamedTuple):
    """The response to LeaderAndIsr of one generation of a broker, with the error of each partition."""

    broker: LiveBroker
    errors: dict[TopicPartition, int]


class LeaderAndIsrResponses(Event):
    """Handles brokers' responses to LeaderAndIsr. KAFKA_STORAGE_ERROR says that a replica's log directory is
    offline."""

    priority: ClassVar = Priority.LEADERSHIP
    state: ClassVar = "LeaderAndIsrResponseReceived"

    def __init__(self, results: Iterable[LeaderAndIsrResult]) -> None:
        self.results = list(results)

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.results += later.results

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        lost: dict[Replica, None] = {}
        for broker, errors in self.results:
            now = context.brokers.get(broker.broker_id)
            if now is None or now.epoch != broker.epoch:
                continue
            offline = context.rows_on_offline_directories.setdefault(broker.broker_id, set())
            for name, error in errors.items():
                row = context.row(*name)
                if row is None or broker.broker_id not in context.assignments[row].replicas:
                    continue  # the topic or the replica was deleted meanwhile
                replica = Replica(row, broker.broker_id)
                if error == ErrorCode.NONE:
                    offline.discard(row)
                    lost.pop(replica, None)
                elif error == ErrorCode.KAFKA_STORAGE_ERROR and row not in offline:
                    offline.add(row)
                    lost[replica] = None
        if lost:
            LOG.warning("%d replicas are on offline log directories", len(lost))
            await on_replicas_offline(controller, list(lost))


class LogDirEventNotification(Notification):
    """Reacts to `/log_dir_event_notification`, where brokers report failed log directories. The controller sends
    LeaderAndIsr to these brokers, and their responses contain an error for each affected partition (KIP-112)."""

    priority: ClassVar = Priority.MEMBERSHIP
    state: ClassVar = "LogDirChange"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        names = await controller.topics.children(paths.LOG_DIR_EVENTS)
        notes = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]
        hit = set()
        for path, data in (await controller.topics.contents(notes)).items():
            try:
                hit.add(znodes.decode_log_dir_event(data))
            except MalformedZnodeError as error:
                LOG.warning("%s is ignored, because it cannot be read: %s", path, error)
        for broker_id in sorted(hit & context.brokers.keys()):
            replicas = [Replica(row, broker_id) for row in context.rows_on(broker_id)]
            replica_changes.bring_online(controller, [each for each in replicas if not context.is_deleted(each.row)])
        await controller.topics.delete(context, notes)
