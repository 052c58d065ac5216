"""AlterPartition, AllocateProducerIds and ControlledShutdown: the requests that brokers send to the controller. The
controller may be this node."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.server.context import BrokerContext


async def handle(broker: BrokerContext, call: RequestContext, request: Any) -> Any:
    work = broker.zookeeper.controller.answer(request, call.api_version)
    return await asyncio.wrap_future(broker.channel.loop.submit(work))
