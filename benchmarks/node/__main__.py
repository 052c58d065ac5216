"""`python -m benchmarks.node` measures the costs of a node outside its main load: starts, idle time, topics, syncs.

If both our node and Apache Kafka's can do the work of a row, they run alternately. `benchmarks.node.process` measures
only our node, with pyperf. For comparison with the syncs, one thread repeatedly writes 100 bytes to the same file
system and syncs them (the floor).
"""

import argparse
import contextlib
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers import report, requests, start
from benchmarks.peers.contestants import SERVER_JVM, starters
from benchmarks.peers.rows import (
    IDLE_S,
    checked,
    create_topics,
    fresh_topic,
    load,
    memory,
    metadata,
    one_record,
    rss_mib,
    with_cpu,
)

from brokers import ApacheKafka, Node

from .formatted import Formatted

SYNC_EACH = {"log.flush.interval.messages": "1"}
PRODUCERS = 16
SYNCED_SECONDS = 2.0
FLOOR_SYNCS = 300
IDLE_CONNECTIONS = 10_000
OPEN_FILES = 20_000
NAMES = ("kafkacore", "apache-4.3", "apache-3.9")


def synced(broker, partitions):
    """Runs 16 producers with one request in flight each. Every acknowledgement waits for the sync of its record."""
    topic = fresh_topic(broker, partitions)
    client = load(broker, connections=PRODUCERS)
    asked = [requests.produce(topic, at % partitions, one_record()) for at in range(PRODUCERS)]
    where = requests.produce_error_at(topic)
    client.run(asked, count=10 * PRODUCERS, error_at=where)
    result = client.run(asked, seconds=SYNCED_SECONDS, error_at=where)
    client.close()
    checked(result, result.requests)
    return {"acknowledged/s": result.requests / result.elapsed_ns * 1e9, "p99 ms": result.percentile_ns(0.99) / 1e6}


def floor_syncs_per_second(directory):
    file = os.open(directory / "floor", os.O_RDWR | os.O_CREAT)
    began = time.perf_counter()
    for at in range(FLOOR_SYNCS):
        os.pwrite(file, b"x" * 100, at * 100)
        os.fdatasync(file)
    taken = time.perf_counter() - began
    os.close(file)
    return FLOOR_SYNCS / taken


def many_connections(broker):
    """Measures CPU and memory of idle connections."""
    before = rss_mib(broker.pid)
    host, port = broker.bootstrap.rsplit(":", 1)
    with contextlib.ExitStack() as held:
        for _ in range(IDLE_CONNECTIONS):
            held.enter_context(socket.create_connection((host, int(port)), timeout=10))
        # The broker has accepted all requests once it answers the last one.
        requests.call(broker.bootstrap, requests.frame(requests.API_VERSIONS, 0, b""))
        _, cpu_s = with_cpu(lambda: time.sleep(IDLE_S), broker.pid)
        each_kib = (rss_mib(broker.pid) - before) * 1024 / IDLE_CONNECTIONS
    return {"% of a core": cpu_s / IDLE_S * 100, "KiB each": each_kib}


TITLES = {
    "start": (start.TITLE, start.SHOWN, None),
    "idle": ("idle", "RSS MiB", memory),
    "connections": ("10,000 idle connections", "% of a core", many_connections),
    "metadata": ("Metadata of 10,000 partitions", "ns a partition", metadata),
    "create-topics": ("CreateTopics 900 x 10", "first records acknowledged s", create_topics),
    "synced-1": ("16 producers on 1 partition, each acknowledgement synced", "acknowledged/s", lambda b: synced(b, 1)),
    "synced-16": ("16 producers on 16 partitions, each synced", "acknowledged/s", lambda b: synced(b, PRODUCERS)),
}
SYNCED = ("synced-1", "synced-16")
ONCE = ("metadata", "create-topics", "connections")


def interleaved(brokers, rows, rounds, results):
    for row in rows:
        for number in range(1 if row in ONCE else rounds):
            for name, broker in brokers.items():
                try:
                    figures = TITLES[row][2](broker)
                except (RuntimeError, OSError) as error:
                    print(f"{row} on {name}: {error!r}", file=sys.stderr, flush=True)
                    continue
                results[row][name].append(figures)
                shown = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
                print(f"{row:<14}{name:<12}{number} {shown}", flush=True)


def synced_starter(name):
    if name == "kafkacore":
        return lambda directory: Node(directory / "node", overrides=SYNC_EACH)
    return lambda directory: ApacheKafka(name, directory, SYNC_EACH, jvm=SERVER_JVM)


def server_starter(name):
    """Returns the function that starts a broker from its server.properties. Our node does not run `kafkacore dev`
    here."""
    return Formatted if name == "kafkacore" else starters()[name]


@contextlib.contextmanager
def running(names, scratch, starter=lambda name: starters()[name]):
    brokers = {}
    try:
        for name in names:
            brokers[name] = starter(name)(scratch / name)
            brokers[name].name = name
        yield brokers
    finally:
        for broker in brokers.values():
            broker.stop()


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node", description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", nargs="+", choices=NAMES, default=list(NAMES[:2]))
    parser.add_argument("--rows", nargs="+", choices=TITLES, default=list(TITLES), metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the brokers' files go below it")
    parser.add_argument("--out", type=Path, default=Path("build/bench/node"))
    options = parser.parse_args()
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, allowed), allowed))
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="node-", dir=options.directory)).resolve()
    results = {row: {name: [] for name in options.brokers} for row in options.rows}
    try:
        measure(options, scratch, results)
        print(f"floor: {floor_syncs_per_second(scratch):.0f} syncs/s by one thread")
    finally:
        shutil.rmtree(scratch)
    rows = {row: TITLES[row] for row in options.rows}
    print(report.write(options.out, results, rows, options.brokers, options.rounds, options.directory))


def measure(options, scratch, results):
    plain = [row for row in options.rows if row not in {"start", *SYNCED}]
    if plain:
        with running(options.brokers, scratch) as brokers:
            # Idle figures are measured first, before the loads of other rows leave any state behind.
            interleaved(brokers, plain, options.rounds, results)
    if "start" in results:
        with running(options.brokers, scratch / "fresh", server_starter) as brokers:
            for broker in brokers.values():
                broker.stop()
            results["start"] = start.measure(brokers, options.rounds)
    if set(SYNCED) & set(results):
        with running(options.brokers, scratch / "synced", synced_starter) as brokers:
            interleaved(brokers, [row for row in options.rows if row in SYNCED], options.rounds, results)


if __name__ == "__main__":
    main()
