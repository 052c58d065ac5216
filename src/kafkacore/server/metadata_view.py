"""The committed image as the clients of one listener see it."""

from __future__ import annotations

from collections.abc import Iterator

from kafkacore.metadata.image import MetadataImage, Topic
from kafkacore.metadata.partitions import Partition
from kafkacore.metadata.registrations import BrokerRegistration, Endpoint


class MetadataView:
    """One metadata image as the clients of one listener see it. The view caches look-ups. Create a new view for each
    request, which is cheap."""

    def __init__(self, image: MetadataImage, listener: str) -> None:
        self.image = image
        self._listener = listener
        self._endpoints: dict[int, Endpoint | None] = {}

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Returns the address of a registered broker, fenced or not, or None if the broker is unknown or has no such
        listener."""
        try:
            return self._endpoints[broker_id]
        except KeyError:
            broker = self.image.brokers.get(broker_id)
            found = self._endpoints[broker_id] = None if broker is None else broker.endpoint(self._listener)
            return found

    def alive_endpoint(self, broker_id: int) -> Endpoint | None:
        """Returns the address of a broker, or None if the broker is fenced."""
        where = self.endpoint(broker_id)
        return None if where is None or self.image.brokers[broker_id].fenced else where

    def alive_brokers(self) -> list[tuple[BrokerRegistration, Endpoint]]:
        """Returns the unfenced brokers that have this listener, sorted by id."""
        alive = []
        for broker_id, broker in sorted(self.image.brokers.items()):
            where = self.endpoint(broker_id)
            if where is not None and not broker.fenced:
                alive.append((broker, where))
        return alive

    def any_alive_broker(self, preferred: int) -> int:
        """Returns `preferred` if it is alive, or another live broker, or -1 if no broker is alive. Clients use this
        broker as the controller (KIP-590)."""
        alive = [broker_id for broker_id, broker in self.image.brokers.items() if not broker.fenced]
        return preferred if preferred in alive else min(alive, default=-1)

    def partitions(self, topic: Topic) -> Iterator[Partition]:
        """Yields the partitions of a topic, ordered by number."""
        for row in topic.partition_rows:
            if row >= 0:
                yield self.image.partition_at(row)

    def offline_replicas(self, partition: Partition) -> list[int]:
        """Returns the replicas that clients cannot read: those on unknown or fenced brokers, on brokers without this
        listener, or on a failed disk."""
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if self.endpoint(replica) is None
            or self.image.brokers[replica].fenced
            or not self.image.brokers[replica].has_online_directory(directory)
        ]
