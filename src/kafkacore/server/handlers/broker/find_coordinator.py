"""FindCoordinator: this node coordinates every group of its cluster; transactional ids have no coordinator yet.

Older clients take the presence of this API as leave to use lz4, so it is answered before groups exist.
"""

from __future__ import annotations

from typing import Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from kafkacore.server.context import BrokerContext

GROUP: Final = 0
TRANSACTION: Final = 1
SHARE: Final = 2
BATCHED_SINCE: Final = 4  # many keys in one request (KIP-699)
SHARE_SINCE: Final = 6  # KIP-932

Coordinator = FindCoordinatorResponse.Coordinator


def handle(broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.api_version >= BATCHED_SINCE:
        keys = request.coordinator_keys
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
        endpoint = broker.endpoint_of(broker.node_id, call.listener)
        if endpoint is not None:
            return Coordinator(key=key, node_id=broker.node_id, host=endpoint.host, port=endpoint.port)
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker is not in the cluster's metadata yet."
    elif key_type == TRANSACTION:
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "This broker has no transaction coordinator."
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
