"""The controller of one broker. Every broker has one, and one of them is the active controller. A controller runs its
events one at a time.

Request handlers call the coroutines of a controller. The coroutines fail with NOT_CONTROLLER if another broker is the
active controller, or becomes the active controller while the request waits. AlterPartition returns the error in its
response; the other coroutines raise it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kafkacore.controller.zookeeper import counts, responses, watches
from kafkacore.controller.zookeeper.access import Access
from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.counts import Counts, UpdateGauges
from kafkacore.controller.zookeeper.event_queue import EventQueue
from kafkacore.controller.zookeeper.events import Event, Notification, Request, SessionLostError, not_controller
from kafkacore.controller.zookeeper.features import UpdateFeatures
from kafkacore.controller.zookeeper.isr_changes import AlterPartitions
from kafkacore.controller.zookeeper.measures import Measures
from kafkacore.controller.zookeeper.producer_ids import AllocateProducerIds
from kafkacore.controller.zookeeper.protocols import controller_election
from kafkacore.controller.zookeeper.protocols.controlled_shutdown import ControlledShutdown
from kafkacore.controller.zookeeper.protocols.controller_election import (
    NO_CONTROLLER,
    Pause,
    Reelect,
    RegisterBrokerAndReelect,
    Startup,
)
from kafkacore.controller.zookeeper.protocols.partition_reassignment import AlterReassignments, ListReassignments
from kafkacore.controller.zookeeper.protocols.preferred_election import ElectLeaders, UncleanElectionsAllowed
from kafkacore.controller.zookeeper.registrations import Registrations
from kafkacore.controller.zookeeper.request_batches import ControlRequest, RequestBatch
from kafkacore.controller.zookeeper.senders import Senders
from kafkacore.controller.zookeeper.state_store import StateStore
from kafkacore.controller.zookeeper.surroundings import (
    ControllerSettings,
    LiveBroker,
    Surroundings,
    Timer,
    ZooKeeper,
)
from kafkacore.controller.zookeeper.topic_store import TopicStore
from kafkacore.protocol.errors import ErrorCode, KafkaError, error_for
from kafkacore.runtime.watched import watch
from kafkacore.zookeeper.client import SessionState
from kafkacore.zookeeper.fenced import ControllerMovedError
from kafkacore.zookeeper.operations import WatchEvent, ZooKeeperError

LOG: Final = logging.getLogger("kafkacore.controller")
IDLE: Final = "Idle"


class ZooKeeperController:
    """Must be used on one event loop only. The controller shares the client `zookeeper` with the broker. The broker
    starts that client, and restarts it after its session has ended. When a session is CLOSED, the controller drops all
    its state."""

    def __init__(
        self,
        settings: ControllerSettings,
        zookeeper: ZooKeeper,
        surroundings: Surroundings,
        on_fault: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """`on_fault` is called if the controller can handle no more events. Then the node must stop. As long as its
        session lasts, `/controller` exists, so no other broker can become the controller."""
        self._on_fault = on_fault
        self.settings = settings
        self.zookeeper = zookeeper
        self.surroundings = surroundings
        self.events = EventQueue()
        self.measures = Measures()
        self.now_s: Callable[[], float] = float  # the event loop's clock, set by `start`
        self.access = Access(zookeeper)
        self.states = StateStore(self.access, settings)
        self.topics = TopicStore(self.access, settings)
        self.registrations = Registrations(self.access)
        self.active_controller_id = NO_CONTROLLER  # the broker id in `/controller`
        self.is_active = False
        self.pause = Pause()
        self.state = IDLE  # the name of the controller's state, as in Kafka's ControllerState; any thread may read it
        self._changed_s = 0.0  # when the running event was queued
        self._connected = asyncio.Event()
        self._session_has_ended = False
        self._timers: dict[type[Notification] | Event, Timer] = {}
        self._runner: asyncio.Task[None] | None = None
        self._forget()

    def _forget(self) -> None:
        """Replaces the context, and the objects that use it, with empty ones."""
        self.context = ControllerContext()
        self.gauges = Counts()  # any thread may read this attribute
        self.senders = Senders(self.settings, self.surroundings, self._respond, self.measures.answered_ms)
        self.batch = RequestBatch(self.context, self.settings, self._deliver)

    # --- called by the broker ---

    @property
    def epoch(self) -> int:
        return self.context.epoch

    async def start(self) -> None:
        """Watches `/controller` and, whenever it does not exist, tries to become the active controller. Call this after
        the broker has connected and registered itself."""
        self.zookeeper.on_watch(self._watch_fired)
        self.zookeeper.on_state(self._state_changed)
        if self.zookeeper.state is SessionState.CONNECTED:
            self._connected.set()
        self.now_s = asyncio.get_running_loop().time
        self.put(Startup())
        self._runner = asyncio.get_running_loop().create_task(self._run())
        watch(self._runner, self._on_fault)

    async def stop(self) -> None:
        """Resigns, and drops all senders, timers and state. ZooKeeper deletes `/controller` when the session ends."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)
        self.access.end_session()
        self.resign()
        self.active_controller_id = NO_CONTROLLER

    def allow_unclean_elections(self, topic: str | None = None) -> None:
        """Schedules elections because `unclean.leader.election.enable` became true for a topic, or by default (`topic`
        is None). A controller that is elected later holds these elections when it takes over."""
        if self.is_active:
            self.put(UncleanElectionsAllowed(topic))

    def set_unclean_default(self, *, is_allowed: bool) -> None:
        """Sets whether topics without a setting of their own allow unclean elections. Schedules elections if such
        elections were not allowed before (enableDefaultUncleanLeaderElection)."""
        was_allowed = self.settings.unclean_leader_election_enable
        self.settings.unclean_leader_election_enable = is_allowed
        if is_allowed and not was_allowed:
            self.allow_unclean_elections()

    # --- called by handlers: coroutines that take and return generated messages ---

    async def alter_partition(self, request: Any, api_version: int) -> Any:
        """Handles an AlterPartitionRequest. Returns the AlterPartitionResponse."""
        event = AlterPartitions(request, api_version)
        answer = event.asked[0].answer
        self._accept(event)
        return await answer

    async def allocate_producer_ids(self, request: Any, api_version: int) -> Any:
        """Handles an AllocateProducerIdsRequest. Returns the AllocateProducerIdsResponse."""
        return await self._ask(AllocateProducerIds(request, api_version))

    async def controlled_shutdown(self, request: Any, api_version: int) -> Any:
        """Handles a ControlledShutdownRequest. Returns the ControlledShutdownResponse."""
        return await self._ask(ControlledShutdown(request, api_version))

    async def update_features(self, request: Any, api_version: int) -> Any:
        """Handles an UpdateFeaturesRequest. Returns the UpdateFeaturesResponse."""
        return await self._ask(UpdateFeatures(request, api_version))

    async def elect_leaders(self, request: Any, api_version: int) -> Any:
        """Handles an ElectLeadersRequest. Returns the ElectLeadersResponse."""
        return await self._ask(ElectLeaders(request, api_version))

    async def alter_reassignments(self, request: Any, api_version: int) -> Any:
        """Handles an AlterPartitionReassignmentsRequest. Returns the AlterPartitionReassignmentsResponse."""
        return await self._ask(AlterReassignments(request, api_version))

    async def list_reassignments(self, request: Any, api_version: int) -> Any:
        """Handles a ListPartitionReassignmentsRequest. Returns the ListPartitionReassignmentsResponse."""
        return await self._ask(ListReassignments(request, api_version))

    async def _ask(self, request: Request) -> Any:
        self._accept(request)
        return await request.answer

    def _accept(self, event: Event) -> None:
        """Queues the event of a request. Only the active controller accepts requests, so the queue of any other broker
        has no requests."""
        if self.is_active and self._runner is not None:
            self.put(event)
        else:
            event.preempt(not_controller())

    # --- called by protocols ---

    def put(self, event: Event) -> None:
        event.queued_s = self.now_s()
        self.events.put(event)

    def schedule(self, delay_ms: int, event: type[Notification]) -> None:
        """Adds an event of this class to the queue after `delay_ms`. Does nothing if one is already scheduled."""
        if event not in self._timers:
            self._put_later(delay_ms, event, event)

    def _repeat(self, event: Event) -> None:
        """Runs the event again after a while. A read that ZooKeeper has refused sets no watch, so nothing else would
        start this event again."""
        if isinstance(event, Notification):
            self.schedule(controller_election.RETRY_MS, type(event))
        else:
            self._put_later(controller_election.RETRY_MS, event, lambda: event)

    def _put_later(self, delay_ms: int, key: type[Notification] | Event, event: Callable[[], Event]) -> None:
        def due() -> None:
            self._timers.pop(key, None)
            self.put(event())

        self._timers[key] = self.surroundings.call_later(delay_ms, due)

    def begin(self, epoch: int, epoch_version: int) -> None:
        """Makes this broker the active controller after it has been elected."""
        self._forget()
        self.context.epoch, self.context.epoch_version = epoch, epoch_version
        self.is_active = True
        self.active_controller_id = self.settings.broker_id
        LOG.info("broker %d was elected as the controller, epoch %d", self.settings.broker_id, epoch)

    def resign(self) -> None:
        """Discards the senders, timers, waiting events and the context. From now on, a watch that fires is ignored
        unless it reports a change of `/controller`."""
        if self.is_active:
            LOG.info("broker %d resigns as the controller of epoch %d", self.settings.broker_id, self.epoch)
        self.is_active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.senders.close()
        self.events.clear(self._drop)
        self._forget()

    def _drop(self, event: Event) -> None:
        """Handles one waiting event after a resignation. An event about the controller's identity (Priority.SESSION)
        stays in the queue; every other event fails."""
        if event.priority is Startup.priority and not self._session_has_ended:
            self.put(event)
        else:
            event.preempt(not_controller())

    # --- events ---

    async def _run(self) -> None:
        while True:
            await self.events.filled()
            await self._connected.wait()  # events may be dropped meanwhile
            if len(self.events):
                await self._process(await self.events.take())

    async def _process(self, event: Event) -> None:
        """Runs one event. Sends the requests to brokers when the event ends, even after an error, because the changes
        are already in ZooKeeper."""
        self.access.bind()
        self.state, self._changed_s = event.state, event.queued_s
        began_s = self.now_s()
        self.measures.waited((began_s - event.queued_s) * 1000)
        try:
            await event.process(self)
            await self.access.in_slices(self.batch.flushing())
            event.complete()
            if self.is_active:
                self.pause.forgive()
        except asyncio.CancelledError:  # by `stop`
            event.preempt(not_controller())
            raise
        except SessionLostError:
            self.batch.discard()
            event.preempt(not_controller())
        except ControllerMovedError:
            LOG.info("the controller has moved during %s", event)
            self.batch.discard()
            event.preempt(not_controller())
            await self._protected(controller_election.fenced(self))
        except KafkaError as error:
            event.preempt(error)
            await self._send_or_give_up()
        except Exception as error:
            LOG.exception("the controller cannot finish %s", event)
            event.preempt(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller cannot finish {event}"))
            await self._send_or_give_up()
            if isinstance(error, ZooKeeperError) and event.is_repeated and self.is_active:
                self._repeat(event)
        finally:
            self.measures.ran(event.state, (self.now_s() - began_s) * 1000)
            self.state = IDLE
            if self.is_active and not isinstance(event, UpdateGauges):
                self.schedule(counts.DELAY_MS, UpdateGauges)

    async def _send_or_give_up(self) -> None:
        """Sends the requests of the event. If a batch cannot be built, brokers get no requests about changes that are
        already in ZooKeeper. So the controller resigns, and the next controller sends the state of the whole cluster
        (handleIllegalState)."""
        try:
            self.batch.flush()
        except Exception:
            LOG.exception("the controller cannot tell the brokers, so it gives up")
            self.batch.discard()
            await self._protected(controller_election.give_up(self))

    async def _protected(self, work: Any) -> None:
        try:
            await work
        except (SessionLostError, ControllerMovedError):
            pass  # nothing to resign: the broker has already lost the role or its session
        except Exception:
            LOG.exception("the controller cannot resign in order, and tries again")
            self.schedule(controller_election.RETRY_MS, Reelect)

    # --- called by the ZooKeeper client and by senders ---

    def _watch_fired(self, fired: WatchEvent) -> None:
        event = watches.event_of(fired)
        if event is not None and (self.is_active or event.priority is Startup.priority):
            self.put(event)

    def _state_changed(self, state: SessionState, session_id: int) -> None:
        """Handles a new state of the session. CONNECTING pauses the work and CONNECTED resumes it. CLOSED discards all
        state immediately, and the running event ends at its next access to ZooKeeper."""
        if state is SessionState.CONNECTED:
            self._connected.set()
            if self._session_has_ended:
                self._session_has_ended = False
                LOG.info("a new session of ZooKeeper has begun: %#x", session_id)
                self.put(RegisterBrokerAndReelect())
            return
        self._connected.clear()
        if state in (SessionState.CLOSED, SessionState.AUTH_FAILED):
            LOG.warning("the session of ZooKeeper is over: %#x", session_id)
            self._session_has_ended = True
            self.access.end_session()
            self.resign()
            self.active_controller_id = NO_CONTROLLER

    def _deliver(self, broker: LiveBroker, request: ControlRequest) -> None:
        self.senders.deliver(broker, request, self._changed_s)

    def _respond(self, broker: LiveBroker, request: ControlRequest, response: Any) -> None:
        event = responses.event_of(self.context, broker, request, response)
        if event is not None and self.is_active:
            self.put(event)
