"""Feeds a target with what reaches new code: run by ci/fuzz.sh, in a tree whose native modules tell their coverage.

An input that takes an edge as often, or comes as near to a comparison's other side, as none before it is kept and
changed further. At the end the fewest inputs that reach all of it are written, which is what a corpus is kept small by.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import logging
import os
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from fuzz_targets import TARGETS, Target  # noqa: E402
from mutated_bytes import mutated  # noqa: E402

REPORT_S = 10.0
LARGEST_KEPT_BYTES = 2048
LEAST_GAIN = 8  # edges, counts and comparisons that an input of the corpus shows first


class Guide:
    """One target under one seed."""

    def __init__(self, target: Target, seed: int, last: Path) -> None:
        self.target, self.last = target, last
        self._last = os.open(last, os.O_RDWR | os.O_CREAT, 0o644)
        self.random = random.Random(seed)
        self.coverage = ctypes.CDLL(None)
        self.corpus: list[bytes] = []
        self.runs = 0

    def run(self, data: bytes) -> int:
        """How much of what it shows is new. A process that dies leaves the input in `last`."""
        os.ftruncate(self._last, 0)
        os.pwrite(self._last, data, 0)
        self.coverage.kc_coverage_take()
        self.target.run(data)
        self.runs += 1
        return int(self.coverage.kc_coverage_take())

    def learn(self, inputs: list[bytes]) -> None:
        for data in inputs:
            if self.run(data):
                self.corpus.append(data)

    def go_on(self, seconds: float) -> None:
        began = told = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if now >= told + REPORT_S:
                told = now
                self.report(now - began)
            # What was found last has been changed the least so far.
            newest = self.random.random() < 0.5
            parent = self.corpus[-self.random.randint(1, min(20, len(self.corpus)))] if newest else None
            changed = mutated(self.random, parent or self.random.choice(self.corpus), self.corpus)
            data = self.target.repair(changed) if self.random.random() < 0.7 else bytes(changed)
            if self.run(data):
                self.corpus.append(data)
        self.report(time.monotonic() - began)

    def report(self, elapsed_s: float) -> None:
        edges = self.coverage.kc_coverage_edges()
        print(
            f"{elapsed_s:.0f} s: {self.runs} runs, {self.runs / max(elapsed_s, 1):.0f}/s, {edges} edges, "
            f"{len(self.corpus)} inputs kept",
            flush=True,
        )

    def fewest(self, known: list[bytes]) -> list[bytes]:
        """The smallest inputs first: those that reach much of what `known` and the smaller ones do not."""
        self.coverage.kc_coverage_forget()
        for data in known:
            self.run(data)
        small = sorted((data for data in self.corpus if len(data) <= LARGEST_KEPT_BYTES), key=len)
        return [data for data in small if self.run(data) >= LEAST_GAIN]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("corpus", type=Path, help="the inputs that are known")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--keep", type=Path, help="write new inputs there, at most so that all reach more than before")
    parser.add_argument("--most", type=int, default=60, help="how many of them")
    arguments = parser.parse_args()
    logging.getLogger("kafkacore").setLevel(logging.CRITICAL)
    print(f"{arguments.target}: seed {arguments.seed}", flush=True)
    target = TARGETS[arguments.target]
    guide = Guide(target, arguments.seed, Path("last-input"))
    known = [*target.seeds(), *(path.read_bytes() for path in sorted(arguments.corpus.glob("*")))]
    guide.learn(known)
    if not guide.corpus:
        print("no coverage is told: is the library preloaded, and are the extensions instrumented?", file=sys.stderr)
        return 1
    try:
        guide.go_on(arguments.seconds)
    except Exception:
        guide.report(0)
        print(f"the input is in {guide.last.resolve()}", file=sys.stderr)
        raise
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for data in guide.fewest(known)[: arguments.most]:
            (arguments.keep / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
