"""`python -m benchmarks.node.sampling` measures the cost of the sampled request log.

Two nodes of one build, one with sampling and one without, alternately serve the same small requests. They take
turns to begin a round. Small requests are the most expensive case, because a sample costs the same for each request.
The benchmark compares neighbouring runs, because other load on the machine changes from minute to minute. Nearly all of
the cost comes from the thread that writes the lines. This thread's share of the node's CPU depends little on other
load.
"""

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.peers import requests
from benchmarks.peers.rows import checked, fresh_topic, load, one_record, with_cpu

from brokers import Node
from kafkacore.observability.sampled_requests import THREAD
from processes import thread_files

DEPTH = 16
CONNECTIONS = 4


class Row:
    """A connection pool to one node, and the request that the pool repeats."""

    def __init__(self, node, name):
        topic = fresh_topic(node)
        fill = requests.produce(topic, 0, one_record())
        self.pid, self.client = node.pid, load(node, connections=CONNECTIONS, depth=DEPTH)
        checked(self.client.run([fill], count=100, error_at=requests.produce_error_at(topic)), 100)
        self.request, self.error_at = fill, requests.produce_error_at(topic)
        if name == "fetch":
            self.request, self.error_at = requests.fetch(topic, 0, 0, 1000), requests.fetch_error_at(topic)

    def measure(self, count):
        """Returns the requests per second, the node's CPU time per request in microseconds, and the percentage of this
        CPU time that the log's thread used."""
        log_s = log_thread_seconds(self.pid)
        result, cpu_s = with_cpu(lambda: self.client.run([self.request], count=count, error_at=self.error_at), self.pid)
        checked(result, count)
        log_s = log_thread_seconds(self.pid) - log_s
        return count / result.elapsed_ns * 1e9, cpu_s / count * 1e6, log_s / cpu_s * 100


def log_thread_seconds(pid):
    threads = thread_files(pid, "comm", "schedstat")
    return sum(int(times.split()[0]) for comm, times in threads if comm.strip() == THREAD) / 1e9


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node.sampling", description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=100, help="the node samples one of this number of requests")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000, help="for each measurement")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the nodes' files go below it")
    return parser.parse_args()


def compare(rows, options):
    """Prints the medians without and with sampling, and the median of the differences in percent."""
    taken = []
    for number in range(options.rounds + 1):
        order = list(rows) if number % 2 else list(rows)[::-1]
        figures = {name: rows[name].measure(options.requests) for name in order}
        if number:  # the first round warms up
            taken.append(figures)
    for at, unit in enumerate(("requests/s", "CPU us a request")):
        off, on = (statistics.median(one[name][at] for one in taken) for name in ("off", "on"))
        change = statistics.median((one["on"][at] / one["off"][at] - 1) * 100 for one in taken)
        print(f"{unit:>18}: {off:10.4g} without, {on:10.4g} with, {change:+.1f} % (median of {len(taken)})", flush=True)
    share = statistics.median(one["on"][2] for one in taken)
    print(f"the log's thread used {share:.2f} % of the node's CPU (median of {len(taken)})", flush=True)


def main():
    options = arguments()
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="sampling-", dir=options.directory)).resolve()
    log = scratch / "kafka-request.log"
    sampled = {"sampled.request.log.file": str(log), "sampled.request.log.every": str(options.every)}
    nodes = {"off": Node(scratch / "off"), "on": Node(scratch / "on", overrides=sampled)}
    try:
        for name in ("produce", "fetch"):
            rows = {which: Row(node, name) for which, node in nodes.items()}
            print(name)
            compare(rows, options)
            for row in rows.values():
                row.client.close()
        print(f"{len(log.read_text().splitlines())} lines")
    finally:
        for node in nodes.values():
            node.stop()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
