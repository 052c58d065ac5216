"""`python -m benchmarks.control_plane` makes every figure and table of `docs/control-plane.md`.

    python -m benchmarks.control_plane [--quick] [--brokers kafkacore apache-3.9] [--minutes 9] [--producers 600]
        [--out build/bench/control-plane] [--figures docs/control-plane] [--redraw]

Four clusters of two brokers run side by side: for each implementation, one without control.plane.listener.name and one
with it. The clusters are measured alternately, so that other load on the machine affects all of them. Rounds repeat
until the time of `--minutes` is used up. `--quick` runs only our brokers, for a minute and a half. The program writes
results.json and tables.md to `--out`, and four SVGs to `--figures`, by default the same folder. One SVG shows the
brokers' request logs. For this SVG, the plane report of `kafkacore spark` reads the logs (Java 17, PySpark). With
`--redraw` the program measures nothing and reads results.json of an earlier run.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.control_plane import consequences, latency, report, request_logs, shutdown
from benchmarks.control_plane.pairs import Pair
from benchmarks.peers.report import conditions

from quorums import OURS
from zookeeper_cluster import APACHE

SHOWN = {OURS: report.OURS, APACHE: report.APACHE}
ROUNDS = 12
LATENCY_SHARE = 0.25  # the latency measurements get this share of the time that is left once all clusters are running
END_S = 25.0  # time to stop the clusters and draw the figures


def main():
    options = arguments()
    if options.redraw:
        write(json.loads((Path(options.out) / "results.json").read_text()), Path(options.out), Path(options.figures))
    else:
        measure(options)


def measure(options):
    began = time.monotonic()
    until = began + options.minutes * 60 - END_S
    kinds = options.brokers
    results = nothing_yet(options)
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        contextlib.ExitStack() as stack,
        ThreadPoolExecutor() as pool,
    ):
        counts = {
            kind: pool.submit(shutdown.measure, f"{directory}/{kind}-tapped", kind, options.partitions)
            for kind in kinds
        }
        made = [
            Pair(f"{directory}/{kind}-{'apart' if apart else 'shared'}", kind, apart=apart)
            for apart in (False, True) for kind in kinds
        ]  # fmt: skip
        pairs = list(pool.map(stack.enter_context, made))
        for kind, counted in counts.items():
            results["shutdown"][SHOWN[kind]] = counted.result()
        say(began, f"{len(pairs)} clusters are running")
        now = time.monotonic()
        measure_latency(pairs, results, options, now + LATENCY_SHARE * (until - now))
        say(began, "latencies are measured")
        measure_logged(pairs, results, options, directory)
        say(began, "request logs are read")
        measure_consequences(pairs, results, until)
        say(began, "consequences are measured")
    write(results, Path(options.out), Path(options.figures))
    say(began, f"written to {options.out}")


def nothing_yet(options):
    """Returns results without any measurement."""
    shown = [SHOWN[kind] for kind in options.brokers]
    return {
        "conditions": conditions(ROUNDS, options.directory or tempfile.gettempdir()).rsplit(",", 1)[0],
        "producers": options.producers, "partitions": options.partitions,
        "latency": {name: {} for name in shown},
        "logged": {name: {} for name in shown},
        "consequences": {name: {"shared": {}, "apart": {}} for name in shown},
        "storm": {name: {"quiet": [], "storm": [], "AlterPartition/s": []} for name in shown},
        "shutdown": {},
    }  # fmt: skip


def say(began, what):
    print(f"{time.monotonic() - began:6.0f} s  {what}", file=sys.stderr, flush=True)


def rounds(until):
    """Yields once for each round, as long as another whole round should fit before `until`. Always yields at least
    once.
    """
    round_s = 0.0
    for number in range(ROUNDS):
        began = time.monotonic()
        if number and began + round_s >= until:
            return
        yield
        round_s = time.monotonic() - began


def measure_latency(pairs, results, options, until):
    """Repeats rounds of measurements until the time `until`. Each round applies every load in LOADS to every cluster.
    It then sends a storm of AlterPartition requests to the clusters with a separate control plane listener."""
    for _ in rounds(until):
        for load in latency.LOADS:
            for pair in pairs:
                with tolerated(f"{load}, {pair.name}"):
                    for way, found in latency.measure(pair, load, options.probe_s, options.producers).items():
                        ways = results["latency"][SHOWN[pair.kind]].setdefault(way, {})
                        ways.setdefault(load, []).extend(found)
        for pair in pairs:
            if pair.apart:
                with tolerated(f"storm, {pair.name}"):
                    found, kept = latency.storm(pair, options.probe_s), results["storm"][SHOWN[pair.kind]]
                    kept["quiet"] += found["quiet"]
                    kept["storm"] += found["storm"]
                    kept["AlterPartition/s"].append(found["AlterPartition/s"])


def measure_logged(pairs, results, options, directory):
    """Collects the request logs of the loaded brokers, and lets the plane report read all of them at once."""
    if not request_logs.is_readable():
        print("the request logs are left out: ci/spark.sh installs PySpark", file=sys.stderr, flush=True)
        return
    paths = []
    for load in request_logs.LOADS:
        for pair in pairs:
            with tolerated(f"request log, {load}, {pair.name}"):
                paths.append(request_logs.record(pair, load, options.probe_s, Path(directory) / "request-logs"))
    found = request_logs.distributions(session("control plane"), paths)
    for kind in options.brokers:
        results["logged"][SHOWN[kind]] = {load: request_logs.by_way(found, kind, load) for load in request_logs.LOADS}


def session(name):
    from kafkacore.spark.pipelines import commands

    return commands.session(name)


def measure_consequences(pairs, results, until):
    for _ in rounds(until):
        for experiment in consequences.EXPERIMENTS:
            for pair in pairs:
                with tolerated(f"{experiment.__name__}, {pair.name}"):
                    kept = results["consequences"][SHOWN[pair.kind]]["apart" if pair.apart else "shared"]
                    for name, values in experiment(pair).items():
                        kept.setdefault(name, []).extend(values)


@contextlib.contextmanager
def tolerated(what):
    """If an experiment fails because the machine is too busy, skips it and lets the run continue. The figures then come
    from fewer rounds.
    """
    try:
        yield
    except (TimeoutError, RuntimeError, OSError) as error:
        print(f"{what} is left out: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)


def write(results, out, figures):
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1))
    (out / "tables.md").write_text(report.tables(results))
    print(report.tables(results))
    report.figures(results, figures)


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--brokers", nargs="+", choices=list(SHOWN))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--producers", type=int)
    parser.add_argument("--partitions", type=int, help="partitions of the broker that shuts down")
    parser.add_argument("--probe-s", type=float, help="how long each path is measured under each load")
    parser.add_argument("--directory", help="where the brokers write")
    parser.add_argument("--out", default="build/bench/control-plane")
    parser.add_argument("--figures")
    parser.add_argument("--redraw", action="store_true")
    options = parser.parse_args(words)
    quick = options.quick
    options.figures = options.figures or options.out
    options.brokers = options.brokers or ([OURS] if quick else [OURS, APACHE])
    options.minutes = options.minutes or (1.5 if quick else 9.0)
    options.producers = options.producers or (100 if quick else 600)
    options.partitions = options.partitions or (20 if quick else 100)
    options.probe_s = options.probe_s or (1.0 if quick else 2.0)
    return options


if __name__ == "__main__":
    main()
