"""A connection to another node, for the control plane's own requests: Raft, registration, heartbeats, forwarding.

A client connects with its first request, and again after its connection has broken (with Kafka's exponential backoff).
It uses the highest version of each API that both sides support. Requests are pipelined, and the correlation id matches
a response to its request. When a request times out, the client closes the connection, as in Kafka. Otherwise, if the
link is dead, every later request would wait until TCP detects this. A client belongs to one event loop. The loop
creates the client's sockets, and its time is the client's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from kafkacore._fast.schema.message import message_class
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey, NodeVersions
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError
from kafkacore.protocol.messages import Message
from kafkacore.runtime.randomness import backoff_ms
from kafkacore.runtime.unreachable import why_unreachable

LOG: Final = logging.getLogger("kafkacore.network")
_PREFIX_BYTES: Final = 4
_LEAST_ANSWER_BYTES: Final = 4  # the size of a correlation id
# After one of these errors, an attempt to connect has failed, and the client waits before the next attempt. A host name
# that cannot be encoded raises ValueError.
_UNUSABLE: Final = (OSError, TimeoutError, KafkaError, ValueError)
_LATE_S: Final = 0.1  # a timer that fires this late shows that the loop has not read its sockets for this long
_MOST_PATIENCE_S: Final = 1.0


class ClientLimits(NamedTuple):
    """The limits of a client, in milliseconds, bytes and counts. The defaults are those that Kafka's clients use."""

    request_timeout_ms: float = 30_000
    connection_setup_timeout_ms: float = 10_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1_000
    max_response_bytes: int = 1 << 30
    max_in_flight: int = 256  # the greatest number of requests on the wire; further requests wait in the client


class Disconnected(ConnectionError):
    """The connection broke before the response arrived, or could not be opened. The request may have taken effect."""


class MalformedAnswerError(Disconnected):
    """The node sent bytes that are not a valid response. The client closes the connection, and logs one line."""


# A function with the arguments of `loop.create_connection`: a factory for the protocol, a host and a port.
Connect = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[object]]


class NodeClient:
    """The connection to one other node. Several tasks can call `request` concurrently."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str | None,
        *,
        limits: ClientLimits | None = None,
        randomness: random.Random | None = None,
        connect: Connect | None = None,
    ) -> None:
        """The client opens its connections with `connect`, or through the running loop if `connect` is None."""
        self._connect_to = connect
        self.host = host
        self.port = port
        self._client_id = client_id
        self._limits = limits or ClientLimits()
        self._random = randomness or random.SystemRandom()
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._closed = False
        self._unanswered = 0

    async def request(self, message: Message, version: int | None = None, timeout_ms: float | None = None) -> Any:
        """Sends a request and returns its response. Without `version`, the request has the highest version that both
        nodes support.

        Raises Disconnected (MalformedAnswerError if the response cannot be read), TimeoutError, and
        UnsupportedVersionError if there is no common version. A request that times out closes the connection, and all
        other requests on this connection raise Disconnected. If a caller is cancelled, only its own response is
        dropped.
        """
        limit_s = (self._limits.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        return await self._ask(lambda connection: connection.request(message, version, limit_s), limit_s)

    async def exchange(self, api_key: int, version: int, body: bytes) -> memoryview:
        """Sends an encoded request and returns the body of the response. Raises the same errors as `request`."""
        limit_s = self._limits.request_timeout_ms / 1000
        answer: memoryview = await self._ask(
            lambda connection: connection.exchange(api_key, version, body, limit_s), limit_s
        )
        return answer

    async def _ask(self, begin: Callable[[_Connection], Awaitable[Any]], limit_s: float) -> Any:
        connection = self._connection
        self._unanswered += 1
        try:
            if connection is None or connection.lost:
                async with asyncio.timeout(limit_s):
                    connection = await self._connected()
            return await begin(connection)
        finally:
            self._unanswered -= 1

    async def api_versions(self) -> dict[int, tuple[int, int]]:
        """Returns the lowest and the highest version of each API key that the node supports. Raises the same errors as
        `request`."""
        return (await self._connected()).versions

    @property
    def learned_versions(self) -> NodeVersions | None:
        """The versions that the node sent at the start of the connection. None while there is no connection."""
        connection = self._connection
        return connection.versions if connection is not None and not connection.lost else None

    async def hand_over(self) -> int:
        """Returns the descriptor of a connection without requests in flight. The caller must close the descriptor.
        Raises the same errors as `request`."""
        return (await self._connected()).hand_over()

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.lost

    @property
    def unanswered(self) -> int:
        """The number of requests whose callers still wait."""
        return self._unanswered

    def disconnect(self) -> None:
        """Closes the connection. Requests in flight raise Disconnected, and the next request connects again."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Closes the connection, as `disconnect` does. The client never connects again."""
        self._closed = True
        connecting = self._connecting
        self.disconnect()
        self._connection = None
        if connecting is not None:
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await connecting

    async def _connected(self) -> _Connection:
        if self._closed:
            raise Disconnected(f"the client of {self.host}:{self.port} is closed")
        if self._connection is not None and not self._connection.lost:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connect_ended)
        connecting = self._connecting
        try:
            # Several callers may wait for this connection. If one of them is cancelled, the shield keeps the connection
            # for the others.
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not connecting.cancelled() or (task is not None and task.cancelling()):
                raise
            raise Disconnected(f"this client no longer connects to {self.host}:{self.port}") from None

    def _connect_ended(self, task: asyncio.Task[_Connection]) -> None:
        is_wanted = self._connecting is task
        if is_wanted:
            self._connecting = None
        if task.cancelled() or task.exception() is not None:
            return
        if is_wanted:
            self._connection = task.result()
        else:  # the task had already ended when `disconnect` cancelled it
            task.result().close()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._connection is not None and self._connection.lost_at > self._not_before:
            self._back_off(self._connection.lost_at)
        await asyncio.sleep(max(self._not_before - loop.time(), 0))
        connection = _Connection(f"{self.host}:{self.port}", self._client_id, self._limits, loop)
        try:
            async with asyncio.timeout(self._limits.connection_setup_timeout_ms / 1000):
                connect = self._connect_to or loop.create_connection
                await connect(lambda: connection, self.host, self.port)
                await connection.learn_versions()
        except asyncio.CancelledError:
            connection.close()
            raise
        except _UNUSABLE as error:
            connection.close()
            self._back_off(loop.time())
            raised = MalformedAnswerError if isinstance(error, MalformedAnswerError) else Disconnected
            raise raised(f"{self.host}:{self.port} cannot be reached: {why_unreachable(error)}") from error
        self._failures = 0
        return connection

    def _back_off(self, since: float) -> None:
        limits = self._limits
        wait_ms = backoff_ms(self._random, self._failures, limits.reconnect_backoff_ms, limits.reconnect_backoff_max_ms)
        self._failures += 1
        self._not_before = since + wait_ms / 1000


class _Waiting:
    """A request that has no response yet. `frame` is None once the request was sent. If `is_encoded`, the caller
    decodes the response."""

    __slots__ = ("api_key", "deadline", "frame", "future", "is_encoded", "version")

    def __init__(
        self, future: asyncio.Future[Any], api_key: int, version: int, deadline: float, *, is_encoded: bool
    ) -> None:
        self.is_encoded = is_encoded
        self.future = future
        self.api_key = api_key
        self.version = version
        self.deadline = deadline
        self.frame: bytes | None = None


class _Connection(asyncio.Protocol):
    """One connection on one socket. `node` is the other node's host and port, for log lines and errors."""

    def __init__(self, node: str, client_id: str | None, limits: ClientLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self.versions: dict[int, tuple[int, int]] = {}
        self.lost = False
        self.lost_at = 0.0
        self._client_id = client_id
        self._limits = limits
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._waiting: dict[int, _Waiting] = {}  # requests on the wire, by correlation id
        self._queue: deque[tuple[int, _Waiting]] = deque()  # requests that wait until fewer are on the wire
        self._received = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._patient = True

    async def learn_versions(self) -> None:
        """Requests the node's API versions. Uses a lower version of ApiVersions if the node does not support the
        current version (KIP-511)."""
        known = apis.api(ApiKey.API_VERSIONS)
        limit_s = self._limits.request_timeout_ms / 1000
        request = apis.request_class(ApiKey.API_VERSIONS)(client_software_name="kafkacore", client_software_version="1")
        response = await self.request(request, known.highest, limit_s)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            highest = max((each.max_version for each in response.api_keys), default=0)
            response = await self.request(request, min(highest, known.highest), limit_s)
        if response.error_code:
            raise Disconnected(f"ApiVersions was answered with error {response.error_code}")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def request(self, message: Any, version: int | None, limit_s: float) -> asyncio.Future[Any]:
        """Queues a request. Raises UnsupportedVersionError. The returned future raises the same errors as
        `NodeClient.request`."""
        chosen = self._choose(message.API_KEY) if version is None else version
        correlation_id = self._next_id()
        frame = apis.encode_request(chosen, correlation_id, self._client_id, message)
        return self._send(correlation_id, frame, message.API_KEY, chosen, limit_s, is_encoded=False)

    def exchange(self, api_key: int, version: int, body: bytes, limit_s: float) -> asyncio.Future[Any]:
        """Does the same as `request()`, but takes an encoded body, and returns the response undecoded."""
        correlation_id = self._next_id()
        frame = apis.request_prefix(api_key, version, correlation_id, self._client_id) + body
        return self._send(correlation_id, frame, api_key, version, limit_s, is_encoded=True)

    def _next_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _send(
        self, correlation_id: int, frame: bytes, api_key: int, version: int, limit_s: float, *, is_encoded: bool
    ) -> asyncio.Future[Any]:
        if self.lost or self._transport is None:
            raise Disconnected("the connection is closed")
        future: asyncio.Future[Any] = self._loop.create_future()
        deadline = self._loop.time() + limit_s
        waiting = _Waiting(future, api_key, version, deadline, is_encoded=is_encoded)
        if len(self._waiting) < self._limits.max_in_flight and not self._queue:
            self._waiting[correlation_id] = waiting
            self._transport.writelines((len(frame).to_bytes(_PREFIX_BYTES, "big"), frame))
        else:
            waiting.frame = frame
            self._queue.append((correlation_id, waiting))
        if self._timer is None or deadline < self._timer_at:
            self._patient = True
            self._arm(deadline)
        return future

    def _send_more(self) -> None:
        """Sends the next requests while fewer than `max_in_flight` are on the wire. Skips requests whose callers have
        given up."""
        queue, waiting, transport = self._queue, self._waiting, self._transport
        while queue and len(waiting) < self._limits.max_in_flight and transport is not None:
            correlation_id, each = queue.popleft()
            frame, each.frame = each.frame, None
            if frame is not None and not each.future.done():
                waiting[correlation_id] = each
                transport.writelines((len(frame).to_bytes(_PREFIX_BYTES, "big"), frame))

    def close(self) -> None:
        self._lose()
        if self._transport is not None:
            self._transport.abort()

    def hand_over(self) -> int:
        """Closes this object, and returns a new descriptor that keeps the connection open. If none can be made, for
        example because the process has none left, the next request connects anew, after a pause. Without the pause, a
        caller that retries at once would keep the event loop busy."""
        transport = self._transport
        try:
            if transport is None or self.lost or self._waiting or self._received:
                raise Disconnected("the connection is closed, or the node has sent bytes that nobody asked for")
            transport.pause_reading()
            return os.dup(transport.get_extra_info("socket").fileno())
        finally:
            self.close()

    def _lose(self) -> None:
        if not self.lost:
            self.lost, self.lost_at = True, self._loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fail_all(self, error: Exception) -> None:
        unanswered = [*self._waiting.values(), *(each for _, each in self._queue)]
        self._waiting.clear()
        self._queue.clear()
        for waiting in unanswered:
            if not waiting.future.done():
                waiting.future.set_exception(error)

    def _choose(self, api_key: int) -> int:
        known = apis.api(api_key)
        lowest, highest = self.versions.get(api_key, (0, -1))
        chosen = min(known.highest, highest)
        if chosen >= max(known.lowest, lowest):
            return chosen
        if api_key not in self.versions:
            raise UnsupportedVersionError(f"{self._node} does not serve {known.name}")
        raise UnsupportedVersionError(
            f"{self._node} serves {known.name} in versions {lowest} to {highest}, but this program needs "
            f"{known.lowest} to {known.highest}"
        )

    # -- time

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        """Handles a timer: a deadline may have passed. Most timers fire for requests that were answered long ago."""
        self._timer = None
        now = self._loop.time()
        late_s = now - self._timer_at
        if late_s > _LATE_S and self._patient:
            # Either this loop did not run for a while, or a test has moved its clock. The responses may already be in
            # the socket, so the client waits once more before it gives up.
            self._patient = False
            self._arm(now + min(late_s, _MOST_PATIENCE_S))
            return
        self._patient = True
        overdue = [each for each in self._waiting.values() if each.deadline <= now]
        for each in overdue:
            if not each.future.done():
                each.future.set_exception(TimeoutError(f"{self._node} did not answer in time"))
        if overdue:
            self._fail_all(Disconnected(f"a request to {self._node} timed out, so its connection was closed"))
            self.close()
            return
        for _, each in self._queue:
            if each.deadline <= now and not each.future.done():
                each.future.set_exception(TimeoutError(f"{self._node} has too many requests to answer"))
        unanswered = [*self._waiting.values(), *(each for _, each in self._queue if not each.future.done())]
        if unanswered:
            self._arm(min(each.deadline for each in unanswered))

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()
        self._fail_all(Disconnected(f"the connection broke: {error or 'closed by the node'}"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        at = 0
        while len(self._received) - at >= _PREFIX_BYTES and not self.lost:
            size = int.from_bytes(self._received[at : at + _PREFIX_BYTES], "big", signed=True)
            if not _LEAST_ANSWER_BYTES <= size <= self._limits.max_response_bytes:
                self._refuse(f"an answer of {size} bytes")
                return
            if len(self._received) - at - _PREFIX_BYTES < size:
                break
            at += _PREFIX_BYTES
            self._answered(bytes(self._received[at : at + size]))
            at += size
        del self._received[:at]
        if self._queue and not self.lost:
            self._send_more()

    def _answered(self, frame: bytes) -> None:
        waiting = self._waiting.pop(int.from_bytes(frame[:4], "big", signed=True), None)
        if waiting is None:
            self._refuse("an answer to no request")
            return
        if waiting.future.done():
            return
        try:
            waiting.future.set_result(_decode(waiting, frame))
        except (KafkaError, ProtocolError) as error:
            refused = self._refuse(f"an answer to {apis.api(waiting.api_key).name} that cannot be read: {error}")
            waiting.future.set_exception(refused)

    def _refuse(self, problem: str) -> MalformedAnswerError:
        """Closes the connection, because the rest of the stream cannot be read. Returns the error to raise."""
        error = MalformedAnswerError(f"{self._node} sent {problem}")
        LOG.warning("%s; the connection is closed", error)
        self._fail_all(error)
        self.close()
        return error


def _decode(waiting: _Waiting, frame: bytes) -> Any:
    header_version = apis.api(waiting.api_key).response_header_version(waiting.version)
    at = 4
    if header_version:
        _, at = message_class("ResponseHeader").decode_prefix(frame, header_version)
    if waiting.is_encoded:
        return memoryview(frame)[at:]
    response = apis.response_class(waiting.api_key)
    if waiting.api_key == ApiKey.API_VERSIONS and frame[4:6] == b"\0\x23":
        return response.decode(memoryview(frame)[4:], 0)  # a refusal of the version has version 0
    return response.decode(memoryview(frame)[at:], waiting.version)
