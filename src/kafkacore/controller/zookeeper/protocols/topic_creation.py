"""Topic creation: a tool or a broker has added `/brokers/topics/TOPIC` with the replicas of each partition.

A broker adds the znode when it handles a CreateTopics or Metadata request. The controller then chooses leaders, informs
the replicas and updates the metadata of all brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from kafkacore.controller.zookeeper import elections, partition_changes, replica_changes
from kafkacore.controller.zookeeper.events import Notification, Priority
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.topic_store import assignment_of
from kafkacore.storage.names import topic_name_problem
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.znodes import TopicAssignment

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")


class TopicChange(Notification):
    """The children of `/brokers/topics` have changed."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "TopicChange"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        names = await controller.topics.children(paths.TOPICS)
        gone = context.topics.keys() - set(names)
        for name in sorted(gone):
            LOG.warning("topic %s was removed from ZooKeeper by somebody else", name)
            context.remove_topic(name)
        found = await controller.topics.assignments([name for name in names if name not in context.topics])
        rows = await adopt_topics(controller, found)
        LOG.info("new topics: %s", ", ".join(found) or "none")
        await create_partitions(controller, rows)


async def adopt_topics(controller: ZooKeeperController, found: Mapping[str, TopicAssignment]) -> list[int]:
    """Adds topics to the context and returns the rows of their partitions. Gives an id to each topic without one.
    Leaves out a topic that no broker can serve because of its name."""
    context = controller.context
    with_ids = {}
    for name, read in found.items():
        if (problem := topic_name_problem(name)) is not None:
            LOG.error("topic %.80s is left out: %.300s", name, problem)
            continue
        with_ids[name] = read
    if controller.settings.inter_broker_protocol.has_topic_ids:
        await controller.topics.give_ids(context, with_ids, controller.surroundings.new_topic_id)
    rows = []
    for name, read in with_ids.items():
        owner = context.topic_names.get(read.topic_id, name) if read.topic_id is not None else name
        if owner != name:
            LOG.error("topic %s is left out: topic %s has its id %s already", name, owner, read.topic_id)
            continue
        topic = context.add_topic(name, read.topic_id)
        for number, assignment in read.partitions.items():
            rows.append(context.add_partition(topic, number, assignment_of(assignment)))
    return rows


async def create_partitions(controller: ZooKeeperController, rows: list[int]) -> None:
    """Chooses leaders for the new partitions of new or existing topics (onNewPartitionCreation)."""
    context = controller.context
    context.move_partitions(rows, PartitionState.NEW)
    replicas = context.replicas_of(rows)
    replica_changes.make_new(controller, replicas)
    await partition_changes.bring_online(controller, rows, elections.offline_partition)
    replica_changes.bring_online(controller, replicas)
