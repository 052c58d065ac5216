"""Clusters of three brokers in ZooKeeper mode on an ensemble of three ZooKeeper servers, with the clients and the
checks of `tests/integration/test_hour_of_faults.py`. In addition to the faults in that test, ZooKeeper servers fail
(sometimes all at once), sessions end, and the controller moves.

KAFKACORE_FAULT_SECONDS is the total time for both clusters. If this time is too short for all kinds of faults in each
cluster, each cluster gets half of the kinds. KAFKACORE_SEED repeats the order of the faults.
"""

import contextlib
import os

import pytest

from brokers import APACHE as RELEASES
from brokers import need_jars
from namespaces import possible_network
from quorums import OURS
from seeds import SEED
from torture import RELEASE, Clients, create_topics, small_disks
from zookeeper_cluster import APACHE
from zookeeper_torture import TorturedCluster, ZooKeeperFaults
from zookeepers import need_zookeeper

SECONDS = int(os.environ.get("KAFKACORE_FAULT_SECONDS", "60"))
SHORT_S = 300
KINDS = {"ours": dict.fromkeys((1, 2, 3), OURS), "mixed": {1: OURS, 2: APACHE, 3: OURS}}


@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("kinds", KINDS)
def test_nothing_acknowledged_is_lost_or_doubled_when_brokers_and_zookeeper_servers_fail(kinds, tmp_path):
    need_zookeeper()
    need_jars(RELEASES[RELEASE])
    with possible_network() as network, contextlib.ExitStack() as undo:
        cluster = TorturedCluster(tmp_path / "cluster", KINDS[kinds], network)
        disks = small_disks(cluster.brokers, network, undo)
        undo.callback(cluster.close)
        cluster.start()
        create_topics(cluster)
        with Clients(cluster, tmp_path, SEED) as clients:
            faults = ZooKeeperFaults(cluster, clients, SEED, network, disks)
            if SECONDS < SHORT_S:
                faults.kinds = faults.kinds[list(KINDS).index(kinds) :: len(KINDS)]
            faults.run(SECONDS / len(KINDS))
        assert list(clients.problems()) == []
