"""`python -m benchmarks.files.compaction` compacts one log alternately with our cleaner and with Apache Kafka's
Cleaner.

Each key of the log is written twice in random order, in segments of 256 MiB; values are incompressible and not
compressed. The time covers only the compaction, from the first dirty byte to the swap of the last segment. It excludes
the time in which Python or the JVM starts and the log is loaded. Before the measurement the JVM compacts a smaller log,
so that it compiles the code. Both cleaners have an offset map that holds all keys. The files are in the page cache. CPU
seconds cover all threads of the process, including the JVM's compiler and collector.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers import report

from brokers import classpath, log_configuration
from kafkacore._fast.record.batch import RecordBatchBuilder
from processes import ROOT

RELEASE = "4.3.1"
JUDGE = ROOT / "tests" / "interop" / "java" / "CleanerJudge.java"
NOW_MS = 1_700_000_000_000
RECORDS = 100
SEGMENT_BYTES = 1 << 28
MAP_BYTES = 512 << 20
RETENTION_MS = 86_400_000
LIMIT_S = 900
WARM_KEYS = 200_000
STEP_BYTES, NICE = 4 << 20, 0
OURS, THEIRS = "kafkacore", "apache-4.3"
HEAD = ("| log | keys | s, ours | s, Apache Kafka | CPU s, ours | CPU s, Apache Kafka | MB per CPU-second, ours "
        "| Apache Kafka | times |")  # fmt: skip


def make(root, keys, size_bytes, seed=1):
    """Writes each key twice, so that compaction keeps half of the records."""
    chance = random.Random(seed)
    order = list(range(keys)) * 2
    chance.shuffle(order)
    value = chance.randbytes(max(size_bytes // len(order) - 24, 1))  # key: 16 bytes, a record's other fields: about 8
    path = root / "orders-0"
    path.mkdir(parents=True)
    out, written = None, 0
    for at in range(0, len(order), RECORDS):
        builder = RecordBatchBuilder(base_offset=at, partition_leader_epoch=0)
        for key in order[at : at + RECORDS]:
            builder.append(NOW_MS + at, b"%016d" % key, value)
        if out is None or written > SEGMENT_BYTES or at + RECORDS >= len(order):
            if out is not None:
                out.close()
            out, written = (path / f"{at:020d}.log").open("wb", 1 << 20), 0
        written += out.write(builder.build())
    out.close()


def fresh(model, root):
    """Makes a copy of the log, because a compaction unlinks the files that it reads."""
    if root.exists():
        shutil.rmtree(root)
    shutil.copytree(model, root)


def ours(root):
    """Returns a command. The last line of its output has the milliseconds, the CPU milliseconds and the bytes read."""
    return [sys.executable, "-m", "benchmarks.files.compaction", "--compact", str(root)]


def theirs(warm, root, classes):
    command = ["java", "-Xms2g", "-Xmx2g", log_configuration(RELEASE), "-cp", f"{classes}:{classpath(RELEASE)}"]
    return [*command, "CleanerJudge", str(MAP_BYTES), str(RETENTION_MS), str(NOW_MS), str(warm), str(root)]


def run(command):
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    wall_ms, cpu_ms, read_bytes = map(int, done.stdout.splitlines()[-1].split()[-3:])
    return wall_ms / 1000, cpu_ms / 1000, read_bytes


def compact(root):
    from kafkacore._fast.compact.compaction import DONE, Compaction
    from kafkacore._fast.compact.offset_map import KeyOffsets
    from kafkacore._fast.log.settings import LogSettings
    from kafkacore._fast.world.environment import Environment
    from kafkacore.storage.log_manager import LogManager

    settings = LogSettings(compact_policy=True, delete_policy=False)
    manager = LogManager(Environment(), [root], lambda topic: settings)
    manager.load()
    (handle,) = list(manager)
    upper_bound = handle.segments()[-1].base_offset
    began, cpu = time.perf_counter(), time.process_time()
    keys = KeyOffsets(MAP_BYTES, 0.9, os.urandom(16))
    keys.begin(upper_bound)
    compaction = Compaction(
        handle, keys, 0, upper_bound, now_ms=NOW_MS, delete_retention_ms=RETENTION_MS, buffer_bytes=256 << 10,
        nice=NICE,
    )  # fmt: skip
    while compaction.phase != DONE:
        compaction.step(STEP_BYTES)
    totals = compaction.totals
    compaction.close()
    keys.release()
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert totals.kept_records < totals.read_records
    print(round(taken * 1000), round(cpu * 1000), totals.read_bytes, flush=True)
    os._exit(0)


def size_of(root):
    return sum(path.stat().st_size for path in root.glob("orders-0/*.log"))


def row(keys, model, warm_model, root, rounds, classes):
    found, left = {OURS: [], THEIRS: []}, {}
    for _ in range(rounds):
        for who in (OURS, THEIRS):
            fresh(warm_model, root / "warm")
            fresh(model, root / "log")
            command = ours(root / "log") if who == OURS else theirs(root / "warm", root / "log", classes)
            found[who].append(run(command))
            left[who] = size_of(root / "log")
    assert left[OURS] <= left[THEIRS] * 1.01, left
    megabytes = size_of(model) / 1e6
    wall, cpu = ({who: statistics.median(one[at] for one in each) for who, each in found.items()} for at in (0, 1))
    times = statistics.median(its[1] / mine[1] for mine, its in zip(found[OURS], found[THEIRS], strict=True))
    return (f"| {megabytes / 1000:.2f} GB | {keys / 1e6:g} million | {wall[OURS]:.2f} | {wall[THEIRS]:.2f} "
            f"| {cpu[OURS]:.2f} | {cpu[THEIRS]:.2f} | {megabytes / cpu[OURS]:.0f} | {megabytes / cpu[THEIRS]:.0f} "
            f"| {times:.1f} |")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files.compaction", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the files are made; a temporary directory by default")
    parser.add_argument("--compact", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.compact:
        compact(asked.compact)
    root = Path(tempfile.mkdtemp(prefix="kafkacore-compaction-", dir=asked.directory))
    try:
        classes = root / "classes"
        subprocess.run(["javac", "-proc:none", "-nowarn", "-d", classes, "-cp", classpath(RELEASE), JUDGE], check=True)
        make(root / "model", asked.keys, int(asked.gigabytes * 1e9))
        make(root / "warm-model", WARM_KEYS, WARM_KEYS * 200)
        print(report.conditions(asked.rounds, root), HEAD, "|" + "---|" * 9, sep="\n")
        print(row(asked.keys, root / "model", root / "warm-model", root, asked.rounds, classes))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
