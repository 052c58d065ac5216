"""Feeds a target with inputs that reach new code. ci/fuzz.sh runs this script in a tree whose native modules report
coverage.

The script keeps an input, and changes it further, if the input takes an edge more often than all earlier inputs, or
brings the two sides of a comparison closer together. `--keep` writes the smallest set of new inputs with the same
coverage, so that a corpus stays small.
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
# An input stays in the corpus if it is the first to reach at least this number of edges, counts and comparisons.
LEAST_GAIN = 8


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
        """Runs one input, and returns the amount of new coverage. If the process dies, `last` contains the input."""
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
        began = reported = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if now >= reported + REPORT_S:
                reported = now
                self.report(now - began)
            # The newest inputs have been changed the least so far.
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
        """Returns the inputs, smallest first, whose coverage neither `known` nor smaller inputs have."""
        self.coverage.kc_coverage_forget()
        for data in known:
            self.run(data)
        small = sorted((data for data in self.corpus if len(data) <= LARGEST_KEPT_BYTES), key=len)
        return [data for data in small if self.run(data) >= LEAST_GAIN]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("corpus", type=Path, help="the folder of known inputs")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument(
        "--keep", type=Path, help="write the new inputs with more coverage than the corpus to this folder"
    )
    parser.add_argument("--most", type=int, default=60, help="the most inputs to write")
    arguments = parser.parse_args()
    logging.getLogger("kafkacore").setLevel(logging.CRITICAL)
    print(f"{arguments.target}: seed {arguments.seed}", flush=True)
    target = TARGETS[arguments.target]
    guide = Guide(target, arguments.seed, Path("last-input"))
    known = [*target.seeds(), *(path.read_bytes() for path in sorted(arguments.corpus.glob("*")))]
    guide.learn(known)
    if not guide.corpus:
        print(
            "no input produces coverage: run ci/fuzz.sh, which preloads the library and instruments the extensions",
            file=sys.stderr,
        )
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
