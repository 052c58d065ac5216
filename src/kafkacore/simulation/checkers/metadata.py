"""Checkers of metadata: images are equal, committed changes are never lost, and brokers are fenced when their sessions
end."""

from __future__ import annotations

from typing import ClassVar, Final

from kafkacore.simulation.checkers.observations import (
    BrokerAlive,
    ControllersAlive,
    HeartbeatAnswered,
    ImageSeen,
    IsrAccepted,
    MetadataAcknowledged,
    MetadataMaybe,
    MetadataSurvived,
    Unfenced,
)
from kafkacore.simulation.checkers.violation import Checker

AT_ONCE_MS: Final = 20  # a request that was answered within this time was forwarded only once


class ImagesAreEqual(Checker):
    """All metadata images after the same offset are equal, on controllers and brokers. It makes no difference whether a
    node has replayed the log or loaded a snapshot."""

    def __init__(self) -> None:
        self._images: dict[int, tuple[int, str, dict[str, object]]] = {}

    def image(self, seen: ImageSeen) -> None:
        node, how, contents = self._images.setdefault(seen.offset, (seen.node, seen.how, seen.contents))
        if contents != seen.contents:
            parts = [
                key for key in contents.keys() | seen.contents.keys() if contents.get(key) != seen.contents.get(key)
            ]
            raise self.broken(
                f"after offset {seen.offset} node {node} ({how}) and node {seen.node} ({seen.how}) differ in "
                + "; ".join(f"{key}: {contents.get(key)} / {seen.contents.get(key)}" for key in sorted(parts)[:3])
            )

    sees: ClassVar = {ImageSeen: image}


class BrokersInImage(Checker):
    """In every image, a fenced or unregistered broker leads no partition and is in no ISR with other members. A leader
    is in its ISR, and the members of an ISR are replicas of the partition. The epoch of a broker's registration never
    decreases. In ZooKeeper, a partition may still name a broker that has just failed, so an image of ZooKeeper's tree
    lists no brokers."""

    def __init__(self) -> None:
        # Maps each broker to the offset of the newest image that lists it, and to its broker epoch in that image.
        self._epochs: dict[int, tuple[int, int]] = {}

    def image(self, seen: ImageSeen) -> None:
        brokers = seen.contents.get("brokers")
        if brokers is None:
            return
        assert isinstance(brokers, dict)
        for broker, (epoch, _fenced) in brokers.items():
            offset, known = self._epochs.get(broker, (-1, -1))
            if (seen.offset > offset and epoch < known) or epoch > seen.offset:
                raise self.broken(
                    f"after offset {seen.offset} broker {broker} has epoch {epoch}, but had epoch {known} before"
                )
            if seen.offset > offset:
                self._epochs[broker] = (seen.offset, epoch)
        unfenced = {broker for broker, (_, fenced) in brokers.items() if not fenced}
        partitions = seen.contents.get("partitions", {})
        assert isinstance(partitions, dict)
        for name, (leader, _, replicas, isr) in partitions.items():
            self._partition(seen.offset, name, leader, set(replicas), set(isr), unfenced)

    def _partition(
        self, offset: int, name: object, leader: int, replicas: set[int], isr: set[int], unfenced: set[int]
    ) -> None:
        if leader >= 0 and (leader not in unfenced or leader not in isr):
            raise self.broken(f"after offset {offset} partition {name} is led by {leader}; ISR {isr}, alive {unfenced}")
        if not isr <= replicas or (len(isr) > 1 and isr - unfenced):
            raise self.broken(f"after offset {offset} partition {name} has ISR {isr}; replicas {replicas}, {unfenced}")

    sees: ClassVar = {ImageSeen: image}


class StaleBrokersAreRefused(Checker):
    """A controller refuses the heartbeat of an earlier registration of a broker in two cases: it has already accepted a
    heartbeat of a later registration, or its committed metadata contained a later registration when the heartbeat
    arrived."""

    def __init__(self) -> None:
        self._accepted: dict[tuple[int, int], int] = {}

    def heartbeat(self, seen: HeartbeatAnswered) -> None:
        if seen.accepted:
            key = (seen.node, seen.broker)
            latest = max(self._accepted.get(key, -1), seen.registered)
            if seen.epoch < latest:
                raise self.broken(
                    f"controller {seen.node} accepted a heartbeat of broker {seen.broker} at epoch {seen.epoch}, after "
                    f"the broker was registered at {latest}"
                )
            self._accepted[key] = seen.epoch

    sees: ClassVar = {HeartbeatAnswered: heartbeat}


class StaleReplicasStayOut(Checker):
    """A controller accepts a broker in an ISR only if the broker still has the registration that the leader saw. A
    broker that has registered again may have lost records since then (KIP-903)."""

    def accepted(self, seen: IsrAccepted) -> None:
        for member in seen.members:
            if 0 <= member.epoch < member.registered:
                raise self.broken(
                    f"controller {seen.node} accepted broker {member.broker} at epoch {member.epoch} in an ISR of "
                    f"leader {seen.leader}, although that broker was registered at {member.registered}"
                )

    sees: ClassVar = {IsrAccepted: accepted}


class BrokersCatchUpFirst(Checker):
    """A heartbeat response says that the broker is unfenced only after the broker has read the record of its own
    registration. The broker epoch is the offset of that record."""

    def heartbeat(self, seen: HeartbeatAnswered) -> None:
        if seen.accepted and not seen.fenced and seen.offset < seen.epoch:
            raise self.broken(
                f"controller {seen.node} unfenced broker {seen.broker} at epoch {seen.epoch}, which has read the "
                f"metadata up to {seen.offset}"
            )

    sees: ClassVar = {HeartbeatAnswered: heartbeat}


class SilentBrokersAreFenced(Checker):
    """A broker that has stopped or lost its connection is fenced within a time limit. Time counts only while a majority
    of the controllers runs and one of them is active. Counting starts again from zero when a delayed heartbeat of the
    broker arrives. It also starts again when another controller becomes active, because that controller gives each
    broker a full session."""

    def __init__(self, bound_ms: int) -> None:
        self._bound_ms = bound_ms
        self._gone_since: dict[int, int] = {}
        self._controllers_since: int | None = None

    def broker(self, seen: BrokerAlive) -> None:
        if seen.alive:
            self._gone_since.pop(seen.broker, None)
        else:
            self._gone_since.setdefault(seen.broker, seen.at_ms)

    def heartbeat(self, seen: HeartbeatAnswered) -> None:
        if seen.accepted:
            self._gone_since.pop(seen.broker, None)

    def controllers(self, seen: ControllersAlive) -> None:
        if not seen.alive:
            self._controllers_since = None
        elif self._controllers_since is None:
            self._controllers_since = seen.at_ms

    def unfenced(self, seen: Unfenced) -> None:
        if self._controllers_since is None:
            return
        for broker in sorted(seen.brokers & self._gone_since.keys()):
            silent_ms = seen.at_ms - max(self._gone_since[broker], self._controllers_since)
            if silent_ms > self._bound_ms:
                raise self.broken(f"broker {broker} has been gone for {silent_ms} ms, and is not fenced")

    sees: ClassVar = {
        BrokerAlive: broker,
        HeartbeatAnswered: heartbeat,
        ControllersAlive: controllers,
        Unfenced: unfenced,
    }


class AcknowledgedChangesStay(Checker):
    """A metadata change that was acknowledged to a client still exists at the end of the run, if it was the client's
    last change of that resource. A change without an answer may or may not have been made.

    A broker that forwards a change may send the request twice, and the network may delay one of the two requests. Then
    the controller makes the change again, even after later changes. This is possible only if the answer took longer
    than `AT_ONCE_MS`."""

    def __init__(self) -> None:
        # For each change: its order, its value, whether it was acknowledged, and whether a request may still arrive.
        self._changes: dict[str, list[tuple[int, object, bool, bool]]] = {}

    def acknowledged(self, seen: MetadataAcknowledged) -> None:
        self._changes.setdefault(seen.resource, []).append((seen.order, seen.value, True, seen.took_ms > AT_ONCE_MS))

    def maybe(self, seen: MetadataMaybe) -> None:
        self._changes.setdefault(seen.resource, []).append((seen.order, seen.value, False, True))

    def survived(self, seen: MetadataSurvived) -> None:
        changes = sorted(self._changes.get(seen.resource, ()), key=lambda change: change[0])
        last = max((order for order, _, sure, _ in changes if sure), default=None)
        if last is None:
            return
        possible = [value for order, value, _, may_come_late in changes if order >= last or may_come_late]
        if seen.value not in possible:
            raise self.broken(
                f"{seen.resource} is {seen.value!r} at the end; the acknowledged changes allow only {possible!r}"
            )

    sees: ClassVar = {MetadataAcknowledged: acknowledged, MetadataMaybe: maybe, MetadataSurvived: survived}
