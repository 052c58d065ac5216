"""Metadata from a broker in ZooKeeper mode. A broker that has just started does not know the topics until it gets the
controller's first UpdateMetadata. Before that, the broker would report existing topics as unknown, and some producers
would give up. So the broker delays its responses until then."""

from __future__ import annotations

from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import MetadataRequest
from kafkacore.runtime.slices import finish
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import metadata


def handle(broker: BrokerContext, call: RequestContext, request: MetadataRequest) -> Any:
    if broker.zookeeper.knows_topics.is_set():
        return metadata.handle(broker, call, request)
    return _later(broker, call, request)


async def _later(broker: BrokerContext, call: RequestContext, request: MetadataRequest) -> Any:
    await broker.zookeeper.knows_topics.wait()
    return await finish(metadata.handle(broker, call, request))
