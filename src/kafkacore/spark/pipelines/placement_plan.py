"""Placement planner: makes a plan for kafka-reassign-partitions from the metadata log, the sizes of segments and the
rates at which batches were appended.

Spark counts the bytes. The driver makes the plan from one row for each partition (`placement`).
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from kafkacore.spark.pipelines.controller_report import last_states
from kafkacore.spark.pipelines.placement import Partition, plan

RATE_HOURS: Final = 24.0
_PARTITION: Final = ("topic", "partition")


def sizes(segments: DataFrame) -> DataFrame:
    """Returns topic, partition, and the size of the largest replica in bytes, from the table `segments`."""
    replicas = (
        segments.where(F.col("kind") == "live").groupBy("broker", *_PARTITION).agg(F.sum("sizeBytes").alias("bytes"))
    )
    return replicas.groupBy(*_PARTITION).agg(F.max("bytes").alias("bytes"))


def rates(batches: DataFrame, segments: DataFrame, *, hours: float = RATE_HOURS) -> DataFrame:
    """Returns topic, partition, recordsPerSecond and bytesPerSecond in the last `hours`, or since the first record if
    the cluster is younger. The input is the tables `batches` and `segments`.

    Each partition counts by the replica with the most records. The time ends when a segment was last modified, because
    timestamps of producers may lie in the future.
    """
    now = segments.agg(F.max("modified")).first()[0]
    recent = batches.where((F.col("kind") == "live") & F.col("problem").isNull() & ~F.col("control"))
    if now is not None:
        recent = recent.where(F.col("maxTimestamp") > F.lit(now - timedelta(hours=hours)))
    replicas = recent.groupBy("broker", *_PARTITION).agg(
        F.sum("recordCount").alias("records"), F.sum("sizeBytes").alias("bytes"),
        F.min("maxTimestamp").alias("since"),
    )  # fmt: skip
    best = replicas.groupBy(*_PARTITION).agg(F.max_by(F.struct("records", "bytes", "since"), "records").alias("best"))
    # All partitions are divided by the same time. Otherwise a partition with one batch would have a high rate.
    age = F.lit(now).cast("double") - F.min("best.since").over(Window.partitionBy()).cast("double")
    seconds = F.greatest(age, F.lit(1.0))
    return best.select(
        *_PARTITION, (F.col("best.records") / seconds).alias("recordsPerSecond"),
        (F.col("best.bytes") / seconds).alias("bytesPerSecond"),
    )  # fmt: skip


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
    spark: SparkSession, paths: Iterable[str], *, drained: Collection[int] = (), hours: float = RATE_HOURS
) -> tuple[list[Partition], list[Partition], dict[int, str | None]]:
    """Makes a plan for the cluster to which these log directories belong. Together they must contain the metadata log
    and a replica of each partition. Rates are averages over the last `hours`.

    Returns all partitions in their current state, the changed partitions, and the rack of each broker.

    Raises:
        PlanError: the brokers cannot hold the replicas.
    """
    reader = spark.read.format("kafkacore-log").option("path", ",".join(paths))
    metadata = reader.option("table", "metadata").load().cache()
    try:
        segments = reader.option("table", "segments").load()
        batches = reader.option("table", "batches").option("onCorrupt", "rows").load()
        loads = sizes(segments).join(rates(batches, segments, hours=hours), list(_PARTITION), "left")
        rows = (
            last_states(metadata)
            .where(F.col("replicas").isNotNull())
            .join(loads, list(_PARTITION), "left")
            .orderBy(*_PARTITION)
        )
        now = [
            Partition(
                row["topic"], row["partition"], tuple(row["replicas"]), row["bytes"] or 0, row["bytesPerSecond"] or 0.0
            )
            for row in rows.toLocalIterator()
        ]
        racks = {row["brokerId"]: row["rack"] for row in brokers(metadata).toLocalIterator()}
    finally:
        metadata.unpersist()
    return now, plan(now, racks, drained=drained), racks
