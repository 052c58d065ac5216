"""FindCoordinator: returns the broker that leads a group's partition of `__consumer_offsets`.

The coordinator of a transactional id is the broker that leads the id's partition of `__transaction_state`. If this
broker leads that partition, or if the topic does not exist, the response is an error: this broker cannot coordinate
transactions, and does not create the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final

from kafkacore.metadata.registrations import Endpoint
from kafkacore.network.request import RequestContext
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from kafkacore.runtime.slices import Work, distinct, finish
from kafkacore.server.context import BrokerContext
from kafkacore.server.metadata_view import MetadataView
from kafkacore.server.transactions import coordinator_of
from kafkacore.storage.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

GROUP: Final = 0
TRANSACTION: Final = 1
LOG: Final = logging.getLogger("kafkacore.server")
BATCHED_SINCE: Final = 4  # since this version, a request has many keys (KIP-699)
# All clients report this error immediately. After any other error, librdkafka would search for the coordinator without
# end. The Java client shows its own text for the error, so the broker also logs the reason.
NO_TRANSACTIONS_ERROR: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_TRANSACTIONS: Final = (
    "Transactions are not supported by this broker: configure the producer without transactional.id"
)

Coordinator = FindCoordinatorResponse.Coordinator


def handle(
    broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest
) -> Work[FindCoordinatorResponse] | Awaitable[FindCoordinatorResponse]:
    if request.key_type == GROUP and broker.image.topic(OFFSETS_TOPIC) is None:
        return _made_first(broker, call, request)
    return _answer(broker, call, request)


async def _made_first(
    broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Creates the topic if it does not exist yet. The request waits for the topic; otherwise the client would repeat
    the request without end."""
    await broker.groups.create_topic()
    return await finish(_answer(broker, call, request))


def _answer(
    broker: BrokerContext, call: RequestContext, request: FindCoordinatorRequest
) -> Work[FindCoordinatorResponse]:
    view = MetadataView(broker.image, call.listener)
    if call.api_version < BATCHED_SINCE:
        found = _find(broker, view, request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message if call.api_version >= 1 else None,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    response = FindCoordinatorResponse()
    # Clients look up a coordinator in the response by its key, so each key has exactly one entry.
    for key in (yield from distinct(request.coordinator_keys)):
        response.coordinators.append(_find(broker, view, request.key_type, key))
        yield
    return response


def _find_transactional(broker: BrokerContext, view: MetadataView, key: str) -> Coordinator:
    node_id = coordinator_of(broker.image, broker.count_partitions(TRANSACTIONS_TOPIC), key)
    if node_id is None or node_id == broker.node_id:
        if not broker.transactions_refused:
            broker.transactions_refused = True
            LOG.warning("a client asks for the transaction coordinator of %r: %s", key, NO_TRANSACTIONS)
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=NO_TRANSACTIONS_ERROR, error_message=NO_TRANSACTIONS
        )
    endpoint = view.alive_endpoint(node_id)
    if endpoint is not None:
        return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message="The transactional id's partition has no leader at the moment.",
    )


def _find(broker: BrokerContext, view: MetadataView, key_type: int, key: str) -> Coordinator:
    if key_type == GROUP:
        node_id = broker.groups.coordinator_of(key)
        endpoint: Endpoint | None = view.alive_endpoint(node_id)
        if endpoint is not None:
            return Coordinator(key=key, node_id=node_id, host=endpoint.host, port=endpoint.port)
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group's partition has no leader at the moment."
    elif key_type == TRANSACTION:
        return _find_transactional(broker, view, key)
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
