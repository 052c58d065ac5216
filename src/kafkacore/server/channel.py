"""A node's way to the active controller: in this process if it is that one, else over the network."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from typing import Any, Final

from kafkacore.network.request import RequestContext
from kafkacore.protocol import apis
from kafkacore.protocol.errors import ErrorCode, KafkaError, ProtocolError, error_for
from kafkacore.protocol.messages import DefaultPrincipalData, EnvelopeRequest, Message
from kafkacore.protocol.response_errors import error_codes, error_of_peer
from kafkacore.raft.committed import CommittedBatch, NothingToLoad
from kafkacore.runtime.loops import LoopThread
from kafkacore.server.dispatch import Dispatcher
from kafkacore.server.metadata_replica import FORWARD_TIMEOUT_MS, MetadataReplica

LOG: Final = logging.getLogger("kafkacore.server")
OWN_PRINCIPAL: Final = "User:ANONYMOUS"
# Clients' requests at the controller; further ones wait on the broker's loop. So the controller's own listener waits
# for one of them at most: with four at a time the p99 of a CreateTopics there doubles while hundreds of clients ask for
# more.
FORWARDED_AT_ONCE: Final = 1
_PRINCIPAL_VERSION: Final = 0


class ActiveController:
    """Belongs to the loop of the replica, and is one of its listeners. `local` answers when this node is the active
    controller."""

    def __init__(self, replica: MetadataReplica, local: Dispatcher | None, listener: str, retry_ms: int) -> None:
        self._replica = replica
        self._local = local
        self._listener = listener
        self._retry_s = retry_ms / 1000
        self._leads = False
        self._changed = asyncio.Event()  # set once: a waiter holds the event that was there when its attempt began

    async def ask(self, call: RequestContext | None, request: Message, timeout_ms: int) -> Any:
        """Asks until a controller is active. `call` is a client's, or None for a request of this node's own.

        Raises TimeoutError, and the KafkaError of an answer unless it only says that another node is active.
        """
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                changed = self._changed
                try:
                    answer = await self._attempt(call, request)
                    if answer is not None and not _is_not_controller(answer, call):
                        return answer
                except (OSError, TimeoutError):
                    pass  # it is gone, or going: the quorum finds another one
                except KafkaError as error:
                    if error.code != ErrorCode.NOT_CONTROLLER:
                        raise
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), self._retry_s)

    async def _attempt(self, call: RequestContext | None, request: Message) -> Any | None:
        if self._leads and self._local is not None:
            asked = self._own(request) if call is None else call._replace(forwarded=True)
            return await self._local.ask(asked, request)
        where = self._replica.raft.leader_elsewhere
        if where is None or self._leads:
            return None
        if call is None:
            return await self._replica.own_requests.send(*where, request)
        enveloped = await self._replica.forwarded.send(*where, _envelope(call, request))
        if enveloped.error_code:
            raise error_for(error_of_peer(enveloped.error_code))
        head = len(apis.response_header(call.api_key, call.api_version, call.correlation_id))
        data = memoryview(enveloped.response_data or b"")[head:]
        try:
            return apis.response_class(call.api_key).decode(data, call.api_version)
        except ProtocolError as error:
            # The fault is the controller's: it must not close the client's connection.
            LOG.warning("the active controller at %s:%d sent an envelope that holds no answer: %s", *where, error)
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR) from error

    def _own(self, request: Message) -> RequestContext:
        version = apis.api(request.API_KEY).highest
        return RequestContext(request.API_KEY, version, 0, None, self._listener, "", principal=OWN_PRINCIPAL)

    # --- events of the metadata log ---

    def on_batch(self, batch: CommittedBatch) -> None:
        """The controller answers those who wait for a commit."""

    def begin_snapshot(self, offset: int, epoch: int, timestamp_ms: int) -> NothingToLoad:
        """Likewise."""
        return NothingToLoad()

    def on_leading(self, epoch: int) -> None:
        self._lead(True)

    def on_following(self, epoch: int) -> None:
        self._lead(False)

    def _lead(self, leads: bool) -> None:
        self._leads = leads
        self._changed.set()
        self._changed = asyncio.Event()


class ControllerChannel:
    """A broker's way to the active controller, for the data plane's loop. Requests cross to the replica's loop as they
    are.

    Every call raises KafkaError, OSError or TimeoutError when there is no answer.
    """

    def __init__(self, active: ActiveController, loop: LoopThread, timeout_ms: int) -> None:
        self._active = active
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._forwarding = asyncio.Semaphore(FORWARDED_AT_ONCE)

    async def send(self, request: Message) -> Any:
        """Sends a request of the broker's own, at its newest version."""
        return await asyncio.wrap_future(self._loop.submit(self._active.ask(None, request, self._timeout_ms)))

    async def forward(self, call: RequestContext, request: Message) -> Message:
        """Forwards a client's request unchanged: with its version, its principal and its address (KIP-590)."""
        try:
            async with asyncio.timeout(FORWARD_TIMEOUT_MS / 1000), self._forwarding:
                asked = self._active.ask(call, request, FORWARD_TIMEOUT_MS)
                answer: Message = await asyncio.wrap_future(self._loop.submit(asked))
        except TimeoutError:
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller is active, or it has too much to do") from None
        return answer


def _is_not_controller(answer: Message, call: RequestContext | None) -> bool:
    """Whether another node is the active controller. Such an answer has no other error, so its first code decides."""
    version = apis.api(answer.API_KEY).highest if call is None else call.api_version
    return next(error_codes(answer, version), ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER


def _envelope(call: RequestContext, request: Message) -> Message:

    kind, _, name = call.principal.partition(":")
    principal = DefaultPrincipalData(type=kind, name=name)
    return EnvelopeRequest(
        request_data=apis.encode_request(call.api_version, call.correlation_id, call.client_id, request),
        request_principal=principal.encode(_PRINCIPAL_VERSION, _PRINCIPAL_VERSION.to_bytes(2, "big")),
        client_host_address=ipaddress.ip_address(call.client_host).packed,
    )
