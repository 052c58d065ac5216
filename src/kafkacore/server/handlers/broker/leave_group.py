"""LeaveGroup: members go, one or, from version 3 on, several (KIP-345)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kafkacore.coordinator.group import answers
from kafkacore.network.request import RequestContext
from kafkacore.protocol.messages import LeaveGroupRequest, Message
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls


def handle(broker: BrokerContext, call: RequestContext, request: LeaveGroupRequest) -> Message | Awaitable[Message]:
    batched = answers.batched_leave(request, call.api_version)

    def shape(response: Any) -> Message:
        return answers.single_leave(response, call.api_version)

    answer = group_calls.ask(
        broker, call, batched, lambda shard, waiter, now_ms: shard.leave_group(batched, waiter, now_ms)
    )
    return group_calls.then(answer, shape)
