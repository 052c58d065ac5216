"""`python -m benchmarks.files.dump_log` compares `kafkacore dump-log` with kafka-dump-log on the same files.

The two commands run alternately, as whole processes that write to /dev/null. The files are in the page cache before the
runs. The JVM gets the heap that kafka-run-class.sh sets for tools, and otherwise uses its defaults.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.peers import report

from brokers import classpath, log_configuration
from kafkacore._fast.record.batch import RecordBatchBuilder

RELEASE = "4.3.1"
NOW = 1_700_000_000_000
DIFFERENT = 64  # the number of different batches of random values; a file repeats them
KIB, MB = 1024, 1_000_000

# Each row: bytes of records per batch, bytes per record, codec, share of --megabytes, options of dump-log.
ROWS = {
    "1 KiB batches": (KIB, KIB, "none", 1.0, ()),
    "16 KiB batches": (16 * KIB, KIB, "none", 1.0, ()),
    "1 MiB batches": (KIB * KIB, KIB, "none", 1.0, ()),
    "records, 16 KiB batches": (16 * KIB, KIB, "none", 1.0, ("--deep-iteration",)),
    "records, 16 KiB batches, lz4": (16 * KIB, 100, "lz4", 0.2, ("--deep-iteration",)),
    "values, 16 KiB batches": (16 * KIB, KIB, "none", 0.2, ("--print-data-log",)),
}
HEAD = "| dumped | MB | MB/s, ours | MB/s, Apache Kafka | CPU s, ours | CPU s, Apache Kafka |"
HEAD += " times as fast | CPU s, theirs / ours |"
OURS, THEIRS = "kafkacore", "apache-4.3"


def make_segment(path, batch_bytes, record_bytes, codec, size_bytes):
    count = max(1, batch_bytes // record_bytes)
    batches = []
    for _ in range(DIFFERENT):
        builder = RecordBatchBuilder(codec=codec, limit_bytes=2 * batch_bytes + 4096)
        # Half of each value is random, so that it compresses about as well as text and numbers.
        for at in range(count):
            builder.append(NOW + at, None, os.urandom(record_bytes // 2) + b"v" * (record_bytes - record_bytes // 2))
        batches.append(bytearray(builder.build()))
    offset, written = 0, 0
    with path.open("wb") as file:
        while written < size_bytes:
            batch = batches[offset // count % DIFFERENT]
            batch[:8] = offset.to_bytes(8, "big")  # the checksum does not cover the base offset
            written += file.write(batch)
            offset += count


def command(name, path, options):
    if name == OURS:
        return [".venv/bin/kafkacore", "dump-log", "--files", path, *options]
    java = ["java", "-Xmx256M", log_configuration(RELEASE), "-cp", classpath(RELEASE)]
    return [*java, "org.apache.kafka.tools.DumpLogSegments", "--files", path, *options]


def run(name, path, options):
    """Returns the wall-clock time and the CPU seconds of one process."""
    began = time.perf_counter()
    process = subprocess.Popen(command(name, path, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    taken = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode} on {path}")
    return taken, usage.ru_utime + usage.ru_stime


def measure(row, path, rounds):
    options = ROWS[row][-1]
    megabytes = path.stat().st_size / MB
    run(OURS, path, options)  # reading the file brings it into the page cache
    taken = {OURS: [], THEIRS: []}
    for number in range(rounds):
        for name, found in taken.items():
            found.append(run(name, path, options))
            print(f"{row:<30}{number} {name:<12}{found[-1][0]:8.3f} s  {found[-1][1]:8.3f} s CPU", flush=True)
    ratios = [
        statistics.median(their[at] / our[at] for our, their in zip(taken[OURS], taken[THEIRS], strict=True))
        for at in range(2)
    ]
    cells = [report.spread([megabytes / one[0] for one in taken[name]]) for name in (OURS, THEIRS)]
    cells += [report.spread([one[1] for one in taken[name]]) for name in (OURS, THEIRS)]
    return f"| {row} | {megabytes:,.0f} | {' | '.join(cells)} | {ratios[0]:.1f} | {ratios[1]:.1f} |"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files.dump_log", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"), help="the segments go below it")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="dump-log-", dir=options.directory)).resolve()
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    try:
        for row in options.rows:
            batch_bytes, record_bytes, codec, share, _ = ROWS[row]
            path = scratch / "00000000000000000000.log"
            make_segment(path, batch_bytes, record_bytes, codec, int(options.megabytes * MB * share))
            lines.append(measure(row, path, options.rounds))
            path.unlink()
    finally:
        shutil.rmtree(scratch)
    print(report.conditions(options.rounds, options.directory))
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
