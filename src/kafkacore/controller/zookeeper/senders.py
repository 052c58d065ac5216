"""Sends requests to brokers, with one sender for each generation of a broker. A generation is the time from a broker's
registration to its failure or restart. A sender repeats a request until the broker replies. When the generation ends,
its sender stops, so no old request reaches the broker's next generation."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kafkacore.controller.zookeeper.request_batches import ControlRequest
from kafkacore.controller.zookeeper.surroundings import ControllerSettings, LiveBroker, Surroundings
from kafkacore.protocol.errors import KafkaError, ProtocolError
from kafkacore.runtime.sampling import Distribution

LOG: Final = logging.getLogger("kafkacore.controller")
RETRY_MS: Final = 100

Respond = Callable[[LiveBroker, ControlRequest, Any], None]


class _Queued(NamedTuple):
    request: ControlRequest
    queued_s: float
    changed_s: float


class Sender:
    """Sends one request at a time, in order. Times come from the event loop's clock."""

    def __init__(
        self,
        broker: LiveBroker,
        listener: str,
        surroundings: Surroundings,
        respond: Respond,
        answered_ms: Distribution,
    ) -> None:
        """`answered_ms` collects the time from the change that caused a request until the broker's answer."""
        self.broker = broker
        self.listener = listener
        self.queue_ms = Distribution()
        self._surroundings = surroundings
        self._respond = respond
        self._answered_ms = answered_ms
        self._waiting: deque[_Queued] = deque()  # the first request is in flight
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def queued(self) -> int:
        """The number of requests behind the one in flight. Any thread may read it."""
        return max(len(self._waiting) - 1, 0)

    def put(self, request: ControlRequest, changed_s: float) -> None:
        self._waiting.append(_Queued(request, asyncio.get_running_loop().time(), changed_s))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Ends the generation. Drops waiting requests, and ignores the response to the request in flight."""
        self._is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        now_s = asyncio.get_running_loop().time
        while self._waiting:
            request, queued_s, changed_s = self._waiting[0]
            self.queue_ms.record((now_s() - queued_s) * 1000)
            response = await self._send(request)
            if self._is_closed:
                return
            self._waiting.popleft()
            if response is not None:
                self._answered_ms.record((now_s() - changed_s) * 1000)
                self._note(request, response)
        self._task = None

    async def _send(self, request: ControlRequest) -> Any:
        """Sends a request until the broker answers, and returns the response. Returns None for a request that cannot be
        encoded, because endless retries would block all later requests."""
        while True:
            try:
                return await self._surroundings.send(
                    self.broker, self.listener, request.api_key, request.api_version, request.body
                )
            except (OSError, KafkaError) as error:
                LOG.warning("broker %d does not answer request %d, which will be sent again: %s",
                            self.broker.broker_id, request.api_key, error)  # fmt: skip
            except Exception:
                if not _can_be_encoded(request):
                    LOG.exception("request %d to broker %d cannot be encoded and is dropped",
                                  request.api_key, self.broker.broker_id)  # fmt: skip
                    return None
                # The response is unreadable, or this code has a bug. Without a retry, the broker would get no more
                # requests.
                LOG.exception("request %d to broker %d failed and will be sent again",
                              request.api_key, self.broker.broker_id)  # fmt: skip
            await self._pause()

    def _note(self, request: ControlRequest, response: Any) -> None:
        """Passes a response to the handler. An exception of the handler is only logged, so that it does not block later
        requests."""
        try:
            self._respond(self.broker, request, response)
        except Exception:
            LOG.exception("the answer of broker %d to request %d is ignored", self.broker.broker_id, request.api_key)

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._surroundings.call_later(RETRY_MS, lambda: _end(over))
        try:
            await over
        finally:
            timer.cancel()


def _can_be_encoded(request: ControlRequest) -> bool:
    try:
        request.body.encode(request.api_version)
    except ProtocolError:
        return False
    return True


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)


class Senders:
    """The senders of the live brokers (ControllerChannelManager)."""

    def __init__(
        self,
        settings: ControllerSettings,
        surroundings: Surroundings,
        respond: Respond,
        answered_ms: Distribution,
    ) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._respond = respond
        self._answered_ms = answered_ms
        self._senders: dict[int, Sender] = {}

    def __len__(self) -> int:
        return len(self._senders)

    def all(self) -> list[Sender]:
        """Returns the senders. Any thread can call this."""
        return list(self._senders.values())

    def waiting(self, broker_id: int) -> int:
        """Returns the number of requests that wait for the broker."""
        return len(self._senders[broker_id]) if broker_id in self._senders else 0

    def add(self, broker: LiveBroker) -> None:
        """Starts a generation, and ends the former generation of the same broker."""
        self.remove(broker.broker_id)
        listener = self._listener_of(broker)
        self._senders[broker.broker_id] = Sender(broker, listener, self._surroundings, self._respond, self._answered_ms)

    def _listener_of(self, broker: LiveBroker) -> str:
        """Returns `control.plane.listener.name` (KIP-291) if the broker advertises that listener, else the inter-broker
        listener. During the rolling restart that enables the listener, some brokers do not advertise it yet."""
        wanted = self._settings.control_plane_listener
        if wanted is not None and any(each.listener == wanted for each in broker.registration.endpoints):
            return wanted
        return self._settings.inter_broker_listener

    def update(self, broker: LiveBroker) -> None:
        """Changes the endpoints of a broker's present generation."""
        sender = self._senders.get(broker.broker_id)
        if sender is not None:
            sender.broker, sender.listener = broker, self._listener_of(broker)

    def remove(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.close()

    def close(self) -> None:
        for broker_id in list(self._senders):
            self.remove(broker_id)

    def deliver(self, broker: LiveBroker, request: ControlRequest, changed_s: float) -> None:
        """Passes a request to the broker's sender. Drops a request for a generation that has ended. `changed_s` is the
        time of the change that the request reports."""
        sender = self._senders.get(broker.broker_id)
        if sender is not None and sender.broker.epoch == broker.epoch:
            sender.put(request, changed_s)
