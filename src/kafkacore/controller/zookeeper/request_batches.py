"""The requests of one event: at most one LeaderAndIsr, UpdateMetadata and StopReplica for each broker.

A protocol tells the batch which partitions each broker must learn about. When the event ends, the batch reads the
content of the requests from the context. A generation of a broker is the time from one of its registrations to the
next. A request is for the generation that was live when a protocol added the request. A broker that has restarted since
then does not get the request (redesign, "broker-generation-aware").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.request_bodies import Bodies
from kafkacore.controller.zookeeper.surroundings import ControllerSettings, LiveBroker
from kafkacore.protocol.apis import ApiKey
from kafkacore.runtime.slices import Work, finish_now


class ControlRequest(NamedTuple):
    """One request for one generation of a broker."""

    api_key: int
    api_version: int
    body: Any


class Generation(NamedTuple):
    broker_id: int
    epoch: int


Deliver = Callable[[LiveBroker, ControlRequest], None]


class RequestBatch:
    """The running event fills the batch. The controller flushes it when the event ends."""

    def __init__(self, context: ControllerContext, settings: ControllerSettings, deliver: Deliver) -> None:
        self._context = context
        self._settings = settings
        self._deliver = deliver
        self._leader_and_isr: dict[Generation, dict[int, bool]] = {}  # row: whether the replica is new
        self._stop: dict[Generation, dict[int, bool]] = {}  # row: whether to delete the replica
        self._metadata_for_all: dict[int, None] = {}  # the keys are rows; used as an ordered set
        self._metadata_for: dict[Generation, dict[int, None]] = {}
        self._made: dict[int, Generation] = {}
        self._tells_everybody = False  # whether all brokers get UpdateMetadata, even without a partition

    # --- filling ---

    def leader_and_isr(self, broker_ids: Iterable[int], row: int, *, is_new: bool = False) -> None:
        """Queues a LeaderAndIsr for these brokers, and an UpdateMetadata for all brokers."""
        for generation in self._generations(broker_ids):
            if self._stop and row in self._stop.get(generation, ()):
                self.flush()  # sends the waiting StopReplica first
            rows = self._leader_and_isr.get(generation)
            if rows is None:
                rows = self._leader_and_isr[generation] = {}
            rows[row] = is_new or rows.get(row, False)
        self._tells_everybody = True
        self._metadata_for_all[row] = None

    def stop_replica(self, broker_id: int, row: int, *, delete: bool = False) -> None:
        """Tells a broker to stop its replica and, if `delete`, to delete it. Does nothing for a broker that is not
        live."""
        for generation in self._generations((broker_id,)):
            if row in self._leader_and_isr.get(generation, ()):
                self.flush()
            rows = self._stop.setdefault(generation, {})
            rows[row] = delete or rows.get(row, False)

    def update_metadata(self, rows: Iterable[int] = ()) -> None:
        """Informs all brokers of these partitions, and of the live brokers."""
        self._tells_everybody = True
        self._metadata_for_all.update(dict.fromkeys(rows))

    def update_metadata_of(self, broker_ids: Iterable[int], rows: Iterable[int]) -> None:
        """Informs only these brokers of these partitions."""
        wanted = dict.fromkeys(rows)
        for generation in self._generations(broker_ids):
            self._metadata_for.setdefault(generation, {}).update(wanted)

    def _generations(self, broker_ids: Iterable[int]) -> list[Generation]:
        """Returns the generations of those brokers that are live."""
        brokers, made = self._context.brokers, self._made
        found = []
        for broker_id in broker_ids:
            broker = brokers.get(broker_id)
            if broker is None:
                continue
            generation = made.get(broker_id)
            if generation is None or generation.epoch != broker.epoch:
                generation = made[broker_id] = Generation(broker_id, broker.epoch)
            found.append(generation)
        return found

    # --- sending ---

    @property
    def is_empty(self) -> bool:
        return not (self._leader_and_isr or self._stop or self._metadata_for or self._tells_everybody)

    def flush(self) -> None:
        finish_now(self.flushing())

    def flushing(self) -> Work[None]:
        """Passes the requests to the senders. Each broker gets LeaderAndIsr, UpdateMetadata and StopReplica, in this
        order."""
        if self.is_empty:
            return
        version = self._settings.inter_broker_protocol.leader_and_isr_version
        bodies = Bodies(self._context, self._settings)
        for broker, leaderships in self._live(self._leader_and_isr):
            body = yield from bodies.leader_and_isr(version, broker, leaderships)
            self._deliver(broker, ControlRequest(ApiKey.LEADER_AND_ISR, version, body))
            yield
        version = self._settings.inter_broker_protocol.update_metadata_version
        for broker, rows in self._metadata():
            body = yield from bodies.update_metadata(version, broker, rows)
            self._deliver(broker, ControlRequest(ApiKey.UPDATE_METADATA, version, body))
            yield
        for broker, stops in self._live(self._stop):
            for request in self._stop_replica_requests(bodies, broker, stops):
                self._deliver(broker, request)
        self.discard()

    def discard(self) -> None:
        """Drops all requests of the batch."""
        self._leader_and_isr, self._stop, self._metadata_for = {}, {}, {}
        self._metadata_for_all, self._tells_everybody = {}, False

    def _live(self, by_generation: dict[Generation, dict[int, bool]]) -> list[tuple[LiveBroker, dict[int, bool]]]:
        brokers = self._context.brokers
        return [
            (brokers[broker_id], rows)
            for (broker_id, epoch), rows in by_generation.items()
            if broker_id in brokers and brokers[broker_id].epoch == epoch
        ]

    def _metadata(self) -> list[tuple[LiveBroker, tuple[int, ...]]]:
        """Returns the live brokers that need an UpdateMetadata, with the rows of the partitions to send. Brokers that
        get the same partitions share one tuple, so that it is encoded only once."""
        everybody = tuple(self._metadata_for_all)
        found = []
        for broker in self._context.brokers.values():
            own = self._metadata_for.get(Generation(broker.broker_id, broker.epoch))
            if own is not None:
                found.append((broker, tuple({**own, **self._metadata_for_all})))
            elif self._tells_everybody:
                found.append((broker, everybody))
        return found

    def _stop_replica_requests(self, bodies: Bodies, broker: LiveBroker, rows: dict[int, bool]) -> list[ControlRequest]:
        """Returns the StopReplica requests for a broker. Below version 3, a request deletes all its partitions or none,
        so there can be two requests."""
        version = self._settings.inter_broker_protocol.stop_replica_version
        parts = [rows]
        if version < 3:
            parts = [{row: each for row, each in rows.items() if each is delete} for delete in (True, False)]
        return [
            ControlRequest(ApiKey.STOP_REPLICA, version, bodies.stop_replica(version, broker, part))
            for part in parts
            if part
        ]
