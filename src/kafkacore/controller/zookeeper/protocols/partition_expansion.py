"""Topic partition expansion: an administrator has added partitions to `/brokers/topics/TOPIC`."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper.events import Event, Priority
from kafkacore.controller.zookeeper.protocols import topic_creation
from kafkacore.controller.zookeeper.protocols.topic_creation import create_partitions
from kafkacore.controller.zookeeper.topic_store import assignment_of

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")


class PartitionModifications(Event):
    """The data of topic znodes has changed. This controller's own writes also cause this event."""

    priority: ClassVar = Priority.TOPICS
    state: ClassVar = "TopicChange"

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.topics |= later.topics

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        found = await controller.topics.assignments(sorted(self.topics))
        unread = [name for name in found if name not in context.topics]
        rows = await topic_creation.adopt_topics(controller, {name: found.pop(name) for name in unread})
        restored = []
        for name, read in found.items():
            topic = context.topics[name]
            added = {number: each for number, each in read.partitions.items() if number not in topic.rows}
            if not added:
                continue
            if name in context.topics_to_delete:
                LOG.warning("topic %s gets no partitions, because it is being deleted", name)
                restored.append(name)
                continue
            LOG.info("topic %s gets partitions %s", name, ", ".join(map(str, sorted(added))))
            rows += [context.add_partition(topic, number, assignment_of(each)) for number, each in added.items()]
        if restored:
            await controller.topics.write_assignments(context, restored)
        await create_partitions(controller, rows)
