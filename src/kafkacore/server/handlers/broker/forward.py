"""Forwards requests to the active controller (KIP-590)."""

from __future__ import annotations

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import Message
from kafkacore.server.context import BrokerContext


async def handle(broker: BrokerContext, call: RequestContext, request: Message) -> Message:
    return await broker.channel.forward(call, request)
