"""Functions that the handlers of groups share. They pass a request to the shard of one group, and convert the result
into the API's response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kafkacore.coordinator.group import answers
from kafkacore.coordinator.group.answers import GroupRequest
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import KafkaError
from kafkacore.protocol.messages import Message
from kafkacore.server.context import BrokerContext
from kafkacore.server.groups import Operation

T = TypeVar("T")
M = TypeVar("M", bound=Message)


# The result is Any because the response of the request's API has no static type.
def ask(
    broker: BrokerContext, call: RequestContext, request: GroupRequest, operation: Operation
) -> Any | Awaitable[Any]:
    """Passes a request to the shard. The API must have requests for a single group, and responses with one error for
    the whole request. Returns the response itself if the shard has it immediately. Otherwise returns a future, because
    a JoinGroup may be parked for minutes."""
    groups = broker.groups
    refused = answers.refusal(groups.settings, request, call.api_version)
    if refused is not None:
        return refused
    try:
        future = groups.ask(request.group_id, operation)
    except KafkaError as error:
        return answers.whole_request(request, error.code, call.api_version)
    return future.result() if future.done() else future


def then(answer: T | Awaitable[T], shape: Callable[[T], M]) -> M | Awaitable[M]:
    """Applies `shape` to the response, now or when the future completes."""
    if isinstance(answer, Awaitable):
        return _later(answer, shape)
    return shape(answer)


async def _later(answer: Awaitable[T], shape: Callable[[T], M]) -> M:
    return shape(await answer)
