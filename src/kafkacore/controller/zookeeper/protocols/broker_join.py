"""Broker join: a broker has registered itself in `/brokers/ids`.

The controller updates the metadata of all brokers and informs the new broker of its partitions. It continues
reassignments to that broker, and elects leaders for partitions without a live leader. A broker that restarts begins a
new generation. The controller then first handles the failure of the former generation, and sends that generation no
more requests.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, Final

from kafkacore.controller.zookeeper import partition_changes, registrations, replica_changes
from kafkacore.controller.zookeeper.context import Replica
from kafkacore.controller.zookeeper.events import Notification, Priority
from kafkacore.controller.zookeeper.protocols import partition_reassignment, topic_deletion
from kafkacore.controller.zookeeper.protocols.broker_failure import on_broker_failure
from kafkacore.controller.zookeeper.surroundings import LiveBroker
from kafkacore.zookeeper import paths

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")


class BrokerChange(Notification):
    """The children of `/brokers/ids` have changed. A broker has restarted if the czxid of its znode has changed."""

    priority: ClassVar = Priority.MEMBERSHIP
    state: ClassVar = "BrokerChange"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        names = await controller.topics.children(paths.BROKER_IDS)
        now = await controller.registrations.read(registrations.broker_ids(names))
        was = context.brokers
        new = [broker for broker_id, broker in now.items() if broker_id not in was]
        bounced = [
            broker for broker_id, broker in now.items() if broker_id in was and broker.epoch > was[broker_id].epoch
        ]
        dead = sorted(was.keys() - now.keys())
        LOG.info("brokers: new %s, bounced %s, dead %s, live %s",
                 _ids(new), _ids(bounced), dead, sorted(now))  # fmt: skip
        gone = [*dead, *(broker.broker_id for broker in bounced)]
        if gone:
            await on_broker_failure(controller, gone)
        if new or bounced:
            await on_broker_startup(controller, [*new, *bounced])


async def on_broker_startup(controller: ZooKeeperController, joined: Collection[LiveBroker]) -> None:
    context = controller.context
    compatible = [broker for broker in joined if registrations.fits(broker, context.finalized_features)]
    for broker in joined:
        if broker not in compatible:
            LOG.warning("broker %d is ignored: it does not support the finalized features", broker.broker_id)
    for broker in compatible:
        context.brokers[broker.broker_id] = broker
        context.rows_on_offline_directories.pop(broker.broker_id, None)
        controller.senders.add(broker)
    new_ids = {broker.broker_id for broker in compatible}
    if not new_ids:
        return
    # All brokers learn of the new brokers. The new brokers also learn of all partitions.
    controller.batch.update_metadata()
    controller.batch.update_metadata_of(
        new_ids, (row for row in context.rows() if context.leaderships[row] is not None)
    )
    # A batch sends LeaderAndIsr before UpdateMetadata. Here UpdateMetadata must come first, so it is sent on its own. A
    # broker of Apache Kafka does not follow a leader that it does not know, and does not try again later.
    controller.batch.flush()
    replicas = [
        Replica(row, each) for row in context.rows() for each in context.assignments[row].replicas if each in new_ids
    ]
    deleted = [each for each in replicas if context.is_deleted(each.row)]
    replica_changes.bring_online(controller, [each for each in replicas if not context.is_deleted(each.row)])
    await partition_changes.bring_online_where_possible(controller)
    await partition_reassignment.resume(controller, new_ids)
    await topic_deletion.resume_topics(controller, {context.name(each.row).topic for each in deleted})


def _ids(brokers: Collection[LiveBroker]) -> list[int]:
    return [broker.broker_id for broker in brokers]
