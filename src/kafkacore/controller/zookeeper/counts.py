"""The gauges of the controller (KafkaController's metrics), which are computed from the context.

Kafka's controller updates its gauges after each event. This controller counts all partitions for each update, so one
update covers all events of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.events import Notification, Priority
from kafkacore.controller.zookeeper.leadership import Assignment, LeaderAndIsr
from kafkacore.controller.zookeeper.partition_states import PartitionState
from kafkacore.controller.zookeeper.replica_states import ReplicaState
from kafkacore.runtime.slices import Work

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController

DELAY_MS: Final = 1_000


class Counts(NamedTuple):
    """Gauges. Each field has the name of an MBean of `kafka.controller:type=KafkaController`, without `Count`."""

    active_broker: int = 0
    global_topic: int = 0
    global_partition: int = 0
    offline_partitions: int = 0
    preferred_replica_imbalance: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    topics_ineligible_to_delete: int = 0
    replicas_ineligible_to_delete: int = 0


class UpdateGauges(Notification):
    """Counts again, because earlier events may have changed something."""

    priority: ClassVar = Priority.UPKEEP

    async def process(self, controller: ZooKeeperController) -> None:
        if controller.is_active:
            controller.gauges = await controller.access.in_slices(count(controller.context))


def count(context: ControllerContext) -> Work[Counts]:
    """Returns the gauges of the active controller. On every other broker they are all 0."""
    led = offline = imbalanced = 0
    for row in context.rows():
        yield
        now, state = context.leaderships[row], context.partition_states[row]
        led += now is not None
        if context.is_deleted(row):
            continue
        offline += state == PartitionState.OFFLINE
        imbalanced += now is not None and not _is_preferred(context.assignments[row], now)
    doomed = [context.replica_state(each) for each in context.replicas_of(context.rows_of(context.topics_to_delete))]
    return Counts(
        active_broker=len(context.brokers),
        global_topic=len(context.topics),
        global_partition=led,
        offline_partitions=offline,
        preferred_replica_imbalance=imbalanced,
        topics_to_delete=len(context.topics_to_delete),
        replicas_to_delete=sum(state is not ReplicaState.DELETION_SUCCESSFUL for state in doomed),
        topics_ineligible_to_delete=len(context.ineligible_topics),
        replicas_ineligible_to_delete=sum(state is ReplicaState.DELETION_INELIGIBLE for state in doomed),
    )


def _is_preferred(assignment: Assignment, now: LeaderAndIsr) -> bool:
    """Returns whether the preferred replica leads. While a reassignment adds that replica, returns instead whether that
    replica is still out of sync, as Kafka 3.9 does (ControllerContext.hasPreferredLeader)."""
    if not assignment.replicas:
        return True
    preferred = assignment.replicas[0]
    if preferred in assignment.adding:
        return preferred not in now.isr
    return now.leader == preferred
