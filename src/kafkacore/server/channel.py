"""Sends requests to the active controller: inside this process if this node is the active controller, otherwise over
the network."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkacore.config import BrokerConfig
from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey, NodeVersions
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersionError, error_for
from kafkacore.protocol.messages import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse, Message
from kafkacore.protocol.response_errors import error_codes, error_of_peer
from kafkacore.raft.committed import CommittedBatch, NothingToLoad
from kafkacore.runtime.loops import LoopThread
from kafkacore.server.dispatch import Dispatcher
from kafkacore.server.lanes import FORWARDS, LIFE, OWN, life_timeout_ms
from kafkacore.server.metadata_replica import MetadataReplica
from kafkacore.server.turnstile import Turnstile

LOG: Final = logging.getLogger("kafkacore.server")
OWN_PRINCIPAL: Final = "User:ANONYMOUS"
FORWARD_TIMEOUT_MS: Final = 30_000  # the default of request.timeout.ms in clients
FORWARDS_AT_ONCE: Final = 64  # limit of clients' requests at the controller; further requests wait on the broker's loop
MAX_WAITING_FORWARDS: Final = 10_000
_PRINCIPAL_VERSION: Final = 0
# If one of these requests were executed twice, the second response would differ from the first, because the work is
# already done. So such a request goes to a new controller only when the old controller can no longer answer it.
_ASKED_ONCE: Final = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.UNREGISTER_BROKER, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER,
})  # fmt: skip

Address = tuple[str, int]
_HERE: Final[Address] = ("", 0)  # the active controller is in this process


class _Attempt(NamedTuple):
    where: Address
    repeatable: bool


class ActiveController:
    """Belongs to the loop of the metadata replica, and is one of the replica's listeners. `local` answers requests
    while this node is the active controller.

    When another controller becomes active, this class abandons the requests in flight and sends them to the new
    controller. A request in `_ASKED_ONCE` is abandoned only when its connection closes, as in Apache Kafka, because a
    second copy would get a different response. These connections are closed shortly after the controller has changed.
    """

    def __init__(self, replica: MetadataReplica, local: Dispatcher | None, listener: str, config: BrokerConfig) -> None:
        self._raft = replica.raft
        self._lanes = replica.lanes
        self._local = local
        self._listener = listener
        self._retry_s = config.controller_quorum_retry_backoff_ms / 1000
        self._grace_s = config.controller_quorum_request_timeout_ms / 1000
        self._life_timeout_ms = life_timeout_ms(config)
        self._leads = False
        self._last: Address | None = None  # the last node that was known as the active controller
        self._changed = asyncio.Event()  # set, and then replaced, at each change of the leader
        self._attempts: dict[asyncio.Timeout, _Attempt] = {}
        self._turnstile = Turnstile()
        self._versions: NodeVersions | None = None
        self._watcher: Callable[[NodeVersions | None], None] = _ignore
        replica.raft.watch_leader(self._leader_moved)

    def watch_versions(self, watcher: Callable[[NodeVersions | None], None]) -> None:
        """Calls `watcher` now, and whenever the versions of the active controller's APIs change. `watcher` gets None
        while the versions are unknown, and while this node is the active controller. During an election the versions
        stay the same."""
        self._watcher = watcher
        watcher(self._versions)

    async def live(self, request: Message) -> Any:
        """Sends a broker's registration or heartbeat. Raises the same errors as `ask`."""
        return await self.ask(LIFE, None, request, self._life_timeout_ms)

    async def ask(self, lane: str, call: RequestContext | None, request: Message, timeout_ms: float) -> Any:
        """Repeats a request until an active controller answers it. `call` is the context of a client's request, or None
        for one of this node's own requests.

        Raises TimeoutError, and KafkaError for an error in the response. After NOT_CONTROLLER, sends the request again.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_ms / 1000
        repeatable = request.API_KEY not in _ASKED_ONCE
        while True:
            changed, where = self._changed, self._where()
            if where is not None:
                try:
                    answer = await self._attempt(lane, where, call, request, end, repeatable)
                    if not _is_not_controller(answer, call):
                        return answer
                except OSError:
                    LOG.debug("the controller at %s:%d has stopped or is stopping", *where)
                except KafkaError as error:
                    if error.code != ErrorCode.NOT_CONTROLLER:
                        raise
            # While no controller is active, the request waits until the next election.
            until = end if where is None else min(loop.time() + self._retry_s, end)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await changed.wait()
            if loop.time() >= end:
                raise TimeoutError("no controller is active, or the controller does not answer in time")

    async def _attempt(
        self, lane: str, where: Address, call: RequestContext | None, request: Message, end: float, repeatable: bool
    ) -> Any:
        async with asyncio.timeout_at(end) as limit:
            if where is _HERE:
                return await self._ask_here(lane, call, request)
            self._attempts[limit] = _Attempt(where, repeatable)
            try:
                sent = request if call is None else _envelope(call, request)
                answer = await self._lanes[lane].send(*where, sent)
                if where == self._where():  # a former controller may still answer
                    self._learn(self._lanes[lane].learned_versions(*where) or self._versions)
                return answer if call is None else _opened(call, answer, where)
            except UnsupportedVersionError:
                if call is None:
                    raise
                LOG.warning("the active controller at %s:%d accepts no forwarded requests", *where)
                raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR) from None
            finally:
                del self._attempts[limit]

    def _learn(self, versions: NodeVersions | None) -> None:
        if versions != self._versions:
            self._versions = versions
            self._watcher(versions)

    async def _ask_here(self, lane: str, call: RequestContext | None, request: Message) -> Any:
        local = self._local
        assert local is not None
        if call is None:
            return await local.ask(self._own(request), request)
        asked = call._replace(forwarded=True)
        if lane != FORWARDS:
            return await local.ask(asked, request)
        return await self._turnstile.run(lambda: local.ask(asked, request))

    def _where(self) -> Address | None:
        if self._leads:
            return _HERE if self._local is not None else None
        return self._raft.leader_elsewhere

    def _own(self, request: Message) -> RequestContext:
        version = apis.api(request.API_KEY).highest
        return RequestContext(request.API_KEY, version, 0, None, self._listener, "", principal=OWN_PRINCIPAL)

    # --- a change of the leader ---

    def _leader_moved(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        where, before = self._where(), self._last
        if where is _HERE:
            self._learn(None)
        if where is None or where == before:
            return  # during an election, the old controller may still answer
        self._last = where
        loop = asyncio.get_running_loop()
        for limit, attempt in self._attempts.items():
            if attempt.repeatable and attempt.where != where and not limit.expired():
                limit.reschedule(loop.time())
        if before is not None and before is not _HERE:
            loop.call_later(self._grace_s, self._let_go, before)

    def _let_go(self, before: Address) -> None:
        """Closes the connections to the former active controller, unless that controller is active again."""
        if before != self._last:
            for lane in (LIFE, OWN, FORWARDS):
                self._lanes[lane].disconnect(*before)

    # --- events of the metadata log ---

    def on_batch(self, batch: CommittedBatch) -> None:
        """Does nothing, because the controller itself answers requests that wait for a commit."""

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> NothingToLoad:
        """Ignores the snapshot, because the controller itself answers requests that wait for a commit."""
        return NothingToLoad()

    def on_leading(self, epoch: int) -> None:
        self._leads = True
        self._leader_moved()

    def on_following(self, epoch: int) -> None:
        self._leads = False
        self._leader_moved()


class ControllerChannel:
    """Passes a broker's requests to the active controller, on the replica's loop. Belongs to the data plane's loop.

    Every call raises KafkaError, OSError or TimeoutError if there is no response.
    """

    def __init__(self, active: ActiveController, loop: LoopThread, timeout_ms: int) -> None:
        self._active = active
        self.live = active.live  # called on `loop`, unlike the methods of this class
        self.loop = loop
        self._timeout_ms = timeout_ms
        self._forwarding = asyncio.Semaphore(FORWARDS_AT_ONCE)
        self._waiting = 0

    def watch_versions(self, watcher: Callable[[NodeVersions | None], None]) -> None:
        """Does what ActiveController.watch_versions does, but calls `watcher` on the loop that runs now."""
        here = asyncio.get_running_loop()
        self.loop.call(self._active.watch_versions, lambda versions: here.call_soon_threadsafe(watcher, versions))

    async def send(self, request: Message) -> Any:
        """Sends one of the broker's own requests, in its newest version."""
        return await asyncio.wrap_future(self.loop.submit(self._active.ask(OWN, None, request, self._timeout_ms)))

    async def forward(self, call: RequestContext, request: Message) -> Message:
        """Forwards a client's request unchanged, with its version, its principal and its address (KIP-590)."""
        if self._waiting >= MAX_WAITING_FORWARDS:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"{self._waiting} requests already wait for the controller")
        self._waiting += 1
        try:
            async with asyncio.timeout(FORWARD_TIMEOUT_MS / 1000), self._forwarding:
                asked = self._active.ask(FORWARDS, call, request, FORWARD_TIMEOUT_MS)
                answer: Message = await asyncio.wrap_future(self.loop.submit(asked))
        except TimeoutError:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller is active, or it is overloaded") from None
        finally:
            self._waiting -= 1
        return answer


def _ignore(versions: NodeVersions | None) -> None:
    pass


def _is_not_controller(answer: Message, call: RequestContext | None) -> bool:
    """Returns whether the response says that another node is the active controller. Such a response contains no other
    error, so its first error code decides."""
    version = apis.api(answer.API_KEY).highest if call is None else call.api_version
    return next(error_codes(answer, version), ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER


def _envelope(call: RequestContext, request: Message) -> EnvelopeRequest:
    kind, _, name = call.principal.partition(":")
    family = socket.AF_INET6 if ":" in call.client_host else socket.AF_INET
    principal = DefaultPrincipalData(type=kind, name=name)
    return EnvelopeRequest(
        request_data=apis.encode_request(call.api_version, call.correlation_id, call.client_id, request),
        request_principal=principal.encode(_PRINCIPAL_VERSION, _PRINCIPAL_VERSION.to_bytes(2, "big")),
        client_host_address=socket.inet_pton(family, call.client_host),
    )


def _opened(call: RequestContext, enveloped: EnvelopeResponse, where: Address) -> Message:
    """Returns the response inside an envelope. Raises NOT_CONTROLLER.

    After UNSUPPORTED_VERSION, raises ProtocolError, which closes the client's connection. The client begins its next
    connection with ApiVersions, and so learns which versions this controller supports. Any other error of the envelope,
    or an unreadable response, is a fault of one of the nodes. The client then gets UNKNOWN_SERVER_ERROR and keeps its
    connection."""
    refused = error_of_peer(enveloped.error_code)
    if refused == ErrorCode.UNSUPPORTED_VERSION:
        name = apis.api(call.api_key).name
        raise ProtocolError(f"the active controller does not support version {call.api_version} of {name}")
    if refused == ErrorCode.NOT_CONTROLLER:
        raise error_for(refused)
    if refused != ErrorCode.NONE:
        LOG.warning("the active controller at %s:%d refused an envelope: %s", *where, refused.name)
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR)
    head = len(apis.response_header(call.api_key, call.api_version, call.correlation_id))
    data = memoryview(enveloped.response_data or b"")[head:]
    try:
        answer: Message = apis.response_class(call.api_key).decode(data, call.api_version)
    except ProtocolError as error:
        LOG.warning("the active controller at %s:%d sent an envelope that holds no answer: %s", *where, error)
        raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    return answer
