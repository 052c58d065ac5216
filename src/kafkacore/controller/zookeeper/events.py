"""Events of the controller.

An event says what has changed, but does not contain the new state, which it reads when it runs. So if two events of the
same kind are waiting, only one of them needs to run (KAFKA-5502). No event is merged into a running event, because the
running event may already have read the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar

from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for

if TYPE_CHECKING:
    from kafkacore.controller.zookeeper.controller import ZooKeeperController


class Priority(IntEnum):
    """The order in which waiting events run. Events with the same priority run in order of arrival."""

    SESSION = 0  # the identity of the controller: nothing may run for a session that has ended
    MEMBERSHIP = 1  # brokers that fail, leave or join: partitions may be without a leader
    LEADERSHIP = 2  # ISRs, and the responses of brokers
    TOPICS = 3  # topics, reassignments, and elections that an operator requested
    UPKEEP = 4  # work that a timer starts; no sender waits for it


class Event:
    """Base class of all events. `state` is Kafka's name for the controller's state while the event runs
    (ControllerState). `is_repeated` says whether the event runs again later if ZooKeeper refuses one of its reads. A
    request does not run again, because its sender gets the error."""

    priority: ClassVar[Priority] = Priority.TOPICS
    state: ClassVar[str] = "Idle"
    is_repeated: ClassVar[bool] = True
    queued_s: float = 0.0  # when the controller queued this event, by the event loop's clock

    def key(self) -> Hashable | None:
        """Returns the key of this event. Waiting events with the same key are merged; an event whose key is None is
        never merged."""
        return None

    def merge(self, later: Any) -> None:
        """Merges a later event with the same key into this event. The default does nothing, which is right for events
        without content."""

    async def process(self, controller: ZooKeeperController) -> None:
        """Does the work. Raises ControllerMovedError if another controller has taken over."""
        raise NotImplementedError

    def complete(self) -> None:
        """Finishes the event. Called after `process`, when the requests to brokers have been passed to the senders."""

    def preempt(self, error: KafkaError) -> None:
        """Fails the event. Called instead of `complete` if the event did not run, or did not run to its end."""

    def __repr__(self) -> str:
        return type(self).__name__


class Notification(Event):
    """An event that a watch or a timer triggers. It has no fields of its own, so one waiting event of each class is
    enough."""

    def key(self) -> Hashable | None:
        return type(self).__name__


class Request(Event):
    """An event that handles a request whose sender waits for the response."""

    is_repeated: ClassVar = False

    def __init__(self, request: Any, api_version: int) -> None:
        self.request = request
        self.api_version = api_version
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._response: Any = None

    async def process(self, controller: ZooKeeperController) -> None:
        if not controller.is_active:
            raise not_controller()
        self._response = await self.decide(controller)

    async def decide(self, controller: ZooKeeperController) -> Any:
        """Returns the response. Raises KafkaError if the whole request is refused."""
        raise NotImplementedError

    def complete(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self._response)

    def preempt(self, error: KafkaError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class SessionLostError(Exception):
    """The ZooKeeper session of the running event has ended."""


def not_controller() -> KafkaError:
    return error_for(ErrorCode.NOT_CONTROLLER, "this broker is not the active controller")
