"""`kafkacore simulate`: runs clusters from a seed while faults happen, and checks the clusters from outside."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from itertools import islice
from random import SystemRandom
from textwrap import fill
from typing import Final, TextIO

from kafkacore.simulation.planted import BUGS, BY_NAME, planted
from kafkacore.simulation.trial import QUORUM, SEED_BITS, STEPS, ZOOKEEPER, Verdict, seeds_from, try_seed
from kafkacore.tools.numbers import whole_number

DESCRIPTION: Final = (
    "Runs a cluster in a simulated world. A seed decides which messages are lost, late or repeated, which links are "
    "cut, which nodes are killed, paused or lose power, and which clocks are wrong. Reports that all is well, or which "
    "invariant was broken."
)
NODES: Final = "3c3b"
BAR_WIDTH: Final = 30
COVERAGE_EVENTS: Final = (
    "Leads", "VoteGranted", "HighWatermark", "LogSeen", "ImageSeen", "RecordAcknowledged", "MetadataAcknowledged",
    "HeartbeatAnswered", "CommitAcknowledged",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, metavar="N", help="decides everything (default: a new one, which is printed)"
    )
    parser.add_argument(
        "--steps", type=whole_number(0), default=STEPS, metavar="N", help=f"the number of faults (default {STEPS})"
    )
    parser.add_argument(
        "--nodes", default=NODES, metavar="SPEC",
        help=f"the cluster (default {NODES}); {ZOOKEEPER} is in ZooKeeper mode; {QUORUM} has only Raft cores",
    )  # fmt: skip
    parser.add_argument("--trace", metavar="FILE", help="write every event to this file")
    parser.add_argument(
        "--runs",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="the number of seeds to run; more than one are drawn from --seed",
    )
    parser.add_argument(
        "--processes",
        type=whole_number(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes for --runs (default: one per core)",
    )
    parser.add_argument("--plant", choices=sorted(BY_NAME), metavar="BUG", help="plant a bug, see below")
    # argparse would break the names of bugs at their hyphens.
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = fill(DESCRIPTION)
    parser.epilog = "Bugs to plant:\n  " + "\n  ".join(bug.name for bug in BUGS)


def run(arguments: argparse.Namespace) -> int:
    seed = SystemRandom().getrandbits(SEED_BITS) if arguments.seed is None else arguments.seed
    try:
        if arguments.runs > 1 and arguments.trace:
            raise ValueError("--trace writes the events of one run: leave out --runs, or repeat one seed with --trace")
        with _quiet_nodes():
            return _run_many(seed, arguments) if arguments.runs > 1 else _run_one(seed, arguments)
    except ValueError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1


@contextmanager
def _quiet_nodes() -> Iterator[None]:
    """Hides the warnings of the simulated nodes. The faults of the run cause these warnings, which name neither the run
    nor its time."""
    log = logging.getLogger("kafkacore")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _run_one(seed: int, arguments: argparse.Namespace) -> int:
    with ExitStack() as stack:
        trace: TextIO | None = None
        if arguments.trace:
            trace = stack.enter_context(open(arguments.trace, "w", encoding="utf-8"))
        stack.enter_context(planted(BY_NAME.get(arguments.plant)))
        write = None if trace is None else (lambda line: print(line, file=trace))
        verdict = try_seed(seed, arguments.steps, arguments.nodes, write)._replace(planted=arguments.plant or "")
    print(verdict.line())
    return 0 if verdict.problem is None else 1


def _run_many(seed: int, arguments: argparse.Namespace) -> int:
    bad: list[Verdict] = []
    events = 0
    virtual_ms = 0
    coverage: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    seeds = islice(seeds_from(seed), arguments.runs)
    for done, verdict in enumerate(_verdicts(seeds, arguments), 1):
        events += verdict.events
        virtual_ms += verdict.virtual_ms
        coverage.update(verdict.under_faults)
        if verdict.problem is not None:
            bad.append(verdict)
        _show(done, arguments.runs, len(bad), time.monotonic() - began)
    print(file=sys.stderr)
    for verdict in bad:
        print(verdict.line())
    print("\n".join(_table(coverage)))
    print(
        f"{arguments.runs} seeds from {seed}: {len(bad)} failed; {events} events in {virtual_ms / 3_600_000:.1f} hours "
        f"of the clusters' time"
    )
    return 1 if bad else 0


def _verdicts(seeds: Iterable[int], arguments: argparse.Namespace) -> Iterator[Verdict]:
    """Yields the verdicts in the order in which the runs end."""
    with ProcessPoolExecutor(arguments.processes) as pool:
        jobs = {pool.submit(_in_process, seed, arguments) for seed in seeds}
        while jobs:
            done, jobs = wait_for(jobs, return_when="FIRST_COMPLETED")
            for job in done:
                yield job.result()


def _in_process(seed: int, arguments: argparse.Namespace) -> Verdict:
    with planted(BY_NAME.get(arguments.plant)):
        return try_seed(seed, arguments.steps, arguments.nodes)._replace(planted=arguments.plant or "")


def _show(done: int, total: int, bad: int, passed_s: float) -> None:
    if sys.stderr.isatty() or done == total:
        filled = BAR_WIDTH * done // total
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        print(f"\r[{bar}] {done}/{total} seeds, {bad} bad, {passed_s:.0f} s", end="", file=sys.stderr, flush=True)


def _table(coverage: Counter[tuple[str, str]]) -> list[str]:
    """Returns a table with a row for each kind of fault and a column for each kind of event: how often the event
    occurred while such a fault was active."""
    kinds = sorted({fault for fault, _ in coverage})
    events = [each for each in COVERAGE_EVENTS if any(coverage[kind, each] for kind in kinds)]
    width = max(map(len, kinds), default=0)
    lines = [" " * width + "".join(f"  {each}" for each in events)]
    for kind in kinds:
        lines += [kind.ljust(width) + "".join(f"  {coverage[kind, each]:>{len(each)}}" for each in events)]
    return lines
