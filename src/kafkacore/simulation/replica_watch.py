"""Watches the partitions of brokers from outside: roles, high watermarks, and the files of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.metadata.image import MetadataImage
from kafkacore.simulation.checkers.observations import (
    FetcherSeen,
    FollowerKnown,
    InSync,
    LeaderSeen,
    ReplicaCommits,
    ReplicaLogSeen,
    ReplicaSettled,
    RoleSeen,
    SyncedBelow,
)
from kafkacore.simulation.cluster import DIRECTORY, SimulatedNodes
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.log_files import LogFiles
from kafkacore.simulation.node import SimulatedNode

LEADER = "leader"
State = tuple[str, int, int, int, int, int]  # role, leader epoch, log end, high watermark, log start, partition epoch
TOPIC = 2
MIN_ISR = "min.insync.replicas"
FLUSH = "flush.messages"


class _Replica:
    """The last observation of a partition on a broker. It belongs to the current incarnations of the broker and the
    partition."""

    def __init__(self, node: SimulatedNode, handle: PartitionHandle) -> None:
        self.log = f"{handle.topic}-{handle.index}"
        self.handle = handle
        self.files = LogFiles(node.disk, f"{DIRECTORY}/{self.log}")
        # `epoch_at` needs an object of its own, because `files` reports each change only once.
        self.written = LogFiles(node.disk, f"{DIRECTORY}/{self.log}")
        self.is_new = True
        self.state: State = ("", -1, 0, 0, 0, -1)


class ReplicaWatcher:
    """Watches the partitions of all brokers. Call `look` after each turn in which a node has sent something, because a
    change affects other nodes only then. With `strays`, a broker may keep replicas that a reassignment has removed."""

    def __init__(self, cluster: SimulatedNodes, judge: Judge, *, strays: bool = False) -> None:
        self._cluster, self._judge, self._strays = cluster, judge, strays
        self._assigned: dict[str, frozenset[int]] = {}
        self._replicas: dict[int, dict[PartitionHandle, _Replica]] = {}  # by node id
        self._lives: dict[int, int] = {}
        self._in_sync: dict[str, frozenset[int]] = {}

    def look(self, node: SimulatedNode) -> None:
        known = self._replicas.get(node.node_id)
        if known is None or self._lives[node.node_id] != node.lives:
            known = self._replicas[node.node_id] = {}
            self._lives[node.node_id] = node.lives
        handles = node.partitions
        for handle in handles:
            replica = known.get(handle)
            if replica is None:
                replica = known[handle] = _Replica(node, handle)
            state = (
                handle.role, handle.leader_epoch, handle.end_offset, handle.high_watermark, handle.log_start_offset,
                handle.partition_epoch,
            )  # fmt: skip
            if state != replica.state:
                before, replica.state = replica.state, state
                self._changed(node, replica, before)
        if len(known) > len(handles):
            self._replicas[node.node_id] = {handle: known[handle] for handle in handles}

    def _changed(self, node: SimulatedNode, replica: _Replica, before: State) -> None:
        role, epoch, _, high_watermark, first, _ = replica.state
        self._read(node, replica, began_later=first != before[4])
        if (role, epoch) != before[:2]:
            self._judge.see(
                RoleSeen(node.node_id, node.lives, replica.log, epoch, role == LEADER, self._cluster.schedule.now_ns)
            )
            self._judge.see(_fetcher_seen(node, replica.handle, is_settled=False))
        if role == LEADER:
            self._judge.see(_leader_seen(node, replica.handle))
        if high_watermark > before[3]:
            if role == LEADER:
                self._read_in_sync(replica.log)
                if _configs(node, replica.handle).get(FLUSH) == "1":
                    end = replica.files.synced_end()
                    self._judge.see(SyncedBelow(node.node_id, replica.log, high_watermark, end))
            self._judge.see(ReplicaCommits(node.node_id, replica.log, high_watermark))

    def _read(self, node: SimulatedNode, replica: _Replica, *, began_later: bool = False) -> None:
        changed = replica.files.read()
        if replica.is_new:
            replica.is_new, changed = False, 0
        elif changed is None and began_later:
            changed = replica.files.end
        if changed is not None:
            start = max(changed, replica.files.start)
            entries = replica.files.entries_from(start)
            first = replica.handle.log_start_offset
            self._judge.see(ReplicaLogSeen(node.node_id, replica.log, start if changed else 0, entries, first))

    def epoch_at(self, node_id: int, log: str, offset: int) -> int:
        """Returns the leader epoch of the batch that begins at this offset of a broker's log, or -1."""
        for replica in self._replicas.get(node_id, {}).values():
            if replica.log == log:
                replica.written.read()
                found = replica.written.entries_from(offset)
                return found[0].epoch if found and found[0].base == offset else -1
        return -1

    def settle(self) -> None:
        """Observes every replica of a running, idle cluster."""
        for node in self._cluster.brokers:
            for handle in node.partitions:
                replica = _Replica(node, handle)
                if self._strays and node.node_id not in self._assigned.get(replica.log, ()):
                    continue
                replica.files.read()
                first = handle.log_start_offset
                entries = tuple(each for each in replica.files.entries_from(0) if each.end > first)
                leads = handle.role == "leader"
                self._judge.see(ReplicaSettled(node.node_id, replica.log, first, handle.high_watermark, entries, leads))
                self._judge.see(_fetcher_seen(node, handle, is_settled=True))

    def _read_in_sync(self, log: str) -> None:
        """Reads the logs of all running members of the ISR."""
        for member in sorted(self._in_sync.get(log, ())):
            node = self._cluster[member]
            for replica in self._replicas.get(member, {}).values():
                if replica.log == log and node.lives == self._lives[member] and node.server is not None:
                    self._read(node, replica)

    def newest(self, contents: dict[str, object]) -> None:
        """Handles a change of the newest committed metadata. `contents` is the new metadata."""
        partitions: Any = contents.get("partitions", {})
        in_sync = {f"{topic}-{index}": frozenset(row[3]) for (topic, index), row in partitions.items()}
        self._assigned = {f"{topic}-{index}": frozenset(row[2]) for (topic, index), row in partitions.items()}
        before, self._in_sync = self._in_sync, in_sync
        for log, isr in in_sync.items():
            if before.get(log) != isr:
                self._read_in_sync(log)
                self._judge.see(InSync(log, isr))


def _fetcher_seen(node: SimulatedNode, handle: PartitionHandle, *, is_settled: bool) -> FetcherSeen:
    assert node.server is not None
    source = node.server.broker.fetchers.source_of(handle)
    log = f"{handle.topic}-{handle.index}"
    return FetcherSeen(node.node_id, log, handle.leader_id, source, is_settled)


def _leader_seen(node: SimulatedNode, handle: PartitionHandle) -> LeaderSeen:
    image = node.broker_image
    followers = []
    in_sync = 1
    for each in handle.followers():
        in_sync += each.in_sync
        followers.append(
            FollowerKnown(
                each.broker_id, each.end_offset, each.in_sync or each.is_joining,
                each.end_offset >= 0 and not each.lags and _is_active(image, each.broker_id, each.broker_epoch),
            )
        )  # fmt: skip
    configs = _configs(node, handle)
    return LeaderSeen(
        node.node_id, node.lives, f"{handle.topic}-{handle.index}", handle.leader_epoch, handle.partition_epoch,
        handle.high_watermark, int(configs.get(MIN_ISR) or 1), in_sync, tuple(followers),
    )  # fmt: skip


def _configs(node: SimulatedNode, handle: PartitionHandle) -> Mapping[str, str | None]:
    """Returns the configuration of a partition's topic in the metadata of this broker."""
    image = node.broker_image
    return (None if image is None else image.configs.get((TOPIC, handle.topic))) or {}


def _is_active(image: MetadataImage | None, broker_id: int, broker_epoch: int) -> bool:
    broker = None if image is None else image.brokers.get(broker_id)
    return broker is not None and broker.active and broker_epoch in (-1, broker.epoch)
