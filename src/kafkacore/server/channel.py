"""How a broker reaches the active controller: in this process, or over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.messages import Message
from kafkacore.raft.committed import CommittedBatch

if TYPE_CHECKING:
    from kafkacore.runtime.loops import LoopThread
    from kafkacore.server.controller import ControllerServer

OWN_PRINCIPAL: Final = "User:ANONYMOUS"


class ControllerChannel(Protocol):
    """Belongs to the data plane's loop. Every call raises KafkaError, OSError or TimeoutError when there is no answer."""

    async def send(self, request: Message) -> Any:
        """A request of the broker's own, at its newest version."""

    async def forward(self, call: RequestContext, request: Message) -> Message:
        """A client's request as it came: with its version, its principal and its address (KIP-590)."""


class LocalChannel:
    """To the controller of the same node, which is the only one: requests cross to its loop as they are.

    Made on the controller's loop before its replica starts, and one of the replica's listeners: requests wait until the
    controller is active.
    """

    def __init__(self, server: ControllerServer, loop: LoopThread, timeout_ms: int) -> None:
        self._server = server
        self._loop = loop
        self._timeout_s = timeout_ms / 1000
        self._active = asyncio.Event()

    async def send(self, request: Message) -> Any:
        call = RequestContext(
            request.API_KEY, apis.api(request.API_KEY).highest, 0, None, self._server.endpoints[0][0], "", OWN_PRINCIPAL
        )
        return await self.forward(call, request)

    async def forward(self, call: RequestContext, request: Message) -> Message:
        return await asyncio.wrap_future(self._loop.submit(self._ask(call, request)))

    async def _ask(self, call: RequestContext, request: Message) -> Message:
        async with asyncio.timeout(self._timeout_s):
            await self._active.wait()
            return await self._server.dispatcher.ask(call, request)

    # --- what the metadata log tells ---

    def on_batch(self, batch: CommittedBatch) -> None:
        """Who waits for a commit is told by the controller."""

    def on_snapshot(self, records: Iterable[Message], offset: int, epoch: int, timestamp_ms: int) -> None:
        """Likewise."""

    def on_leading(self, epoch: int) -> None:
        self._active.set()

    def on_following(self, epoch: int) -> None:
        self._active.clear()
