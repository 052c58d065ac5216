"""`python -m benchmarks.replication` compares three nodes of ours with three of Apache Kafka, in one run.

The two clusters are measured alternately. Every node is a broker and a controller. The CPU figures cover all three
processes of a cluster, including their spinning. For some rows, `benchmarks/floor/floor.c` does only the minimum of the
work, as a lower bound (floor). `--rows NAME` runs one row alone. `--smoke` runs all rows with very small sizes and one
round, to check that they work.
"""

import argparse
import contextlib
import dataclasses
import itertools
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.floor.floor import build
from benchmarks.peers import report

from quorums import OURS

from .cluster import Nodes, Tools, kinds
from .rows import ROWS, SMOKE, Sizes

FLOOR = "floor"


def arguments():
    available = kinds()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication", description=__doc__.splitlines()[0])
    default = [name for name in (OURS, "apache-4.3") if name in available]
    parser.add_argument("--brokers", nargs="+", choices=available, default=default, metavar="NAME")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="one round with very small sizes")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the nodes' files go below it")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    sizes = parser.add_argument_group("sizes", "how much each row does")
    for field in dataclasses.fields(Sizes):
        sizes.add_argument(f"--{field.name.replace('_', '-')}", type=field.type, help=f"default {field.default}")
    options = parser.parse_args()
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Sizes)}
    options.sizes = dataclasses.replace(
        SMOKE if options.smoke else Sizes(), **{name: value for name, value in given.items() if value is not None}
    )
    options.rounds = 1 if options.smoke else options.rounds
    return options


class Run:
    """The figures of all rows, for each row and contestant. Each figure is a list with one entry for each round."""

    def __init__(self, options, scratch, tools):
        self.options, self.scratch, self.tools = options, scratch, tools
        self.kept, self.clusters, self.settings = contextlib.ExitStack(), {}, None
        self.numbers = itertools.count()
        self.names = [*options.brokers]
        self.floor = None
        if any(ROWS[row].floor for row in options.rows):
            self.names.append(FLOOR)
            self.floor = build(scratch)
        self.results = {row: {name: [] for name in self.names} for row in options.rows}

    def row(self, name):
        row, last = ROWS[name], self.options.rounds
        alone = row.alone and not self.options.smoke
        if alone:
            self.kept.close()
        for number in range(0 if alone or self.options.smoke else -1, last):
            for kind in self.options.brokers:
                nodes = (self.started if alone else self.running)(kind, row.settings)
                self.note(name, kind, number, lambda nodes=nodes: row.measure(nodes, self.options.sizes))
                if alone:
                    self.kept.close()
            if row.floor:
                self.note(name, FLOOR, number, lambda: row.floor(self.floor, self.scratch, self.options.sizes))

    def running(self, kind, settings):
        """Returns the running cluster of this kind. The cluster keeps running from round to round and from row to row
        while the settings are the same."""
        if settings != self.settings:
            self.kept.close()
            self.settings = settings
        if kind not in self.clusters:
            self.clusters[kind] = self.started(kind, settings)
        return self.clusters[kind]

    def started(self, kind, settings):
        """Starts a new cluster, which runs until `kept` closes. Its files stay until the end of the run. If they were
        deleted earlier, ext4 would search among the deleted inodes for minutes whenever a node makes a file."""
        directory = self.scratch / f"{next(self.numbers)}-{kind}"
        nodes = Nodes(kind, directory, settings, self.tools)
        self.kept.callback(self.clusters.clear)
        self.kept.callback(nodes.close)
        return nodes

    def note(self, row, name, number, measure):
        """Measures one row and stores its figures. If the contestant cannot serve the row, the cell stays empty, and a
        line gives the reason."""
        try:
            figures = measure()
        except (RuntimeError, AssertionError, OSError) as error:
            print(f"{row} on {name}: {error}", file=sys.stderr, flush=True)
            return
        if number >= 0:
            self.results[row][name].append(figures)
        shown = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
        print(f"{row:<16}{name:<12}{number:>2} {shown}", flush=True)


def main():
    options = arguments()
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="replication-", dir=options.directory)).resolve()
    try:
        with contextlib.closing(Tools()) as tools:
            run = Run(options, scratch, tools)
            with run.kept:
                for name in options.rows:
                    run.row(name)
    finally:
        shutil.rmtree(scratch)
    rows = {name: (ROWS[name].title, ROWS[name].shown, None) for name in options.rows}
    against = options.brokers[1] if len(options.brokers) > 1 else None
    print(
        report.write(
            options.out, run.results, rows, run.names, options.rounds, options.directory, "replication", against
        )
    )
    missing = [name for name in options.rows if not all(run.results[name][kind] for kind in options.brokers)]
    if options.smoke and missing:
        sys.exit(f"no figures of {', '.join(missing)}")


if __name__ == "__main__":
    main()
