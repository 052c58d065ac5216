"""The listener of control.plane.listener.name (KIP-291): a plane with an acceptor, a processor, a ring of 20 requests
and a separate handler loop. So a client's request never delays a request of the controller.

The listener serves the controller's requests to brokers, and those requests to the controller that brokers of Apache
Kafka 3.9 send to this listener. Any other request closes its connection; Apache Kafka would answer it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafkacore.config import BrokerConfig
from kafkacore.network.limits import limits_from
from kafkacore.network.listeners import Listener
from kafkacore.network.plane import Plane
from kafkacore.protocol.apis import ApiKey, ApiRange
from kafkacore.runtime.loops import LoopThread
from kafkacore.runtime.process import CONTROL, DATA, Runtime
from kafkacore.runtime.world import World
from kafkacore.server.channel import ControllerChannel
from kafkacore.server.context import BrokerContext
from kafkacore.server.dispatch import UNSERVED, Dispatcher
from kafkacore.server.handlers import CONTROL_PLANE
from kafkacore.server.zookeeper.control_requests import ControlRequests
from kafkacore.server.zookeeper.controller import LocalController

_SASL: Final = {ApiKey.SASL_HANDSHAKE: UNSERVED, ApiKey.SASL_AUTHENTICATE: UNSERVED}


class _OnDataLoop:
    """Passes control requests from the control plane's loop to the data plane's loop, to which roles belong."""

    def __init__(self, requests: ControlRequests, loop: LoopThread) -> None:
        self._requests, self._loop = requests, loop

    async def leader_and_isr(self, request: Any, version: int) -> Any:
        return await self._ask(self._requests.leader_and_isr(request, version))

    async def stop_replica(self, request: Any, version: int) -> Any:
        return await self._ask(self._requests.stop_replica(request, version))

    async def update_metadata(self, request: Any, version: int) -> Any:
        return await self._ask(self._requests.update_metadata(request, version))

    async def _ask(self, work: Any) -> Any:
        return await asyncio.wrap_future(self._loop.submit(work))


class _Parts:
    def __init__(self, requests: _OnDataLoop, controller: LocalController) -> None:
        self.requests, self.controller = requests, controller


class ControlPlaneContext:
    """The members that the handlers of this listener use."""

    supported_features: Mapping[str, tuple[int, int]] = {}

    def __init__(self, broker: BrokerContext, loop: LoopThread) -> None:
        """Creates the context. `loop` is the data plane's loop."""
        self._broker = broker
        parts = broker.zookeeper
        self.zookeeper = _Parts(_OnDataLoop(parts.requests, loop), parts.controller)
        self.channel: ControllerChannel = broker.channel
        self.api_ranges: Sequence[ApiRange] = ()

    @property
    def finalized_features(self) -> Mapping[str, int]:
        return self._broker.finalized_features

    @property
    def finalized_epoch(self) -> int:
        return self._broker.finalized_epoch


class ControlPlane:
    """The control plane's listener. Create this object on the data plane's loop. `bound` is the address of the
    listener."""

    def __init__(self, config: BrokerConfig, world: World, runtime: Runtime, broker: BrokerContext) -> None:
        endpoint = config.control_plane_listener
        assert endpoint is not None
        context = ControlPlaneContext(broker, runtime.loop(DATA))
        self.dispatcher = Dispatcher("zkBroker", context, CONTROL_PLANE | _SASL)
        context.api_ranges = [each for each in self.dispatcher.api_ranges() if each.api_key in CONTROL_PLANE]
        self.plane: Plane = (world.make_plane or Plane)(
            CONTROL,
            [Listener(endpoint.listener, endpoint.host, endpoint.port)],
            self.dispatcher.answer,
            self.dispatcher.api_ranges(),
            runtime=runtime,
            environment=world.environment,
            limits=limits_from(config),
        )
        self.bound = self.plane.open()

    async def start(self) -> None:
        await asyncio.wrap_future(self.plane.loop.submit(self.plane.start()))

    async def stop(self, drain_ms: int) -> None:
        await asyncio.wrap_future(self.plane.loop.submit(self.plane.stop(drain_ms)))
