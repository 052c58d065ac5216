"""The faults that can affect a cluster of whole nodes in ZooKeeper mode."""

from __future__ import annotations

from random import Random
from typing import Final

from kafkacore.simulation.cluster_faults import Begun, ClusterFaults
from kafkacore.simulation.faults import Fault
from kafkacore.simulation.node import SimulatedNode, State
from kafkacore.simulation.zookeeper_cluster import ZOOKEEPER_PORT, SimulatedZooKeeperCluster
from kafkacore.simulation.zookeeper_server import Server, Transaction
from kafkacore.zookeeper import paths
from kafkacore.zookeeper.operations import Code, Delete, ZooKeeperError

OF_QUORUMS: Final = (
    "loss of a zone",
    "controllers out of reach",
)  # faults that need controllers on nodes of their own
ADMINISTRATOR: Final = 0  # the session id for writes that do not come from a broker


class ZooKeeperFaults(ClusterFaults):
    """Also stops ZooKeeper servers, cuts brokers off from them, ends sessions, and moves the controller."""

    def __init__(self, cluster: SimulatedZooKeeperCluster, *, brokers_lose_power: bool = True) -> None:
        super().__init__(cluster, brokers_lose_power=brokers_lose_power)
        self._zookeeper_cluster = cluster
        self._down: dict[str, int] = {}  # maps each server to the number of active faults that keep it down

    def kinds(self) -> list[Fault]:
        return [
            *(each for each in super().kinds() if each.kind not in OF_QUORUMS),
            Fault("end of a session", 2.0, 1, 10, self.end_session),
            Fault("move of the controller", 1.0, 1, 10, self.move_controller),
            Fault("loss of a ZooKeeper server", 1.0, 100, 15_000, self.stop_server),
            Fault("loss of ZooKeeper", 1.0, 100, 30_000, self.stop_zookeeper),
            Fault("slow ZooKeeper server", 1.0, 500, 15_000, self.slow_server),
            Fault("ZooKeeper out of reach", 1.5, 100, 15_000, self.hide_zookeeper),
            Fault("loss of connections to ZooKeeper", 2.0, 1, 10, self.cut_connections),
        ]

    def explains(self, node: SimulatedNode) -> bool:
        """Returns whether a failure of this node is expected. If a broker's session ends while the broker starts, the
        broker gives up, as in Apache Kafka. The run starts it again later."""
        error = node.error
        is_over = isinstance(error, ZooKeeperError) and error.code is Code.SESSION_EXPIRED
        return is_over or super().explains(node)

    def _server(self, name: str) -> Server:
        return self._zookeeper_cluster.zookeeper.server(name, ZOOKEEPER_PORT)

    def end_session(self, random: Random) -> Begun | None:
        cluster = self._zookeeper_cluster
        node = random.choice(list(cluster))
        session_id = cluster.session_of(node)
        if not session_id:
            return None
        cluster.zookeeper.expire(session_id)
        return f"of {node.name}", lambda: None

    def move_controller(self, random: Random) -> Begun | None:
        """Deletes `/controller`, as an administrator does."""
        service = self._zookeeper_cluster.zookeeper
        if paths.CONTROLLER not in service.tree.nodes:
            return None
        service.commit(Transaction(ADMINISTRATOR, Delete(paths.CONTROLLER)))
        return "/controller is deleted", lambda: None

    def stop_server(self, random: Random) -> Begun:
        name = random.choice(self._zookeeper_cluster.servers)
        return self._stop([name], name)

    def stop_zookeeper(self, random: Random) -> Begun:
        return self._stop(self._zookeeper_cluster.servers, "all servers")

    def _stop(self, names: list[str], what: str) -> Begun:
        for name in names:
            self._down[name] = self._down.get(name, 0) + 1
            self._server(name).stop()

        def start() -> None:
            for name in names:
                self._down[name] -= 1
                if not self._down[name]:
                    self._server(name).start()

        return what, start

    def slow_server(self, random: Random) -> Begun:
        name = random.choice(self._zookeeper_cluster.servers)
        server, seconds = self._server(name), random.choice((0.05, 0.5, 2.0))
        server.lag(seconds)
        return f"{name} by {seconds} s", lambda: server.lag(0)

    def hide_zookeeper(self, random: Random) -> Begun | None:
        """Cuts a broker off from all ZooKeeper servers. It can still reach other brokers and its clients."""
        cluster = self._zookeeper_cluster
        node = self._one(random, State.RUNNING)
        if node is None:
            return None
        links = [link for name in cluster.servers for link in ((node.name, name), (name, node.name))]
        for source, target in links:
            cluster.network.cut(source, target)

        def mend() -> None:
            for source, target in links:
                cluster.network.heal(source, target)

        return f"for {node.name}", mend

    def cut_connections(self, random: Random) -> Begun:
        for name in self._zookeeper_cluster.servers:
            self._server(name).cut_connections()
        return "to all servers", lambda: None
