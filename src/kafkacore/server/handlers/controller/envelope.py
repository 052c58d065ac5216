"""Envelope: contains a client's request that a broker forwards, with the client's principal and address (KIP-590)."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable
from typing import Any, Final

from kafkacore.network.cached_answers import CachedAnswer
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, ProtocolError, UnsupportedVersionError, error_for
from kafkacore.protocol.messages import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from kafkacore.server.controller_context import ControllerContext

LOG: Final = logging.getLogger("kafkacore.server")
_VERSION_BYTES: Final = 2  # the version of a serialized principal


async def handle(controller: ControllerContext, call: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    inner, body = _opened(call, request)
    if inner.api_key not in apis.FORWARDABLE:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"{apis.api(inner.api_key).name} may not be forwarded in an envelope."
        )
    if inner.api_key != ApiKey.DESCRIBE_QUORUM and not controller.quorum.active:
        raise error_for(ErrorCode.NOT_CONTROLLER)
    try:
        answer: Any = controller.dispatcher.answer(inner, body)
        if isinstance(answer, Awaitable):
            answer = await answer
    except ProtocolError as error:
        # The broker must then close its client's connection. It must keep its own connection to this controller,
        # because that connection carries the requests of other clients.
        LOG.info("the request of client %r in an envelope cannot be read: %s", inner.client_id, error)
        raise error_for(ErrorCode.UNSUPPORTED_VERSION) from None
    if isinstance(answer, CachedAnswer):
        answer = answer.frame
    # A long response is a list of several parts.
    return EnvelopeResponse(response_data=answer if answer is None or isinstance(answer, bytes) else b"".join(answer))


def _opened(call: RequestContext, request: EnvelopeRequest) -> tuple[RequestContext, bytes | memoryview]:
    """Returns the context and the body of the request inside an envelope. Raises the errors of Apache Kafka's
    EnvelopeUtils."""
    principal = _principal(request.request_principal)
    try:
        host = str(ipaddress.ip_address(request.client_host_address))
    except ValueError as error:
        raise error_for(ErrorCode.INVALID_REQUEST, f"The envelope has no valid client address: {error}") from None
    try:
        header = apis.decode_request_header(request.request_data)
    except ProtocolError as error:
        raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"The envelope contains no valid request: {error}") from None
    inner = RequestContext(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id,
        call.listener,
        host,
        principal=principal,
        forwarded=True,
    )
    return inner, request.request_data[header.size :]


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
