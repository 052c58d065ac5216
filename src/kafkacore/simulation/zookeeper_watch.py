"""Watches a cluster in ZooKeeper mode from outside: the tree of the ensemble, the controllers, and the partitions of
brokers."""

from __future__ import annotations

import json
from typing import Any, Final

from kafkacore.simulation.checkers.observations import ActiveController, ImageSeen, Progressed
from kafkacore.simulation.images import LEADER_EPOCH
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.node import SimulatedNode
from kafkacore.simulation.nodes_watch import NOBODY, NodesWatcher
from kafkacore.simulation.zookeeper_cluster import SimulatedZooKeeperCluster
from kafkacore.simulation.zookeeper_tree import Tree
from kafkacore.zookeeper import paths

TOPIC: Final = 2
SERVICE: Final = "ZooKeeper"
Contents = dict[str, object]


class ZooKeeperWatcher(NodesWatcher):
    """Watches all nodes of a cluster in ZooKeeper mode."""

    def __init__(self, cluster: SimulatedZooKeeperCluster, judge: Judge, offsets_partitions: int) -> None:
        # A controller of ZooKeeper mode asks a broker only once to delete a replica that a reassignment has removed.
        super().__init__(cluster, judge, offsets_partitions, strays=True)
        self._cluster = cluster
        self._zxid = NOBODY
        self._active: dict[int, int] = {}  # the controller epoch in which each node was seen as active

    def look(self) -> None:
        """Observes the tree, and the node that ran in the last turn."""
        tree = self._cluster.zookeeper.tree
        if tree.zxid != self._zxid:
            self._zxid = tree.zxid
            self._look_at_tree(tree)
        ran = self._cluster.schedule.ran
        node = None if ran is None else self._by_name.get(ran.machine.name)
        if node is None:
            return
        if node.is_active_controller and self._active.get(node.node_id) != node.controller_epoch:
            self._active[node.node_id] = node.controller_epoch
            self._judge.see(ActiveController(node.node_id, node.controller_epoch))
            self._judge.see(Progressed("leader", self.now_ms))
        if self.tap.take_written(node.name):
            self._replicas.look(node)

    def is_informed(self, node: SimulatedNode) -> bool:
        """Returns whether a broker knows the leader of each partition in ZooKeeper and no other topic, and leads only
        its own partitions."""
        broker = node.zookeeper_broker
        topics: Any = self.newest["topics"]
        partitions: Any = self.newest["partitions"]
        if broker is None or any(topic.name not in topics for topic in broker.view.topics()):
            return False
        for (name, index), (leader, rest, *_) in partitions.items():
            topic = broker.view.topic(name)
            seen = None if topic is None else broker.view.partition(topic, index)
            if seen is None or (seen.leader, seen.leader_epoch) != (leader, rest[LEADER_EPOCH]):
                return False
        led = [(handle.topic, handle.index) for handle in node.partitions if handle.role == "leader"]
        return all(each in partitions and partitions[each][0] == node.node_id for each in led)

    def _look_at_tree(self, tree: Tree) -> None:
        contents = contents_of_tree(tree)
        if contents != self.newest:
            self._take(contents)
            self._judge.see(ImageSeen(NOBODY, SERVICE, tree.zxid, contents))


def contents_of_tree(tree: Tree) -> Contents:
    """Returns the metadata in ZooKeeper in the form of `images.contents_of`. Leaves out topics that are being deleted,
    and partitions without a state."""
    nodes = tree.nodes
    doomed = _children(tree, paths.DELETE_TOPICS)
    topics, partitions, configs = {}, {}, {}
    for name in _children(tree, paths.TOPICS):
        topic = _json(tree, paths.topic(name))
        if name in doomed or not topic:
            continue
        topics[name] = topic.get("topic_id", "")
        moved = [topic.get(f"{kind}_replicas", {}) for kind in ("removing", "adding")]
        for number, replicas in topic["partitions"].items():
            path = paths.partition_state(name, int(number))
            state = _json(tree, path)
            if state:
                rest = (
                    state["leader_epoch"], nodes[path].version, state.get("leader_recovery_state", 0),
                    tuple(moved[0].get(number, ())), tuple(moved[1].get(number, ())), (), (),
                )  # fmt: skip
                partitions[name, int(number)] = (state["leader"], rest, tuple(replicas), tuple(state["isr"]))
    for name in _children(tree, f"{paths.CONFIG}/topics"):
        configs[str((TOPIC, name))] = _json(tree, f"{paths.CONFIG}/topics/{name}").get("config", {})
    return {"topics": topics, "partitions": partitions, "configs": configs}


def _children(tree: Tree, path: str) -> list[str]:
    node = tree.nodes.get(path)
    return [] if node is None else sorted(node.children)


def _json(tree: Tree, path: str) -> dict[str, Any]:
    node = tree.nodes.get(path)
    found: dict[str, Any] = json.loads(node.data) if node is not None and node.data else {}
    return found
