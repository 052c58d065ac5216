"""Lag history: how far each group was behind, in records and in seconds, at each of its commits.

`__consumer_offsets` is compacted: the cleaned part of the log contains only the last commit for each group and
partition. So the history is complete only after the time that `complete_since` returns. To keep all commits from now
on, `follow` appends each new commit to a separate table, which is not compacted.
"""

from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from kafkacore.storage import names

_PARTITION: Final = ("topic", "partition")
_LOG_APPEND_TIME: Final = 1
_CLEANED: Final = "cleaner-offset-checkpoint"
_DECODED: Final = (
    "group string, topic string, partition int, committedOffset bigint, commitTimestamp bigint, tombstone boolean"
)


def commits(groups: DataFrame) -> DataFrame:
    """Returns the commits in the table `groups`: group, topic, partition, committedOffset, commitTimestamp, and the
    position of the record (`logPartition`, `logOffset`). A commit that several brokers hold occurs once. Commits of
    aborted transactions are left out."""
    found = groups.where((F.col("type") == "offset") & ~F.col("tombstone") & ~F.col("aborted"))
    return found.dropDuplicates(["partition", "offset"]).select(
        "group", "topic", F.col("topicPartition").alias("partition"), "committedOffset", "commitTimestamp",
        F.col("partition").alias("logPartition"), F.col("offset").alias("logOffset"),
    )  # fmt: skip


def lag(committed: DataFrame, batches: DataFrame) -> DataFrame:
    """Returns the lag of each commit: group, topic, partition, commitTimestamp, committedOffset, endOffset, records,
    seconds.

    `endOffset` is the log's end at the time of the commit, according to the timestamps of the batches. `seconds` is the
    age that the oldest unconsumed record had at that time, or 0 if every record was consumed. Both values are null for
    a commit that is older than the first remaining batch, because retention has deleted the batches before it.

    The cost is two shuffles by partition, each with a window over the commits and batches of a partition.

    Args:
        committed: group, topic, partition, committedOffset, commitTimestamp.
        batches: the table `batches`; a batch that several replicas hold counts once.
    """
    log = batches.where((F.col("kind") == "live") & F.col("problem").isNull())
    # The maxTimestamp of a batch with LogAppendTime is the timestamp of all its records. In a compacted batch,
    # baseTimestamp can be the delete horizon (KIP-534), which is later than all records.
    append_time = F.col("timestampType") == _LOG_APPEND_TIME
    written = F.when(append_time, F.col("maxTimestamp")).otherwise(F.least("baseTimestamp", "maxTimestamp"))
    log = log.select(*_PARTITION, "baseOffset", "lastOffset", written.alias("written"), "maxTimestamp").dropDuplicates(
        [*_PARTITION, "baseOffset"]
    )
    return _with_age(_with_end(committed, log), log).select(
        "group", *_PARTITION, "commitTimestamp", "committedOffset", "endOffset",
        F.greatest(F.col("endOffset") - F.col("committedOffset"), F.lit(0)).alias("records"), "seconds",
    )  # fmt: skip


def _with_end(committed: DataFrame, log: DataFrame) -> DataFrame:
    """Adds the column `endOffset`: the greatest end offset of the batches that are not newer than the commit."""
    ends = log.select(*_PARTITION, F.col("maxTimestamp").alias("at"), (F.col("lastOffset") + 1).alias("end"))
    marked = committed.withColumn("at", F.col("commitTimestamp")).withColumn("end", F.lit(None).cast("long"))
    both = marked.unionByName(ends, allowMissingColumns=True)
    # If a batch and a commit have the same timestamp, the batch sorts first, because the group may already have
    # consumed the batch's records.
    order = Window.partitionBy(*_PARTITION).orderBy("at", F.col("end").isNull())
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    known = both.withColumn("endOffset", F.max("end").over(so_far)).where(F.col("group").isNotNull())
    return known.drop("at", "end")


def _with_age(committed: DataFrame, log: DataFrame) -> DataFrame:
    """Adds the column `seconds`: the time from the first record at or after the committed offset to the commit."""
    starts = log.select(*_PARTITION, F.col("lastOffset").alias("at"), "written", F.lit(1).alias("isBatch"))
    marked = committed.withColumn("at", F.col("committedOffset"))
    both = marked.unionByName(starts, allowMissingColumns=True)
    # For each commit, the window finds the first batch that ends at or after the committed offset. The rows are in
    # descending order of offsets, so the frame of each row starts at the first row. Spark computes such frames in one
    # pass. If the frames extended to the last row, Spark would compute each frame separately. A batch whose last offset
    # equals the committed offset contains the record at that offset, so it sorts before the commit.
    order = Window.partitionBy(*_PARTITION).orderBy(F.desc("at"), F.col("isBatch").isNotNull().desc())
    onwards = order.rowsBetween(Window.unboundedPreceding, 0)
    known = both.withColumn("oldest", F.last("written", ignorenulls=True).over(onwards)).where(
        F.col("group").isNotNull()
    )
    age = F.col("commitTimestamp").cast("double") - F.col("oldest").cast("double")
    behind = F.col("committedOffset") < F.col("endOffset")
    seconds = F.when(F.col("endOffset").isNotNull(), F.when(behind, F.greatest(age, F.lit(0.0))).otherwise(0.0))
    return known.withColumn("seconds", seconds).drop("at", "written", "isBatch", "oldest")


def complete_since(groups: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """Returns a time for each partition of __consumer_offsets. From this time on, the files contain every commit. It is
    the time of the first record after the cleaned part of the log, on the broker where that record is the oldest."""
    cleaned = checkpoints.where((F.col("type") == _CLEANED) & (F.col("topic") == names.OFFSETS_TOPIC))
    kept = groups.join(
        cleaned.select("broker", "partition", F.col("offset").alias("cleanedTo")), ["broker", "partition"], "left"
    )
    whole = kept.where(F.col("offset") >= F.coalesce("cleanedTo", F.lit(0)))
    since = whole.groupBy("broker", "partition").agg(F.min("timestamp").alias("since"))
    return since.groupBy("partition").agg(F.min("since").alias("completeSince"))


# --- commits as they are made ---


class _Fields(NamedTuple):
    """The parts of a record that the decoder of __consumer_offsets reads."""

    key: bytes | None
    value: bytes | None
    offset: int


class _Commit(NamedTuple):
    """A row of the result. `committed_at` is in milliseconds since the epoch."""

    group: str
    topic: str
    partition: int
    offset: int | None
    committed_at: int | None
    tombstone: bool


def decode_commits(records: DataFrame) -> DataFrame:
    """Returns the commits among records of __consumer_offsets: group, topic, partition, committedOffset,
    commitTimestamp, tombstone. `records` has the columns key, value and offset.

    A plain Python function decodes the records, because Spark's functions on Arrow batches need pandas.
    """
    # Spark calls a deterministic function twice, once for the filter and once for the rows. So this function is
    # declared as nondeterministic.
    decode = F.udf(_commit, _DECODED, useArrow=False).asNondeterministic()
    decoded = records.select(decode("key", "value", "offset").alias("commit")).where(F.col("commit").isNotNull())
    return decoded.select("commit.*").withColumn("commitTimestamp", F.timestamp_millis("commitTimestamp"))


def _commit(key: bytes | None, value: bytes | None, offset: int) -> _Commit | None:
    from kafkacore.inspection.decoders import offsets  # noqa: PLC0415

    if key is None or bytes(key[:2]) not in (b"\0\0", b"\0\1"):  # the types of the keys that commit offsets
        return None
    record: Any = _Fields(bytes(key), None if value is None else bytes(value), offset)
    decoded = offsets(record)
    if isinstance(decoded.key, str):
        return None
    of, committed = decoded.key["data"], {} if value is None else decoded.value["data"]
    at, committed_at = committed.get("offset"), committed.get("commitTimestamp")
    return _Commit(of["group"], of["topic"], of["partition"], at, committed_at, value is None)


def follow(spark: SparkSession, bootstrap_servers: str, path: str, checkpoint: str, **trigger: Any) -> StreamingQuery:
    """Starts a stream that appends each commit of the cluster to the Parquet table `path`.

    Args:
        checkpoint: the directory of the stream's checkpoint.
        trigger: as for `DataStreamWriter.trigger`, such as `availableNow=True`.
    """
    records = (
        spark.readStream.format("kafkacore")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", names.OFFSETS_TOPIC)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("columns", "key,value,offset")
        .load()
    )
    writer = decode_commits(records).writeStream.format("parquet").option("path", path)
    writer = writer.option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start() if trigger else writer.start()
