"""Measures process starts: the times from exec to the first ApiVersions answer, and to the first acknowledged record in
a new topic.

Each start uses a directory that was formatted or used before. No other broker runs meanwhile.
"""

import subprocess
import sys
import time

from kafkacore._fast.record.batch import RecordBatchBuilder

from . import requests
from .rows import FIRST_TIMESTAMP_MS, api_versions_answered, rss_mib, ticks_seconds

LIMIT_S = 60
TITLE, SHOWN = "process start", "first ApiVersions ms"


def until(condition, began, what, process, log):
    """Returns the milliseconds from `began` until the condition holds. Checks it every half millisecond."""
    while not condition():
        if time.perf_counter() - began > LIMIT_S or process.poll() is not None:
            tail = log.read_text(errors="replace")[-1000:]
            raise RuntimeError(f"no {what} within {LIMIT_S} s; exit status {process.poll()}; its log ends with\n{tail}")
        time.sleep(0.0005)
    return (time.perf_counter() - began) * 1000


def acknowledgement(address):
    """Returns a condition that becomes true when a new topic exists and has acknowledged a record."""
    topic = f"start-{time.time_ns()}"
    builder = RecordBatchBuilder()
    builder.append(FIRST_TIMESTAMP_MS, None, b"first")
    request = requests.produce(topic, 0, bytes(builder.build()))
    where = requests.produce_error_at(topic)

    def acknowledged():
        try:
            requests.create(address, [topic], 1)
            answer = b"\0\0\0\0" + requests.call(address, request)
        except (OSError, RuntimeError):
            return False
        return answer[where : where + 2] == b"\0\0"

    return acknowledged


def start_once(broker):
    """Starts a stopped broker again and returns the figures of that start. Leaves the broker stopped."""
    with broker.log.open("ab") as log:
        began = time.perf_counter()
        process = subprocess.Popen([str(word) for word in broker.command_line()], stdout=log, stderr=log)
    try:
        answered_ms = until(
            lambda: api_versions_answered(broker.bootstrap), began, "ApiVersions answer", process, broker.log
        )
        cpu_s = ticks_seconds(process.pid)
        acknowledged = acknowledgement(broker.bootstrap)
        produced_ms = until(acknowledged, began, "acknowledged record", process, broker.log)
        figures = {
            "first ApiVersions ms": answered_ms,
            "CPU s": cpu_s,
            "first acknowledged ms": produced_ms,
            "RSS MiB": rss_mib(process.pid),
        }
    finally:
        ended = time.perf_counter()
        process.terminate()
        process.wait(LIMIT_S)
    return figures | {"stop ms": (time.perf_counter() - ended) * 1000}


def measure(brokers, rounds):
    """Starts one broker after the other and returns the figures of each. Every broker is stopped before the call and
    after it."""
    results = {name: [] for name in brokers}
    for number in range(rounds):
        for name, broker in brokers.items():
            try:
                figures = start_once(broker)
            except RuntimeError as error:
                print(f"start of {name}: {error}", file=sys.stderr, flush=True)
                continue
            results[name].append(figures)
            print(
                f"{'start':<14}{name:<12}{number} " + "  ".join(f"{k} {v:.4g}" for k, v in figures.items()), flush=True
            )
    return results
