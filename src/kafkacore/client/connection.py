"""One connection to a broker: sends and receives frames, without a thread.

The socket is non-blocking. `send` returns the correlation id of a request, and `receive` returns responses as they
arrive, so several requests can be in flight. After a failure, the connection closes itself, and its owner opens another
connection.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kafkacore._fast.schema.message import message_class
from kafkacore.client.errors import ServerNotTrusted
from kafkacore.client.fetching import FetchSession
from kafkacore.client.options import Options
from kafkacore.client.security import authenticate, tls_context
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode, ProtocolError, UnsupportedVersionError

_PREFIX_BYTES: Final = 4
_LEAST_ANSWER_BYTES: Final = 4
_MOST_ANSWER_BYTES: Final = 1 << 30
_AT_ONCE: Final = 1 << 20  # the maximum number of bytes that one call of recv returns
_MOST_WAIT_MS: Final = (1 << 31) - 1
_WOULD_BLOCK: Final = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Disconnected(ConnectionError):
    """The connection broke before the response arrived, or could not be opened. The request may have taken effect."""


class Answer(NamedTuple):
    """A decoded response, and the id of its request."""

    correlation_id: int
    message: Any


class Connection:
    """A connection to one host and port. Methods raise Disconnected and TimeoutError. Either error closes the
    connection."""

    def __init__(self, host: str, port: int, options: Options) -> None:
        """Connects, requests the broker's API versions, and authenticates. Also raises KafkaError, such as
        ServerNotTrusted, and OptionError."""
        self.place = f"{host}:{port}"
        self.versions: dict[int, tuple[int, int]] = {}
        # A broker keeps a limited number of sessions, so all reads over this connection share one.
        self.fetch_session = FetchSession()
        self._options = options
        self._correlation_id = 0
        # Maps the correlation id of each request in flight to its API key and version.
        self._waiting: dict[int, tuple[int, int]] = {}
        self._early: deque[Answer] = deque()  # responses that arrived while `ask` waited for another one
        self._prefix = bytearray(_PREFIX_BYTES)
        self._frame: bytearray | None = None
        self._have = 0
        deadline = time.monotonic() + options["socket.connection.setup.timeout.ms"] / 1000
        self._socket = self._connect(host, port, deadline)
        try:
            self._learn_versions(deadline)
            if options["security.protocol"].startswith("SASL"):
                authenticate(self, options, deadline)
        except BaseException:
            self.close()
            raise

    def _connect(self, host: str, port: int, deadline: float) -> socket.socket:
        protocol = self._options["security.protocol"]
        try:
            made = socket.create_connection((host, port), max(deadline - time.monotonic(), 0.001))
            try:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for key, option in (
                    ("send.buffer.bytes", socket.SO_SNDBUF),
                    ("receive.buffer.bytes", socket.SO_RCVBUF),
                ):
                    if self._options[key] > 0:
                        made.setsockopt(socket.SOL_SOCKET, option, self._options[key])
                if protocol.endswith("SSL"):
                    made = tls_context(self._options).wrap_socket(made, server_hostname=host)
                made.setblocking(False)
            except BaseException:
                made.close()
                raise
        except ssl.SSLCertVerificationError as error:
            raise ServerNotTrusted(f"{self.place}: its certificate is refused: {error}") from error
        except (OSError, ValueError) as error:  # a host name that cannot be encoded causes a ValueError
            raise Disconnected(f"{self.place} cannot be reached: {str(error) or 'timed out'}") from error
        return made

    def _learn_versions(self, deadline: float) -> None:
        known = apis.api(ApiKey.API_VERSIONS)
        request = apis.request_class(ApiKey.API_VERSIONS)(client_software_name="kafkacore", client_software_version="1")
        response = self.ask(request, known.highest, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            highest = max((each.max_version for each in response.api_keys), default=0)
            response = self.ask(request, min(highest, known.highest), deadline)
        if response.error_code:
            raise Disconnected(f"{self.place} answered ApiVersions with error {response.error_code}")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    # -- requests

    def version(self, api_key: int, highest: int | None = None) -> int:
        """Returns the highest version, up to `highest`, that both sides support. Raises UnsupportedVersionError."""
        known = apis.api(api_key)
        lowest, their_highest = self.versions.get(api_key, (0, -1))
        chosen = min(known.highest if highest is None else min(highest, known.highest), their_highest)
        if chosen < max(known.lowest, lowest):
            raise UnsupportedVersionError(f"{self.place}: {known.name}: the broker speaks {lowest} to {their_highest}")
        return chosen

    def send(self, request: Any, version: int, deadline: float, *, answered: bool = True) -> int:
        """Sends a request and returns its correlation id. If `answered` is False, no response will come (acks=0)."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = apis.encode_request(version, self._correlation_id, self._options["client.id"], request)
        rest = memoryview(len(frame).to_bytes(_PREFIX_BYTES, "big") + frame)
        try:
            while rest:
                try:
                    rest = rest[self._socket.send(rest) :]
                except _WOULD_BLOCK:
                    self._wait(deadline, writable=True)
                except OSError as error:
                    raise self._lost(error) from error
        except BaseException:
            self.close()  # the broker would take the next request for the rest of this one
            raise
        if answered:
            self._waiting[self._correlation_id] = (request.API_KEY, version)
        return self._correlation_id

    def ask(self, request: Any, version: int, deadline: float) -> Any:
        """Sends a request and returns its response. Keeps the responses to earlier requests for `receive`."""
        wanted = self.send(request, version, deadline)
        while True:
            answer = self._next_answer()
            if answer is None:
                self._wait(deadline)
            elif answer.correlation_id == wanted:
                return answer.message
            else:
                self._early.append(answer)

    def receive(self) -> Answer | None:
        """Returns the next complete response, or None if it has not arrived yet. Never waits."""
        return self._early.popleft() if self._early else self._next_answer()

    def _next_answer(self) -> Answer | None:
        frame = self._next_frame()
        if frame is None:
            return None
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise self._lost("it sent an answer to no request")
        try:
            return Answer(correlation_id, _decode(*waiting, frame))
        except (ProtocolError, UnsupportedVersionError) as error:
            raise self._lost(
                f"it sent an answer to {apis.api(waiting[0]).name} that cannot be read: {error}"
            ) from error

    # -- bytes

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    @property
    def unanswered(self) -> int:
        """The number of requests in flight."""
        return len(self._waiting)

    @property
    def has_buffered(self) -> bool:
        """Returns whether something has arrived that `wait_ready` cannot see: a response that `ask` has kept, or bytes
        that TLS has buffered."""
        return bool(self._early) or self._has_tls_bytes

    @property
    def _has_tls_bytes(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self.is_open and self._socket.pending() > 0

    def close(self) -> None:
        self._socket.close()
        self._waiting.clear()
        self._early.clear()
        self._frame = None

    def _next_frame(self) -> bytearray | None:
        if self._frame is None:
            if not self._fill(self._prefix):
                return None
            size = int.from_bytes(self._prefix, "big", signed=True)
            if not _LEAST_ANSWER_BYTES <= size <= _MOST_ANSWER_BYTES:
                raise self._lost(f"it sent an answer of {size} bytes")
            self._frame, self._have = bytearray(size), 0
        if not self._fill(self._frame):
            return None
        frame, self._frame, self._have = self._frame, None, 0
        return frame

    def _fill(self, block: bytearray) -> bool:
        """Reads bytes into the block. Returns whether the block is full now."""
        view = memoryview(block)
        while self._have < len(block):
            try:
                got = self._socket.recv_into(view[self._have : self._have + _AT_ONCE])
            except _WOULD_BLOCK:
                return False
            except OSError as error:
                raise self._lost(error) from error
            if not got:
                raise self._lost("closed by the broker")
            self._have += got
        self._have = 0
        return True

    def _wait(self, deadline: float, *, writable: bool = False) -> None:
        if self._has_tls_bytes and not writable:
            return
        left = deadline - time.monotonic()
        if left > 0 and wait_ready([self], left, select.POLLOUT if writable else select.POLLIN):
            return
        self.close()
        raise TimeoutError(f"{self.place} did not answer in time")

    def _lost(self, reason: object) -> Disconnected:
        self.close()
        return Disconnected(f"the connection to {self.place} broke: {reason}")


def wait_ready(connections: Iterable[Connection], most_s: float, event: int = select.POLLIN) -> set[int]:
    """Waits until `event` can be handled on one of the connections, or until `most_s` seconds have passed. Returns the
    file descriptors of these connections."""
    polled = select.poll()  # select.select refuses descriptors from 1024 on
    for each in connections:
        polled.register(each, event)
    return {descriptor for descriptor, _ in polled.poll(min(math.ceil(most_s * 1000), _MOST_WAIT_MS))}


def _decode(api_key: int, version: int, frame: bytearray) -> Any:
    at = 4
    if apis.api(api_key).response_header_version(version):
        _, at = message_class("ResponseHeader").decode_prefix(frame, 1)
    response = apis.response_class(api_key)
    if api_key == ApiKey.API_VERSIONS and frame[4:6] == b"\0\x23":
        return response.decode(memoryview(frame)[4:], 0)  # the response that refuses a version has version 0
    return response.decode(memoryview(frame)[at:], version)
