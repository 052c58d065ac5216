"""How a broker reaches the active controller: in this process, or over the network."""

from __future__ import annotations

from typing import Any, Protocol

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import Message


class ControllerChannel(Protocol):
    """Belongs to the data plane's loop. Every call raises KafkaError, OSError or TimeoutError when there is no answer."""

    async def send(self, request: Message) -> Any:
        """A request of the broker's own, at its newest version."""

    async def forward(self, call: RequestContext, request: Message) -> Message:
        """A client's request as it came: with its version, its principal and its address (KIP-590)."""
