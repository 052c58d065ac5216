"""Turns the bytes of a request into the bytes of its response: version check, decoding, handler, encoding, and error
responses.

A node has one Dispatcher for each kind of listener. The plane calls the dispatcher on its handler loop. A broker calls
the dispatcher of a controller in the same process directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from importlib import import_module
from types import GeneratorType
from typing import Any, Final, NamedTuple

from kafkacore.network.cached_answers import CachedAnswer
from kafkacore.network.deferred_answer import DeferredAnswer
from kafkacore.network.request import RequestContext
from kafkacore.observability import request_log
from kafkacore.protocol import apis
from kafkacore.protocol.apis import Api, ApiKey, ApiRange
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError
from kafkacore.protocol.messages import Message
from kafkacore.protocol.response_errors import error_response_steps
from kafkacore.raft.file_log import MetadataLogError
from kafkacore.runtime.slices import Work, finish, finish_now, in_slices

LOG: Final = logging.getLogger("kafkacore.server")
UNSERVED: Final = "kafkacore.server.handlers.unserved"  # handles the APIs that are in no table

# A larger request is decoded in short parts, and its response is encoded in short parts.
SLICED_BYTES: Final = 16 << 10
_SLICED_STRUCTS: Final = 500  # the number of structs that are decoded or encoded between two checks of the clock
# The responses of these APIs may have to wait for minutes. During that time they must not keep the request's memory.
_PARKED_APIS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})

# The result of a handler. It is a message, or a whole frame if the handler caches encoded responses, or None if there
# is no response (acks=0).
Response = Message | bytes | None


class Cacheable(NamedTuple):
    """A response that is also valid for any later request with the same bytes on the same listener. It is valid until
    one of the objects in `depends` changes. If `depends` is None, it is valid until anything changes."""

    response: Message | bytes
    depends: AbstractSet[object] | None


Frame = bytes | Sequence[bytes] | None
Answered = bytes | CachedAnswer | DeferredAnswer[bytes | None] | Awaitable[Frame | CachedAnswer] | None
Handled = Response | Cacheable | Work[Response | Cacheable] | Awaitable[Response]
Handler = Callable[[Any, RequestContext, Any], Handled]
Reader = Callable[[bytes | memoryview, int], Any]


class _Served(NamedTuple):
    """The versions and the module of an API. A module can have its own `read` function, which avoids an object for each
    part of a request. The object that `read` returns must have a method `message()`, which returns the whole
    request."""

    lowest: int
    highest: int
    read: Reader
    decodes_in_slices: bool
    handle: Handler


_AT_ONCE: Final = (bytes, Message)  # most handlers return one of these; checking for an awaitable costs more


class Dispatcher:
    """Answers the requests of one kind of listener. `table` maps each API key to the name of a module. The module's
    `handle` is called with `context`, the call, and the request. The request is a message, or the result of the
    module's own `read`.

    A handler that loops over a list from a client's request is a generator (`runtime.slices`) that yields in each
    iteration.
    """

    def __init__(self, listener_kind: str, context: Any, table: Mapping[int, str]) -> None:
        self.listener_kind = listener_kind
        self._context = context
        self._table = table
        self._served: dict[int, _Served] = {}

    def api_ranges(self) -> list[ApiRange]:
        """Returns the APIs that this kind of listener advertises."""
        return apis.api_versions_for(self.listener_kind, frozenset(self._table))

    def known_ranges(self) -> list[ApiRange]:
        """Returns the APIs that this kind of listener answers. Some of them exist in Apache Kafka but not in this node.
        Their response is the error that Kafka returns when the feature is turned off."""
        return apis.api_versions_for(self.listener_kind)

    def answer(self, call: RequestContext, body: bytes | memoryview) -> Answered:
        """Returns the response's header and body, or an awaitable of these if the handler waits. Returns None if the
        request gets no response.

        Raises ProtocolError if the connection must be closed: the bytes are not a valid message of this API, or Apache
        Kafka does not have this API or version on this kind of listener.
        """
        served = self._api(call.api_key)
        if len(body) > SLICED_BYTES and served.decodes_in_slices and self._supports(served, call):
            return self._answer_in_slices(call, served, body)
        request = self._decode(call, served, body)
        if isinstance(request, bytes):
            return request
        try:
            response: Any = served.handle(self._context, call, request)
            if isinstance(response, GeneratorType):
                response = in_slices(response)
        except Exception as error:  # noqa: BLE001 - only this request fails, with an error response
            response = finish_now(_failed(call, request, error))
        if isinstance(response, asyncio.Future):
            _let_go(body)
            return DeferredAnswer(response, partial(_parked_answer, call, request))
        if not isinstance(response, _AT_ONCE) and isinstance(response, Awaitable):
            _let_go(body)
            return _answer_later(call, request, response)
        depends: AbstractSet[object] | None = None
        lasts = isinstance(response, Cacheable)
        if isinstance(response, Cacheable):
            response, depends = response
        if request_log.enabled():
            request_log.log(call, request, response)
        frame = _encoded(call, response)
        return CachedAnswer(frame, depends) if lasts and frame is not None else frame

    async def ask(self, call: RequestContext, request: Message) -> Message:
        """Does what `answer` does, but takes and returns a message, for a caller in this process. Use this only for
        APIs that always return a message."""
        response = await self._handled(call, self._api(call.api_key), request)
        assert isinstance(response, Message)
        return response

    async def _answer_in_slices(self, call: RequestContext, served: _Served, body: bytes | memoryview) -> Frame:
        request = await finish(_decoding(call, body))
        _let_go(body)
        return await _frame(call, request, await self._handled(call, served, request))

    async def _handled(self, call: RequestContext, served: _Served, request: Any) -> Response:
        try:
            response: Any = served.handle(self._context, call, request)
            if isinstance(response, GeneratorType):
                response = await finish(response)
            elif isinstance(response, Awaitable):
                response = await response
        except Exception as error:  # noqa: BLE001 - only this request fails, with an error response
            response = await finish(_failed(call, request, error))
        return response.response if isinstance(response, Cacheable) else response

    def _supports(self, served: _Served, call: RequestContext) -> bool:
        return served.lowest <= call.api_version <= served.highest

    def _decode(self, call: RequestContext, served: _Served, body: bytes | memoryview) -> Any:
        """Returns the decoded request. If its version is unknown and the protocol defines a response for that case
        (KIP-511), returns the bytes of that response.
        """
        version = call.api_version
        if self._supports(served, call):
            return served.read(body, version)
        if call.api_key == ApiKey.API_VERSIONS:
            return _unknown_api_versions(call)
        api = apis.apis_of(self.listener_kind)[call.api_key]
        floor = apis.ADVERTISED_FLOORS.get(call.api_key, api.lowest)
        if floor <= version < api.lowest:
            # This version is advertised for old releases of librdkafka, which only check that the advertised range
            # contains it (KAFKA-18659). A request with this version is refused.
            old = apis.request_class(call.api_key).decode_prefix(body, version)[0]
            refused = finish_now(error_response_steps(old, version, ErrorCode.UNSUPPORTED_VERSION))
            return apis.encode_response(call.api_key, version, call.correlation_id, refused)
        raise ProtocolError(f"{api.name} {version} is not supported; {api.lowest} to {api.highest} are")

    def _api(self, api_key: int) -> _Served:
        """Returns the module and the versions of an API. Raises ProtocolError for an API that Apache Kafka does not
        have on this kind of listener."""
        served = self._served.get(api_key)
        if served is None:
            api = apis.apis_of(self.listener_kind).get(api_key) or apis.api(api_key)
            if self.listener_kind not in api.listeners:
                raise ProtocolError(f"{api.name} is not an API of a {self.listener_kind} listener")
            served = self._served[api_key] = _served(api, self._table.get(api_key, UNSERVED))
        return served


def _served(api: Api, module_name: str) -> _Served:
    module = import_module(module_name)
    read = getattr(module, "read", None)
    in_parts = read is None and api.key not in _PARKED_APIS
    return _Served(api.lowest, api.highest, read or _reader(api.key), in_parts, module.handle)


def _reader(api_key: int) -> Reader:
    decode = apis.request_class(api_key).decode_prefix

    def read(body: bytes | memoryview, version: int) -> Message:
        """Decodes a request. Ignores bytes after the message, as Apache Kafka does: librdkafka sends such bytes after a
        Metadata request for all topics."""
        message: Message = decode(body, version)[0]
        return message

    return read


def _decoding(call: RequestContext, body: bytes | memoryview) -> Work[Message]:
    parts = apis.request_class(call.api_key).decode_parts(body, call.api_version, _SLICED_STRUCTS, prefix=True)
    while (request := next(parts)) is None:
        yield
    made: Message = request
    return made


def _let_go(body: bytes | memoryview) -> None:
    """Frees the frame's memory before the response is ready, because a JoinGroup may be parked for minutes. If the
    request points into its frame, as the records of a Produce do, the frame stays."""
    if isinstance(body, memoryview):
        try:
            body.release()
        except BufferError:
            LOG.debug("a request points into its frame and so keeps the frame's memory")


def _parked_answer(call: RequestContext, request: Any, done: asyncio.Future[Response]) -> bytes | None:
    """Returns the response in `done`, a future that has completed and was not cancelled."""
    error = done.exception()
    if error is None:
        response = done.result()
    elif isinstance(error, Exception):
        response = finish_now(_failed(call, request, error))
    else:
        raise error
    if request_log.enabled():
        request_log.log(call, request, response)
    return _encoded(call, response)


async def _answer_later(call: RequestContext, request: Any, waiting: Awaitable[Any]) -> Frame | CachedAnswer:
    try:
        response = await waiting
    except Exception as error:  # noqa: BLE001 - only this request fails, with an error response
        return await _frame(call, request, await finish(_failed(call, request, error)))
    if not isinstance(response, Cacheable):
        return await _frame(call, request, response)
    frame = await _frame(call, request, response.response)
    return CachedAnswer(frame if isinstance(frame, bytes) else b"".join(frame or ()), response.depends)


async def _frame(call: RequestContext, request: Any, response: Response) -> Frame:
    if request_log.enabled():
        request_log.log(call, request, response)
    if response is None or isinstance(response, bytes):
        return response
    return await finish(_encoding(call, response))


def _encoded(call: RequestContext, response: Response) -> bytes | None:
    if response is None or isinstance(response, bytes):
        return response
    return apis.encode_response(call.api_key, call.api_version, call.correlation_id, response)


def _encoding(call: RequestContext, response: Message) -> Work[Frame]:
    parts = [apis.response_header(call.api_key, call.api_version, call.correlation_id)]
    for part in response.encode_parts(call.api_version, _SLICED_STRUCTS):
        parts.append(part)
        yield
    return parts if len(parts) > 2 else b"".join(parts)


def _failed(call: RequestContext, request: Any, error: Exception) -> Work[Message]:
    """Returns the API's error response for an error that its handler raised. Re-raises a ProtocolError, because that
    closes the connection."""
    if isinstance(error, ProtocolError):
        raise error
    if not isinstance(request, Message):
        request = request.message()
    if isinstance(error, KafkaError):
        return (yield from error_response_steps(request, call.api_version, error.code, str(error) or None))
    if isinstance(error, MetadataLogError):
        # The node has already logged this error once, and is about to stop.
        return (yield from error_response_steps(request, call.api_version, ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    name = apis.api(call.api_key).name
    LOG.error("%s %d of client %r failed", name, call.api_version, call.client_id, exc_info=error)
    return (yield from error_response_steps(request, call.api_version, ErrorCode.UNKNOWN_SERVER_ERROR))


def _unknown_api_versions(call: RequestContext) -> bytes:
    """Returns the response to an unknown version of ApiVersions. It has version 0, and its only entry contains the
    versions of ApiVersions that the client can try next (KIP-511)."""
    api = apis.api(ApiKey.API_VERSIONS)
    response = apis.response_class(ApiKey.API_VERSIONS)
    body = response(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[response.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)],
    )
    return apis.encode_response(ApiKey.API_VERSIONS, 0, call.correlation_id, body)
