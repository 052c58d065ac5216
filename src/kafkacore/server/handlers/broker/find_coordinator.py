"""FindCoordinator: who leads the partition of `__consumer_offsets` that a group belongs to. Transactional ids have no
coordinator yet.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from kafkacore.server.context import BrokerContext
from kafkacore.server.metadata_view import MetadataView
from kafkacore.storage.names import OFFSETS_TOPIC

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4  # many keys in one request (KIP-699)

Coordinator = FindCoordinatorResponse.Coordinator


def handle(
    broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    if request.key_type == GROUP and broker.image.topic(OFFSETS_TOPIC) is None:
        return _made_first(broker, call, request)
    return _answer(broker, call, request)


async def _made_first(
    broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Who asks for the first coordinator of all waits until there can be one, rather than asking again."""
    await broker.groups.create_topic()
    return _answer(broker, call, request)


def _answer(broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.api_version >= BATCHED_SINCE:
        keys = dict.fromkeys(request.coordinator_keys)  # clients look for an answer by its key, and need one of each
        return FindCoordinatorResponse(coordinators=[_find(broker, call, request.key_type, key) for key in keys])
    found = _find(broker, call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if call.api_version >= 1 else None,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(broker: BrokerContext, call: RequestContext, key_type: int, key: str) -> Coordinator:
    error, message = ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
    if key_type == GROUP:
        node_id = broker.groups.coordinator_of(key)
        endpoint = MetadataView(broker.image, call.listener).alive_endpoint(node_id)
        if endpoint is not None:
            return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "Nobody leads the group's partition now."
    elif key_type == TRANSACTION:
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has no transaction coordinator."
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
