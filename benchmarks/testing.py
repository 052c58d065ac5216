"""A broker for each test: how long it takes to start and stop, and how long 200 small tests take.

    python -m benchmarks.testing [--rounds 30] [--tests 200]

Modules are imported before the timing starts, as they are from the second test of a run on. Figures are wall-clock
medians of this process alone, with its CPU time; the first line shows the load of the machine.
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
    """Each test creates a topic, and produces and consumes ten records over the wire."""
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
    with Broker(topics=["t"], record=True) as broker:  # imports the modules that are imported on first use
        broker.produce("t", "x")
        broker.consume("t")
    start_and_stop(arguments.rounds)
    for record in (False, True):
        small_tests(arguments.tests, record=record)


if __name__ == "__main__":
    main()
