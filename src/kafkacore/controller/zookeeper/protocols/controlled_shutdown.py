"""Controlled shutdown: a broker that wants to stop sends a ControlledShutdown request, and waits for the response.

In the redesign this is the only operation that a broker requests with a message instead of a znode (KAFKA-340,
KAFKA-817, KAFKA-927). The controller moves all leaderships of the broker in one decision and one bulk write. The broker
gets one StopReplica for all partitions that it follows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacore.controller.zookeeper import elections, partition_changes, replica_changes
from kafkacore.controller.zookeeper.context import ControllerContext, Replica
from kafkacore.controller.zookeeper.events import Priority, Request
from kafkacore.protocol.errors import ErrorCode, error_for
from kafkacore.protocol.messages import ControlledShutdownResponse

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

LOG: Final = logging.getLogger("kafkacore.controller")
ANY_EPOCH: Final = -1  # versions 0 and 1 contain no broker epoch, so these requests are not fenced


class ControlledShutdown(Request):
    """Handles ControlledShutdownRequest, versions 0 to 3."""

    priority: ClassVar = Priority.MEMBERSHIP
    state: ClassVar = "ControlledShutdown"

    async def decide(self, controller: ZooKeeperController) -> Any:
        context, broker_id = controller.context, self.request.broker_id
        broker = context.brokers.get(broker_id)
        if broker is None:
            raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if self.request.broker_epoch != ANY_EPOCH and self.request.broker_epoch < broker.epoch:
            raise error_for(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} has joined again: its epoch is {broker.epoch}, not {self.request.broker_epoch}",
            )
        LOG.info("broker %d shuts down", broker_id)
        context.shutting_down.add(broker_id)
        rows = [row for row in context.rows_on(broker_id) if _can_move(context, row)]
        led = [row for row in rows if _leader(context, row) == broker_id]
        await partition_changes.bring_online(controller, led, elections.controlled_shutdown)
        moved = set(led)
        followed = [Replica(row, broker_id) for row in rows if row not in moved]
        await replica_changes.take_offline(controller, followed)
        remaining = [row for row in led if _leader(context, row) == broker_id]
        return ControlledShutdownResponse(
            remaining_partitions=[
                ControlledShutdownResponse.RemainingPartition(topic_name=name.topic, partition_index=name.partition)
                for name in map(context.name, remaining)
            ]
        )


def _can_move(context: ControllerContext, row: int) -> bool:
    """Returns whether the partition has another replica that can lead it. A partition with one replica keeps its
    leader."""
    return (
        len(context.assignments[row].replicas) > 1
        and context.leaderships[row] is not None
        and not context.is_deleted(row)
    )


def _leader(context: ControllerContext, row: int) -> int | None:
    now = context.leaderships[row]
    return None if now is None else now.leader
