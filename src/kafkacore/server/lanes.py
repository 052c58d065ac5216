"""The lanes (groups of connections) on which a node sends requests to the controllers, and their limits."""

from __future__ import annotations

import random
from typing import Final

from kafkacore.config import BrokerConfig
from kafkacore.network.client import ClientLimits, Connect
from kafkacore.network.lanes import LaneLimits, Lanes

RAFT: Final = "raft"  # the metadata log and its elections
LIFE: Final = "life"  # a broker's registration and heartbeats
OWN: Final = "own"  # the node's own requests, for example for blocks of producer ids
FORWARDS: Final = "forwards"  # requests of clients

# As in Apache Kafka's KafkaRaftManager and NodeToControllerChannelManager.
_BACKOFF_MS: Final = 50
_RAFT_BACKOFF_MAX_MS: Final = 500
# A controller answers the requests of each connection in order, and Apache Kafka's controller handles only one request
# of a connection at a time. So clients' requests are spread over several connections.
FORWARD_CONNECTIONS: Final = 4
FORWARDS_ON_THE_WIRE: Final = 16  # requests in flight on each of these connections


def life_timeout_ms(config: BrokerConfig) -> float:
    """Returns half of the session timeout, as in Apache Kafka. So there is time for another heartbeat after one is
    lost."""
    return config.broker_session_timeout_ms / 2


def controller_lanes(config: BrokerConfig, randomness: random.Random, connect: Connect | None) -> Lanes:
    request_ms = config.controller_quorum_request_timeout_ms

    def limits(timeout_ms: float, backoff_max_ms: float, connections: int = 1, in_flight: int = 256) -> LaneLimits:
        client = ClientLimits(
            request_timeout_ms=timeout_ms,
            connection_setup_timeout_ms=min(request_ms, config.socket_connection_setup_timeout_ms),
            reconnect_backoff_ms=_BACKOFF_MS,
            reconnect_backoff_max_ms=backoff_max_ms,
            max_response_bytes=config.socket_request_max_bytes,
            max_in_flight=in_flight,
        )
        return LaneLimits(client, connections)

    return Lanes(
        f"node-{config.node_id}",
        randomness,
        connect,
        raft=limits(request_ms, _RAFT_BACKOFF_MAX_MS),
        life=limits(life_timeout_ms(config), _BACKOFF_MS),
        own=limits(request_ms, _BACKOFF_MS),
        forwards=limits(config.controller_socket_timeout_ms, _BACKOFF_MS, FORWARD_CONNECTIONS, FORWARDS_ON_THE_WIRE),
    )
