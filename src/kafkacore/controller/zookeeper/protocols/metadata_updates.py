"""Cluster metadata updates: every broker serves metadata to clients, so the controller informs every broker of changes.

When a protocol has changed partitions, it adds them to the event's batch. This module handles two other changes: a
broker's changed registration, and ISRs that leaders have written themselves (below inter.broker.protocol.version
2.7-IV2).
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper.events import Event, Notification, Priority
from kafkacore.controller.zookeeper.protocols import partition_reassignment
from kafkacore.controller.zookeeper.protocols.broker_join import BrokerChange
from kafkacore.zookeeper import paths, znodes
from kafkacore.zookeeper.znodes import MalformedZnodeError

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")


class BrokerModifications(Event):
    """The registrations of brokers have changed, for example their endpoints or their features."""

    priority: ClassVar = Priority.MEMBERSHIP
    state: ClassVar = "BrokerChange"

    def __init__(self, broker_ids: Iterable[int]) -> None:
        self.broker_ids = set(broker_ids)

    def key(self) -> Hashable:
        return type(self).__name__

    def merge(self, later: Any) -> None:
        self.broker_ids |= later.broker_ids

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        brokers = controller.context.brokers
        registered = await controller.registrations.read(sorted(self.broker_ids))
        for broker_id, now in registered.items():
            was = brokers.get(broker_id)
            if was is None:
                # An administrator may have corrected the registration, so that the broker can join.
                controller.put(BrokerChange())
                continue
            # The BrokerChange event handles a new generation of the broker.
            if was.epoch != now.epoch or was.registration == now.registration:
                continue
            brokers[broker_id] = now
            controller.senders.update(now)
            controller.batch.update_metadata()
            LOG.info("broker %d has changed its registration", broker_id)


class IsrChangeNotification(Notification):
    """Leaders below 2.7-IV2 have written ISRs, and have listed the partitions in `/isr_change_notification`."""

    priority: ClassVar = Priority.LEADERSHIP
    state: ClassVar = "IsrChange"

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            return
        context = controller.context
        names = await controller.topics.children(paths.ISR_CHANGES)
        notes = [f"{paths.ISR_CHANGES}/{name}" for name in names]
        rows = await self._rows(controller, notes)
        for row, state in (await controller.states.read(context, rows)).items():
            context.leaderships[row] = state
        if rows:
            controller.batch.update_metadata(rows)
        await partition_reassignment.complete_where_possible(controller, rows)
        await controller.topics.delete(context, notes)

    async def _rows(self, controller: ZooKeeperController, notes: list[str]) -> list[int]:
        rows: dict[int, None] = {}
        for path, data in (await controller.topics.contents(notes)).items():
            try:
                named = znodes.decode_isr_change(data)
            except MalformedZnodeError as error:
                LOG.warning("%s is ignored, because it cannot be read: %s", path, error)
                continue
            known = (controller.context.row(topic, number) for topic, number in named)
            rows.update(dict.fromkeys(row for row in known if row is not None))
        return list(rows)
