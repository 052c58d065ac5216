"""`python -m benchmarks.node.process` measures our node with pyperf: imports, process starts, memory, and nodes in a
running process.

The time of a start runs from exec of `kafkacore start` on a formatted directory to the first answer, and excludes the
stop. `python -m benchmarks.node` has a row that alternately starts our node and Apache Kafka's. This program takes
pyperf's options: `--fast`, `-o FILE`, `--affinity`.
"""

import functools
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyperf
from benchmarks.peers import start
from benchmarks.peers.rows import api_versions_answered, rss_mib

from kafkacore.server.node import Node
from kafkacore.tools import dev
from processes import ROOT

from .formatted import KAFKACORE, formatted

TMPFS = Path("/dev/shm")
PROCESSES = 7
END_S = 30


def started(loops, directory, measure):
    """Returns the sum of `measure(address, began, process, log)` over `loops` starts. Each process is ended
    afterwards."""
    address, properties = formatted(directory)
    total, log = 0, directory / "log"
    for _ in range(loops):
        with log.open("ab") as written:
            began = time.perf_counter()
            process = subprocess.Popen([KAFKACORE, "start", properties], stdout=written, stderr=written)
        try:
            total += measure(address, began, process, log)
        finally:
            process.terminate()
            process.wait(END_S)
    return total


def answered_s(address, began, process, log):
    ready = functools.partial(api_versions_answered, address)
    return start.until(ready, began, "ApiVersions answer", process, log) / 1000


def acknowledged_s(address, began, process, log):
    ready = start.acknowledgement(address)
    return start.until(ready, began, "acknowledged record", process, log) / 1000


def resident_bytes(address, began, process, log):
    answered_s(address, began, process, log)
    return rss_mib(process.pid) * (1 << 20)


def in_a_directory(measured, parent=None):
    """Returns a time function for pyperf that creates a directory before the measurement and removes it afterwards."""

    def run(loops):
        directory = Path(tempfile.mkdtemp(dir=parent))
        try:
            return measured(loops, directory)
        finally:
            shutil.rmtree(directory)

    return run


def embedded_s(loops, directory):
    """Returns the seconds until nodes in this process are ready, one after the other. Their directories are already
    formatted."""
    total = 0.0
    for number in range(loops):
        config = dev.configuration(str(directory / str(number)), 0, [])
        dev.prepare(config)
        began = time.perf_counter()
        node = Node(config)
        node.start()
        total += time.perf_counter() - began
        node.stop()
    return total


def main():
    runner = pyperf.Runner(program_args=("-m", "benchmarks.node.process"), processes=PROCESSES)
    runner.bench_command("the interpreter alone", [sys.executable, "-c", "pass"])
    runner.bench_command("import of the node", [sys.executable, "-c", "import kafkacore.server.node"])
    starts = {"first ApiVersions": answered_s, "first acknowledged produce to a new topic": acknowledged_s}
    for name, measure in starts.items():
        run = in_a_directory(lambda loops, at, measure=measure: started(loops, at, measure), ROOT / "build")
        runner.bench_time_func(f"process start to {name}", run)
    run = in_a_directory(lambda loops, at: started(loops, at, resident_bytes), ROOT / "build")
    runner.bench_time_func("resident memory after a start", run, metadata={"unit": "byte"})
    runner.bench_time_func("a node in a running process, on tmpfs", in_a_directory(embedded_s, TMPFS))


if __name__ == "__main__":
    main()
