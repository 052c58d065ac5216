"""Topic deletion: a tool, or a broker that handles a DeleteTopics request, has added `/admin/delete_topics/TOPIC`.

A deletion has two phases. First, all replicas stop, and brokers learn that the topic is being deleted. Second, all
replicas delete their data. When all of them have done so, the controller removes the topic from ZooKeeper. A topic is
ineligible, and its deletion waits, in three cases: a replica is down; a replica has failed to delete its data; a
partition is being reassigned. The controller retries waiting deletions periodically, and when a broker joins.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from kafkacore.controller.zookeeper import replica_changes
from kafkacore.controller.zookeeper.context import ControllerContext, Replica
from kafkacore.controller.zookeeper.events import Event, Notification, Priority
from kafkacore.controller.zookeeper.leadership import TopicPartition
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.controller.zookeeper.surroundings import LiveBroker
from kafkacore.protocol.errors import ErrorCode
from kafkacore.zookeeper import paths

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
RETRY_MS: Final = 5_000


class TopicDeletion(Notification):
    """The children of `/admin/delete_topics` have changed."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "TopicDeletion"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        names = await controller.topics.children(paths.DELETE_TOPICS)
        if not controller.settings.delete_topic_enable:
            LOG.info("topics are not deleted, because delete.topic.enable is false: %s", ", ".join(names))
            await _withdraw(controller, names)
            return
        unknown = [name for name in names if name not in context.topics]
        if unknown:
            LOG.warning("topics to delete that do not exist: %s", ", ".join(unknown))
            await _withdraw(controller, unknown)
        wanted = {name for name in names if name in context.topics}
        context.topics_to_delete |= wanted
        context.ineligible_topics |= set(filter(context.is_moved, wanted))
        await resume(controller)


class StopReplicaResponse(NamedTuple):
    """The StopReplica response of one generation of a broker. `errors` maps each partition that the broker was asked to
    delete to an error code."""

    broker: LiveBroker
    error: int
    errors: dict[TopicPartition, int]


class StopReplicaResponses(Event):
    """Handles the responses of brokers that have deleted replicas, or have failed to delete them."""

    priority: ClassVar = Priority.LEADERSHIP
    state: ClassVar = "TopicDeletion"

    def __init__(self, responses: Iterable[StopReplicaResponse]) -> None:
        self.responses = list(responses)

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.responses += later.responses

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        done: list[Replica] = []
        failed: list[Replica] = []
        for broker, error, errors in self.responses:
            now = context.brokers.get(broker.broker_id)
            if now is None or now.epoch != broker.epoch:
                continue  # the broker has restarted, and the restart was handled already
            for name, partition_error in errors.items():
                row = context.row(*name)
                if row is None or not context.is_deleted(row):
                    continue
                replica = Replica(row, broker.broker_id)
                if context.replica_state(replica) is ReplicaState.DELETION_STARTED:
                    ok = error == partition_error == ErrorCode.NONE
                    (done if ok else failed).append(replica)
        context.move_replicas(done, ReplicaState.DELETION_SUCCESSFUL)
        await fail(controller, failed)


class RetryDeletions(Notification):
    """Runs after a delay, because a replica that failed to delete its data may succeed now."""

    priority: ClassVar = Priority.UPKEEP
    state: ClassVar = "TopicDeletion"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        waiting = [name for name in context.ineligible_topics if not context.is_moved(name)]
        context.ineligible_topics -= {name for name in waiting if not _dead(context, [name])}
        await resume(controller)


async def fail(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    """Handles replicas that went down, or failed to delete their data, during a deletion: makes their topics
    ineligible."""
    context = controller.context
    failed = [each for each in replicas if context.is_deleted(each.row)]
    await _make_ineligible(controller, failed)
    halt(controller, {context.name(each.row).topic for each in failed}, "a replica could not be deleted")
    await resume(controller)


def halt(controller: ZooKeeperController, topics: Iterable[str], reason: str) -> None:
    """Makes each of these topics ineligible if it is queued for deletion."""
    context = controller.context
    halted = context.topics_to_delete.intersection(topics)
    if halted:
        context.ineligible_topics |= halted
        LOG.info("the deletion of topics waits, because %s: %s", reason, ", ".join(sorted(halted)))


async def resume_topics(controller: ZooKeeperController, topics: Iterable[str]) -> None:
    """Makes these topics eligible again, because the cause of their ineligibility may be gone."""
    context = controller.context
    wanted = context.topics_to_delete.intersection(topics)
    if wanted:
        context.ineligible_topics -= wanted
        await resume(controller)


async def resume(controller: ZooKeeperController) -> None:
    """Completes the deletions that can be completed, and starts those that can be started."""
    context = controller.context
    finished = [name for name in sorted(context.topics_to_delete) if _is_finished(context, name)]
    if finished:
        await _complete(controller, finished)
    # When a broker joins, the topics with replicas on it become eligible again, even while a partition of a topic is
    # being reassigned. If the topic's replicas were deleted now, that partition would have no leader, its reassignment
    # would never end, and the deletion would wait for ever.
    startable = [
        name
        for name in sorted(context.topics_to_delete - context.ineligible_topics - set(finished))
        if not context.is_moved(name) and not context.replicas_in(name, ReplicaState.DELETION_STARTED)
    ]
    if startable:
        await _start(controller, startable)
    if context.topics_to_delete:
        controller.schedule(RETRY_MS, RetryDeletions)


def _is_finished(context: ControllerContext, topic: str) -> bool:
    replicas = context.replicas_of(context.rows_of([topic]))
    return all(context.replica_state(each) is ReplicaState.DELETION_SUCCESSFUL for each in replicas)


async def _start(controller: ZooKeeperController, topics: Collection[str]) -> None:
    """Starts both phases. Their requests are sent together, UpdateMetadata before StopReplica."""
    context = controller.context
    LOG.info("the deletion of topics begins: %s", ", ".join(topics))
    unseen = context.rows_of(name for name in topics if name not in context.topics_in_deletion)
    context.move_partitions(unseen, PartitionState.OFFLINE)
    context.move_partitions(unseen, PartitionState.NON_EXISTENT)
    context.topics_in_deletion.update(topics)
    controller.batch.update_metadata(context.rows_of(topics))

    dead = _dead(context, topics)
    remaining = [
        each
        for each in context.replicas_of(context.rows_of(topics))
        if context.replica_state(each) is not ReplicaState.DELETION_SUCCESSFUL and each not in dead
    ]
    await replica_changes.take_offline(controller, remaining)
    replica_changes.start_deletion(controller, remaining)
    await _make_ineligible(controller, dead)
    halt(controller, {context.name(each.row).topic for each in dead}, "replicas are offline")


def _dead(context: ControllerContext, topics: Iterable[str]) -> list[Replica]:
    """Returns the replicas that cannot be deleted now, because they are not online."""
    return [
        each
        for each in context.replicas_of(context.rows_of(topics))
        if not context.is_online(*each) and context.replica_state(each) is not ReplicaState.DELETION_SUCCESSFUL
    ]


async def _make_ineligible(controller: ZooKeeperController, replicas: Iterable[Replica]) -> None:
    """Makes replicas DELETION_INELIGIBLE. If their present state allows no direct transition, makes them OFFLINE first.
    A replica that is already deleted keeps its state."""
    context = controller.context
    settled = (ReplicaState.DELETION_INELIGIBLE, ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT)
    wanted = [each for each in replicas if context.replica_state(each) not in settled]
    serving = [each for each in wanted if context.replica_state(each) in (ReplicaState.ONLINE, ReplicaState.NEW)]
    await replica_changes.take_offline(controller, serving)
    context.move_replicas(wanted, ReplicaState.DELETION_INELIGIBLE)


async def _complete(controller: ZooKeeperController, topics: list[str]) -> None:
    """Removes topics whose replicas are all deleted. If that fails, the controller tries again later."""
    context = controller.context
    replicas = context.replicas_of(context.rows_of(topics))
    replica_changes.forget(controller, replicas)
    controller.batch.flush()  # before `remove` frees the rows that the requests refer to
    for name in await controller.topics.remove(context, topics):
        context.remove_topic(name)
        LOG.info("topic %s is deleted", name)


async def _withdraw(controller: ZooKeeperController, names: Iterable[str]) -> None:
    await controller.topics.delete(controller.context, [paths.delete_topic(name) for name in names])
