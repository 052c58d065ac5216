"""SyncGroup: the group's leader sends the assignments of all members, and each member fetches its own."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from kafkacore.coordinator.group import answers
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import Message, SyncGroupRequest
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls

PROTOCOL_SINCE: Final = 5  # since this version, a request must contain the protocol's type and name (KIP-559)


def handle(broker: BrokerContext, call: RequestContext, request: SyncGroupRequest) -> Message | Awaitable[Message]:
    if call.api_version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return answers.whole_request(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, call.api_version)
    return group_calls.ask(
        broker, call, request, lambda shard, waiter, now_ms: shard.sync_group(request, waiter, now_ms)
    )
