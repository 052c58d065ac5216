"""From a request's bytes to its answer's: version check, decode, handler, encode, and what an error looks like.

One Dispatcher for each kind of listener of a node. It is called on that plane's handler loop, and in process by a
broker that asks the controller beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple

from kafkacore.network.lasting import LastingAnswer
from kafkacore.network.later import Later
from kafkacore.network.request import RequestContext
from kafkacore.observability import request_log
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey, ApiRange
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError
from kafkacore.protocol.messages import Message

LOG: Final = logging.getLogger("kafkacore.server")

# A handler that encodes its answer itself, because it keeps it, gives the whole frame. None: there is no answer
# (acks=0).
Response = Message | bytes | None


class Lasting(NamedTuple):
    """A response that every other request with the same bytes on the same listener gets, too, until one of what it
    `depends` on changes; None: until anything does."""

    response: Message | bytes
    depends: AbstractSet[object] | None


Answered = bytes | LastingAnswer | Later[bytes | None] | Awaitable[bytes | None] | None
Handler = Callable[[Any, RequestContext, Any], Response | Lasting | Awaitable[Response]]
Reader = Callable[[bytes | memoryview, int], Any]


class _Served(NamedTuple):
    """An API of these versions, and what its module has. One with a `read` of its own takes requests of many parts
    without an object for each; what it makes of one has the object as `message()`."""

    lowest: int
    highest: int
    read: Reader
    handle: Handler


_AT_ONCE: Final = (bytes, Message)  # what most handlers give; to look for an awaitable costs more


class Dispatcher:
    """`table` names a module for each API key; `context` is what its `handle` is given, with the request's message or
    what its `read` makes of the body and the version."""

    def __init__(self, listener_kind: str, context: Any, table: Mapping[int, str]) -> None:
        self.listener_kind = listener_kind
        self._context = context
        self._table = table
        self._served: dict[int, _Served] = {}

    def api_ranges(self) -> list[ApiRange]:
        """What this kind of listener advertises."""
        return apis.api_versions_for(self.listener_kind, frozenset(self._table))

    def answer(self, call: RequestContext, body: bytes | memoryview) -> Answered:
        """The response's header and body, at once where the handler does not wait; None when there is to be none.

        Raises ProtocolError when the connection must be closed: bytes that are no such message, an API that this kind
        of listener does not serve, a version that it does not speak.
        """
        request = self._decode(call, body)
        if isinstance(request, bytes):
            return request
        try:
            response = self._api(call.api_key).handle(self._context, call, request)
        except Exception as error:  # noqa: BLE001 - one request fails, and its client is told
            response = _failed(call, request, error)
        if isinstance(response, asyncio.Future):
            _let_go(body)
            return Later(response, partial(_told_later, call, request))
        if not isinstance(response, _AT_ONCE) and isinstance(response, Awaitable):
            _let_go(body)
            return _encode_later(call, request, response)
        depends: AbstractSet[object] | None = None
        lasts = isinstance(response, Lasting)
        if isinstance(response, Lasting):
            response, depends = response
        if request_log.enabled():
            request_log.log(call, request, response)
        frame = _encoded(call, response)
        return LastingAnswer(frame, depends) if lasts and frame is not None else frame

    async def ask(self, call: RequestContext, request: Message) -> Message:
        """The same without bytes, for a caller in this process. Only for APIs that always answer with a message."""
        try:
            response = self._api(call.api_key).handle(self._context, call, request)
            if isinstance(response, Awaitable):
                response = await response
        except Exception as error:  # noqa: BLE001 - one request fails, and its client is told
            response = _failed(call, request, error)
        assert isinstance(response, Message)
        return response

    def _decode(self, call: RequestContext, body: bytes | memoryview) -> Any:
        """The request, or bytes: the answer to one whose version is unknown where the protocol has such an answer
        (KIP-511).
        """
        served = self._api(call.api_key)
        version = call.api_version
        if served.lowest <= version <= served.highest:
            return served.read(body, version)
        if call.api_key == ApiKey.API_VERSIONS:
            return _unknown_api_versions(call)
        api = apis.api(call.api_key)
        floor = apis.ADVERTISED_FLOORS.get(call.api_key, api.lowest)
        if floor <= version < api.lowest:
            # Advertised for old librdkafka, which looks at the range alone (KAFKA-18659): refused when used.
            old = apis.request_class(call.api_key).decode_prefix(body, version)[0]
            refused = _error_response(old, call, ErrorCode.UNSUPPORTED_VERSION, None)
            return apis.encode_response(call.api_key, version, call.correlation_id, refused)
        raise ProtocolError(f"{api.name} {version} is not supported; {api.lowest} to {api.highest} are")

    def _api(self, api_key: int) -> _Served:
        """Raises ProtocolError for one that is not served here."""
        served = self._served.get(api_key)
        if served is None:
            if api_key not in self._table:
                raise ProtocolError(f"API {api_key} is not served on a {self.listener_kind} listener")
            module, api = import_module(self._table[api_key]), apis.api(api_key)
            read = getattr(module, "read", None) or _reader(api_key)
            served = self._served[api_key] = _Served(api.lowest, api.highest, read, module.handle)
        return served


def _reader(api_key: int) -> Reader:
    decode = apis.request_class(api_key).decode_prefix

    def read(body: bytes | memoryview, version: int) -> Message:
        """What stands behind the message is not looked at, as in Apache Kafka: librdkafka leaves bytes behind a
        Metadata request for all topics."""
        message: Message = decode(body, version)[0]
        return message

    return read


def _let_go(body: bytes | memoryview) -> None:
    """What is read is not kept for as long as its answer takes: a JoinGroup may be parked for minutes. A request that
    points into its frame, as Produce's records do, keeps it."""
    if isinstance(body, memoryview):
        try:
            body.release()
        except BufferError:
            LOG.debug("a request keeps its frame")


def _told_later(call: RequestContext, request: Any, done: asyncio.Future[Response]) -> bytes | None:
    """Of a future that is done, and was not cancelled."""
    error = done.exception()
    if error is None:
        response = done.result()
    elif isinstance(error, Exception):
        response = _failed(call, request, error)
    else:
        raise error
    if request_log.enabled():
        request_log.log(call, request, response)
    return _encoded(call, response)


async def _encode_later(call: RequestContext, request: Any, waiting: Awaitable[Response]) -> bytes | None:
    try:
        response = await waiting
    except Exception as error:  # noqa: BLE001 - one request fails, and its client is told
        response = _failed(call, request, error)
    if request_log.enabled():
        request_log.log(call, request, response)
    return _encoded(call, response)


def _encoded(call: RequestContext, response: Response) -> bytes | None:
    if response is None or isinstance(response, bytes):
        return response
    return apis.encode_response(call.api_key, call.api_version, call.correlation_id, response)


def _failed(call: RequestContext, request: Any, error: Exception) -> Message:
    """The API's error response to what its handler raised. Raises ProtocolError again: it closes the connection."""
    if isinstance(error, ProtocolError):
        raise error
    if not isinstance(request, Message):
        request = request.message()
    if isinstance(error, KafkaError):
        return _error_response(request, call, ErrorCode(error.code), str(error) or None)
    name = apis.api(call.api_key).name
    LOG.error("%s %d of client %r failed", name, call.api_version, call.client_id, exc_info=error)
    return _error_response(request, call, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _error_response(request: Message, call: RequestContext, error: ErrorCode, message: str | None) -> Message:
    from kafkacore.server.error_responses import error_response  # not needed before something is refused

    return error_response(request, call, error, message)


def _unknown_api_versions(call: RequestContext) -> bytes:
    """Version 0, with the one range that lets the client try again (KIP-511)."""
    api = apis.api(ApiKey.API_VERSIONS)
    response = apis.response_class(ApiKey.API_VERSIONS)
    body = response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[response.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)],
    )
    return apis.encode_response(ApiKey.API_VERSIONS, 0, call.correlation_id, body)
