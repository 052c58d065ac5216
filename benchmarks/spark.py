"""`python -m benchmarks.spark` compares the format kafkacore with Spark's own Kafka connector.

One Spark session with `local[2]` runs both formats on the same topics of the same broker. For each row, the benchmark
warms up both formats three times and then alternates them. It also alternates which format begins, because the second
of two equal runs is faster. The CPU figures cover the JVM and Spark's Python workers, but not the broker. `boundary` is
a Python source that returns the same Arrow batch repeatedly. It shows the highest rate that Spark's DataSource API
allows. `--smoke` runs every row with small sizes, to check that the rows work.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql.functions import expr

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from brokers import Node  # noqa: E402
from processes import wait_until  # noqa: E402
from spark_session import connector_jars, start  # noqa: E402
from topic_filling import Topics  # noqa: E402

OURS, THEIRS, FILES, BOUNDARY = "kafkacore", "kafka", "kafkacore-log", "boundary"
WARM_UPS = 3
LEAST_BATCHES = 3  # a median needs at least this many batches of a stream
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def processes():
    """Returns a mapping from process id to (parent, CPU seconds of the process alone, resident bytes, command, start
    time)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, fields = (entry / "stat").read_text().rsplit(")", 1)
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # the process has ended meanwhile
        fields = fields.split()
        cpu = sum(int(value) for value in fields[11:13]) / TICKS
        found[int(entry.name)] = (int(fields[1]), cpu, int(fields[21]) * PAGE, command or name, fields[19])
    return found


def below(root, table):
    """Returns the processes that descend from `root`."""
    found, frontier = set(), {root}
    while frontier:
        frontier = {pid for pid, row in table.items() if row[0] in frontier} - found
        found |= frontier
    return found


class Meter:
    """Measures CPU time and memory of Spark: of the JVM that this process started, and of its Python workers.

    Spark ends workers that have been idle for a minute, possibly before anything has read their CPU time. So a thread
    records the CPU time of each process twice a second. For a process that has ended, its last record counts.
    """

    def __init__(self):
        table = processes()
        self.jvm = next(
            pid for pid in below(os.getpid(), table) if "java" in table[pid][3] and "SparkSubmit" in table[pid][3]
        )
        self._noted, self._lock = {}, threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self):
        while True:
            self.cpu()
            time.sleep(0.5)

    def cpu(self):
        with self._lock:
            table = processes()
            for pid in below(self.jvm, table) | {self.jvm}:
                if pid in table:
                    self._noted[pid, table[pid][4]] = table[pid][1]
            return sum(self._noted.values())

    def largest_worker(self):
        """Returns the resident bytes of the largest Python worker."""
        table = processes()
        return max((table[pid][2] for pid in below(self.jvm, table) if "pyspark" in table[pid][3]), default=0)


class Run:
    def __init__(self, options, spark, node):
        self.options, self.spark, self.node = options, spark, node
        self.bootstrap = node.bootstrap
        self.topics = Topics(node.bootstrap, "bench")
        self.meter = Meter()
        self.results = {}
        self.formats = [OURS, THEIRS] if connector_jars() else [OURS]

    def rows(self, count):
        return max(1000, count // 50) if self.options.smoke else count

    def filled(self, name, count, size, codec="none", partitions=8):
        """Makes a topic of `count` records. Keys have 8 bytes. Values have `size` bytes, half of which are random."""
        topic = self.topics.create(partitions, {"retention.ms": "-1"}, name=f"bench-{name}-{os.getpid()}")
        half = size // 2
        frame = self.spark.range(0, count, 1, partitions).selectExpr(
            "lpad(cast(id as string), 8, '0') as key",
            f"concat(repeat(substr(sha2(cast(id as string), 512), 1, {min(half, 128)}), {max(1, half // 128)}),"
            f" repeat('v', {size - max(1, half // 128) * min(half, 128)})) as value",
            f"cast(id % {partitions} as int) as partition",
        )
        frame.write.format(OURS).mode("append").options(
            **{"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "kafka.compression.type": codec}
        ).save()
        return topic

    def read(self, name, topic, **options):
        return (
            self.spark.read.format(name)
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **options})
            .load()
        )

    def timed(self, work):
        cpu, began = self.meter.cpu(), time.perf_counter()
        work()
        return time.perf_counter() - began, self.meter.cpu() - cpu

    def compare(self, row, count, works):
        """Runs the `works` one after the other in each round. Notes the rows per second and per CPU-second."""
        names = list(works)
        for _ in range(1 if self.options.smoke else WARM_UPS):
            for name in names:
                works[name]()
        taken = {name: [] for name in names}
        for number in range(1 if self.options.smoke else self.options.rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                taken[name].append(self.timed(works[name]))
        for name, runs in taken.items():
            wall = [count / seconds / 1e6 for seconds, _ in runs]
            per_cpu = [count / cpu / 1e6 for _, cpu in runs]
            self.note(row, name, "M rows/s", wall)
            self.note(row, name, "M rows per CPU-s", per_cpu)

    def note(self, row, name, unit, values):
        values = sorted(values)
        self.results.setdefault(row, {}).setdefault(name, {})[unit] = values
        low, middle, high = values[0], statistics.median(values), values[-1]
        load = f"load {os.getloadavg()[0]:.1f}"  # the machine's load in the last minute
        print(f"{row:12} {name:10} {middle:8.3f} ({low:.3f} - {high:.3f}) {unit}, {load}", flush=True)


def aggregate(frame):
    """Aggregates a frame in a way that needs every column of every record."""
    return (
        frame.groupBy("partition")
        .agg(
            *[
                expr(text)
                for text in ("count(1)", "sum(length(value))", "max(offset)", "max(timestamp)", "sum(length(key))")
            ]
        )
        .collect()
    )


def read_row(size, codec="none", count=2_000_000, boundary=False):
    def measure(run, row):
        total = run.rows(count)
        topic = run.filled(row, total, size, codec)
        works = {name: lambda name=name: aggregate(run.read(name, topic)) for name in run.formats}
        if boundary:
            works[BOUNDARY] = boundary_of(run, total, size)
        found = {name: sum(line[1] for line in work()) for name, work in works.items()}
        assert set(found.values()) == {total}, found
        run.compare(row, total, works)
        run.topics.delete(topic)

    return measure


def scan_row(run, row):
    """Reads the files of the topic instead of asking the broker."""
    total, size = run.rows(2_000_000), 100
    topic = run.filled(row, total, size)
    files = run.spark.read.format(FILES).options(path=str(run.node.log_dir), topics=topic)
    works = {FILES: lambda: aggregate(files.load()), BOUNDARY: boundary_of(run, total, size)}
    assert sum(line[1] for line in works[FILES]()) == total
    run.compare(row, total, works)
    run.topics.delete(topic)


def boundary_of(run, total, size):
    """Returns a function that reads `total` rows with values of `size` bytes from a source that only returns them."""
    register_boundary(run.spark)
    options = {"rows": str(total), "size": str(size), "partitions": "8"}
    return lambda: aggregate(run.spark.read.format(BOUNDARY).options(**options).load())


def register_boundary(spark):
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options):
            self.total, self.size = int(options["rows"]), int(options["size"])
            self.tasks = int(options["partitions"])

        def partitions(self):
            return [InputPartition(number) for number in range(self.tasks)]

        def read(self, partition):
            import pyarrow as pa

            left, most = self.total // self.tasks + (partition.value < self.total % self.tasks), 10_000
            kinds = [
                pa.binary(),
                pa.binary(),
                pa.string(),
                pa.int32(),
                pa.int64(),
                pa.timestamp("us", "UTC"),
                pa.int32(),
            ]
            names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
            values = [b"12345678", b"v" * self.size, "topic", partition.value, 1, 1, 0]
            whole = pa.RecordBatch.from_arrays(
                [pa.array([value] * most, kind) for value, kind in zip(values, kinds, strict=True)], names=names
            )
            while left > 0:
                yield whole.slice(0, min(left, most))
                left -= most

    class Boundary(DataSource):
        @classmethod
        def name(cls):
            return BOUNDARY

        def schema(self):
            kinds = "key binary, value binary, topic string, partition int, offset bigint"
            return f"{kinds}, timestamp timestamp, timestampType int"

        def reader(self, schema):
            return Reader(self.options)

    spark.dataSource.register(Boundary)


def write_row(run, row):
    total = run.rows(1_000_000)
    frame = run.spark.range(0, total, 1, 8).selectExpr(
        "cast(id as string) as key", "rpad(cast(id as string), 100, 'v') as value"
    )
    topic = run.topics.create(8, name=f"bench-write-{os.getpid()}")

    def write(name):
        frame.write.format(name).mode("append").options(
            **{"kafka.bootstrap.servers": run.bootstrap, "topic": topic}
        ).save()

    run.compare(row, total, {name: lambda name=name: write(name) for name in run.formats})
    run.topics.delete(topic)


class Load(threading.Thread):
    """Sends `rate` records per second until it is stopped."""

    def __init__(self, topics, topic, rate):
        super().__init__(daemon=True)
        self.topics, self.topic, self.rate = topics, topic, rate
        self.ended = threading.Event()

    def run(self):
        producer = self.topics.producer(**{"queue.buffering.max.messages": 1_000_000})
        began, sent = time.monotonic(), 0
        while not self.ended.wait(0.01):
            due = int((time.monotonic() - began) * self.rate)
            for number in range(sent, due):
                producer.produce(self.topic, value=b"v" * 100, key=b"%08d" % number)
            sent = due
            producer.poll(0)
        producer.flush(10)


def micro_batch_row(run, row):
    for name in run.formats:
        seconds = 5 if run.options.smoke else run.options.stream_seconds
        topic = run.topics.create(8, name=f"bench-stream-{name}-{os.getpid()}")
        load = Load(run.topics, topic, 20_000)
        stream = (
            run.spark.readStream.format(name)
            .options(**{"kafka.bootstrap.servers": run.bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
            .load()
            .groupBy("partition")
            .agg(expr("count(1)"), expr("sum(length(value))"))
        )
        # Spark's state store may still write into the checkpoint when the query has ended.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
            load.start()
            query = (
                stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
                .trigger(processingTime="0 seconds").start()
            )  # fmt: skip
            wait_until(lambda query=query: len(busy(query)) >= 8, timeout_s=300, what="eight batches")
            warm = len(busy(query))
            cpu, began = run.meter.cpu(), time.monotonic()
            wait_until(
                lambda began=began, query=query, warm=warm, seconds=seconds: (
                    time.monotonic() - began > seconds and len(busy(query)) >= warm + LEAST_BATCHES
                ),
                timeout_s=seconds + 120,
                what="the time, and the batches to measure",
            )
            cpu, seconds = run.meter.cpu() - cpu, time.monotonic() - began
            batches = busy(query)[warm:]
            query.stop()
            load.ended.set()
            load.join()
        run.note(row, name, "s, each batch", [one["durationMs"]["triggerExecution"] / 1000 for one in batches])
        run.note(row, name, "rows/s", [sum(one["numInputRows"] for one in batches) / seconds])
        run.note(row, name, "cores", [cpu / seconds])
        run.topics.delete(topic)


def busy(query):
    return [
        json.loads(one) if isinstance(one, str) else one
        for one in map(plain, query.recentProgress)
        if one["numInputRows"]
    ]


def plain(progress):
    return progress if isinstance(progress, dict) else json.loads(progress.json)


def memory_row(run, row):
    """Measures the memory of the largest worker while it reads records of 1 MB, minus the memory of an idle worker."""
    count = 200 if run.options.smoke else 1000
    topic = run.topics.create(2, {"max.message.bytes": "2000000"}, name=f"bench-memory-{os.getpid()}")
    producer = run.topics.producer(**{"message.max.bytes": 2_000_000})
    for number in range(count):
        producer.produce(topic, value=os.urandom(1000) * 1000, partition=number % 2)
        producer.poll(0.001)
    producer.flush(60)
    run.spark.read.format(OURS).options(**{"kafka.bootstrap.servers": run.bootstrap, "subscribe": topic}).load().limit(
        0
    ).collect()
    small = run.filled("small", 1000, 100)
    aggregate(run.read(OURS, small))
    idle, most, ended = run.meter.largest_worker(), 0, threading.Event()

    def watch():
        nonlocal most
        while not ended.wait(0.02):
            most = max(most, run.meter.largest_worker())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    aggregate(run.read(OURS, topic))
    ended.set()
    watcher.join()
    run.note(row, OURS, "MiB above an idle worker", [(most - idle) / (1 << 20)])
    run.topics.delete(topic)


ROWS = {
    "read": read_row(100, boundary=True),
    "read-1k": read_row(1000, count=400_000, boundary=True),
    "read-lz4": read_row(100, "lz4"),
    "read-zstd": read_row(100, "zstd"),
    "scan": scan_row,
    "write": write_row,
    "micro-batch": micro_batch_row,
    "memory": memory_row,
}


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--stream-seconds", type=int, default=15)
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--smoke", action="store_true", help="one round with small sizes")
    parser.add_argument("--out", type=Path, default=Path("build/bench/spark.json"))
    return parser.parse_args()


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="kafkacore-spark-") as scratch:
        node = Node(Path(scratch) / "node", overrides={"message.max.bytes": "4000000"})
        settings = {
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
            "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
            **dict(each.split("=", 1) for each in options.setting),
        }
        spark = start(Path(scratch), memory="2g", settings=settings)
        try:
            jars = [jar.name for jar in connector_jars() if "sql-kafka" in jar.name]
            load = f"load {os.getloadavg()[0]:.1f}"
            print(f"PySpark {spark.version}; connector: {', '.join(jars) or 'none'}; {load}", flush=True)
            run = Run(options, spark, node)
            for name in options.rows:
                ROWS[name](run, name)
        finally:
            spark.stop()
            node.stop()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(run.results, indent=1))


if __name__ == "__main__":
    main()
