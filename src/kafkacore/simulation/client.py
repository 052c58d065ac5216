"""A client in the simulated world. It can send any request to any node, over connections that can break."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacore.network.client import ClientLimits, NodeClient
from kafkacore.protocol.messages import Message
from kafkacore.simulation.machine import Machine

if TYPE_CHECKING:
    from kafkacore.simulation.cluster import SimulatedNodes

T = TypeVar("T")


class SimulatedClient:
    """A client on its own machine. It has one connection to each listener to which it sends requests."""

    def __init__(self, cluster: SimulatedNodes, machine: Machine, random: Random) -> None:
        self.cluster = cluster
        self.machine = machine
        self.name = machine.name
        self.random = random
        self.loop = machine.loop("client")
        self._connections: dict[tuple[str, int], NodeClient] = {}

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine on this client's machine."""
        return self.loop.create_task(work)

    def close(self) -> None:
        """Ends the client immediately and breaks its connections."""
        if self.machine.is_alive:
            self.cluster.network.machine_died(self.machine, silent=False)
            self.machine.kill()
            self._connections.clear()

    async def pause(self, seconds: float) -> None:
        """Waits for a span of virtual time."""
        await asyncio.sleep(seconds)

    async def send(
        self,
        node_id: int,
        request: Message,
        *,
        listener: str | None = None,
        version: int | None = None,
        timeout_ms: float = 30_000,
    ) -> Any:
        """Sends a request to a node and returns the response. `listener` is CLIENTS or CONTROLLERS of
        `simulation.cluster`. The default is CLIENTS if the node is a broker, and otherwise CONTROLLERS.

        Raises OSError, TimeoutError and KafkaError, as `NodeClient.request` does.
        """
        address = self.cluster.address_of(node_id, listener)
        client = self._connections.get(address)
        if client is None:
            limits = ClientLimits(request_timeout_ms=timeout_ms, connection_setup_timeout_ms=timeout_ms)
            client = NodeClient(*address, self.name, limits=limits, randomness=self.random)
            self._connections[address] = client
        return await client.request(request, version, timeout_ms)
