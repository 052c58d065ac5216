"""Runs a cluster of whole nodes in ZooKeeper mode from a seed."""

from __future__ import annotations

from typing import Final

from kafkacore.simulation.checkers.observations import Progressed
from kafkacore.simulation.checkers.replication import LatestCoversAcknowledged
from kafkacore.simulation.cluster_run import OF_BROKERS, OFFSETS_PARTITIONS, WholeNodesRun
from kafkacore.simulation.zookeeper_cluster import SimulatedZooKeeperCluster
from kafkacore.simulation.zookeeper_faults import ZooKeeperFaults
from kafkacore.simulation.zookeeper_watch import ZooKeeperWatcher

EXPECTED: Final = ("leader", "commit", "every node", "every image", "every replica", *OF_BROKERS)
CONFIGS: Final = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.commit.required.acks": "-1",
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": "3000",
    # A broker that does not reach ZooKeeper within this time gives up, and the run would count that as a failure.
    "zookeeper.connection.timeout.ms": "3600000",
    "controlled.shutdown.retry.backoff.ms": "500",
}


class ZooKeeperRun(WholeNodesRun):
    """A run with the given numbers of brokers in ZooKeeper mode and of ZooKeeper servers. `steps` is the number of
    faults."""

    cluster: SimulatedZooKeeperCluster
    _watcher: ZooKeeperWatcher

    def __init__(self, seed: int, steps: int, brokers: int, servers: int) -> None:
        # If a leader restarts while no controller is active, the next controller finds the leader alive and does not
        # raise the leader epoch, as in Apache Kafka. Until the followers fetch, the leader has the high watermark of
        # its last checkpoint, and may return it as the latest offset.
        super().__init__(seed, steps, brokers, EXPECTED, unpromised=(LatestCoversAcknowledged,))
        self.cluster = SimulatedZooKeeperCluster(seed, brokers=brokers, servers=servers, configs=self._choose(CONFIGS))
        self._watcher = ZooKeeperWatcher(self.cluster, self.judge, OFFSETS_PARTITIONS)
        # A follower reports its records to the leader before it has synced them. In KRaft mode, a broker that has lost
        # its power leaves all ISRs (KIP-966). A controller of ZooKeeper mode does not notice the loss of power, so
        # brokers never lose their power in these runs.
        self._faults = ZooKeeperFaults(self.cluster, brokers_lose_power=False)
        self._begin({})

    def _see_metadata(self) -> None:
        if all(map(self._watcher.is_informed, self.cluster)):
            self.judge.see(Progressed("every image", self._watcher.now_ms))
