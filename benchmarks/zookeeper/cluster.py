"""Measures changes of a whole cluster in ZooKeeper mode, with three brokers of ours and with three of Apache Kafka 3.9.

    python -m benchmarks.zookeeper.cluster [--rows topics failover shutdown failure] [--rounds 3] [--partitions N]
        [--brokers kafkacore apache-3.9] [--no-sync] [--smoke] [--directory build/bench] [--out build/bench]

In each round, a new cluster of each kind starts for every two rows. Only one cluster runs at a time. ZooKeeper syncs
each transaction to the disk, unless `--no-sync` is given. All partitions have three replicas. Writes
zookeeper-cluster.md, .json and .png to `--out` after each round. `--smoke` runs one round with very small sizes, to
check that the rows work.
"""

import argparse
import dataclasses
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from benchmarks.peers import report

from processes import PEERS
from quorums import OURS
from zookeeper_cluster import APACHE
from zookeepers import RELEASE

from .cluster_rows import ROWS, Sizes, titles
from .trio import Trio

SMOKE = Sizes(created_partitions=40, led_partitions=40, probed_partitions=10)
NAME = "zookeeper-cluster"


def arguments():
    there = [OURS] + ([APACHE] if shutil.which("java") and (PEERS / f"kafka-{RELEASE}" / ".complete").exists() else [])
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zookeeper.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, help="partitions of each row (default 5,000 created, 10,000 led)")
    parser.add_argument("--brokers", nargs="+", choices=there, default=there, metavar="NAME")
    parser.add_argument("--no-sync", action="store_true", help="ZooKeeper does not wait for its disk")
    parser.add_argument("--smoke", action="store_true", help="one round with very small sizes")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the brokers' files go below it")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    options.sizes = SMOKE if options.smoke else Sizes()
    if options.partitions:
        options.sizes = dataclasses.replace(
            options.sizes, created_partitions=options.partitions, led_partitions=options.partitions
        )
    options.rounds = 1 if options.smoke else options.rounds
    return options


def main():
    options = arguments()
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="zookeeper-cluster-", dir=options.directory)).resolve()
    results = {row: {kind: [] for kind in options.brokers} for row in options.rows}
    try:
        for number in range(options.rounds):
            for prepare in dict.fromkeys(ROWS[row].prepare for row in options.rows):
                for kind in options.brokers:
                    where = scratch / f"{number}-{kind}-{prepare.__name__ if prepare else 'empty'}"
                    measure(where, kind, prepare, options, results)
            text = written(options, results, number + 1)
    finally:
        shutil.rmtree(scratch)
    print(text)
    missing = [name for name in options.rows if not all(results[name].values())]
    if options.smoke and missing:
        sys.exit(f"no figures of {', '.join(missing)}")


def written(options, results, rounds):
    """Writes the table, also after each round of a long run. Returns it."""
    named = titles(options.sizes)
    rows = {name: (named[name], ROWS[name].shown, None) for name in options.rows}
    against = options.brokers[1] if len(options.brokers) > 1 else None
    return report.write(options.out, results, rows, options.brokers, rounds, options.directory, NAME, against)


def measure(where, kind, prepare, options, results):
    """Starts a cluster and measures its rows. If a row fails, it gets no figure in this round, and the cluster
    stops."""
    doing = "start"
    try:
        with Trio(where, kind, durable=not options.no_sync) as trio:
            if prepare:
                doing = prepare.__name__
                prepare(trio, options.sizes)
            for doing in (row for row in ROWS if row in options.rows and ROWS[row].prepare is prepare):
                figures = ROWS[doing].measure(trio, options.sizes)
                results[doing][kind].append(figures)
                shown = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
                print(f"{doing:<10}{kind:<12}{shown}", flush=True)
    except (RuntimeError, AssertionError, OSError):
        print(f"{doing} on {kind} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
