"""The requests of a node to other nodes, in lanes.

A node answers the requests of a connection in their order, and a Fetch of the metadata log waits for half a second. So
each kind of request has a lane with connections and limits of its own: a heartbeat never waits behind a forwarded
request.
"""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from kafkacore.network.client import ClientLimits, Connect, Disconnected, NodeClient
from kafkacore.protocol.messages import Message

MOST_NODES: Final = 64  # with more nodes, a lane closes the connections to those that it asked longest ago


class LaneLimits(NamedTuple):
    """A lane makes at most `connections` to each node, and the next one only when all others have requests under way.
    `client` limits each connection."""

    client: ClientLimits
    connections: int = 1


class Lane:
    """Requests of one kind to other nodes. Belongs to one loop."""

    def __init__(
        self, client_id: str, limits: LaneLimits, randomness: random.Random, connect: Connect | None = None
    ) -> None:
        self._client_id = client_id
        self._limits = limits
        self._random = randomness
        self._connect = connect
        self._nodes: dict[tuple[str, int], list[NodeClient]] = {}  # in the order in which they were last asked
        self._closed = False

    async def send(self, host: str, port: int, request: Message) -> Any:
        """Returns the response. The request has the highest version that both nodes have. Raises OSError (Disconnected,
        TimeoutError), and UnsupportedVersionError."""
        if self._closed:
            raise Disconnected("this node stops")
        return await self._client(host, port).request(request)

    def disconnect(self, host: str, port: int) -> None:
        """Ends the connections to a node; requests under way raise Disconnected."""
        for client in self._nodes.get((host, port), ()):
            client.disconnect()

    async def close(self) -> None:
        self._closed = True
        for clients in self._nodes.values():
            for client in clients:
                await client.close()

    def _client(self, host: str, port: int) -> NodeClient:
        address = host, port
        clients = self._nodes.pop(address, None)
        if clients is None:
            clients = []
            self._make_room()
        self._nodes[address] = clients
        least = min(clients, key=_load, default=None)
        if least is not None and (not least.unanswered or len(clients) >= self._limits.connections):
            return least
        made = NodeClient(
            host, port, self._client_id, limits=self._limits.client, randomness=self._random, connect=self._connect
        )
        clients.append(made)
        return made

    def _make_room(self) -> None:
        """Closes connections, because a peer may name any number of nodes. Keeps connections with requests that still
        wait for an answer."""
        for address, clients in tuple(self._nodes.items()):
            if len(self._nodes) < MOST_NODES:
                return
            if not any(client.unanswered for client in clients):
                del self._nodes[address]
                for client in clients:
                    client.disconnect()


def _load(client: NodeClient) -> int:
    return client.unanswered


class Lanes:
    """The lanes of a node's client."""

    def __init__(
        self, client_id: str, randomness: random.Random, connect: Connect | None = None, **lanes: LaneLimits
    ) -> None:
        """`connect` makes every connection; without it, the running loop does."""
        self._lanes = {name: Lane(client_id, limits, randomness, connect) for name, limits in lanes.items()}

    def __getitem__(self, name: str) -> Lane:
        return self._lanes[name]

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()
