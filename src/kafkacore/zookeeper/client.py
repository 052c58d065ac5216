"""A client of ZooKeeper on an asyncio loop: one session at a time, pipelined requests, watches."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kafkacore.runtime.unreachable import why_unreachable
from kafkacore.zookeeper.connect_string import parse_connect_string
from kafkacore.zookeeper.measures import ClientMeasures
from kafkacore.zookeeper.operations import Code, Operation, Result, WatchEvent, ZooKeeperError
from kafkacore.zookeeper.session import (
    Call,
    ClientSettings,
    Connect,
    Disconnect,
    Effect,
    Finished,
    Send,
    Session,
    SessionId,
    SessionState,
    StateChanged,
)

__all__ = ["ClientSettings", "ConnectTo", "SessionId", "SessionState", "ZooKeeperClient"]

LOG: Final = logging.getLogger("kafkacore.zookeeper")
# A function with the arguments of `loop.create_connection`: a factory for the protocol, a host and a port.
ConnectTo = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[object]]


class ZooKeeperClient:
    """A client, which must be used on one loop only. When its session is CLOSED, the owner calls `start` to open
    another session. The client does not do this by itself, because the owner must first discard the state that belongs
    to the former session."""

    def __init__(
        self,
        connect_string: str,
        settings: ClientSettings | None = None,
        *,
        randomness: random.Random | None = None,
        connect: ConnectTo | None = None,
    ) -> None:
        """`connect_string` has the form `host:port,host:port/chroot`. The client opens its connections with `connect`,
        or through the running loop if `connect` is None. Raises ValueError."""
        servers, self._chroot = parse_connect_string(connect_string)
        self.connect_string = connect_string
        self._settings = settings or ClientSettings()
        self._random = randomness or random.SystemRandom()
        self._servers = self._random.sample(servers, len(servers))
        self._connect_to = connect
        self._loop: asyncio.AbstractEventLoop
        self._session: Session | None = None
        self._link: _Link | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._problem = ""  # why the last connection failed; ends the error message of a `start` that takes too long
        # uvloop returns a Handle without a time if the time has passed already, so the client keeps the time itself.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._watch_callbacks: list[Callable[[WatchEvent], None]] = []
        self._state_callbacks: list[Callable[[SessionState, SessionId], None]] = []
        self._is_draining = False
        self.measures = ClientMeasures()
        self.former_session_ids: list[SessionId] = []  # sessions that may have left ephemeral znodes of this client

    @property
    def state(self) -> SessionState:
        return self._session.state if self._session is not None else SessionState.NOT_CONNECTED

    @property
    def session_id(self) -> SessionId:
        return self._session.session_id if self._session is not None else 0

    @property
    def session_timeout_ms(self) -> float:
        """The session timeout that the server has granted."""
        return self._session.timeout_ms if self._session is not None else self._settings.session_timeout_ms

    @property
    def max_request_bytes(self) -> int:
        return self._settings.max_request_bytes

    async def start(self, timeout_ms: float | None = None) -> None:
        """Opens a session, and returns when it is CONNECTED. Raises TimeoutError and closes the client if this takes
        too long. Raises RuntimeError if a session is already open, and ZooKeeperError with AUTH_FAILED or
        SESSION_EXPIRED."""
        if self._session is not None:
            if not self._session.is_over:
                raise RuntimeError("a session with ZooKeeper is open: a client can have only one at a time")
            if self._session.session_id:
                self.former_session_ids = [*self.former_session_ids[-15:], self._session.session_id]
        self._loop = asyncio.get_running_loop()
        self._problem = ""
        self._session = session = Session(
            self._servers, self._chroot, self._settings, self._random, self.measures.latency_ms
        )
        connected = self._loop.create_future()

        def note(state: SessionState, _: SessionId) -> None:
            if state is not SessionState.CONNECTING and not connected.done():
                connected.set_result(state)

        self._state_callbacks.insert(0, note)
        try:
            session.open(self._now())
            self._drain()
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                state = await connected
        except TimeoutError:
            await self.close()
            raise TimeoutError(
                f"no ZooKeeper server of {self.connect_string} accepted the session in time{self._problem}; check "
                "zookeeper.connect, and that the servers run"
            ) from None
        finally:
            self._state_callbacks.remove(note)
        if state is not SessionState.CONNECTED:
            failed = Code.AUTH_FAILED if state is SessionState.AUTH_FAILED else Code.SESSION_EXPIRED
            raise ZooKeeperError(failed, self.connect_string)

    async def close(self) -> None:
        """Ends the session on the server, which removes the session's ephemeral znodes. Waits for the answers to
        requests that were sent. Unsent requests get SESSION_EXPIRED."""
        session = self._session
        if session is None:
            return
        if not session.is_over:
            ended = self._loop.create_future()

            def note(state: SessionState, _: SessionId) -> None:
                if session.is_over and not ended.done():
                    ended.set_result(None)

            self._state_callbacks.append(note)
            try:
                session.close(self._now())
                self._drain()
                await ended
            finally:
                self._state_callbacks.remove(note)
        if self._connecting is not None:
            self._connecting.cancel()

    async def submit(self, operations: Sequence[Operation]) -> list[Result]:
        """Sends all operations together and in this order, and returns their results in the same order. Waits while too
        many bytes are outstanding, and while the client is CONNECTING.

        Never raises for an error code of the server. The code of a result is CONNECTION_LOSS if the connection broke
        after any operation of this call was sent. The outcome is then unknown, and the caller must read the znode to
        find out. The code is SESSION_EXPIRED or AUTH_FAILED if the session has ended. The client does not send an
        operation that no server would accept. The code is then MARSHALLING_ERROR if the operation is too large, and
        BAD_ARGUMENTS if the path is relative. Cancelling the caller does not cancel operations.
        """
        session = self._session
        if session is None:
            return [Result(Code.SESSION_EXPIRED)] * len(operations)
        done: asyncio.Future[list[Result]] = self._loop.create_future()
        session.submit(Call(operations, done), self._now())
        self._drain()
        return await done

    async def read(self, operations: Sequence[Operation]) -> list[Result]:
        """Submits operations that only read, and returns their results as `submit` does. If the connection breaks,
        sends the operations again."""
        results = await self.submit(operations)
        while lost := [place for place, result in enumerate(results) if result.code is Code.CONNECTION_LOSS]:
            again = await self.submit([operations[place] for place in lost])
            for place, result in zip(lost, again, strict=True):
                results[place] = result
        return results

    def on_watch(self, callback: Callable[[WatchEvent], None]) -> None:
        """Registers a callback, which the client calls for each watch that fires. The call comes before any result that
        contains the change that fired the watch, or a later change."""
        self._watch_callbacks.append(callback)

    def on_state(self, callback: Callable[[SessionState, SessionId], None]) -> None:
        """Registers a callback for changes of the state. The call comes before the results that the change of state
        causes, such as CONNECTION_LOSS. If CONNECTED with the same session id follows CONNECTING, every watch is still
        set or fires soon."""
        self._state_callbacks.append(callback)

    # --- effects ---

    def _now(self) -> float:
        return self._loop.time() * 1000

    def _drain(self) -> None:
        """Executes the session's effects (sends, connects, results, callbacks). If a callback calls `submit`, the loop
        below also executes the effects of that call."""
        session = self._session
        assert session is not None
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while session.effects:
                effects, session.effects = session.effects, []
                for effect in effects:
                    self._do(effect)
        finally:
            self._is_draining = False
        self._set_timer(session.deadline)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Finished(call):
                if not call.owner.done():
                    call.owner.set_result(call.results)
            case Send(data):
                if self._link is not None:
                    self._link.write(data)
            case WatchEvent():
                for on_watch in self._watch_callbacks:
                    _call_back(on_watch, effect)
            case StateChanged(state, session_id):
                self.measures.moved(state, has_expired=self._session is not None and self._session.has_expired)
                for on_state in list(self._state_callbacks):
                    _call_back(on_state, state, session_id)
            case Connect(host, port):
                self._connecting = self._loop.create_task(self._connect(host, port))
            case Disconnect():
                self._disconnect()

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.drop()
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()

    async def _connect(self, host: str, port: int) -> None:
        session = self._session
        assert session is not None
        link = _Link(self, session)
        connect = self._connect_to or self._loop.create_connection
        try:
            await connect(lambda: link, host, port)
        except asyncio.CancelledError:
            link.drop()
            raise
        except (OSError, ValueError) as error:  # a host name that cannot be encoded is a ValueError
            self._problem = f": {host}:{port} cannot be reached: {why_unreachable(error)}"
            LOG.info("ZooKeeper at %s:%d cannot be reached: %s", host, port, error)
            link.drop()
            session.link_lost(self._now(), error)
            self._drain_of(session)

    def _drain_of(self, session: Session) -> None:
        """Executes the effects that an event has caused in a session, which may be a former session."""
        if session is self._session:
            self._drain()

    def _set_timer(self, deadline: float | None) -> None:
        """Sets the timer. If the deadline moves to a later time, the timer stays as it is. A timer that fires too early
        sets itself again."""
        if deadline is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        when = deadline / 1000
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(when, self._timer_fired), when

    def _timer_fired(self) -> None:
        self._timer = None
        session = self._session
        if session is None:
            return
        if session.deadline is not None and session.deadline <= self._now():
            session.time_passed(self._now())
        self._drain()


def _call_back(callback: Callable[..., None], *arguments: object) -> None:
    """Calls a callback and logs its exception, so that an exception in one callback does not keep other callers from
    their results."""
    try:
        callback(*arguments)
    except Exception:
        LOG.exception("a callback of the ZooKeeper client failed: %s", arguments)


class _Link(asyncio.Protocol):
    """One connection of one session. After `drop`, it reports no more events."""

    def __init__(self, client: ZooKeeperClient, session: Session) -> None:
        self._client = client
        self._session: Session | None = session
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        session, client = self._session, self._client
        if session is None:
            transport.close()
            return
        client._link = self
        session.link_made(client._now())
        client._drain_of(session)

    def data_received(self, data: bytes) -> None:
        session, client = self._session, self._client
        if session is not None:
            session.received(data, client._now())
            client._drain_of(session)

    def connection_lost(self, error: Exception | None) -> None:
        session, client = self._session, self._client
        self.drop()
        if session is not None:
            if client._link is self:
                client._link = None
            session.link_lost(client._now(), error or "the server closed it")
            client._drain_of(session)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def drop(self) -> None:
        self._session = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
