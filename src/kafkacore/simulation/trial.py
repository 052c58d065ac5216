"""One run of a cluster from a seed to a verdict, and the search for bugs with many runs."""

from __future__ import annotations

import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple, Protocol

from kafkacore.simulation.checkers.violation import Violation
from kafkacore.simulation.cluster_run import ClusterRun
from kafkacore.simulation.judge import Judge
from kafkacore.simulation.planted import PlantedBug, planted
from kafkacore.simulation.quorum_run import QuorumRun
from kafkacore.simulation.zookeeper_run import ZooKeeperRun

STEPS: Final = 40
# Faults in a run with whole nodes. With fewer, the start and the end would take most of the time.
HUNT_STEPS: Final = 60
QUORUM: Final = "quorum:3+1"
ZOOKEEPER: Final = "zookeeper:3+3"
WHOLE: Final = "3c2b"
_CLUSTER: Final = re.compile(r"(?:(\d+)c(?:(\d+)b)?)?(\d+)?")
_ZOOKEEPER: Final = re.compile(r"zookeeper:([1-9]\d*)(?:\+([1-9]\d*))?")
_QUORUM: Final = re.compile(r"quorum:([1-9]\d*)(?:\+(\d+))?")
SEED_BITS: Final = 48


class Run(Protocol):
    judge: Judge

    @property
    def virtual_ms(self) -> int: ...
    @property
    def events(self) -> int:
        """Returns the number of events so far. With Raft cores alone, an event is a delivered message, a timer or a
        finished disk operation. With whole nodes, it is an iteration of an event loop or a task of native code."""

    def run(self) -> None:
        """Performs the run. Raises Violation, or any error of the code under test."""


class Verdict(NamedTuple):
    """The result of a run. `problem` is None if no checker reported a violation. Otherwise it describes the broken
    invariant, or the error that ended a node."""

    seed: int
    nodes: str
    steps: int
    problem: str | None
    invariant: str | None
    last: list[str]
    virtual_ms: int
    events: int
    cpu_s: float
    seen: Counter[str]
    under_faults: Counter[tuple[str, str]]
    planted: str = ""  # the name of the bug that was planted

    def line(self) -> str:
        """Returns the verdict as text, with the command that repeats the run."""
        if self.problem is None:
            return (
                f"seed {self.seed}: all is well after {self.events} events in {self.virtual_ms / 1000:.0f} s of the "
                f"cluster's time ({self.nodes}, {self.cpu_s:.1f} s of CPU)"
            )
        again = f"kafkacore simulate --seed {self.seed} --steps {self.steps} --nodes {self.nodes}"
        if self.planted:
            again += f" --plant {self.planted}"
        return "\n".join([*self.last, f"seed {self.seed}: {self.problem}", f"again: {again}"])


def make_run(seed: int, steps: int, nodes: str) -> Run:
    """Makes a run. `nodes` is `3c2b` for three controllers and two brokers, `3` for three nodes with both roles,
    `zookeeper:BROKERS+SERVERS` for brokers in ZooKeeper mode and ZooKeeper servers, or `quorum:VOTERS+OBSERVERS` for
    Raft cores alone. Raises ValueError if `nodes` has another form."""
    if match := _QUORUM.fullmatch(nodes):
        return QuorumRun(seed, steps, int(match[1]), int(match[2] or 0))
    if match := _ZOOKEEPER.fullmatch(nodes):
        return ZooKeeperRun(seed, steps, int(match[1]), int(match[2] or 1))
    if (match := _CLUSTER.fullmatch(nodes)) and (match[1] or match[3]):
        return ClusterRun(seed, steps, int(match[1] or 0), int(match[2] or 0), int(match[3] or 0))
    raise ValueError(
        f"{nodes!r} names no cluster: write 3c2b for three controllers and two brokers, 3 for three nodes with both "
        "roles, zookeeper:3+3 for three brokers in ZooKeeper mode on three ZooKeeper servers, quorum:3+1 for three "
        "voters and an observer without nodes around them"
    )


def try_seed(
    seed: int, steps: int = STEPS, nodes: str = QUORUM, on_event: Callable[[str], None] | None = None
) -> Verdict:
    """Performs the run of a seed, and returns the verdict. `on_event` gets each line of the trace. Raises ValueError if
    `nodes` is not valid."""
    began = time.process_time()
    run = make_run(seed, steps, nodes)
    run.judge.on_event = on_event
    problem = invariant = None
    try:
        run.run()
    except Violation as violation:
        problem, invariant = str(violation), violation.invariant
    except Exception as error:  # noqa: BLE001 - an error of the code under test is a finding
        place = traceback.extract_tb(error.__traceback__)[-1]
        invariant = type(error).__name__
        problem = f"{invariant} at {place.filename.rpartition('/')[2]}:{place.lineno}: {error}"
    judge = run.judge
    return Verdict(
        seed, nodes, steps, problem, invariant, list(judge.last), run.virtual_ms, run.events,
        time.process_time() - began, judge.seen, judge.under_faults,
    )  # fmt: skip


def seeds_from(seed: int) -> Iterator[int]:
    """Yields the seeds of a search that starts with this seed."""
    random = Random(seed)
    while True:
        yield random.getrandbits(SEED_BITS)


def hunt(bug: PlantedBug, seed: int, cpu_s: float, nodes: str = QUORUM, steps: int = STEPS) -> Verdict | None:
    """Runs clusters with a planted bug until a run finds a problem, and returns that verdict. The problem need not come
    from the bug: `PlantedBug.is_found_by` decides that. Returns None when the CPU time is used up."""
    began = time.process_time()
    with planted(bug):
        for each in seeds_from(seed):
            verdict = try_seed(each, steps, nodes)
            if verdict.problem is not None:
                return verdict._replace(planted=bug.name)
            if time.process_time() - began > cpu_s:
                return None
    raise AssertionError("there is always another seed")
