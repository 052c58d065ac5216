"""Searches for a planted bug with random seeds."""

from __future__ import annotations

import os
from itertools import islice
from random import Random

from kafkacore.simulation.planted import PlantedBug
from kafkacore.simulation.trial import HUNT_STEPS, QUORUM, STEPS, Verdict, hunt, seeds_from, try_seed
from seeds import SEED

HUNTS = int(os.environ.get("KAFKACORE_HUNTS", "1"))
CPU_S = 60.0
# One search in five misses the bug that is hardest to find (docs/invariants.md). All six searches miss it once in
# 15,000 runs.
SEARCHES = 6
TIMEOUT_S = 1_800  # allows for the CPU time of all searches on a machine that also does other work


def assert_found(bug: PlantedBug, found: Verdict) -> None:
    """Asserts that one of the checkers that the bug names has ended the run."""
    names = ", ".join(each.__name__ for each in bug.found_by)
    assert bug.is_found_by(found.invariant), f"{bug.name} must break {names}, but the run found:\n{found.line()}"


def hunt_down(bug: PlantedBug) -> None:
    """Asserts that a search finds the bug, and that the same run without the bug finds nothing."""
    steps = STEPS if bug.nodes == QUORUM else HUNT_STEPS
    seeds = seeds_from(Random(f"{bug.name} {SEED}").getrandbits(32))
    for _ in range(HUNTS):
        searches = (hunt(bug, seed, CPU_S, bug.nodes, steps) for seed in islice(seeds, SEARCHES))
        found = next((verdict for verdict in searches if verdict is not None), None)
        assert found is not None, f"{SEARCHES} searches did not find {bug.name}: {bug.breaks}"
        assert_found(bug, found)
        verdict = try_seed(found.seed, found.steps, found.nodes)
        assert verdict.problem is None, verdict.line()
