"""The requests of a node to other nodes, separated into lanes (groups of connections).

A node answers the requests of a connection in order, and a Fetch of the metadata log may wait for half a second. So
each kind of request has its own lane, with its own connections and limits. For example, a heartbeat never waits for the
response to an earlier forwarded request.
"""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from kafkacore.network.client import ClientLimits, Connect, Disconnected, NodeClient
from kafkacore.protocol.apis import NodeVersions
from kafkacore.protocol.messages import Message

# A lane keeps connections to at most this many nodes. Beyond this number, it closes the connections that it has not
# used for the longest time.
MOST_NODES: Final = 64


class LaneLimits(NamedTuple):
    """The limits of a lane. A lane opens at most `connections` to each node, and opens another one only if all existing
    ones have requests in flight. `client` limits each connection."""

    client: ClientLimits
    connections: int = 1


class Lane:
    """Requests of one kind to other nodes. Use a lane only on its loop."""

    def __init__(
        self, client_id: str, limits: LaneLimits, randomness: random.Random, connect: Connect | None = None
    ) -> None:
        self._client_id = client_id
        self._limits = limits
        self._random = randomness
        self._connect = connect
        # The connections by address. The node that got the latest request comes last.
        self._nodes: dict[tuple[str, int], list[NodeClient]] = {}
        self._closed = False

    async def send(self, host: str, port: int, request: Message, version: int | None = None) -> Any:
        """Sends a request and returns its response. Without `version`, the request has the highest version that both
        nodes support. Raises OSError (Disconnected, TimeoutError), and UnsupportedVersionError."""
        if self._closed:
            raise Disconnected("this node is stopping")
        return await self._client(host, port).request(request, version)

    def learned_versions(self, host: str, port: int) -> NodeVersions | None:
        """Returns the versions that a node sent at the start of a connection. Returns None without a connection."""
        learned = (client.learned_versions for client in self._nodes.get((host, port), ()))
        return next((versions for versions in learned if versions is not None), None)

    def disconnect(self, host: str, port: int) -> None:
        """Closes the connections to a node. Requests in flight raise Disconnected."""
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
        """Closes the connections to the nodes that were used least recently. The number of nodes must be limited,
        because a peer can refer this node to any number of nodes. Keeps connections with requests in flight."""
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
    """All lanes of a node."""

    def __init__(
        self, client_id: str, randomness: random.Random, connect: Connect | None = None, **lanes: LaneLimits
    ) -> None:
        """All lanes open their connections with `connect`, or through the running loop if `connect` is None."""
        self._lanes = {name: Lane(client_id, limits, randomness, connect) for name, limits in lanes.items()}

    def __getitem__(self, name: str) -> Lane:
        return self._lanes[name]

    async def close(self) -> None:
        for lane in self._lanes.values():
            await lane.close()
