"""Watches the partitions of brokers from outside: roles, high watermarks, and the files of their logs."""

from __future__ import annotations

from typing import Any

from kafkacore._fast.log.partition_handle import PartitionHandle
from kafkacore.simulation.checkers.observations import InSync, ReplicaCommits, ReplicaLogSeen, RoleSeen
from kafkacore.simulation.cluster import DIRECTORY, SimulatedCluster
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.log_files import LogFiles
from kafkacore.simulation.node import SimulatedNode

LEADER = "leader"


class _Replica:
    """The last observation of a partition on a broker, in one life of both."""

    def __init__(self, node: SimulatedNode, handle: PartitionHandle) -> None:
        self.log = f"{handle.topic}-{handle.index}"
        self.handle = handle
        self.files = LogFiles(node.disk, f"{DIRECTORY}/{self.log}")
        self.is_new = True
        self.state: tuple[str, int, int, int] = ("", -1, 0, 0)


class ReplicaWatcher:
    """Call `look` after each turn in which a node has sent something: before that, no other node can know what
    happened."""

    def __init__(self, cluster: SimulatedCluster, judge: Judge) -> None:
        self._cluster, self._judge = cluster, judge
        self._replicas: dict[int, dict[PartitionHandle, _Replica]] = {}  # by node
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
            state = (handle.role, handle.leader_epoch, handle.end_offset, handle.high_watermark)
            if state != replica.state:
                before, replica.state = replica.state, state
                self._changed(node, replica, before)
        if len(known) > len(handles):
            self._replicas[node.node_id] = {handle: known[handle] for handle in handles}

    def _changed(self, node: SimulatedNode, replica: _Replica, before: tuple[str, int, int, int]) -> None:
        role, epoch, _, high_watermark = replica.state
        if (role, epoch) != before[:2]:
            self._judge.see(RoleSeen(node.node_id, node.lives, replica.log, epoch, role == LEADER))
        self._read(node, replica)
        if high_watermark > before[3]:
            if role == LEADER:
                self._read_in_sync(replica.log)
            self._judge.see(ReplicaCommits(node.node_id, replica.log, high_watermark))

    def _read(self, node: SimulatedNode, replica: _Replica) -> None:
        changed = replica.files.read()
        if replica.is_new:
            replica.is_new, changed = False, 0
        if changed is not None:
            start = max(changed, replica.files.start)
            entries = replica.files.entries_from(start)
            self._judge.see(ReplicaLogSeen(node.node_id, replica.log, start if changed else 0, entries))

    def _read_in_sync(self, log: str) -> None:
        """Reads the logs of all members of the ISR that run."""
        for member in sorted(self._in_sync.get(log, ())):
            node = self._cluster[member]
            for replica in self._replicas.get(member, {}).values():
                if replica.log == log and node.lives == self._lives[member] and node.server is not None:
                    self._read(node, replica)

    def newest(self, contents: dict[str, object]) -> None:
        """Call it when the newest committed metadata has changed."""
        partitions: Any = contents.get("partitions", {})
        in_sync = {f"{topic}-{index}": frozenset(row[3]) for (topic, index), row in partitions.items()}
        before, self._in_sync = self._in_sync, in_sync
        for log, isr in in_sync.items():
            if before.get(log) != isr:
                self._read_in_sync(log)
                self._judge.see(InSync(log, isr))
