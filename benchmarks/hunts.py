"""Plants bugs one at a time, and measures how often, and how fast, simulations of random seeds find each bug.

    nice -n 19 .venv/bin/python -m benchmarks.hunts [BUG ...] [--searches 20] [--cpu-s 60] [--misses 2] [--seed 1]

Each search tries one random cluster after another, until a checker reports a violation or the search has used its CPU
time. After `--misses` searches that found nothing, the searches for this bug end. The program prints one row of
Markdown for each bug as soon as the figures are known. Each bug names the checkers that may find it. If something else
ends a run, the program prints what ended it, and exits with status 1. Native bugs
(`kafkacore.simulation.planted_native`) need the build of `ci/sanitize.sh planted`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from itertools import islice
from random import Random
from statistics import median

from kafkacore.simulation.planted import BUGS, BY_NAME, PlantedBug
from kafkacore.simulation.trial import HUNT_STEPS, QUORUM, STEPS, Verdict, hunt, seeds_from

HEADER = "| planted bug | searches that found it | median CPU time | longest CPU time | checkers that found it |"
HEADER += "\n|---|---|---|---|---|"


def row(bug: PlantedBug, searches: int, cpu_s: float, misses: int, seed: int) -> tuple[str, list[Verdict]]:
    """Searches for one bug, as `tests/support/hunts.py` does. Returns its row of the table, and the verdicts that do
    not come from the bug."""
    steps = STEPS if bug.nodes == QUORUM else HUNT_STEPS
    took: list[float] = []
    missed = 0
    checkers: Counter[str] = Counter()
    strange: list[Verdict] = []
    for start in islice(seeds_from(Random(f"{bug.name} {seed}").getrandbits(32)), searches):
        began = time.process_time()
        found = hunt(bug, start, cpu_s, bug.nodes, steps)
        if found is not None and not bug.is_found_by(found.invariant):
            strange.append(found)
            continue
        if found is None:
            missed += 1
            if missed >= misses:
                break
            continue
        took.append(time.process_time() - began)
        checkers[str(found.invariant)] += 1
    made = len(took) + missed + len(strange)
    middle, most = (f"{median(took):.1f} s", f"{max(took):.1f} s") if took else ("-", "-")
    names = ", ".join(f"`{name}` {count}" for name, count in checkers.most_common())
    return f"| `{bug.name}` | {len(took)} of {made} | {middle} | {most} | {names or '-'} |", strange


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bugs", nargs="*", metavar="BUG", help="planted bugs; by default all in Python code")
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--cpu-s", type=float, default=60.0, help="CPU time of one search")
    parser.add_argument("--misses", type=int, default=1 << 30, help="end after this many failed searches")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.disable()  # the simulated nodes log every fault
    print(HEADER, flush=True)
    all_strange: list[Verdict] = []
    for bug in [BY_NAME[name] for name in asked.bugs] or BUGS:
        text, strange = row(bug, asked.searches, asked.cpu_s, asked.misses, asked.seed)
        print(text, flush=True)
        all_strange += strange
    for verdict in all_strange:
        print(f"{verdict.planted} does not explain this:\n{verdict.line()}", file=sys.stderr)
    return 1 if all_strange else 0


if __name__ == "__main__":
    sys.exit(main())
