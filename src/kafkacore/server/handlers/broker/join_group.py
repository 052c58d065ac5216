"""JoinGroup: a member joins, or joins again. The response is sent when the group's rebalance is complete."""

from __future__ import annotations

from collections.abc import Awaitable

from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import JoinGroupRequest, Message
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls


def handle(broker: BrokerContext, call: RequestContext, request: JoinGroupRequest) -> Message | Awaitable[Message]:
    return group_calls.ask(
        broker, call, request, lambda shard, waiter, now_ms: shard.join_group(call, request, waiter, now_ms)
    )
