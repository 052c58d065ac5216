"""The faults that can affect a quorum of Raft cores."""

from __future__ import annotations

from random import Random

from kafkacore.simulation.faults import Fault, Undo
from kafkacore.simulation.quorum import QuorumWorld, Weather

Begun = tuple[str, Undo]
Link = tuple[int, int]


class QuorumFaults:
    """Starts faults. Each method starts one kind of fault. It returns a description of the fault and the function that
    undoes it, or None if no node can have this fault now."""

    def __init__(self, world: QuorumWorld) -> None:
        self._world = world
        self._ids = range(len(world.replicas))

    def kinds(self) -> list[Fault]:
        return [
            Fault("kill", 1.0, 100, 8_000, self.kill),
            Fault("power cut", 2.0, 100, 8_000, self.power_cut),
            Fault("power cut everywhere", 0.3, 100, 3_000, self.power_cut_everywhere),
            Fault("pause", 1.0, 100, 8_000, self.pause),
            Fault("isolate", 1.5, 500, 12_000, self.isolate),
            Fault("split", 1.5, 500, 12_000, self.split),
            Fault("one way", 1.0, 500, 12_000, self.one_way),
            Fault("weather", 1.5, 500, 15_000, self.weather),
            Fault("slow disk", 1.0, 500, 15_000, self.slow_disk),
            Fault("skew", 0.5, 500, 15_000, self.skew),
        ]

    # --- nodes ---

    def kill(self, random: Random) -> Begun | None:
        return self._stop(random, power=False)

    def power_cut(self, random: Random) -> Begun | None:
        return self._stop(random, power=True)

    def _stop(self, random: Random, *, power: bool) -> Begun | None:
        node = self._running(random)
        if node is None:
            return None
        self._world.kill(node, power)
        return f"node {node}", lambda: self._world.start(node)

    def power_cut_everywhere(self, random: Random) -> Begun:
        for node in self._ids:
            self._world.kill(node, power=True)

        def start() -> None:
            for node in self._ids:
                self._world.start(node)

        return "all nodes", start

    def pause(self, random: Random) -> Begun | None:
        node = self._running(random)
        if node is None:
            return None
        self._world.pause(node)
        return f"node {node}", lambda: self._world.resume(node)

    def slow_disk(self, random: Random) -> Begun:
        replica = random.choice(self._world.replicas)
        replica.slow_disk = True

        def fast() -> None:
            replica.slow_disk = False

        return f"node {replica.node}", fast

    def skew(self, random: Random) -> Begun:
        replica = random.choice(self._world.replicas)
        replica.skew(random.choice((0.7, 0.9, 1.1, 1.4)))
        return f"node {replica.node} at {replica.rate}", lambda: replica.skew(1.0)

    def _running(self, random: Random) -> int | None:
        found = [each.node for each in self._world.replicas if each.raft is not None and not each.paused]
        return random.choice(found) if found else None

    # --- the network ---

    def isolate(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        node = random.choice(self._ids)
        others = [each for each in self._ids if each != node]
        return self._cut({link for other in others for link in ((node, other), (other, node))}, f"node {node}")

    def split(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        some = sorted(random.sample(self._ids, random.randrange(1, len(self._ids))))
        rest = sorted(set(self._ids) - set(some))
        return self._cut({link for a in some for b in rest for link in ((a, b), (b, a))}, f"{some} from {rest}")

    def one_way(self, random: Random) -> Begun | None:
        if len(self._ids) < 2:
            return None
        source, target = random.sample(self._ids, 2)
        return self._cut({(source, target)}, f"{source} to {target}")

    def _cut(self, links: set[Link], what: str) -> Begun:
        added = links - self._world.cuts
        self._world.cuts |= added
        return what, lambda: self._world.cuts.difference_update(added)

    def weather(self, random: Random) -> Begun:
        self._world.weather = Weather(
            loss=random.choice((0.0, 0.05, 0.3)), repeats=random.choice((0.0, 0.1)),
            delays=random.choice(((1, 2, 50), (1, 3, 10, 200), (20, 900))),
        )  # fmt: skip

        def clear() -> None:
            self._world.weather = Weather()

        return str(self._world.weather), clear
