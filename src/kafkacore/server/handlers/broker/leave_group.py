"""LeaveGroup: one member leaves its group. From version 3 on, a request can remove several members (KIP-345)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from kafkacore.coordinator.group import answers
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import LeaveGroupRequest, LeaveGroupResponse, Message
from kafkacore.runtime.slices import Slice
from kafkacore.server.context import BrokerContext
from kafkacore.server.handlers.broker import group_calls

BATCH: Final = 500  # the shard removes at most this many members in one iteration of the loop


def handle(broker: BrokerContext, call: RequestContext, request: LeaveGroupRequest) -> Message | Awaitable[Message]:
    batched = answers.batched_leave(request, call.api_version)
    if len(batched.members) > BATCH:
        return _in_batches(broker, call, batched)
    return group_calls.then(
        _leave(broker, call, batched), lambda response: answers.single_leave(response, call.api_version)
    )


def _leave(
    broker: BrokerContext, call: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    return group_calls.ask(
        broker, call, request, lambda shard, waiter, now_ms: shard.leave_group(request, waiter, now_ms)
    )


async def _in_batches(broker: BrokerContext, call: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    response = LeaveGroupResponse()
    slice_ = Slice()
    for start in range(0, len(request.members), BATCH):
        await slice_.give_way()
        some = LeaveGroupRequest(group_id=request.group_id, members=request.members[start : start + BATCH])
        answer = _leave(broker, call, some)
        part = await answer if isinstance(answer, Awaitable) else answer
        if part.error_code != ErrorCode.NONE:
            return part
        response.members += part.members
    return response
