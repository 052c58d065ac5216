"""Runs Appendix A of the Kafka Controller Redesign on real servers of ZooKeeper 3.8.4. Compares our client with kazoo.

    python -m benchmarks.zookeeper [--znodes 10000] [--runs 5] [--servers 1 3] [--batches 1 10 ... 50000]
        [--clients kafkacore kazoo] [--out build/bench/zookeeper] [--whole]

`--whole` uses the document's size: 500,000 znodes and 5 servers. Add `--znodes 1000000` for the document's second
table. The synchronous experiments make at most `--sync-requests` requests, but with `--whole` there is no limit. The
servers sync each transaction to the disk. The clients run one after the other, in changing order. The first run of each
experiment warms the servers up and does not count. Writes results.json, table.md and plot.png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import benchmarks.peers  # noqa: F401 - it puts tests/support on the path
from benchmarks.zookeeper.experiments import BATCHED, CLIENTS, EXPERIMENTS, Failed
from benchmarks.zookeeper.report import plot, table

from zookeepers import ZooKeeperEnsemble, ZooKeeperServer

BATCHES = (1, 10, 50, 100, 500, 1_000, 5_000, 10_000, 50_000)
DATA_BYTES = 100  # the state znode of a partition with three replicas has about 90 bytes
JVM = ("-Xmx768m", "-XX:+UseG1GC")


def main() -> None:
    options = arguments()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for count in options.servers:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory, servers(count, directory) as started:
            rows += measure(started.connect, count, options)
    (out / "results.json").write_text(json.dumps({"options": vars(options), "rows": rows}, indent=1))
    (out / "table.md").write_text(table(rows))
    print(table(rows))
    plot(rows, out / "plot.png")


def servers(count: int, directory: str) -> ZooKeeperServer | ZooKeeperEnsemble:
    options = {"durable": True, "jvm": JVM}
    properties = {"zookeeper.snapCount": "1000000", "zookeeper.preAllocSize": "65536"}
    if count == 1:
        return ZooKeeperServer(f"{directory}/server", None, properties, **options)
    return ZooKeeperEnsemble(directory, count, None, properties, **options)


def measure(connect: str, server_count: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    clients = [CLIENTS[name](connect) for name in options.clients]
    data = os.urandom(DATA_BYTES)
    rows = []
    try:
        clients[0].prepare(options.znodes)
        for experiment in EXPERIMENTS:
            for batch in options.batches if experiment in BATCHED else [0]:
                count = options.znodes
                if experiment.endswith("data-sync"):
                    count = min(count, options.sync_requests * max(batch, 1))
                tried = [new_row(server_count, experiment, batch, client.name, count) for client in clients]
                turn(clients, tried, experiment, count, data, batch, options.runs)
                rows += tried
                for row in tried:
                    print(describe(row), file=sys.stderr)
    finally:
        for client in clients:
            client.close()
    return rows


def new_row(servers: int, experiment: str, batch: int, client: str, count: int) -> dict[str, Any]:
    return {
        "servers": servers, "experiment": experiment, "batch": batch, "client": client, "znodes": count,
        "ms": [], "cpu_ms": [], "failed": None,
    }  # fmt: skip


def turn(clients, rows, experiment, count, data, batch, runs) -> None:
    """Makes all runs of one experiment, with one client after the other. A client that fails is left out of the later
    runs."""
    for run in range(runs + 1):
        pairs = list(zip(clients, rows, strict=True))
        for client, row in pairs if run % 2 else reversed(pairs):
            if row["failed"]:
                continue
            began, spent = time.perf_counter(), time.process_time()
            try:
                client.run(experiment, count, data, batch)
            except Failed as failed:
                row["failed"] = str(failed)
                continue
            if run:
                row["ms"].append((time.perf_counter() - began) * 1e3)
                row["cpu_ms"].append((time.process_time() - spent) * 1e3)


def describe(row: dict[str, Any]) -> str:
    batch = f" {row['batch']}" if row["batch"] else ""
    name = f"{row['servers']} server(s), {row['experiment']}{batch}, {row['client']}"
    if row["failed"]:
        return f"{name}: {row['failed']}"
    return f"{name}: {row['znodes'] / statistics.median(row['ms']) * 1e3:,.0f} znodes/s"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--znodes", type=int)
    parser.add_argument("--sync-requests", type=int)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--servers", type=int, nargs="+")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--directory", help="where the servers write")
    parser.add_argument("--out", default="build/bench/zookeeper")
    options = parser.parse_args()
    options.znodes = options.znodes or (500_000 if options.whole else 10_000)
    options.sync_requests = options.sync_requests or (options.znodes if options.whole else 300)
    options.servers = options.servers or ([5] if options.whole else [1, 3])
    return options


if __name__ == "__main__":
    main()
