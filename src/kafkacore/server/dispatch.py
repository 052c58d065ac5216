"""From a request's bytes to its answer's: version check, decode, handler, encode, and what an error looks like.

One Dispatcher for each kind of listener of a node. It is called on that plane's handler loop, and in process by a broker
that asks the controller beside it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Final

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, error_for
from kafkacore.protocol.messages import Message
from kafkacore.server.call import Call
from kafkacore.server.error_responses import error_response

LOG: Final = logging.getLogger("kafkacore.server")

Handler = Callable[[Any, Call, Any], Message | bytes | None | Awaitable[Message | bytes | None]]


class Dispatcher:
    """`table` names a module for each API key; `context` is what its `handle` is given."""

    def __init__(self, listener_kind: str, context: Any, table: Mapping[int, str]) -> None:
        self.listener_kind = listener_kind
        self._context = context
        self._table = table
        self._handlers: dict[int, Handler] = {}

    async def answer(self, call: Call, body: bytes | memoryview) -> bytes | None:
        """The response's frame without its size; None when there is to be none (acks=0).

        Raises ProtocolError when the connection must be closed: bytes that are no such message, an API that this kind of
        listener does not serve, a version that it does not speak.
        """
        request = self.decode(call, body)
        if isinstance(request, bytes):
            return request
        response = await self.ask(call, request)
        if response is None or isinstance(response, bytes):
            return response
        return apis.encode_response(call.api_key, call.api_version, call.correlation_id, response)

    def decode(self, call: Call, body: bytes | memoryview) -> Message | bytes:
        """The request, or the answer to one whose version is unknown where the protocol has such an answer (KIP-511)."""
        if call.api_key not in self._table:
            raise ProtocolError(f"API {call.api_key} is not served on a {self.listener_kind} listener")
        api = apis.api(call.api_key)
        if api.supports(call.api_version):
            return apis.request_class(call.api_key).decode(body, call.api_version)
        if call.api_key == ApiKey.API_VERSIONS:
            return _unknown_api_versions(call)
        floor = apis.ADVERTISED_FLOORS.get(call.api_key, api.lowest)
        if floor <= call.api_version < api.lowest:
            # Advertised for old librdkafka, which looks at the range alone (KAFKA-18659): refused when used.
            request = apis.request_class(call.api_key).decode(body, call.api_version)
            refused = error_response(request, call, ErrorCode.UNSUPPORTED_VERSION, None)
            return apis.encode_response(call.api_key, call.api_version, call.correlation_id, refused)
        raise ProtocolError(f"{api.name} {call.api_version} is not supported; {api.lowest} to {api.highest} are")

    async def ask(self, call: Call, request: Message) -> Message | bytes | None:
        """The handler's response, or the API's error response to what it raised."""
        try:
            response = self._handler(call.api_key)(self._context, call, request)
            return await response if inspect.isawaitable(response) else response
        except KafkaError as error:
            return error_response(request, call, ErrorCode(error.code), str(error) or None)
        except Exception:
            LOG.exception("%s %d of client %r failed", apis.api(call.api_key).name, call.api_version, call.client_id)
            return error_response(request, call, ErrorCode.UNKNOWN_SERVER_ERROR, None)

    def _handler(self, api_key: int) -> Handler:
        handler = self._handlers.get(api_key)
        if handler is None:
            try:
                module = self._table[api_key]
            except KeyError:
                raise error_for(ErrorCode.UNSUPPORTED_VERSION) from None
            handler = self._handlers[api_key] = import_module(module).handle
        return handler


def _unknown_api_versions(call: Call) -> bytes:
    """Version 0, with the one range that lets the client try again (KIP-511)."""
    api = apis.api(ApiKey.API_VERSIONS)
    response = apis.response_class(ApiKey.API_VERSIONS)
    body = response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[response.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)],
    )
    return apis.encode_response(ApiKey.API_VERSIONS, 0, call.correlation_id, body)
