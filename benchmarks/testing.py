"""A broker for each test. Measures how long the broker takes to start and stop, and how long 200 small tests take.

    python -m benchmarks.testing [--rounds 30] [--tests 200]

Modules are imported before the timing starts, as they are for every test of a run except the first. The figures are
medians of wall-clock time, and the CPU time of this process. The first line of output shows the load of the machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

from kafkacore.testing import Broker


def start_and_stop(rounds: int) -> None:
    starts, stops, cpu = [], [], []
    for _ in range(rounds):
        began, cpu_began = time.perf_counter(), time.process_time()
        broker = Broker()
        ready = time.perf_counter()
        broker.close()
        starts.append((ready - began) * 1e3)
        stops.append((time.perf_counter() - ready) * 1e3)
        cpu.append((time.process_time() - cpu_began) * 1e3)
    for name, values in (("start", starts), ("stop", stops), ("both, CPU", cpu)):
        show(name, values, "ms")


def small_tests(count: int, *, record: bool) -> None:
    """Runs `count` tests. Each test creates a topic, and produces and consumes ten records over a socket."""
    took = []
    began, cpu_began = time.perf_counter(), time.process_time()
    for _ in range(count):
        at = time.perf_counter()
        with Broker(topics=["t"], record=record) as broker:
            for number in range(10):
                broker.produce("t", f"value {number}")
            assert len(broker.consume("t", 10)) == 10
        took.append((time.perf_counter() - at) * 1e3)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    print(f"{count} tests, {'recorded' if record else 'not recorded'}: {seconds:.2f} s, {cpu_seconds:.2f} s of CPU")
    show("one of them", took, "ms")


def show(name: str, values: list[float], unit: str) -> None:
    low, middle, high = min(values), statistics.median(values), max(values)
    print(f"  {name:<12} {middle:7.2f} {unit} ({low:.2f} - {high:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tests", type=int, default=200)
    arguments = parser.parse_args()
    print(f"load {' '.join(f'{each:.2f}' for each in os.getloadavg())}, {len(os.sched_getaffinity(0))} cores")
    with Broker(topics=["t"], record=True) as broker:  # imports the modules that are only imported when first used
        broker.produce("t", "x")
        broker.consume("t")
    start_and_stop(arguments.rounds)
    for record in (False, True):
        small_tests(arguments.tests, record=record)


if __name__ == "__main__":
    main()
