"""One session with ZooKeeper, without sockets and clocks.

The client (the driver of the session) reports events (`link_made`, `received`, `link_lost`, `time_passed`) to the
session, and executes the effects that the session returns, in order. A link is one connection to one server. Times are
in milliseconds of any monotonic clock. The states and their transitions come from the controller redesign ("use vanilla
ZooKeeper client for better client state management").
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from kafkacore.runtime.sampling import Distribution
from kafkacore.zookeeper import jute
from kafkacore.zookeeper.operations import Code, Operation, Result, WatchEvent
from kafkacore.zookeeper.watches import Watches

LOG: Final = logging.getLogger("kafkacore.zookeeper")
SessionId = int  # 0 until the server has assigned an id
MAX_RETRY_MS: Final = 1_000.0  # the longest pause after the client has tried all servers in turn
CLOSE_MS: Final = 5_000.0  # how long `close` waits for the server's answer


class SessionState(Enum):
    """The states in the redesign. A session ends in AUTH_FAILED if the server refused its authentication."""

    NOT_CONNECTED = "not connected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSED = "closed"  # expired, or closed by its owner
    AUTH_FAILED = "authentication failed"


_TRANSITIONS: Final = {
    SessionState.NOT_CONNECTED: {SessionState.CONNECTING},
    SessionState.CONNECTING: {SessionState.CONNECTED, SessionState.CLOSED, SessionState.AUTH_FAILED},
    SessionState.CONNECTED: {SessionState.CONNECTING, SessionState.CLOSED, SessionState.AUTH_FAILED},
    SessionState.CLOSED: set(),
    SessionState.AUTH_FAILED: set(),
}


class ClientSettings(NamedTuple):
    """The settings of a client, in milliseconds and bytes. The defaults are the same as for a broker of Apache Kafka
    3.9.
    """

    session_timeout_ms: int = 18_000
    max_request_bytes: int = 1_000_000  # a server accepts 1,048,575 (jute.maxbuffer)
    max_response_bytes: int = 4 << 20
    max_outstanding_bytes: int = 4 << 20  # no request is sent while the unanswered requests have at least this size
    digest: tuple[str, str] | None = None  # user and password


# --- effects ---


class Connect(NamedTuple):
    host: str
    port: int


class Send(NamedTuple):
    data: bytes


class Disconnect(NamedTuple):
    """The driver must drop the link, and report no more events of this link."""


class StateChanged(NamedTuple):
    state: SessionState
    session_id: SessionId


class Finished(NamedTuple):
    call: Call


Effect = Connect | Send | Disconnect | StateChanged | WatchEvent | Finished


class Call:
    """Operations that were submitted together, and their results so far."""

    __slots__ = ("missing", "operations", "owner", "results", "sent")

    def __init__(self, operations: Sequence[Operation], owner: Any = None) -> None:
        """The effect `Finished` returns `owner` to the driver, unchanged."""
        self.operations = operations
        self.owner = owner
        self.missing = len(operations)  # the number of results that are missing
        self.results: list[Result | None] = [None] * self.missing
        self.sent = 0  # the number of operations that were sent, or refused without being sent

    def fail(self, code: Code) -> None:
        """Sets the code as the result of every operation that has no result."""
        failed = Result(code)
        self.results = [failed if each is None else each for each in self.results]
        self.missing = 0


class _Sent(NamedTuple):
    xid: int
    size: int
    operation: Operation | None  # None for the request that ends the session
    call: Call | None
    position: int  # the position of the operation in its call
    at: float  # the time at which the request was sent


class Session:
    """A session. `servers` is a list of hosts and ports, in the order in which they are tried. `chroot` is '' or an
    absolute path. `latency_ms` collects the time from each request to its answer."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        chroot: str,
        settings: ClientSettings,
        source: random.Random,
        latency_ms: Distribution,
    ) -> None:
        self.state = SessionState.NOT_CONNECTED
        self.session_id: SessionId = 0
        self.timeout_ms: float = settings.session_timeout_ms
        self.last_zxid = 0
        self.effects: list[Effect] = []
        self.watches = Watches()
        self._servers, self._chroot, self._settings = servers, chroot, settings
        self._chroot_bytes = chroot.encode()
        self._random = source
        self._latency_ms = latency_ms
        self._password = jute.NO_PASSWORD
        self._tried = 0  # the number of servers tried since the last one that accepted the session
        self._next_server = 0
        self._xid = 0
        # Whether there is a connection, and whether the server has accepted the session on it.
        self._linked = self._greeted = False
        self._closing = False
        self._buffer = bytearray()
        self._needed = jute.LENGTH.size  # the number of bytes until the next frame is complete
        self._waiting: deque[Call] = deque()  # calls with operations that are not sent yet
        self._sent: deque[_Sent] = deque()
        self._outstanding_bytes = 0
        self._retry_at: float | None = None
        self._heard_at = self._spoke_at = self._greeted_at = 0.0
        self._close_at: float | None = None

    # --- called by the owner ---

    def open(self, now: float) -> None:
        self._become(SessionState.CONNECTING)
        self._connect(now)

    def submit(self, call: Call, now: float) -> None:
        if self.is_over or self._closing:
            self._finish(call, Code.AUTH_FAILED if self.state is SessionState.AUTH_FAILED else Code.SESSION_EXPIRED)
            return
        if not call.operations:
            self._finish(call, Code.OK)
            return
        self._waiting.append(call)
        self._send_waiting(now)

    def close(self, now: float) -> None:
        """Asks the server to end the session after it has answered all requests that were sent. Without a connection,
        the session ends immediately on this side, and the server expires it later."""
        if self.is_over or self._closing:
            return
        self._closing = True
        if not self._greeted:
            self._end(SessionState.CLOSED, Code.SESSION_EXPIRED)
            return
        while self._waiting:
            call = self._waiting.popleft()
            for position in range(call.sent, len(call.operations)):
                self._settle(call, position, Result(Code.SESSION_EXPIRED))
        self._xid = self._xid % jute.LAST_XID + 1
        self._sent.append(_Sent(self._xid, 0, None, None, 0, now))
        self._send(jute.encode_close(self._xid), now)
        self._close_at = now + CLOSE_MS

    @property
    def is_over(self) -> bool:
        return self.state in {SessionState.CLOSED, SessionState.AUTH_FAILED}

    @property
    def has_expired(self) -> bool:
        """Whether the server has ended the session."""
        return self.state is SessionState.CLOSED and not self._closing

    @property
    def outstanding_bytes(self) -> int:
        return self._outstanding_bytes

    # --- events ---

    def link_made(self, now: float) -> None:
        """Call this when the driver has opened the connection for the last `Connect`."""
        if self.is_over:
            return
        self._linked = True
        self._heard_at = now
        hello = jute.encode_connect(
            self.last_zxid, int(self._settings.session_timeout_ms), self.session_id, self._password
        )
        self._send(hello, now)

    def link_lost(self, now: float, why: object = None) -> None:
        """Call this when the connection has broken, or could not be opened."""
        if self.is_over:
            return
        if self._greeted:
            LOG.info("lost the connection to ZooKeeper, session 0x%x: %s", self.session_id, why)
        self._linked = self._greeted = False
        self._buffer.clear()
        self._needed = jute.LENGTH.size
        if self._closing:
            self._end(SessionState.CLOSED, Code.CONNECTION_LOSS)
            return
        if self.state is SessionState.CONNECTED:
            self._become(SessionState.CONNECTING)
        self._cut_off()
        self._connect_later(now)

    def time_passed(self, now: float) -> None:
        """Checks the time limits. Call this at `deadline`, or later."""
        if self.is_over:
            return
        if self._close_at is not None and now >= self._close_at:
            self._drop(now, "the server did not confirm the end of the session")
        elif self._retry_at is not None and now >= self._retry_at:
            self._connect(now)
        elif self._retry_at is None and now >= self._silent_until():
            self._drop(now, f"nothing heard for {now - self._heard_at:.0f} ms")
        elif self._greeted and now >= self._ping_at():
            self._send(jute.PING_FRAME, now)

    @property
    def deadline(self) -> float | None:
        """The time at which `time_passed` must be called. None if the session has ended or is not open."""
        if self.is_over or self.state is SessionState.NOT_CONNECTED:
            return None
        if self._retry_at is not None:
            return self._retry_at
        deadline = self._silent_until()
        if self._greeted:
            deadline = min(deadline, self._ping_at())
        return deadline if self._close_at is None else min(deadline, self._close_at)

    def received(self, data: bytes, now: float) -> None:
        if self.is_over or not self._linked:
            return
        self._heard_at = now
        self._buffer += data
        if len(self._buffer) < self._needed:
            return
        try:
            self._read_frames(now)
        except jute.MalformedFrameError as error:
            LOG.warning("ZooKeeper sent a malformed frame, so the connection is closed: %s", error)
            self._drop(now, error)
            return
        if self._greeted:
            self._send_waiting(now)

    # --- connections ---

    def _silent_until(self) -> float:
        """Returns the time at which the session gives up a server that sends nothing. A server that has accepted the
        session may be silent for two thirds of the session timeout, so that a third remains for another server. Before
        a server accepts the session, the limit is the session timeout divided by the number of servers."""
        if self._greeted:
            return self._heard_at + self.timeout_ms * 2 / 3
        return self._heard_at + self.timeout_ms / len(self._servers)

    def _ping_at(self) -> float:
        return self._spoke_at + self.timeout_ms / 3

    def _connect(self, now: float) -> None:
        self._retry_at = None
        self._heard_at = now  # the time limit for the connection attempt starts now
        host, port = self._servers[self._next_server]
        self._next_server = (self._next_server + 1) % len(self._servers)
        self._tried += 1
        self.effects.append(Connect(host, port))

    def _connect_later(self, now: float) -> None:
        """Schedules the next connection attempt. The session tries the next server immediately, but pauses once it has
        tried all servers in turn. It also pauses if a server accepted the session and dropped the connection at once,
        because this may happen again."""
        lasted = self._tried == 0 and now - self._greeted_at > MAX_RETRY_MS / 10
        if lasted or self._tried % len(self._servers):
            self._connect(now)
            return
        limit_ms = min(MAX_RETRY_MS, self._settings.session_timeout_ms / 10)
        self._retry_at = now + limit_ms * (0.1 + 0.9 * self._random.random())

    def _drop(self, now: float, why: object) -> None:
        self.effects.append(Disconnect())
        self.link_lost(now, why)

    # --- frames ---

    def _read_frames(self, now: float) -> None:
        data, position, end = bytes(self._buffer), 0, len(self._buffer)
        while end - position >= 4:
            (length,) = jute.LENGTH.unpack_from(data, position)
            if not 0 <= length <= self._settings.max_response_bytes:
                limit = self._settings.max_response_bytes
                raise jute.MalformedFrameError(f"an answer of {length} bytes, where jute.maxbuffer allows {limit}")
            if end - position - 4 < length:
                self._needed = 4 + length
                break
            position += 4 + length
            self._read_frame(data[position - length : position], now)
            if not self._linked:
                return
        else:
            self._needed = 4
        del self._buffer[:position]

    def _read_frame(self, frame: bytes, now: float) -> None:
        if not self._greeted:
            self._read_greeting(frame, now)
            return
        if len(frame) < jute.REPLY.size:
            raise jute.MalformedFrameError(f"an answer of {len(frame)} bytes")
        xid, zxid, error = jute.REPLY.unpack_from(frame)
        if xid == jute.WATCH_XID:
            event = jute.decode_event(frame, self._chroot)
            if event is not None:
                self.watches.fire(event)
                self.effects.append(event)
            return
        self.last_zxid = max(self.last_zxid, zxid)
        if xid == jute.AUTH_XID:
            if error:
                LOG.error("ZooKeeper refused the authentication (%s); the session ends", Code.of(error).name)
                self._end(SessionState.AUTH_FAILED, Code.AUTH_FAILED)
        elif xid >= 0:
            self._read_answer(frame, xid, error, now)

    def _read_greeting(self, frame: bytes, now: float) -> None:
        answer = jute.decode_connected(frame)
        if answer.timeout_ms <= 0:
            LOG.warning("ZooKeeper has expired the session 0x%x", self.session_id)
            self._end(SessionState.CLOSED, Code.SESSION_EXPIRED)
            return
        if answer.is_read_only:
            # A read-only server has lost contact with the other servers. So its data may be old, and it accepts no
            # writes.
            self._drop(now, "the server is read-only")
            return
        self.session_id, self._password = answer.session_id, answer.password
        self.timeout_ms = answer.timeout_ms
        self._greeted, self._greeted_at = True, now
        self._tried = 0
        if self._settings.digest is not None:
            self._send(jute.encode_auth("digest", ":".join(self._settings.digest).encode()), now)
        # The requests that restore the old watches come first. New requests, which may set new watches, come later.
        for request in self.watches.requests(self.last_zxid, self._chroot_bytes):
            self._send(request, now)
        self._become(SessionState.CONNECTED)

    def _read_answer(self, frame: bytes, xid: int, error: int, now: float) -> None:
        if not self._sent or self._sent[0].xid != xid:
            expected = self._sent[0].xid if self._sent else "none"
            raise jute.MalformedFrameError(f"an answer to request {xid}, but the answer to {expected} must come first")
        _, size, operation, call, position, at = self._sent[0]
        code = Code.of(error) if error else Code.OK
        if operation is None or call is None:
            self._sent.popleft()
            self._end(SessionState.CLOSED, Code.SESSION_EXPIRED)
            return
        if code is Code.SESSION_EXPIRED:
            self._end(SessionState.CLOSED, code)
            return
        result = jute.decode(frame, code, operation, self._chroot)
        self._sent.popleft()
        self._outstanding_bytes -= size
        self._latency_ms.record(now - at)
        self.watches.note(operation, code)
        self._settle(call, position, result)

    # --- requests ---

    def _send(self, data: bytes, now: float) -> None:
        self._spoke_at = now
        self.effects.append(Send(data))

    def _send_waiting(self, now: float) -> None:
        """Sends as many requests as the bound on outstanding bytes allows. Encodes a request only when it can be sent,
        so that the bound also limits the memory of encoded requests."""
        if not self._greeted or not self._waiting:
            return
        frames = []
        limit = self._settings.max_outstanding_bytes
        while self._waiting and self._outstanding_bytes < limit and not self._closing:
            call = self._waiting[0]
            operations, total = call.operations, len(call.operations)
            while call.sent < total and self._outstanding_bytes < limit:
                frame = self._encoded(call, call.sent, operations[call.sent], now)
                call.sent += 1
                if frame:
                    frames.append(frame)
            if call.sent == total:
                self._waiting.popleft()
        if frames:
            self._send(b"".join(frames), now)

    def _encoded(self, call: Call, position: int, operation: Operation, now: float) -> bytes:
        """Encodes the request, and remembers it until its response arrives. If the server would drop the connection
        because of the request, this method sets an error as the operation's result and returns b""."""
        self._xid = xid = self._xid % jute.LAST_XID + 1
        try:
            frame = jute.encode(xid, operation, self._chroot_bytes)
        except jute.UnsendableError:
            self._settle(call, position, Result(Code.BAD_ARGUMENTS))
            return b""
        if len(frame) - 4 > self._settings.max_request_bytes:
            LOG.error("a request of %d bytes exceeds jute.maxbuffer and is not sent", len(frame) - 4)
            self._settle(call, position, Result(Code.MARSHALLING_ERROR))
            return b""
        self._sent.append(_Sent(xid, len(frame), operation, call, position, now))
        self._outstanding_bytes += len(frame)
        return frame

    def _settle(self, call: Call, position: int, result: Result) -> None:
        call.results[position] = result
        call.missing -= 1
        if not call.missing:
            self.effects.append(Finished(call))

    def _finish(self, call: Call, code: Code) -> None:
        call.fail(code)
        self.effects.append(Finished(call))

    def _cut_off(self) -> None:
        """Ends a call with CONNECTION_LOSS if at least one of its operations was sent. Other calls continue to wait."""
        begun = {id(each.call): each.call for each in self._sent if each.call is not None}
        begun.update((id(call), call) for call in self._waiting if call.sent)
        self._sent.clear()
        self._outstanding_bytes = 0
        for call in begun.values():
            self._finish(call, Code.CONNECTION_LOSS)
        self._waiting = deque(call for call in self._waiting if id(call) not in begun)

    # --- states ---

    def _become(self, state: SessionState) -> None:
        assert state in _TRANSITIONS[self.state], f"{self.state} -> {state}"
        self.state = state
        self.effects.append(StateChanged(state, self.session_id))

    def _end(self, state: SessionState, code: Code) -> None:
        """Ends the session. Requests that were sent get CONNECTION_LOSS, because their outcome is unknown. The other
        requests get `code`."""
        if self._linked:
            self.effects.append(Disconnect())
        self._linked = self._greeted = False
        self._become(state)
        self._cut_off()
        while self._waiting:
            self._finish(self._waiting.popleft(), code)
