"""Whole nodes in ZooKeeper mode in the simulated world."""

import os

import pytest

from kafkacore.simulation.trial import ZOOKEEPER, try_seed
from seeds import SEED
from simulated_clusters import told_with_other_orders_of_sets

RUNS = int(os.environ.get("KAFKACORE_SIMULATED_CLUSTERS", "8"))


@pytest.mark.parametrize("number", range(RUNS))
def test_cluster_keeps_its_promises_when_nodes_links_and_zookeeper_fail(number):
    verdict = try_seed(SEED * 1_000 + number, 40, ZOOKEEPER)
    assert verdict.problem is None, verdict.line()


STORY = """
from kafkacore.simulation.zookeeper_run import ZooKeeperRun
run = ZooKeeperRun({seed}, 10, 3, 3)
run.run()
print(run.cluster.trace_hash)
"""


def test_run_repeats_itself_when_sets_have_another_order():
    told = told_with_other_orders_of_sets(STORY.format(seed=SEED), os.path.dirname(__file__), 100)
    assert told[0] == told[1]
