"""A cluster in the simulated world. Virtual time passes while the test waits, and the seed decides everything."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from kafkacore.protocol.messages import Message
from kafkacore.server.node import Node
from kafkacore.simulation.client import SimulatedClient
from kafkacore.simulation.cluster import SimulatedCluster, SimulationTimeout
from kafkacore.simulation.machine import WALL_MS
from kafkacore.testing.client import Client

T = TypeVar("T")
_MS_OF_A_S: Final = 1000


class SimulatedBackend:
    """The ClusterBackend for simulated nodes."""

    def __init__(
        self,
        seed: int,
        roles: Mapping[int, tuple[str, ...]],
        configs: Mapping[str, str],
        of_node: Mapping[int, Mapping[str, str]],
        *,
        static: bool,
    ) -> None:
        self.roles = roles
        kinds = list(roles.values())
        self.cluster = SimulatedCluster(
            seed,
            combined=kinds.count(("broker", "controller")),
            controllers=kinds.count(("controller",)),
            brokers=kinds.count(("broker",)),
            static=static,
            configs={"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5", **configs},
            of_node=of_node,
        )

    def bootstrap(self, node_id: int) -> str:
        raise ValueError(
            f"node {node_id} is simulated and has no socket: use the cluster's methods produce, consume and ask, "
            "or leave the seed out"
        )

    def state(self, node_id: int) -> str:
        return self.cluster[node_id].state.value

    def server(self, node_id: int) -> Node | None:
        return self.cluster[node_id].server

    def failure(self, node_id: int) -> BaseException | None:
        return self.cluster[node_id].error

    def start(self, node_ids: list[int]) -> None:
        self.cluster.start([self.cluster[node_id] for node_id in node_ids])

    def stop(self, node_id: int) -> None:
        self.cluster[node_id].stop()

    def kill(self, node_id: int) -> None:
        self.cluster[node_id].kill()

    def pause(self, node_id: int) -> None:
        self.cluster[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.cluster[node_id].resume()

    def cut(self, source: int, target: int) -> None:
        self.cluster.cut(source, target)

    def heal(self) -> None:
        self.cluster.heal()

    def slow_disk(self, node_id: int, ms: float) -> None:
        self.cluster[node_id].slow_disk(ms)

    def passes(self, source: int, target: int) -> bool:
        nodes = self.cluster.nodes
        return not self.cluster.network.is_cut(nodes[source].name, nodes[target].name)

    def wait_until(self, condition: Callable[[], T], limit_s: float) -> T | None:
        found: list[T] = []

        def happened() -> bool:
            value = condition()
            if value:
                found.append(value)
            return bool(value)

        try:
            self.cluster.run_until(happened, limit_s)
        except SimulationTimeout:
            return None
        return found[0]

    def run_for(self, seconds: float) -> None:
        self.cluster.run_for(seconds)

    def now_ms(self) -> int:
        return WALL_MS + int(self.cluster.now_s * _MS_OF_A_S)

    def ask(self, node_id: int, request: Any, version: int | None, limit_s: float) -> Any:
        client = self.cluster.client()
        sent = client.send(node_id, request, version=version, timeout_ms=limit_s * _MS_OF_A_S)
        return self.cluster.run(client, sent, limit_s + 1)

    def run(self, node_id: int, work: Callable[[Client], Coroutine[Any, Any, T]], limit_s: float) -> T:
        client = self.cluster.client()
        return self.cluster.run(client, work(Client(_OneNode(client, node_id))), limit_s)

    def close(self) -> None:
        self.cluster.close()


class _OneNode:
    """Sends the requests of a simulated client to one node."""

    def __init__(self, client: SimulatedClient, node_id: int) -> None:
        self._client, self._node_id = client, node_id

    async def request(self, request: Message, version: int | None = None) -> Any:
        return await self._client.send(self._node_id, request, version=version)

    async def close(self) -> None:
        """Does nothing, because the cluster closes its clients."""
