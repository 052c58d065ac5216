"""Watches whole nodes from outside: the files of their metadata logs, their roles, and their metadata images."""

from __future__ import annotations

import json
from typing import Any, Final

from kafkacore.raft.core import Raft
from kafkacore.raft.roles import Leader
from kafkacore.simulation.checkers.observations import (
    ActiveController,
    Delivered,
    Entry,
    EpochSeen,
    HighWatermark,
    ImageSeen,
    Leads,
    LogSeen,
    OnDisk,
    Progressed,
    Started,
    StateOnDisk,
    Unfenced,
    VotersAre,
)
from kafkacore.simulation.cluster import DIRECTORY, SimulatedCluster
from kafkacore.simulation.images import contents_of
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.log_files import LogFiles
from kafkacore.simulation.node import SimulatedNode
from kafkacore.simulation.nodes_watch import NOBODY, NodesWatcher
from kafkacore.simulation.tap import LogEnd

LOG: Final = f"{DIRECTORY}/__cluster_metadata-0"


class Watched:
    """The last observation of a node since its last start."""

    def __init__(self, node: SimulatedNode, raft: Raft) -> None:
        self.node, self.raft = node, raft
        self.files = LogFiles(node.disk, LOG)
        self.told: tuple[Any, ...] = ()
        self.led_epoch = self.active_epoch = NOBODY
        self.high_watermark = 0
        self.state: tuple[int, int, int] = (0, NOBODY, NOBODY)
        self.images: dict[str, object] = {}
        self.delivered: dict[str, int] = {}  # maps each state machine to the end offset of the records that it received


class Watcher(NodesWatcher):
    """Watches all nodes of a cluster in KRaft mode."""

    def __init__(self, cluster: SimulatedCluster, judge: Judge, offsets_partitions: int = 50) -> None:
        super().__init__(cluster, judge, offsets_partitions)
        self._cluster = cluster
        self._watched: dict[int, Watched] = {}
        self._lives: dict[int, int] = {}
        self.newest_offset = NOBODY
        self.voters = frozenset(node.node_id for node in cluster.controllers)
        judge.see(VotersAre(self.voters))

    def look(self) -> None:
        """Observes the node that ran in the last turn, because no other node can have changed."""
        ran = self._cluster.schedule.ran
        node = None if ran is None else self._by_name.get(ran.machine.name)
        raft = None if node is None else node.raft
        if node is None or raft is None:
            return
        watched = self._watched.get(node.node_id)
        if watched is None or watched.raft is not raft:
            watched = self._begin(node, raft)
        replica = raft.replica
        term = replica.term
        told = (term.epoch, term.leader_id, replica.high_watermark, raft.log.end_offset, term.is_persisted)
        if told != watched.told:
            watched.told = told
            self._look_at(watched)
        self._look_at_images(watched)
        if self.tap.take_written(node.name):
            self._replicas.look(node)

    def _begin(self, node: SimulatedNode, raft: Raft) -> Watched:
        watched = self._watched[node.node_id] = Watched(node, raft)
        watched.files.read()
        self._judge.see(Started(node.node_id, node.lives, watched.files.end))
        self._see_log(watched, 0)
        self._see_state(watched)
        return watched

    def end_of(self, node_id: int) -> LogEnd:
        """Returns the epoch and offset at which the log of a node ends now. Reads the node's disk immediately."""
        node = self._cluster[node_id]
        raft = node.raft
        if raft is None:
            return 0, 0
        watched = self._watched.get(node_id)
        if watched is None or watched.raft is not raft:
            watched = self._begin(node, raft)
        self._look_at_disk(watched)
        return watched.files.epoch_before(watched.files.end) or 0, watched.files.end

    def registered(self, node_id: int, broker_id: int) -> int:
        image = self._cluster[node_id].controller_image
        broker = None if image is None else image.brokers.get(broker_id)
        return NOBODY if broker is None else broker.epoch

    def _look_at_disk(self, watched: Watched) -> None:
        changed = watched.files.read()
        if changed is not None:
            self._see_log(watched, changed)
        self._see_state(watched)

    def _look_at(self, watched: Watched) -> None:
        node, raft, judge = watched.node, watched.raft, self._judge
        self._look_at_disk(watched)
        judge.see(EpochSeen(node.node_id, raft.epoch, raft.leader_id))
        leads = isinstance(raft.role, Leader)
        if leads and raft.epoch != watched.led_epoch:
            watched.led_epoch = raft.epoch
            judge.see(Leads(node.node_id, raft.epoch))
            self._note(f"{node.name} leads epoch {raft.epoch}")
        if raft.high_watermark != watched.high_watermark:
            watched.high_watermark = raft.high_watermark
            if leads:
                self._see_voters(watched)
                self._see_disks()
            epoch = raft.epoch if leads else NOBODY
            judge.see(HighWatermark(node.node_id, node.lives, raft.high_watermark, epoch))

    def _see_log(self, watched: Watched, start: int) -> None:
        files = watched.files
        start = max(start, files.start)
        self._judge.see(LogSeen(watched.node.node_id, start, files.entries_from(start), files.epoch_before(start)))

    def _see_voters(self, watched: Watched) -> None:
        """Reports the voters in the last VotersRecord of a leader's log, even if that record is not committed yet
        (KIP-853). With static voters, the log contains no VotersRecord."""
        voters = watched.files.voters() or self.voters
        if voters != self.voters:
            self.voters = voters
            self._note(f"the voters are {sorted(voters)}")
            self._judge.see(VotersAre(voters))

    def _see_disks(self) -> None:
        for node in self._cluster.controllers:
            watched = self._watched.get(node.node_id)
            files = LogFiles(node.disk, LOG) if watched is None else watched.files
            self._judge.see(OnDisk(node.node_id, files.synced_end()))

    def _see_state(self, watched: Watched) -> None:
        """Reports the state of the quorum-state file that would be on the disk after a power cut."""
        try:
            state = json.loads(watched.node.disk.synced(f"{LOG}/quorum-state"))
        except FileNotFoundError:
            return
        seen = (state["leaderEpoch"], state["votedId"], state["leaderId"])
        if seen != watched.state:
            watched.state = seen
            self._judge.see(StateOnDisk(watched.node.node_id, *seen))

    def _look_at_images(self, watched: Watched) -> None:
        node, judge = watched.node, self._judge
        for how, image in (("controller", node.controller_image), ("broker", node.broker_image)):
            if image is None or watched.images.get(how) is image:
                continue
            watched.images[how] = image
            if image.offset < 0 or image.transaction is not None:
                continue
            self._see_delivery(watched, how, image.offset + 1)
            contents = contents_of(image)
            judge.see(ImageSeen(node.node_id, how, image.offset, contents))
            if image.offset > self.newest_offset:
                self.newest_offset = image.offset
                self._take(contents)
        if node.is_active_controller and watched.raft.epoch != watched.active_epoch:
            watched.active_epoch = watched.raft.epoch
            if watched.raft.is_leader:
                judge.see(ActiveController(node.node_id, watched.raft.epoch))
                judge.see(Progressed("leader", self.now_ms))

    def _see_delivery(self, watched: Watched, how: str, end: int) -> None:
        """Reports that a state machine has received all entries below `end`. It may have received some of them
        before."""
        node, entries = watched.node, watched.files.entries_from(0)
        start = watched.delivered.get(how, 0)
        came = tuple(entry for entry in entries if start <= entry.base and entry.end <= end)
        if end < start:
            came = tuple(entry for entry in entries if entry.end == end) or (Entry(end - 1, end, NOBODY, 0),)
        watched.delivered[how] = end
        self._judge.see(Delivered(node.node_id, node.lives, came, how))

    def see_fencing(self) -> None:
        brokers: Any = self.newest.get("brokers", {})
        alive = frozenset(broker for broker, (_, fenced) in brokers.items() if not fenced)
        self._judge.see(Unfenced(alive, self.now_ms))

    def _note(self, text: str) -> None:
        self._judge.note(self.now_ms, text)
