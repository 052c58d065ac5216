"""A plane serves the clients of one group of listeners, for example all data listeners. It has an acceptor thread,
processor threads, an event loop that runs the request handlers, and a ring (a queue) that passes requests to this loop.

The class Plane serves as the data plane, as the controller's plane and as the control plane of KIP-291. These planes
differ in the capacity of their ring, and in the threads that the Runtime gives them. Each kind of plane has its own
acceptor, processors and loop.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from time import perf_counter
from typing import Any, Final, NamedTuple

from kafkacore._fast.plane import inbound as native_inbound
from kafkacore._fast.plane.addresses import pack_address
from kafkacore._fast.plane.inbound import InboundRequest
from kafkacore._fast.plane.plane import HotApi, NativePlane
from kafkacore._fast.world.environment import Environment
from kafkacore.network.cached_answers import ApiCache, Asked, CachedAnswer
from kafkacore.network.deferred_answer import DeferredAnswer
from kafkacore.network.limits import CONTROL_PLANE_QUEUE, PlaneLimits
from kafkacore.network.listeners import Listener, listen
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ProtocolError
from kafkacore.runtime.process import CONTROL, Runtime

LOG: Final = logging.getLogger("kafkacore.network")

BATCH: Final = 32  # the number of requests that one callback of the loop takes from the ring
# After this time, the callback starts no more requests, so that the loop can serve other planes and threads.
BEGIN_S: Final = 0.001
NO_OVERRIDE: Final = -1  # an address without an entry in max.connections.per.ip.overrides
_SWEEP_SECONDS: Final = 0.0001
_SWEEP_MOST_SECONDS: Final = 0.005


class Torn(NamedTuple):
    """A truncated response. The peer receives the first `size_bytes`, including the size prefix, and then the end of
    the connection."""

    frame: bytes
    size_bytes: int


# A response's header and body: as a whole, in parts, or as an iterator over the parts. An iterator is for a long
# response, because the loop does other work between the parts. With None, the plane sends no response. A handler raises
# ProtocolError to close the connection. A handler that answers later must release the body of the request as soon as it
# has read the body. This returns the memory of the body to the plane.
Response = bytes | Sequence[bytes] | Iterator[bytes] | Torn | None
Complete = Response | CachedAnswer
Answer = Callable[[RequestContext, memoryview], Complete | DeferredAnswer[Response] | Awaitable[Complete]]


class Plane:
    """Serves the requests of `listeners`. The function `answer` (the handlers) answers a request. `open`, `start` and
    `stop` must run on `loop`, which is the handlers' loop.

    `api_ranges` contains (key, lowest version, highest version) of each API that the plane accepts. Any other request
    closes its connection, as in Kafka. Native code serves the `hot` APIs without the GIL. `answer` gets all other
    requests, and the requests to hot APIs that native code leaves to Python. Processors may repeat responses of
    `cached_apis` until `forget` drops them.

    Requests to `urgent_apis` overtake all other requests that wait for the handlers (KAFKA-4453). The loop takes urgent
    and regular requests from the same ring, and starts the urgent requests first.
    """

    def __init__(
        self,
        kind: str,
        listeners: Sequence[Listener],
        answer: Answer,
        api_ranges: Iterable[tuple[int, int, int]],
        *,
        runtime: Runtime,
        environment: Environment | None = None,
        limits: PlaneLimits | None = None,
        hot: Iterable[tuple[int, HotApi]] = (),
        cached_apis: Iterable[int] = (),
        urgent_apis: Iterable[int] = (),
    ) -> None:
        self.kind = kind
        self.limits = limits or PlaneLimits()
        self.loop = runtime.loop(kind)
        self._listeners = tuple(listeners)
        self.listener_names = tuple(each.name for each in listeners)
        self._answer = self._handlers = answer
        self._acceptor = runtime.acceptor(kind)
        self.processors = runtime.processors(kind)
        self._sockets: list[socket.socket] = []
        self._accepting = 0
        self._going: set[asyncio.Future[Any]] = set()  # futures for which responses wait
        self._reading = False
        self._urgent_apis = frozenset(urgent_apis)
        # Regular requests that were taken from the ring to find urgent requests behind them.
        self._regular: deque[InboundRequest] = deque()
        self.native = NativePlane(
            kind,
            environment or runtime.environment,
            ring_capacity=CONTROL_PLANE_QUEUE if kind == CONTROL else self.limits.queued_max_requests,
            memory_bytes=self.limits.memory_bytes,
            **self.limits.native(),
        )
        self.native.set_apis((key, low, high, _first_flexible(key)) for key, low, high in api_ranges)
        for key, api in hot:
            self.native.install(key, api)
        self._caches = {key: ApiCache() for key in cached_apis}
        for key, answers in self._caches.items():
            self.native.install(key, answers.slot.api())
        self._limit_addresses(self.limits.max_connections_per_ip_overrides)
        for processor in self.processors:
            processor.serve(self.native)
        runtime.watch_fork(self)

    # -- life

    def open(self) -> dict[str, tuple[str, int]]:
        """Binds the listeners. Returns the address and port of each listener. Clients that connect now wait until
        `start`. Raises ListenError."""
        for listener in self._listeners:
            try:
                self._sockets.append(listen(listener, self.limits.socket_listen_backlog_size))
            except OSError:
                self._close_sockets()
                raise
        return {
            listener.name: opened.getsockname()[:2]
            for listener, opened in zip(self._listeners, self._sockets, strict=True)
        }

    async def start(self) -> None:
        """Starts to serve."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.native.fileno(), self._wake)
        loop.add_reader(self.native.notices_fileno(), self._log_notices)
        self._reading = True
        self._log_notices()
        loop.call_soon(self._drain)
        self._accept()

    async def stop(self, drain_ms: float = 0.0) -> None:
        """Stops accepting connections. Gives the open connections `drain_ms` to receive their responses, and then
        closes all of them."""
        self._pause()
        self._close_sockets()
        if drain_ms > 0:
            self.native.start_draining()
            await self._swept(drain_ms)
        while self._regular:
            self._regular.popleft().close()
        self.native.start_draining(force=True)
        loop = asyncio.get_running_loop()
        for each in tuple(self._going):
            # Tasks that are already due run their first steps before this code cancels them. If a task ended before its
            # first step, nothing would await the coroutine of its handler.
            loop.call_soon(each.cancel)
        await self._swept(10_000)
        if self._reading:
            self._reading = False
            self._log_notices()
            loop.remove_reader(self.native.fileno())
            loop.remove_reader(self.native.notices_fileno())

    def set_limits(self, limits: PlaneLimits) -> None:
        """Changes max.connections, the limits of addresses, max.connection.creation.rate (KIP-402, KIP-612), and the
        share of requests that are sampled. All other limits stay as they were at the start. Looks host names up on
        another thread."""
        was, self.limits = self.limits, limits
        self.native.sample_requests(limits.sampled_request_log_every)
        self.native.set_connection_limits(limits.max_connections, limits.max_connections_per_ip)
        before, now = was.max_connections_per_ip_overrides, limits.max_connections_per_ip_overrides
        if before != now:
            # A removed name and a remaining name may have the same address, so the removals come first.
            removed = dict(before).keys() - dict(now).keys()
            overrides = [(host, NO_OVERRIDE) for host in removed] + [*now]
            asyncio.get_running_loop().run_in_executor(None, self._limit_addresses, overrides)
        self._acceptor.limit_plane(self.native, limits.per_second())
        for number in range(self._accepting):
            self._acceptor.limit(self.native, number, *limits.own(self._listeners[number].name))

    def _limit_addresses(self, overrides: Iterable[tuple[str, int]]) -> None:
        for host, limit in overrides:
            for address in _addresses(host):
                self.native.limit_address(address, limit)

    def _accept(self) -> None:
        self._acceptor.limit_plane(self.native, self.limits.per_second())
        for number, (listener, opened) in enumerate(zip(self._listeners, self._sockets, strict=True)):
            most, per_second = self.limits.own(listener.name)
            exempt = listener.name == self.limits.exempt_listener
            self._acceptor.add(self.native, opened.fileno(), number, most, per_second, exempt)
            self._accepting += 1

    def _pause(self) -> None:
        """Stops accepting: new connections wait in the system's backlog."""
        while self._accepting:
            self._accepting -= 1
            self._acceptor.remove(self.native, self._accepting)

    def close_inherited(self) -> None:
        """Closes the listening sockets that a child process has inherited by fork."""
        self._close_sockets()

    def intercept(self, around: Callable[[Answer], Answer] | None) -> None:
        """Replaces the handlers by the function that `around(handlers)` returns. This function can call the handlers.
        With None, the handlers answer the requests again."""
        self._answer = self._handlers if around is None else around(self._handlers)

    def forget(self, changed: AbstractSet[object] | None) -> None:
        """Drops the cached responses that depend on a member of `changed`. With None, drops all of them."""
        for answers in self._caches.values():
            answers.forget(self.native, changed)

    async def _swept(self, limit_ms: float) -> None:
        """Waits until the plane has no connections and no running handlers, and no processor uses it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_ms / 1000
        pause_s = _SWEEP_SECONDS
        while True:
            swept = []
            for processor in self.processors:
                processor.sweep()
                swept.append((processor, processor.look()))
            # Processors do not signal the end of a turn (one pass of their event loop), so this code polls for it.
            while any(processor.turns < turns for processor, turns in swept) and loop.time() <= deadline:  # noqa: ASYNC110
                await asyncio.sleep(_SWEEP_SECONDS)
            counters = self.native.counters()
            if not (counters["connections"] or counters["requests_out"] or self._going) or loop.time() > deadline:
                return
            # Only slow readers and slow handlers are left, so check less and less often.
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _SWEEP_MOST_SECONDS)

    def _close_sockets(self) -> None:
        for opened in self._sockets:
            opened.close()
        self._sockets.clear()

    # -- requests

    def _wake(self) -> None:
        self.native.awake()
        self._drain()

    def _drain(self) -> None:
        """Starts a batch of requests, and schedules itself again while there are more. When the ring is empty, the next
        request wakes the loop again."""
        if not self._reading:
            return
        if self._urgent_apis:
            self._drain_urgent_first()
            return
        # A handler that waits does not delay other handlers. Each connection has at most one request in the handlers.
        if not self._regular:
            self._regular.extend(native_inbound.pop(self.native, BATCH))
        full = len(self._regular) == BATCH
        self._begin_regular()
        if self._regular or full or not self.native.may_sleep():
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain_urgent_first(self) -> None:
        """Starts requests like `_drain`, but the urgent ones first. To find them, takes everything from the ring.
        Regular requests then wait in this object, up to the capacity of the ring. At this limit the ring fills up, and
        an urgent request at the ring's end has to wait too."""
        room = max(self.limits.queued_max_requests - len(self._regular), 0)
        taken = native_inbound.pop(self.native, room) if room else []
        for inbound in taken:
            if inbound.api_key in self._urgent_apis:
                self._start(inbound)
            else:
                self._regular.append(inbound)
        self._begin_regular()
        if self._regular or len(taken) == room or not self.native.may_sleep():
            asyncio.get_running_loop().call_soon(self._drain)

    def _begin_regular(self) -> None:
        """Starts at least one regular request, and more of them until the time for one callback has passed."""
        end = perf_counter() + BEGIN_S
        while self._regular:
            self._start(self._regular.popleft())
            if perf_counter() >= end:
                return

    @property
    def waiting(self) -> int:
        """The number of requests that the loop has taken from the ring but not started yet."""
        return len(self._regular)

    def _start(self, inbound: InboundRequest) -> None:
        body = memoryview(inbound)[inbound.header_size :]
        try:
            context = RequestContext(*inbound.head(self.listener_names))
            self._proceed(inbound, body, self._answer(context, body))
        except Exception as error:  # noqa: BLE001 - any error closes the connection and is logged
            self._refuse(inbound, error)
            _release(body)

    def _proceed(self, inbound: InboundRequest, body: memoryview, response: Any) -> None:
        """Sends the response if it is ready. Otherwise lets the request wait for the response."""
        if isinstance(response, DeferredAnswer):
            self._park(inbound, body, response)
            return
        if isinstance(response, bytes):
            inbound.answer(response)
            _release(body)
            return
        answers = self._caches.get(inbound.api_key)
        asked = None if answers is None else answers.asked(inbound)
        if isinstance(response, CachedAnswer):
            inbound.answer(self._kept(inbound.api_key, asked, response))
            _release(body)
            return
        if _is_released(body):
            inbound.let_go()
        task = asyncio.get_running_loop().create_task(self._finish(inbound, body, asked, response))
        self._going.add(task)
        task.add_done_callback(self._going.discard)

    def _park(self, inbound: InboundRequest, body: memoryview, deferred: DeferredAnswer[Response]) -> None:
        """Lets a request wait for its response without an asyncio task. With a task for each waiting request, the tasks
        would cost more than everything else that the members of a large consumer group cost."""
        inbound.local_done()
        if _is_released(body):
            inbound.let_go()

        def end(future: asyncio.Future[Any]) -> None:
            self._going.discard(future)
            try:
                if future.cancelled():
                    inbound.close()
                else:
                    self._send(inbound, deferred.answer())
            except Exception as error:  # noqa: BLE001 - likewise
                self._refuse(inbound, error)
            finally:
                _release(body)

        self._going.add(deferred.future)
        deferred.future.add_done_callback(end)

    def _kept(self, api_key: int, asked: Asked | None, answer: CachedAnswer) -> bytes:
        """Returns the response's bytes. From now on, processors send the response to every client that sends the same
        request."""
        answers = self._caches.get(api_key)
        if answers is not None:
            answers.keep(self.native, asked, answer)
        return answer.frame

    def _send(self, inbound: InboundRequest, response: Any) -> None:
        if response is None:
            inbound.answer_nothing()
        elif isinstance(response, Torn):
            inbound.answer(response.frame, torn_bytes=response.size_bytes)
        else:
            inbound.answer(response)

    async def _finish(self, inbound: InboundRequest, body: memoryview, asked: Asked | None, response: Any) -> None:
        try:
            if isinstance(response, Awaitable):
                response = await response
            if isinstance(response, CachedAnswer):
                response = self._kept(inbound.api_key, asked, response)
            if isinstance(response, Iterator):
                response = await _collected(response)
            self._send(inbound, response)
        except asyncio.CancelledError:
            inbound.close()
            raise
        except Exception as error:  # noqa: BLE001 - likewise
            self._refuse(inbound, error)
        finally:
            _release(body)

    def _refuse(self, inbound: InboundRequest, error: Exception) -> None:
        """Closes the connection, because the peer sent no valid request, or the handler cannot answer the request."""
        if inbound.answered:
            LOG.error("an answer was given twice", exc_info=error)
        elif isinstance(error, ProtocolError):
            LOG.info("%s: %s; closed", inbound.peer, str(error))
            inbound.close()
        else:
            LOG.error("%s: request %d failed; closed", inbound.peer, inbound.api_key, exc_info=error)
            inbound.close()

    def _log_notices(self) -> None:
        for line in self.native.take_notices():
            LOG.info("%s listener: %s", self.kind, line)
        self.native.collect()


def _release(body: memoryview) -> None:
    """Gives the memory of a request's frame back to the plane now, even if a traceback still holds the view. If a
    handler keeps a part of the frame, the memory stays in use."""
    try:
        body.release()
    except BufferError:
        LOG.debug("a handler still holds a part of its request, so the request's memory is not returned yet")


def _is_released(view: memoryview) -> bool:
    try:
        return view.nbytes < 0
    except ValueError:
        return True


async def _collected(parts: Iterator[bytes]) -> list[bytes]:
    """Collects all parts. The loop does other work between the parts."""
    collected = []
    for part in parts:
        collected.append(part)
        await asyncio.sleep(0)
    return collected


def _first_flexible(key: int) -> int:
    return min(apis.api(key).flexible, 0x7FFF)


def _addresses(host: str) -> list[str]:
    """Returns the addresses of a host name. If `host` is already an IP address, returns this address. Logs a name that
    does not resolve and returns no address for it, so the limit of this name does not apply."""
    try:
        pack_address(host)
    except ValueError:
        try:
            return sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
        # A name with a label of more than 63 characters raises an error before it is looked up.
        except (OSError, UnicodeError) as error:
            LOG.warning("max.connections.per.ip.overrides: %s does not resolve (%s) and is left out", host, error)
            return []
    return [host]
