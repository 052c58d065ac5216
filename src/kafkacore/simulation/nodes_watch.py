"""Watches whole nodes from outside, in any mode: their requests, their replicas, and the newest metadata."""

from __future__ import annotations

from typing import Any, Final

from kafkacore.simulation.cluster import SimulatedNodes
from kafkacore.simulation.images import ADDING, REMOVING
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.replica_watch import ReplicaWatcher
from kafkacore.simulation.tap import LogEnd, WireTap

NOBODY: Final = -1


class NodesWatcher:
    """Call `look` after each turn of the schedule. A subclass looks at the metadata. With `strays`, a broker may keep
    replicas that a reassignment has removed."""

    def __init__(self, cluster: SimulatedNodes, judge: Judge, offsets_partitions: int, *, strays: bool = False) -> None:
        self._judge = judge
        self._nodes = cluster
        self._by_name = {node.name: node for node in cluster}
        self.newest: dict[str, object] = {}  # the contents of the newest metadata, as `images.contents_of` returns them
        self._replicas = ReplicaWatcher(cluster, judge, strays=strays)
        self.settle = self._replicas.settle
        self._names: dict[str, str] = {}  # the names of all topics, by their ids
        self.tap = WireTap(
            cluster.network, judge, self.end_of, self.leads, offsets_partitions, self.registered,
            lambda topic_id: self._names.get(str(topic_id)), self._replicas.epoch_at,
        )  # fmt: skip

    def look(self) -> None:
        raise NotImplementedError

    def _take(self, contents: dict[str, object]) -> None:
        """Takes newer metadata."""
        self.newest = contents
        topics: Any = contents["topics"]
        self._names.update({topic_id: name for name, topic_id in topics.items()})
        self._replicas.newest(contents)

    def end_of(self, node_id: int) -> LogEnd:
        """Returns the epoch and offset at which the metadata log of a node ends now. Brokers in ZooKeeper mode have no
        such log."""
        return 0, 0

    def registered(self, node_id: int, broker_id: int) -> int:
        """Returns the epoch of a broker in the current metadata of a controller, or -1 if the metadata does not contain
        the broker."""
        return NOBODY

    def leads(self, node_id: int, topic: str, index: int) -> int:
        """Returns the leader epoch in which a broker leads a partition according to its own metadata, or -1 if the
        broker does not lead it."""
        image = self._nodes[node_id].broker_image
        found = None if image is None else image.topic(topic)
        partition = None if image is None or found is None else image.partition(found, index)
        return partition.leader_epoch if partition is not None and partition.leader == node_id else NOBODY

    @property
    def is_in_sync(self) -> bool:
        """Returns whether in the newest metadata every partition has a leader, all its replicas in the ISR, and no
        unfinished reassignment."""
        partitions: Any = self.newest.get("partitions", {})
        return all(
            leader >= 0 and set(replicas) == set(isr) and not rest[REMOVING] and not rest[ADDING]
            for leader, rest, replicas, isr in partitions.values()
        )

    @property
    def now_ms(self) -> int:
        return self._nodes.schedule.now_ns // 1_000_000
