"""The faults that can affect a cluster of whole nodes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from kafkacore.simulation.cluster import SimulatedNodes
from kafkacore.simulation.faults import Fault, Undo
from kafkacore.simulation.network import Quality
from kafkacore.simulation.node import SimulatedNode, State

Begun = tuple[str, Undo]
Link = tuple[int, int]
# Real failures often hit the same node again. So this share of the faults hits the node of the last fault, if possible.
AGAIN_SHARE: Final = 0.4


class ClusterFaults:
    """Starts faults. Each method starts one kind of fault. It returns a description of the fault and the function that
    undoes it, or None if no node can have this fault now."""

    def __init__(self, cluster: SimulatedNodes, *, brokers_lose_power: bool = True) -> None:
        self._cluster = cluster
        self._brokers_lose_power = brokers_lose_power
        self._ids = list(cluster.nodes)
        self._last = self._ids[0]  # the node that the last fault has hit
        self._cuts: dict[Link, int] = {}  # maps each link to the number of active faults that cut it
        self._slow: dict[int, int] = {}  # maps each node to the number of active faults that slow down its disk
        self._full: dict[int, int] = {}  # maps each node to the number of active faults that fill its disk
        self._was_full: dict[int, int] = {}  # maps each node to its last life (run of its process) with a full disk

    def kinds(self) -> list[Fault]:
        return [
            Fault("kill", 1.0, 100, 40_000, self.kill),
            Fault("power cut", 2.0, 100, 40_000, self.power_cut),
            Fault("restart", 4.0, 10, 2_000, self.restart),
            Fault("power cut everywhere", 0.3, 100, 3_000, self.power_cut_everywhere),
            Fault("orderly stop", 0.7, 1_000, 12_000, self.stop),
            Fault("pause", 1.0, 100, 15_000, self.pause),
            Fault("loss of the active controller", 1.5, 100, 15_000, self.lose_active),
            Fault("loss of a zone", 1.5, 500, 40_000, self.lose_zone),
            Fault("isolate", 1.5, 500, 15_000, self.isolate),
            Fault("split", 1.0, 500, 15_000, self.split),
            Fault("one way", 1.0, 500, 15_000, self.one_way),
            Fault("controllers out of reach", 1.0, 500, 15_000, self.hide_controllers),
            Fault("stall", 3.0, 2_000, 20_000, self.stall),
            Fault("reset", 1.0, 1, 10, self.reset),
            Fault("weather", 1.5, 500, 15_000, self.weather),
            Fault("full disk", 0.5, 500, 5_000, self.full_disk),
            Fault("slow disk", 0.7, 500, 15_000, self.slow_disk),
            Fault("skew", 0.5, 500, 15_000, self.skew),
            Fault("clock jump", 0.3, 500, 15_000, self.jump),
        ]

    # --- nodes ---

    def kill(self, random: Random) -> Begun | None:
        node = self._one(random, State.RUNNING, State.STARTING)
        if node is None:
            return None
        node.kill()
        return node.name, lambda: self.start(node)

    def power_cut(self, random: Random) -> Begun | None:
        node = self._one(random, State.RUNNING, State.STARTING)
        if node is None or not self._loses_power(node):
            return None
        node.cut_power()
        return node.name, lambda: self.start(node)

    def restart(self, random: Random) -> Begun | None:
        """Ends a node in a random way, and starts it again soon, as a supervisor or a rolling restart does."""
        return random.choice((self.kill, self.power_cut, self.stop))(random)

    def power_cut_everywhere(self, random: Random) -> Begun:
        for node in self._cluster:
            if node.is_up and self._loses_power(node):
                node.cut_power()

        def back() -> None:
            for node in self._cluster:
                self.start(node)

        return "all nodes", back

    def _loses_power(self, node: SimulatedNode) -> bool:
        return self._brokers_lose_power or "broker" not in node.roles

    def stop(self, random: Random) -> Begun | None:
        node = self._one(random, State.RUNNING)
        if node is None:
            return None
        node.stop()
        return node.name, lambda: self.start(node)

    def pause(self, random: Random) -> Begun | None:
        node = self._one(random, State.RUNNING)
        if node is None:
            return None
        node.pause()
        return node.name, node.resume

    def lose_active(self, random: Random) -> Begun | None:
        """Kills or pauses the active controller, or cuts its power."""
        node = self._cluster.active_controller
        if node is None or node.state is not State.RUNNING:
            return None
        how = random.randrange(3)
        if how == 0:
            node.pause()
            return f"{node.name} is paused", node.resume
        if how == 1 or not self._loses_power(node):
            node.kill()
        else:
            node.cut_power()
        return f"{node.name} is off", lambda: self.start(node)

    def lose_zone(self, random: Random) -> Begun | None:
        """Treats a controller and a broker as one zone. Makes the zone lose its power, pause, or lose contact with all
        other nodes."""
        zones = list(zip(self._cluster.controllers, self._cluster.brokers, strict=False))
        if len(self._cluster.controllers) < 2 or not zones:
            return None
        zone = dict.fromkeys(random.choice(zones))
        names = " and ".join(node.name for node in zone)
        how = random.randrange(3)
        if how == 0:
            ids = [node.node_id for node in zone]
            rest = [each for each in self._ids if each not in ids]
            return self._cut([link for a in ids for b in rest for link in ((a, b), (b, a))], names)
        if how == 1:
            for node in zone:
                node.pause()

            def go_on() -> None:
                for node in zone:
                    node.resume()

            return f"{names} stand still", go_on
        for node in zone:
            if self._loses_power(node):
                node.cut_power()
            elif node.is_up:
                node.kill()

        def back() -> None:
            for node in zone:
                self.start(node)

        return f"{names} are off", back

    def full_disk(self, random: Random) -> Begun | None:
        node = self._one(random, State.RUNNING)
        if node is None or "controller" in node.roles:
            return None  # a controller with a full disk would stop, and nothing would restart it
        node.disk.limit(1)
        self._full[node.node_id] = self._full.get(node.node_id, 0) + 1

        def room() -> None:
            node.disk.limit(None)
            self._full[node.node_id] -= 1
            self._was_full[node.node_id] = node.lives
            self.start(node)

        return node.name, room

    def slow_disk(self, random: Random) -> Begun:
        node = self._cluster[self._pick(random, self._ids)]
        ms = random.choice((5, 50, 300))
        node.slow_disk(ms)
        self._slow[node.node_id] = self._slow.get(node.node_id, 0) + 1

        def fast() -> None:
            self._slow[node.node_id] -= 1
            if not self._slow[node.node_id]:
                node.slow_disk(0)

        return f"{node.name} by {ms} ms", fast

    def is_slow(self, node: int) -> bool:
        """Returns whether the disk of the node is slow."""
        return self._slow.get(node, 0) > 0

    def explains(self, node: SimulatedNode) -> bool:
        """Returns whether a failure of this node is expected, because its disk is full or was full since its last
        start."""
        return self._full.get(node.node_id, 0) > 0 or self._was_full.get(node.node_id) == node.lives

    def skew(self, random: Random) -> Begun:
        node = self._cluster[self._pick(random, self._ids)]
        node.set_clock(random.choice((0.8, 0.95, 1.05, 1.25)))
        return f"{node.name} at {node.rate}", lambda: node.set_clock(1.0)

    def jump(self, random: Random) -> Begun:
        node = self._cluster[self._pick(random, self._ids)]
        jump_ms = random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        node.set_clock(jump_ms=jump_ms)
        return f"{node.name} by {jump_ms} ms", lambda: node.set_clock(jump_ms=-jump_ms)

    def start(self, node: SimulatedNode) -> None:
        """Starts a node that is off or has failed. If the node is still stopping, kills the node first, because an
        orderly stop can hang without a quorum."""
        if node.state is State.STOPPING:
            node.kill()
        if not node.is_up:
            node.start()

    def _one(self, random: Random, *states: State) -> SimulatedNode | None:
        found = [node.node_id for node in self._cluster if node.state in states]
        return self._cluster[self._pick(random, found)] if found else None

    def _pick(self, random: Random, ids: Sequence[int]) -> int:
        """Draws the node for a fault."""
        if self._last not in ids or random.random() >= AGAIN_SHARE:
            self._last = random.choice(ids)
        return self._last

    # --- the network ---

    def isolate(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        node = self._pick(random, self._ids)
        others = [each for each in self._ids if each != node]
        return self._cut([link for other in others for link in ((node, other), (other, node))], f"node {node}")

    def split(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        some = sorted(random.sample(self._ids, random.randrange(1, len(self._ids))))
        rest = [each for each in self._ids if each not in some]
        return self._cut([link for a in some for b in rest for link in ((a, b), (b, a))], f"{some} from {rest}")

    def one_way(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        source, target = random.sample(self._ids, 2)
        return self._cut([(source, target)], f"{source} to {target}")

    def hide_controllers(self, random: Random) -> Begun | None:
        """Cuts a broker off from all controllers. It can still reach other brokers and its clients."""
        controllers = [node.node_id for node in self._cluster.controllers]
        brokers = [each for each in self._ids if each not in controllers]
        if not brokers:
            return None
        broker = self._pick(random, brokers)
        links = [link for each in controllers for link in ((broker, each), (each, broker))]
        return self._cut(links, f"broker {broker}")

    def _cut(self, links: Sequence[Link], what: str) -> Begun:
        cluster = self._cluster
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1
            cluster.cut(*link)

        def mend() -> None:
            for link in links:
                self._cuts[link] -= 1
                if not self._cuts[link]:
                    del self._cuts[link]
                    source, target = link
                    cluster.network.heal(cluster[source].name, cluster[target].name)

        return what, mend

    def is_cut(self, one: int, other: int) -> bool:
        """Returns whether the link is cut in either direction."""
        return (one, other) in self._cuts or (other, one) in self._cuts

    def reaches(self, source: int, targets: Sequence[int]) -> bool:
        """Returns whether the node has an uncut link to at least one of the targets."""
        return any((source, target) not in self._cuts for target in targets)

    def stall(self, random: Random) -> Begun:
        """Stalls all connections of a node, or about half of them, as when one of two network paths fails."""
        name = self._cluster[self._pick(random, self._ids)].name
        share = random.choice((0.5, 1.0))
        count, go_on = self._cluster.network.stall(name, lambda: random.random() < share)
        return f"{count} connections of {name}", go_on

    def reset(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        one, other = (self._cluster[each].name for each in random.sample(self._ids, 2))
        count = self._cluster.network.reset(one, other)
        return f"{count} connections between {one} and {other}", lambda: None

    def weather(self, random: Random) -> Begun:
        network = self._cluster.network
        network.quality = Quality(0.000_1, random.choice((0.01, 0.2, 1.5)), random.choice((0.0, 0.02, 0.2, 0.5)))

        def clear() -> None:
            network.quality = Quality()

        return f"up to {network.quality.most_s} s late, {network.quality.loss:.0%} lost", clear
