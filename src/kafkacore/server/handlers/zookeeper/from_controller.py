"""LeaderAndIsr, StopReplica and UpdateMetadata: the controller's requests to a broker."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kafkacore.network.request import RequestContext
from kafkacore.protocol.apis import ApiKey
from kafkacore.server.context import BrokerContext


def handle(broker: BrokerContext, call: RequestContext, request: Any) -> Awaitable[Any]:
    requests = broker.zookeeper.requests
    if call.api_key == ApiKey.LEADER_AND_ISR:
        return requests.leader_and_isr(request, call.api_version)
    if call.api_key == ApiKey.STOP_REPLICA:
        return requests.stop_replica(request, call.api_version)
    return requests.update_metadata(request, call.api_version)
