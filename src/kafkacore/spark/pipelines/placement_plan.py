"""Placement planner: makes a plan for kafka-reassign-partitions from the metadata log and the sizes of segments.

Spark counts the bytes. The driver makes the plan from one row for each partition (`placement`).
"""

from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from kafkacore.spark.pipelines.controller_report import partition_changes, topic_names
from kafkacore.spark.pipelines.placement import Partition, plan

_PARTITION = ("topic", "partition")


def sizes(segments: DataFrame) -> DataFrame:
    """Returns topic, partition, and the size of the largest replica in bytes, from the table `segments`."""
    replicas = (
        segments.where(F.col("kind") == "live").groupBy("broker", *_PARTITION).agg(F.sum("sizeBytes").alias("bytes"))
    )
    return replicas.groupBy(*_PARTITION).agg(F.max("bytes").alias("bytes"))


def rates(batches: DataFrame) -> DataFrame:
    """Returns topic, partition, recordsPerSecond and bytesPerSecond, from the table `batches`. The rates are averages
    between the first and the last timestamp of a partition, in the replica with the most records."""
    sound = batches.where((F.col("kind") == "live") & F.col("problem").isNull() & ~F.col("control"))
    replicas = sound.groupBy("broker", *_PARTITION).agg(
        F.sum("recordCount").alias("records"), F.sum("sizeBytes").alias("bytes"),
        (F.max("maxTimestamp").cast("double") - F.min("baseTimestamp").cast("double")).alias("seconds"),
    )  # fmt: skip
    best = replicas.groupBy(*_PARTITION).agg(F.max_by(F.struct("records", "bytes", "seconds"), "records").alias("best"))
    seconds = F.greatest(F.col("best.seconds"), F.lit(1.0))
    return best.select(
        *_PARTITION, (F.col("best.records") / seconds).alias("recordsPerSecond"),
        (F.col("best.bytes") / seconds).alias("bytesPerSecond"),
    )  # fmt: skip


def assignments(metadata: DataFrame) -> DataFrame:
    """Returns topic, partition, replicas and leader at the end of the metadata log. The state of a partition without a
    record in the log comes from a snapshot. Deleted topics are left out."""
    gone = metadata.where(F.col("type") == "REMOVE_TOPIC_RECORD").select("topicId").distinct()
    from_log = partition_changes(metadata).select("topicId", "partition", "offset", "replicas", "leader")
    snapshots = metadata.where(F.col("snapshot") & (F.col("type") == "PARTITION_RECORD"))
    # The offsets of records in a snapshot have no meaning, so they are set to -1. A state in the log is newer than one
    # in a snapshot.
    older = snapshots.select("topicId", "partition", F.lit(-1).cast("long").alias("offset"), "replicas", "leader")
    newest = Window.partitionBy("topicId", "partition").orderBy(F.desc("offset"))
    whole = from_log.where(F.col("replicas").isNotNull()).unionByName(older)
    last = whole.withColumn("rank", F.row_number().over(newest)).where("rank = 1")
    return (
        last.join(gone, "topicId", "left_anti")
        .join(topic_names(metadata), "topicId")
        .select("topic", "partition", "replicas", "leader")
    )


def brokers(metadata: DataFrame) -> DataFrame:
    """Returns brokerId and rack of each registered broker."""
    registered = metadata.where(F.col("type").isin("REGISTER_BROKER_RECORD", "UNREGISTER_BROKER_RECORD"))
    rack = F.get_json_object("value", "$.rack").alias("rack")
    last = registered.select(
        "brokerId", "type", rack, F.when(F.col("snapshot"), -1).otherwise(F.col("offset")).alias("at")
    )
    newest = last.groupBy("brokerId").agg(F.max_by(F.struct("type", "rack"), "at").alias("last"))
    return newest.where(F.col("last.type") == "REGISTER_BROKER_RECORD").select(
        "brokerId", F.col("last.rack").alias("rack")
    )


def plan_directories(
    spark: SparkSession, paths: Iterable[str], *, drained: Collection[int] = ()
) -> tuple[list[Partition], list[Partition], dict[int, str | None]]:
    """Makes a plan for the cluster to which these log directories belong. Together they must contain the metadata log
    and a replica of each partition.

    Returns all partitions in their current state, the changed partitions, and the rack of each broker.

    Raises:
        PlanError: the brokers cannot hold the replicas.
    """
    reader = spark.read.format("kafkacore-log").option("path", ",".join(paths))
    metadata = reader.option("table", "metadata").load().cache()
    try:
        bytes_of = sizes(reader.option("table", "segments").load())
        rows = assignments(metadata).join(bytes_of, list(_PARTITION), "left").orderBy(*_PARTITION)
        now = [
            Partition(row["topic"], row["partition"], tuple(row["replicas"]), row["bytes"] or 0)
            for row in rows.toLocalIterator()
        ]
        racks = {row["brokerId"]: row["rack"] for row in brokers(metadata).toLocalIterator()}
    finally:
        metadata.unpersist()
    return now, plan(now, racks, drained=drained), racks
