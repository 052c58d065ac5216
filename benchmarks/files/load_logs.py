"""`python -m benchmarks.files.load_logs` measures how fast our node and Apache Kafka's LogManager load logs at start.

There are two measurements. In the first, both recover logs after a crash: they check every batch and rebuild every
index. In the second, both load many partitions after a clean shutdown, once for each number in `--partitions`. Our node
and Apache Kafka load alternately, each time in a new process. The time covers only the call that loads the logs,
without the start of Python or the JVM. The JVM's heap is 1 GB, as kafka-server-start.sh sets it for a broker. CPU
seconds cover all threads of the process, including the JVM's compiler and collector.

The files are in the page cache. To measure more bytes than fit into the page cache, use `--links N`: each log then
exists N times, as hard links to the same segments. Apache Kafka opens three files for each log. If this exceeds the
limit of open files (RLIMIT_NOFILE), the benchmark measures only our node.
"""

import argparse
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers import report

from brokers import classpath, log_configuration
from kafkacore._fast.record.batch import RecordBatchBuilder
from kafkacore.storage import checkpoints, clean_shutdown
from processes import ROOT
from segments import crc32c

RELEASE = "4.3.1"
JUDGE = ROOT / "tests" / "interop" / "java" / "LogJudge.java"
NOW_MS = 1_700_000_000_000
RECORDS, RECORD_BYTES = 16, 1024
SEGMENT_BYTES = 1 << 28
PRODUCERS = 50
TIME_ENTRY_BYTES = 12
LOGS = 4
THEIR_FILES, SPARE_FILES = 3, 500
LIMIT_S = 1200
OURS, THEIRS = "kafkacore", "apache-4.3"
HEAD = "| work | logs | s, ours | s, Apache Kafka | CPU s, ours | CPU s, Apache Kafka |"
HEAD += " GB/s per core, ours | CPU s, theirs / ours |"


def batch(at):
    """Returns batch number `at` of a log. Several idempotent producers write the batches of the log in rotation."""
    builder = RecordBatchBuilder(
        base_offset=at * RECORDS, partition_leader_epoch=0, producer_id=at % PRODUCERS, producer_epoch=0,
        base_sequence=at // PRODUCERS * RECORDS,
    )  # fmt: skip
    for i in range(RECORDS):
        builder.append(NOW_MS + at, b"key", VALUES[i])
    return builder.build()


VALUES = [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]


def make_unclean(root, size_bytes, logs, links):
    for log in range(logs):
        path = root / f"unclean-{log}"
        path.mkdir(parents=True)
        at, left = 0, size_bytes // logs
        while left > 0:
            written = 0
            with (path / f"{at * RECORDS:020d}.log").open("wb", 1 << 20) as segment:
                while written < min(SEGMENT_BYTES, left):
                    written += segment.write(batch(at))
                    at += 1
            left -= written
        for number in range(1, links):
            again = root / f"unclean-{log + number * logs}"
            again.mkdir()
            for segment in path.iterdir():
                (again / segment.name).hardlink_to(segment)


def make_clean(root, logs):
    """Makes logs with one record each, and all files that a clean stop leaves next to the logs."""
    builder = RecordBatchBuilder(partition_leader_epoch=0)
    builder.append(NOW_MS, b"key", b"v" * 100)
    nobody = struct.pack(">i", 0)
    files = {
        f"{0:020d}.log": bytes(builder.build()),
        f"{0:020d}.index": b"",
        f"{0:020d}.timeindex": struct.pack(">qi", NOW_MS, 0),
        f"{1:020d}.snapshot": struct.pack(">hI", 1, crc32c(nobody)) + nobody,
        checkpoints.LEADER_EPOCH: b"0\n1\n0 0\n",
        "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACg",
    }
    for log in range(logs):
        path = root / f"clean-{log}"
        path.mkdir(parents=True)
        for name, content in files.items():
            (path / name).write_bytes(content)
    ends = {("clean", log): 1 for log in range(logs)}
    checkpoints.OffsetCheckpoint(str(root), checkpoints.RECOVERY_POINT).write(ends)


def prepare(root, clean):
    """Restores the state that the clean stop left. Each load removes the file that marks the clean shutdown, and a load
    by Apache Kafka also preallocates indexes."""
    if clean:
        for path in root.glob("*/*.index"):
            os.truncate(path, 0)
        for path in root.glob("*/*.timeindex"):
            os.truncate(path, TIME_ENTRY_BYTES)
        clean_shutdown.write(str(root), 1)
    else:
        for path in root.glob("*/*.*"):
            if path.suffix != ".log":
                path.unlink()


def ours(root, threads):
    return [sys.executable, "-m", "benchmarks.files.load_logs", "--load", str(root), "--threads", str(threads)]


def theirs(root, threads, classes):
    heap = ["-Xms1g", "-Xmx1g"]
    command = ["java", *heap, log_configuration(RELEASE), "-cp", f"{classes}:{classpath(RELEASE)}", "LogJudge"]
    return [*command, "load", str(threads), str(root)]


def run(command):
    """Returns the number of logs, the seconds and the CPU seconds, which the process prints as its last line."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S, cwd=ROOT)
    logs, wall_ms, cpu_ms = map(int, done.stdout.splitlines()[-1].split())
    return logs, wall_ms / 1000, cpu_ms / 1000


def load(root, threads):
    from kafkacore._fast.log.settings import LogSettings
    from kafkacore._fast.world.environment import Environment
    from kafkacore.storage.log_manager import LogManager

    settings = LogSettings()
    manager = LogManager(Environment(), [root], lambda topic: settings, recovery_threads=threads)
    began, cpu = time.perf_counter(), time.process_time()
    manager.load()
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(len(list(manager)), round(taken * 1000), round(cpu * 1000), flush=True)
    os._exit(0)  # does not close the logs, so that the next load finds the same files


def row(name, root, clean, asked, classes):
    logs = len(list(root.glob("*-*/")))
    sides = [(OURS, ours(root, asked.threads))]
    if not clean or logs * THEIR_FILES + SPARE_FILES <= resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
        sides.append((THEIRS, theirs(root, asked.threads, classes)))
    found = {who: [] for who, _ in sides}
    for _ in range(asked.rounds):
        for who, command in sides:
            prepare(root, clean)
            found[who].append(run(command))
    size_gb = sum(path.stat().st_size for path in root.glob("*/*.log")) / 1e9
    assert {one[0] for each in found.values() for one in each} == {logs}
    wall, cpu = ({who: statistics.median(one[at] for one in each) for who, each in found.items()} for at in (1, 2))
    speed = "" if clean else f"{size_gb / cpu[OURS]:.2f}"
    shown = [name, str(logs), f"{wall[OURS]:.2f}", "", f"{cpu[OURS]:.2f}", "", speed, ""]
    if THEIRS in found:
        pairs = zip(found[OURS], found[THEIRS], strict=True)
        less = statistics.median(its[2] / mine[2] for mine, its in pairs)
        shown[3], shown[5], shown[7] = f"{wall[THEIRS]:.2f}", f"{cpu[THEIRS]:.2f}", f"{less:.1f}"
    return f"| {' | '.join(shown)} |"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files.load_logs", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4, help="size of the logs to recover")
    parser.add_argument("--links", type=int, default=1, help="how many logs share the same files")
    parser.add_argument("--partitions", type=int, nargs="*", default=[6000], help="partitions after a clean stop")
    parser.add_argument("--threads", type=int, default=2, help="num.recovery.threads.per.data.dir")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the files are made; a temporary directory by default")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.load:
        load(asked.load, asked.threads)
    root = Path(tempfile.mkdtemp(prefix="kafkacore-load-", dir=asked.directory))
    try:
        classes = root / "classes"
        subprocess.run(["javac", "-proc:none", "-nowarn", "-d", classes, "-cp", classpath(RELEASE), JUDGE], check=True)
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
        print(report.conditions(asked.rounds, root), HEAD, "|" + "---|" * 8, sep="\n")
        if asked.gigabytes:
            make_unclean(root / "unclean", int(asked.gigabytes * 1e9 / asked.links), LOGS, asked.links)
            print(row(f"recovery of {asked.gigabytes:g} GB", root / "unclean", False, asked, classes), flush=True)
        for count in asked.partitions:
            make_clean(root / f"clean-{count}", count)
            print(row("load after a clean stop", root / f"clean-{count}", True, asked, classes), flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
