"""Placement planner: makes a plan for kafka-reassign-partitions from the metadata log, the sizes of segments and the
rates at which batches were appended.

Spark counts the bytes. The driver makes the plan from one row for each partition (`placement`).
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from kafkacore.spark.pipelines.controller_report import last_states, records_once, snapshot_offset
from kafkacore.spark.pipelines.placement import Partition, plan

RATE_HOURS: Final = 24.0
_PARTITION: Final = ("topic", "partition")
_REGISTRATIONS: Final = ("REGISTER_BROKER_RECORD", "UNREGISTER_BROKER_RECORD")
_FENCINGS: Final = ("BROKER_REGISTRATION_CHANGE_RECORD", "FENCE_BROKER_RECORD", "UNFENCE_BROKER_RECORD")


def sizes(segments: DataFrame) -> DataFrame:
    """Returns topic, partition, and the size of the largest replica in bytes, from the table `segments`."""
    replicas = (
        segments.where(F.col("kind") == "live").groupBy("broker", *_PARTITION).agg(F.sum("sizeBytes").alias("bytes"))
    )
    return replicas.groupBy(*_PARTITION).agg(F.max("bytes").alias("bytes"))


def rates(batches: DataFrame, segments: DataFrame, *, hours: float = RATE_HOURS) -> DataFrame:
    """Returns topic, partition, recordsPerSecond and bytesPerSecond in the last `hours`, or since the first record if
    the cluster is younger. The input is the tables `batches` and `segments`.

    The figures of a partition are those of the replica with the most records. The period ends when the last segment was
    modified, because timestamps of producers may lie in the future.
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
    # The figures of all partitions are divided by the same time. Otherwise a partition with one batch would have a high
    # rate.
    age = F.lit(now).cast("double") - F.min("best.since").over(Window.partitionBy()).cast("double")
    seconds = F.greatest(age, F.lit(1.0))
    return best.select(
        *_PARTITION, (F.col("best.records") / seconds).alias("recordsPerSecond"),
        (F.col("best.bytes") / seconds).alias("bytesPerSecond"),
    )  # fmt: skip


def brokers(metadata: DataFrame) -> DataFrame:
    """Returns brokerId and rack of each registered broker, and `live`: whether it is neither fenced nor in controlled
    shutdown. A state that the log lacks comes from a snapshot."""
    log = records_once(metadata).select("type", "brokerId", "value", F.col("offset").alias("at"))
    snapshots = metadata.where("snapshot").select("type", "brokerId", "value", snapshot_offset().alias("at"))
    records = log.unionByName(snapshots).where(F.col("type").isin(*_REGISTRATIONS, *_FENCINGS))
    fenced, leaving = (F.get_json_object("value", f"$.{name}") for name in ("fenced", "inControlledShutdown"))
    registers = F.col("type") == "REGISTER_BROKER_RECORD"
    # A change record has the numbers 1 and -1 for a new state, and 0 for an unchanged one. Only a registration ends a
    # controlled shutdown.
    states = {
        "registered": F.when(F.col("type").isin(*_REGISTRATIONS), registers),
        "rack": F.when(registers, F.struct(F.get_json_object("value", "$.rack").alias("name"))),
        "fenced": F.when((F.col("type") == "FENCE_BROKER_RECORD") | fenced.isin("true", "1"), True).when(
            (F.col("type") == "UNFENCE_BROKER_RECORD") | fenced.isin("false", "-1"), False
        ),
        "leaving": F.when(leaving.isin("true", "1"), True).when(registers, False),
    }
    known = records.select("brokerId", "at", *(state.alias(name) for name, state in states.items()))
    last = known.groupBy("brokerId").agg(
        *(F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at"))).alias(name) for name in states)
    )
    live = ~(F.coalesce("fenced", F.lit(False)) | F.coalesce("leaving", F.lit(False)))
    return last.where("registered").select("brokerId", F.col("rack.name").alias("rack"), live.alias("live"))


class Planned(NamedTuple):
    """A plan, and the brokers for which it was made. `fenced` are the registered brokers that are fenced or in
    controlled shutdown, and get no replicas."""

    now: list[Partition]
    changed: list[Partition]
    racks: dict[int, str | None]
    fenced: frozenset[int]


def plan_directories(
    spark: SparkSession, paths: Iterable[str], *, drained: Collection[int] = (), hours: float = RATE_HOURS
) -> Planned:
    """Makes a plan for the cluster to which these log directories belong. Together they must contain the metadata log
    and a replica of each partition. Rates are averages over the last `hours`.

    If every broker is fenced or in controlled shutdown, the cluster has stopped, and the plan treats all of them as
    live.

    Returns all partitions in their current state, and the changed partitions.

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
        registered = brokers(metadata).collect()
    finally:
        metadata.unpersist()
    racks = {row["brokerId"]: row["rack"] for row in registered}
    fenced = frozenset(row["brokerId"] for row in registered if not row["live"])
    if len(fenced) == len(racks):
        fenced = frozenset()
    return Planned(now, plan(now, racks, drained=drained, fenced=fenced), racks, fenced)
