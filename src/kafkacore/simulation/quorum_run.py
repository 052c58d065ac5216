"""Runs a quorum of Raft cores from a seed: faults, then a time without faults, then checks of the result."""

from __future__ import annotations

from random import Random
from typing import Final

from kafkacore.simulation.checkers.observations import Healed, LogSurvived, Progressed, TimePassed
from kafkacore.simulation.faults import Schedule
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.quorum import LOG_NAME, QuorumWorld, Weather
from kafkacore.simulation.quorum_faults import QuorumFaults

PEACE_STEP_MS: Final = 500


class QuorumRun:
    """A run of a quorum. `steps` is the number of faults. `voters` and `observers` are the same as for QuorumWorld."""

    def __init__(self, seed: int, steps: int, voters: int = 3, observers: int = 1) -> None:
        self.judge = Judge(progress=("leader", "commit", "everybody"), progress_ms=120_000)
        self.random = Random(seed)
        self.world = QuorumWorld(self.random, self.judge, voters, observers)
        self.steps = steps
        self.schedule = Schedule(self.random, self.judge, QuorumFaults(self.world).kinds(), lambda: self.world.now_ms)

    @property
    def virtual_ms(self) -> int:
        return self.world.now_ms

    @property
    def events(self) -> int:
        return self.world.events

    def run(self) -> None:
        """Runs the quorum. Raises Violation, or any error of the code under test."""
        world, random = self.world, self.random
        for replica in world.replicas:
            replica.start()
        for _ in range(self.steps):
            self.schedule.step()
            for _ in range(random.randrange(4)):
                world.run_for(random.choice((5, 40, 300, 1_000)))
                for _ in range(random.randrange(3)):
                    world.write()
            if random.random() < 0.15:
                random.choice(world.replicas).make_snapshot()
        self.schedule.heal()
        self._have_peace()

    def _have_peace(self) -> None:
        world = self.world
        world.weather = Weather()
        world.see(Healed(world.now_ms))
        leaders = [each for each in world.replicas if each.raft is not None and each.raft.is_leader]
        if leaders:
            world.see(Progressed("leader", world.now_ms))
        while self.judge.progress.waits_for:
            world.write()
            world.run_for(PEACE_STEP_MS)
            if len({(each.applied, each.disk.end_offset) for each in world.replicas}) == 1:
                world.see(Progressed("everybody", world.now_ms))
            world.see(TimePassed(world.now_ms))
        world.see(LogSurvived(LOG_NAME, world.survived()))
