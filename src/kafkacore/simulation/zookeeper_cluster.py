"""A cluster of whole nodes in ZooKeeper mode, on a simulated ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kafkacore.config import BrokerConfig
from kafkacore.simulation.cluster import CLIENT_PORT, CLIENTS, CONFIGS, DIRECTORY, SimulatedNodes
from kafkacore.simulation.node import SimulatedNode
from kafkacore.simulation.zookeeper import SimulatedZooKeeper
from kafkacore.zookeeper import paths

ZOOKEEPER_PORT: Final = 2181
TICK_MS: Final = 500


class SimulatedZooKeeperCluster(SimulatedNodes):
    """A cluster with the given numbers of brokers in ZooKeeper mode and of ZooKeeper servers. Each broker can become
    the controller. Each server is on its own machine. `configs` sets configuration keys on every broker."""

    def __init__(
        self, seed: int, *, brokers: int = 3, servers: int = 3, configs: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(seed)
        self.servers = [f"zookeeper-{number}" for number in range(1, servers + 1)]
        service = self.new_machine("zookeeper").loop("work")
        self.zookeeper = SimulatedZooKeeper(service, self.random_of("zookeeper"), TICK_MS)
        for name in self.servers:
            server = self.zookeeper.server(name, ZOOKEEPER_PORT)
            self.network.listen(self.new_machine(name).loop("work"), (name, ZOOKEEPER_PORT), server.accept)
        for number in range(1, brokers + 1):
            properties = {
                "broker.id": str(number),
                "zookeeper.connect": ",".join(f"{name}:{ZOOKEEPER_PORT}" for name in self.servers),
                "listeners": f"{CLIENTS}://node-{number}:{CLIENT_PORT}",
                "log.dirs": DIRECTORY,
            }
            self.nodes[number] = SimulatedNode(self, BrokerConfig(properties | CONFIGS | dict(configs)))

    def session_of(self, node: SimulatedNode) -> int:
        """Returns the id of the session in which a broker is registered, or 0."""
        registration = self.zookeeper.tree.nodes.get(paths.broker(node.node_id))
        return 0 if registration is None else registration.owner

    def close(self) -> None:
        super().close()
        self.zookeeper.stop()
