"""The gauges of the ZooKeeper controller, computed from hand-made contexts."""

import pytest

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.counts import count
from kafkacore.controller.zookeeper.leadership import Assignment, LeaderAndIsr
from kafkacore.runtime.slices import finish_now


def imbalance(assignment, leader, isr):
    context = ControllerContext()
    row = context.add_partition(context.add_topic("events", None), 0, assignment)
    context.leaderships[row] = LeaderAndIsr(leader, 1, isr, 0, 1, 1)
    return finish_now(count(context)).preferred_replica_imbalance


@pytest.mark.parametrize(("leader", "imbalanced"), [(1, 0), (2, 1)])
def test_partition_counts_as_imbalanced_when_another_replica_leads(leader, imbalanced):
    assert imbalance(Assignment((1, 2)), leader, (1, 2)) == imbalanced


def test_partition_is_balanced_while_its_first_target_replica_is_out_of_sync():
    assert imbalance(Assignment((3, 1, 2), (3,), (1,)), 1, (1, 2)) == 0


def test_partition_counts_as_imbalanced_when_its_first_target_replica_is_in_sync():
    assert imbalance(Assignment((3, 1, 2), (3,), (1,)), 1, (3, 1, 2)) == 1


def test_partition_without_replicas_counts_as_balanced():
    assert imbalance(Assignment(()), 1, (1,)) == 0
