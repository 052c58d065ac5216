"""Sends requests of a broker in ZooKeeper mode to the active controller. The last UpdateMetadata contains the
controller's id.

The controller may be this node itself. Otherwise the request goes to the listener of control.plane.listener.name if
there is one, and to the inter-broker listener if not. ControlledShutdown always goes to the inter-broker listener
(KIP-291).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.network.client import ClientLimits
from kafkacore.network.lanes import LaneLimits, Lanes
from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.protocol.messages import Message
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.world import World

LOG: Final = logging.getLogger("kafkacore.server")
RETRY_S: Final = 0.05
OWN: Final = "own"  # requests of this broker to the controller
CONTROL: Final = "control"  # requests of this node's controller to brokers
BY_INTER_BROKER: Final = frozenset({ApiKey.CONTROLLED_SHUTDOWN})  # never sent to the control plane's listener

Address = tuple[str, int]
Local = Callable[[Message, int | None], Coroutine[Any, Any, Any]]


def zookeeper_lanes(config: BrokerConfig, world: World) -> Lanes:
    """Returns the connections of a node in ZooKeeper mode to other nodes."""

    def limits(timeout_ms: float, in_flight: int) -> LaneLimits:
        return LaneLimits(
            ClientLimits(
                request_timeout_ms=timeout_ms,
                connection_setup_timeout_ms=min(timeout_ms, config.socket_connection_setup_timeout_ms),
                max_response_bytes=config.socket_request_max_bytes,
                max_in_flight=in_flight,
            )
        )

    timeout_ms = config.controller_socket_timeout_ms
    return Lanes(
        f"broker-{config.node_id}",
        world.random,
        world.connect,
        own=limits(timeout_ms, 256),
        control=limits(timeout_ms, 1),
    )


class ZooKeeperChannel:
    """For the data plane's loop. The connections belong to `loop`.

    `where` returns the address for a request to the active controller: `HERE` if this node is the controller, or None
    while no controller is known. `local` passes a request to the controller of this node, in a given version.
    """

    HERE: Final[Address] = ("", 0)

    def __init__(
        self,
        lanes: Lanes,
        loop: LoopThread,
        where: Callable[[int], Address | None],
        local: Local,
        timeout_ms: int,
    ) -> None:
        self.loop = loop
        self._lane = lanes[OWN]
        self._where = where
        self._local = local
        self._timeout_ms = timeout_ms
        self.admin: Callable[[RequestContext, Message], Awaitable[Message]] | None = None

    async def send(self, request: Message, version: int | None = None) -> Any:
        """Sends one of the broker's own requests. Without `version`, uses the newest version that both nodes support.
        Tries again while no controller answers. Raises KafkaError, TimeoutError."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout_ms / 1000
        while True:
            where = self._where(request.API_KEY)
            if where is not None:
                try:
                    work = (
                        self._local(request, version)
                        if where is self.HERE
                        else self._lane.send(*where, request, version)
                    )
                    answer = await asyncio.wrap_future(self.loop.submit(work))
                    if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                        return answer
                except OSError as error:
                    LOG.debug("the controller at %s:%d does not answer: %s", *where, error)
                except KafkaError as error:
                    if error.code != ErrorCode.NOT_CONTROLLER:
                        raise
            if loop.time() + RETRY_S >= end:
                raise TimeoutError("no controller is active, or the controller does not answer in time")
            await asyncio.sleep(RETRY_S)

    async def forward(self, call: RequestContext, request: Message) -> Message:
        """Executes a client's request on this node. In ZooKeeper mode brokers do not forward requests: clients send
        them to the controller themselves. Raises NOT_CONTROLLER."""
        if self.admin is None:
            raise error_for(ErrorCode.NOT_CONTROLLER)
        return await self.admin(call, request)
