"""Envelope: contains a client's request that a broker forwards, with the client's principal and address (KIP-590)."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable
from typing import Any, Final

from kafkacore.network.cached_answers import CachedAnswer
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, ProtocolError, UnsupportedVersionError, error_for
from kafkacore.protocol.messages import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from kafkacore.server.controller_context import ControllerContext

FORWARDABLE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
_VERSION_BYTES: Final = 2  # the version of a serialized principal


async def handle(controller: ControllerContext, call: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    try:
        header = apis.decode_request_header(request.request_data)
        inner = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            call.listener,
            str(ipaddress.ip_address(request.client_host_address)),
            principal=_principal(request.request_principal),
            forwarded=True,
        )
    except ValueError as error:
        raise error_for(ErrorCode.INVALID_REQUEST, f"The envelope contains no valid request: {error}") from None
    if inner.api_key not in FORWARDABLE:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"{apis.api(inner.api_key).name} may not be forwarded in an envelope."
        )
    if inner.api_key != ApiKey.DESCRIBE_QUORUM and not controller.quorum.active:
        raise error_for(ErrorCode.NOT_CONTROLLER)
    answer: Any = controller.dispatcher.answer(inner, request.request_data[header.size :])
    if isinstance(answer, Awaitable):
        answer = await answer
    if isinstance(answer, CachedAnswer):
        answer = answer.frame
    # A long response is a list of several parts.
    return EnvelopeResponse(response_data=answer if answer is None or isinstance(answer, bytes) else b"".join(answer))


def _principal(data: bytes | None) -> str:
    """Returns a principal such as `User:alice`. Raises PRINCIPAL_DESERIALIZATION_FAILURE."""
    try:
        if data is None:
            raise ProtocolError("the request has no principal")
        version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
        principal = DefaultPrincipalData.decode(data[_VERSION_BYTES:], version)
    except (ProtocolError, UnsupportedVersionError) as error:
        raise error_for(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"The principal cannot be read: {error}") from None
    return f"{principal.type}:{principal.name}"
