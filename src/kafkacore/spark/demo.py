"""The Spark side of `kafkacore spark demo`: its queries, the checks that no line (record) is lost, and the parts of its
HTML page."""

import os
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from kafkacore.spark.helpers import lag
from kafkacore.spark.pipelines import windowed_counts
from kafkacore.spark.pipelines.commands import report_on, session
from kafkacore.spark.pipelines.report import Report
from kafkacore.spark.source import need_streams

# The watermark delay. Spark does not count a line that comes later than this. The election of a new leader takes less
# time, so no line comes too late because of an election.
DELAY: Final = "30 seconds"
# The watermark delay of a replay. A short delay lets every batch close windows. It loses no line, because a replay
# reads the same amount from each partition.
REPLAY_DELAY: Final = "10 seconds"
REPLAY_BATCHES: Final = 6
MARKERS: Final = "__kafkacore_spark_markers"
PATIENCE_S: Final = 300.0  # a busy machine needs a minute for the first batch
MOST_RESTARTS: Final = 3
_POLL_S: Final = 0.1
_SLOW_START: Final = "Python worker failed to connect back"
_FAILURE: Final = "the demo ends the query here"


class DemoQueryError(Exception):
    """A query ended or made no progress. The message contains its last error."""


def _reason(error: Exception | None) -> str:
    """Returns the first line of a query's error. The other lines contain the query's plan."""
    return "it was stopped" if error is None else str(error).splitlines()[0]


def _was_slow(error: Exception | None) -> bool:
    """Returns whether a query ended because a Python process did not start within Spark's fixed ten seconds."""
    return _SLOW_START in str(error)


class Batch(NamedTuple):
    """A finished batch of the counting query. `at` is the time of its end, in seconds since the epoch."""

    at: float
    number: int
    lines: int
    seconds: float
    behind: int


class Proof(NamedTuple):
    """A claim that was checked. `wrong` is the number of compared items that differ, or the exit code of the pipeline
    that found a difference."""

    claim: str
    compared: int
    wrong: int


def open_session() -> SparkSession:
    """Returns the running session, or a new local session that suits many small batches. Raises
    UnsupportedSparkError."""
    need_streams()
    # The demo takes only minutes. In this time, the JVM's second compiler (C2) uses more CPU time than it saves, and
    # the brokers need the same cores. Without C2, the JVM reserves only 48 MB for compiled code, and Spark fails when
    # the demo has filled them.
    java = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
    spark = session("demo", {"spark.driver.extraJavaOptions": java})
    # The demo stops brokers and makes queries fail on purpose, and reports the errors that matter itself.
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "columns": "partition,offset,value,timestamp"}
    return spark.read.format("kafkacore").options(**given, **options).load()


class Counting:
    """The query from a topic to Parquet and back into a topic. After a failure it continues from its checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, source: str, target: str, directory: str) -> None:
        self.table = os.path.join(directory, "counts")
        self.batches: list[Batch] = []
        self.failed_at = 0.0
        self.restarts = 0
        self._spark, self._bootstrap, self._source, self._target = spark, bootstrap, source, target
        self._checkpoint = os.path.join(directory, "checkpoint")
        self._fails = False
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        records = (
            self._spark.readStream.format("kafkacore")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", self._source)
            .option("startingOffsets", "earliest")
            .option("columns", "value,timestamp")
            .load()
        )
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": self._target}
        self._query = (
            windowed_counts.counts(records, delay=DELAY)
            .writeStream.outputMode("update")
            .foreachBatch(windowed_counts.write_twice(self.table, options, self._between))
            .option("checkpointLocation", self._checkpoint)
            .trigger(processingTime="1 second")
            .start()
        )

    def _between(self, batch_id: int) -> None:
        if self._fails:
            self._fails = False
            self.failed_at = time.time()
            raise RuntimeError(_FAILURE)

    def watch(self) -> list[Batch]:
        """Returns the batches that ended since the last call.

        If the query has ended by itself, restarts it from its checkpoint. Raises DemoQueryError if this happens too
        often.
        """
        query = self._running()
        known = self.batches[-1].number if self.batches else -1
        ended = (each for each in query.recentProgress if each["sources"][0]["endOffset"] not in (None, "null"))
        new = [_batch(each) for each in ended if each["batchId"] > known and each["numInputRows"]]
        self.batches += new
        if not query.isActive:
            self.restarts += not _was_slow(query.exception())
            if self.restarts > MOST_RESTARTS:
                raise DemoQueryError(f"the counting query ends again and again: {_reason(query.exception())}")
            self.start()
        return new

    def wait_batches(self, count: int, each: Callable[[Batch], None]) -> None:
        """Waits for `count` more batches, and calls `each` with every one of them. Raises DemoQueryError."""
        deadline = time.monotonic() + PATIENCE_S
        left = count
        while left > 0:
            for batch in self.watch():
                each(batch)
                left -= 1
            if time.monotonic() > deadline:
                raise DemoQueryError(f"the counting query completed no batch within {PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)

    def fail_between_writes(self) -> None:
        """Makes the query fail when its next batch is in the topic but not in Parquet, and starts the query again."""
        self.watch()
        self._fails = True
        while self._fails:
            query = self._running()
            try:
                query.awaitTermination(int(PATIENCE_S))
            except StreamingQueryException as error:
                if _FAILURE not in str(error) and not _was_slow(error):
                    raise DemoQueryError(f"the counting query ended: {_reason(error)}") from None
            if query.isActive:
                raise DemoQueryError(f"the counting query completed no batch within {PATIENCE_S:.0f} s")
            self.start()

    def finish(self) -> None:
        """Lets the query count the remaining lines, and stops it."""
        self._running().processAllAvailable()
        self.watch()
        self.stop()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def _running(self) -> StreamingQuery:
        assert self._query is not None
        return self._query

    def in_table(self) -> DataFrame:
        return windowed_counts.last_of_table(self._spark.read.parquet(self.table))

    def in_topic(self) -> DataFrame:
        return windowed_counts.from_records(read(self._spark, self._bootstrap, self._target))

    def recounted(self) -> DataFrame:
        """Returns the counts of one batch query over the whole topic. They must equal the counts of the stream."""
        return windowed_counts.counts(read(self._spark, self._bootstrap, self._source))


def _batch(progress: Mapping[str, Any]) -> Batch:
    seconds = progress["durationMs"]["triggerExecution"] / 1000
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    behind = sum(lag(progress).values())
    return Batch(began + seconds, progress["batchId"], progress["numInputRows"], seconds, behind)


class ExactlyOnce:
    """Computes the counts of the counting query again, with the option `exactlyOnce`: this query writes every closed
    window exactly once. The brokers must support transactions."""

    def __init__(
        self, spark: SparkSession, source: tuple[str, str], target: tuple[str, str], lines: int, directory: str
    ) -> None:
        """`source` and `target` are pairs of bootstrap servers and topic. `lines` is the number of records to read."""
        self._spark, self._source, self._target, self._lines = spark, source, target, lines
        self._directory = directory
        self._query: StreamingQuery | None = None
        self.restarts = 0

    def start(self) -> None:
        """Starts or continues the query over all records that the topic now holds."""
        records = (
            self._spark.readStream.format("kafkacore")
            .option("kafka.bootstrap.servers", self._source[0])
            .option("subscribe", self._source[1])
            .option("startingOffsets", "earliest")
            .option("columns", "value,timestamp")
            .option("maxOffsetsPerTrigger", str(max(self._lines // REPLAY_BATCHES, 1)))
            .load()
        )
        closed = windowed_counts.counts(records, delay=REPLAY_DELAY)
        self._query = (
            windowed_counts.to_records(closed)
            .writeStream.format("kafkacore")
            .option("kafka.bootstrap.servers", self._target[0])
            .option("topic", self._target[1])
            .option("exactlyOnce", "true")
            .option("markerTopic", MARKERS)
            .option("stagingLocation", os.path.join(self._directory, "staging"))
            .option("checkpointLocation", os.path.join(self._directory, "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def wait_batches(self, count: int) -> None:
        """Waits until the query has completed `count` batches. Raises DemoQueryError if the query ends first."""
        assert self._query is not None
        deadline = time.monotonic() + PATIENCE_S
        while len(self._query.recentProgress) < count:
            if _was_slow(self._query.exception()):
                self.start()
            elif not self._query.isActive or time.monotonic() > deadline:
                raise DemoQueryError(
                    f"the exactly-once query did not complete {count} batches: {_reason(self._query.exception())}"
                )
            time.sleep(_POLL_S)

    def wait_end(self) -> None:
        """Waits until everything is written. If the query ended with an error, restarts it from its checkpoint."""
        while True:
            assert self._query is not None
            try:
                if self._query.awaitTermination(int(PATIENCE_S)):
                    return
                self._query.stop()
                raise DemoQueryError(f"the exactly-once query did not end within {PATIENCE_S:.0f} s")
            except StreamingQueryException as error:
                self.restarts += not _was_slow(error)
                if self.restarts > MOST_RESTARTS:
                    raise DemoQueryError(f"the exactly-once query ends again and again: {_reason(error)}") from None
                self.start()

    def written(self) -> DataFrame:
        """Returns the rows that a read_committed reader sees."""
        options = {"kafka.isolation.level": "read_committed"}
        return windowed_counts.from_records(read(self._spark, *self._target, **options))


def prove_counts(counting: Counting, acknowledged: int) -> list[Proof]:
    """Checks that the topic, Parquet, a recount and the number of acknowledged lines agree."""
    table = counting.in_table().cache()
    keys, lines = table.agg(F.count("*"), F.sum("lines")).first()
    of_topic = windowed_counts.differences(windowed_counts.last_of_topic(counting.in_topic()), table)
    of_recount = windowed_counts.differences(counting.recounted(), table)
    return [
        Proof("The last row of each key in the topic equals the row in Parquet", keys, of_topic.count()),
        Proof("A recount of the whole topic by one batch equals Parquet", keys, of_recount.count()),
        Proof("Parquet counts each line that the brokers acknowledged", acknowledged, abs(lines - acknowledged)),
    ]


def prove_exactly_once(once: ExactlyOnce, counting: Counting) -> list[Proof]:
    written = once.written().cache()
    count = written.count()
    twice = windowed_counts.repeated(written).count()
    unequal = windowed_counts.differences(windowed_counts.last_of_topic(written).drop("batch"), counting.in_table())
    return [
        Proof("Exactly once: each row is in the topic once", count, twice),
        Proof("Exactly once: the rows equal those in Parquet", count, unequal.count()),
    ]


def rows_written_again(counting: Counting) -> tuple[int, list[int]]:
    """Returns how many rows are in the topic more than once, and the ids of the batches that wrote them."""
    again = windowed_counts.repeated(counting.in_topic())
    found = again.groupBy("batch").agg(F.sum(F.col("copies") - 1).alias("rows")).orderBy("batch").collect()
    return sum(row["rows"] for row in found), [row["batch"] for row in found]


def report_on_directories(
    spark: SparkSession, report: Report, output: str, name: str, directories: Sequence[str], **options: Any
) -> int:
    """Runs a pipeline over log directories, and adds its results to the page as a section. Returns its exit code."""
    report.section(name.replace("-", " ").capitalize())
    target = os.path.join(output, name)
    os.makedirs(target, exist_ok=True)
    return report_on(spark, Namespace(pipeline=name, path=list(directories), output=target, **options), report)


class Event(NamedTuple):
    at: float  # seconds since the epoch
    name: str


def show_counts(report: Report, counting: Counting, events: Sequence[Event]) -> None:
    """Adds two plots with the same time axis: the lines in each window, and the lag of the query."""
    begin = min((batch.at - batch.seconds for batch in counting.batches), default=0.0)
    windows = counting.in_table().groupBy("start").agg(F.sum("lines").alias("lines")).orderBy("start").collect()
    width = float(windowed_counts.WINDOW.split()[0])
    last = max((row["start"].timestamp() + width for row in windows), default=begin)
    end = max([last, *(batch.at for batch in counting.batches), *(event.at for event in events)]) - begin

    def mark(axes: Any) -> None:
        for number, event in enumerate(events):
            axes.axvline(event.at - begin, color="#b3261e", linewidth=1, linestyle=":")
            axes.annotate(
                event.name, (event.at - begin, 1.0), xycoords=("data", "axes fraction"), fontsize=8, color="#b3261e",
                xytext=(3, -9 - 10 * (number % 3)), textcoords="offset points",
            )  # fmt: skip
        axes.set_xlabel("seconds since the query began")
        axes.margins(y=0.35)
        axes.set_ylim(bottom=0)
        axes.set_xlim(-width, end + width)

    def draw_windows(axes: Any) -> None:
        at = [row["start"].timestamp() - begin for row in windows]
        axes.bar(at, [row["lines"] / width for row in windows], width=width * 0.9, align="edge", color="#4c78a8")
        axes.set_ylabel("lines per second")
        mark(axes)

    def draw_batches(axes: Any) -> None:
        at = [batch.at - begin for batch in counting.batches]
        axes.plot(at, [batch.seconds for batch in counting.batches], marker=".", color="#4c78a8")
        axes.set_ylabel("seconds for a batch")
        mark(axes)

    report.plot(f"Lines in each window of {windowed_counts.WINDOW}", draw_windows)
    report.plot("Batches of the counting query", draw_batches)
