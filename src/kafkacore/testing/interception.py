"""Intercepts requests between clients and handlers, but only while a test records requests or has active faults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any, Final

from kafkacore._fast.plane.gate import GatePolicy
from kafkacore.network.cached_answers import CachedAnswer
from kafkacore.network.plane import Answer, Torn
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.response_errors import error_response
from kafkacore.server.broker import BrokerServer
from kafkacore.testing.faults import TOPIC_LISTS, Dropped, RequestFault, named_topics, topic_name
from kafkacore.testing.recorder import RecordedRequest, Requests

# The processors answer requests for these APIs without Python. A gate sends to Python those requests that a test needs
# to see.
_HOT: Final = (
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP, ApiKey.METADATA,
)  # fmt: skip
_NO_ACKS: Final = 0
_OF_SESSIONS: Final = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip


def gate(faults: list[RequestFault], *, all_of_it: bool) -> GatePolicy | None:
    """Returns the gate, which sends to Python all requests (`all_of_it`), or only those that `faults` affect. Returns
    None if the processors can answer every request for the APIs in _HOT."""
    if all_of_it:
        return GatePolicy("punt")
    wanted = [each for each in faults if each.api is None or each.api.key in _HOT]
    rules = [
        {"action": "punt", "api_key": -1 if each.api is None else each.api.key, "client_id": each.client_id}
        for each in wanted
    ]
    return GatePolicy("serve", rules) if rules else None


class Interception:
    """Answers requests in place of the handlers. Use this object only on the event loop of the broker's listeners."""

    def __init__(self, broker: BrokerServer, requests: Requests, faults: list[RequestFault]) -> None:
        self._broker = broker
        self._requests = requests
        self._faults = faults
        self._handlers: Answer

    def around(self, handlers: Answer) -> Answer:
        self._handlers = handlers
        return self.answer

    def answer(self, call: RequestContext, body: memoryview) -> Any:
        met = self._met(call, body)
        if not met and not self._requests.is_recording:
            return self._handlers(call, body)
        frame = bytes(body)  # a copy, because the memory of the frame is released with the answer
        entry = None
        if self._requests.is_recording:
            entry = self._requests.begin(call, frame, self._broker.plane.native.environment.wall_ms())
            entry.fault = ", ".join(each.what for each in met) or None
        return self._answered(call, frame, met, entry)

    def _met(self, call: RequestContext, body: memoryview) -> list[RequestFault]:
        """Returns the faults that apply to this request: all delays, and the first of the other faults."""
        met: list[RequestFault] = []
        found: list[str] | None = None

        def topics() -> list[str]:
            nonlocal found
            if found is None:
                request = _request(call, body)
                if call.api_key == ApiKey.METADATA and request.topics is None:
                    found = [each.name for each in self._broker.context.image.topics()]
                else:
                    found = named_topics(request, self._topic_of)
            return found

        decided = False
        for fault in self._faults:
            if (decided and fault.decides) or not fault.fits(call, topics) or not fault.take():
                continue
            decided = decided or fault.decides
            met.append(fault)
        return met

    async def _answered(
        self, call: RequestContext, frame: bytes, met: list[RequestFault], entry: RecordedRequest | None
    ) -> Any:
        response: bytes | Torn | None = None
        try:
            for fault in met:
                if fault.waits_seconds:
                    await self._pass(fault)
            deciding = next((each for each in met if each.decides and not each.is_ended), None)
            response = await self._decided(call, frame, deciding)
        finally:
            if entry is not None:
                self._requests.end(entry, response if isinstance(response, bytes) else None)
        return response

    async def _decided(self, call: RequestContext, frame: bytes, fault: RequestFault | None) -> bytes | Torn | None:
        if fault is None:
            return await self._handled(call, frame)
        if fault.drops == "before":
            raise Dropped(f"{call.client_id!r} is disconnected before its request is handled, as a test ordered")
        if fault.error is not None:
            return await self._refused(call, frame, fault.error, fault.topic)
        answer = await self._handled(call, frame)
        if fault.torn_bytes is not None and answer is not None:
            return Torn(answer, fault.torn_bytes)
        raise Dropped(f"{call.client_id!r} is disconnected instead of getting an answer, as a test ordered")

    async def _pass(self, fault: RequestFault) -> None:
        """Waits until the delay has passed by the broker's clock, or the fault ends."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not over.done():
                over.set_result(None)

        due = self._broker.timers.after(fault.waits_seconds * 1000, end, fault.what)
        fault.waiting.append(end)
        try:
            await over
        finally:
            due.cancel()
            fault.waiting.remove(end)

    # --- answers ---

    async def _handled(self, call: RequestContext, frame: bytes) -> bytes | None:
        """Returns the complete answer of the handlers."""
        response: Any = self._handlers(call, memoryview(frame))
        if isinstance(response, Awaitable):
            response = await response
        if isinstance(response, CachedAnswer):
            return response.frame
        if response is None or isinstance(response, bytes):
            return response
        parts = []
        for part in response if isinstance(response, Iterator) else list(response):
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)

    async def _refused(self, call: RequestContext, frame: bytes, error: ErrorCode, topic: str | None) -> bytes | None:
        request = _request(call, frame)
        if call.api_key == ApiKey.PRODUCE and request.acks == _NO_ACKS:
            # A producer with acks=0 notices an error only when its connection is closed.
            raise Dropped(
                f"Produce with acks=0 of client {call.client_id!r} failed with {error.name}, as a test ordered"
            )
        if call.api_key == ApiKey.METADATA:
            return await self._refused_metadata(call, frame, error, topic)
        if topic is None:
            return self._error(call, request, error)
        asked, answered = TOPIC_LISTS[call.api_key]
        entries = getattr(request, asked)
        named = [each for each in entries if topic_name(each, self._topic_of) == topic]
        others = [each for each in entries if topic_name(each, self._topic_of) != topic]
        setattr(request, asked, named)
        refused = self._error(call, request, error)
        if not others:
            return refused
        setattr(request, asked, others)
        if call.api_key == ApiKey.FETCH:
            request.max_wait_ms = 0  # the refusal must not wait for records of other topics
        served = await self._handled(call, request.encode(call.api_version))
        if served is None:
            return None
        response = _response(call, served)
        getattr(response, answered).extend(getattr(_response(call, refused), answered))
        return apis.encode_response(call.api_key, call.api_version, call.correlation_id, response)

    async def _refused_metadata(
        self, call: RequestContext, frame: bytes, error: ErrorCode, topic: str | None
    ) -> bytes | None:
        """Sets the error of each refused topic. The response still lists the brokers, because clients could not
        continue without them."""
        served = await self._handled(call, frame)
        if served is None:
            return None
        response = _response(call, served)
        for each in response.topics:
            if topic is None or topic_name(each, self._topic_of) == topic:
                each.error_code = error
                each.partitions = []
        return apis.encode_response(call.api_key, call.api_version, call.correlation_id, response)

    def _error(self, call: RequestContext, request: Any, error: ErrorCode) -> bytes:
        told = f"{error.message} (as a test ordered)"
        version = call.api_version
        # A leader reports an error of a Fetch in each partition, but reports a session error at the top level.
        at_items = error not in _OF_SESSIONS and bool(getattr(request, "topics", ()))
        response = error_response(request, version, error, told, at_items=at_items)
        if call.api_key == ApiKey.API_VERSIONS and error == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # every client can read it (KIP-511)
        return apis.encode_response(call.api_key, version, call.correlation_id, response)

    def _topic_of(self, topic_id: Any) -> str | None:
        topic = self._broker.context.image.topic_by_id(topic_id)
        return None if topic is None else topic.name


def _request(call: RequestContext, body: bytes | memoryview) -> Any:
    """Decodes the request. Raises ProtocolError for malformed bytes. This error closes the connection, as it would
    without a test."""
    return apis.request_class(call.api_key).decode_prefix(body, call.api_version)[0]


def _response(call: RequestContext, frame: bytes) -> Any:
    header = len(apis.response_header(call.api_key, call.api_version, call.correlation_id))
    return apis.response_class(call.api_key).decode_prefix(memoryview(frame)[header:], call.api_version)[0]
