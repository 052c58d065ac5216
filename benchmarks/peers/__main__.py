"""`python -m benchmarks.peers` puts the same load on our broker and on other brokers, one after the other, in one run.

All brokers run throughout, on the loopback interface and one file system. The broker under load shares the machine only
with the idle work of the other brokers. CPU is the broker's own, including its spinning. The first round warms up and
does not count.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from . import start
from .contestants import starters
from .report import write
from .rows import ONCE, ROWS


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="default: all installed brokers")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another, built checkout, as the peer 'before'")
    parser.add_argument("--rows", nargs="+", choices=[*ROWS, "start"], default=[*ROWS, "start"], metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the brokers' files go below it")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    available = starters(options.before)
    options.peers = options.peers or list(available)
    if unknown := [name for name in options.peers if name not in available]:
        parser.error(f"no such peer: {', '.join(unknown)}; there are {', '.join(available)}")
    return options, available


def measure(row, broker):
    """Measures one row on one broker. If the broker cannot serve the row, the cell stays empty, and a line gives the
    reason."""
    try:
        return ROWS[row][2](broker)
    except (RuntimeError, AssertionError, OSError) as error:
        print(f"{row} on {broker.name}: {error}", file=sys.stderr, flush=True)
        return {}


def run(brokers, rows, rounds):
    """Returns the figures of each row and contestant. Each figure is a list with one entry for each round."""
    results = {row: {name: [] for name in brokers} for row in rows}
    for row in rows:
        repeats = 1 if row in ONCE else rounds + 1
        for number in range(repeats):
            for name, broker in brokers.items():
                figures = measure(row, broker)
                if number > 0 or row in ONCE:
                    results[row][name].append(figures)
                print(
                    f"{row:<14}{name:<12}{number} " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()), flush=True
                )
    return results


def main():
    options, available = arguments()
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="peers-", dir=options.directory)).resolve()
    brokers = {}
    try:
        for name in options.peers:
            brokers[name] = available[name](scratch / name)
            brokers[name].name = name
        results = run(brokers, [row for row in options.rows if row in ROWS], options.rounds)
        if "start" in options.rows:
            for broker in brokers.values():
                broker.stop()
            results["start"] = start.measure(brokers, options.rounds)
    finally:
        for broker in brokers.values():
            broker.stop()
        shutil.rmtree(scratch)
    rows = {row: ROWS.get(row, (start.TITLE, start.SHOWN, None)) for row in options.rows}
    print(write(options.out, results, rows, list(brokers), options.rounds, options.directory))


if __name__ == "__main__":
    main()
