"""Controller report: the history of a cluster according to its metadata log.

The input is the table `metadata` of `kafkacore-log`, from one or more controllers. A record that is in the logs of
several controllers counts once. Timelines leave out snapshots, because snapshots do not contain the times of changes. A
timeline begins at the first record that is still in the log.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

NO_LEADER: Final = -1
_UNCHANGED: Final = -2  # the value of `leader` in a PartitionChangeRecord that does not change the leader
_PARTITION: Final = ("topicId", "partition")
_SNAPSHOT: Final = r"(\d+)-\d+\.checkpoint$"
_VALUE: Final = StructType([
    StructField("topicId", StringType()),
    StructField("isr", ArrayType(IntegerType())),
    StructField("leader", IntegerType()),
    StructField("addingReplicas", ArrayType(IntegerType())),
    StructField("removingReplicas", ArrayType(IntegerType())),
    StructField("fenced", IntegerType()),
    StructField("inControlledShutdown", IntegerType()),
    StructField("featureLevel", IntegerType()),
])  # fmt: skip


def records_once(metadata: DataFrame) -> DataFrame:
    """Returns the records of the log, by offset. A record that several controllers hold occurs once. If they hold
    different records at an offset, the record with the latest leader epoch counts, because a former leader may hold
    records that were never committed. Snapshots are left out."""
    log = metadata.where(~F.col("snapshot") & F.col("problem").isNull())
    latest = Window.partitionBy("offset").orderBy(F.desc("leaderEpoch"))
    once = log.withColumn("rank", F.row_number().over(latest)).where("rank = 1")
    return once.drop("rank", "broker", "file", "snapshot", "problem")


def snapshot_offset() -> Column:
    """Returns the last offset that a snapshot covers. The name of a snapshot's file contains the snapshot's end
    offset."""
    return F.regexp_extract("file", _SNAPSHOT, 1).cast("long") - 1


def topic_names(metadata: DataFrame) -> DataFrame:
    """Returns topicId and topic of each topic in the log and in the snapshots, including deleted topics."""
    topics = metadata.where(F.col("type") == "TOPIC_RECORD").select("topicId", F.col("name").alias("topic"))
    return topics.dropDuplicates(["topicId"])


def controller_elections(metadata: DataFrame) -> DataFrame:
    """Returns a row for each new active controller: offset, timestamp, leaderEpoch, controllerId, and `silence`, the
    seconds since the previous record. The cluster had no active controller for at most that time."""
    log = records_once(metadata)
    before = F.lag("timestamp").over(Window.orderBy("offset"))
    spaced = log.withColumn("silence", F.col("timestamp").cast("double") - before.cast("double"))
    leaders = spaced.where(F.col("control") & (F.col("type") == "LeaderChange"))
    chosen = F.get_json_object("value", "$.leaderId").cast("int").alias("controllerId")
    return leaders.select("offset", "timestamp", "leaderEpoch", chosen, "silence")


def partition_changes(metadata: DataFrame) -> DataFrame:
    """Returns the states of each partition in order: topicId, partition, offset, timestamp, leader, isr, replicas,
    adding, removing, `formerLeader` and `formerIsr`. The columns `formerLeader` and `formerIsr` are null in the first
    state that the log holds.

    A record contains only the changed fields. This function fills the other columns from earlier records, if the log
    still contains these.
    """
    changes = records_once(metadata).where(F.col("type").isin("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"))
    value = F.from_json("value", _VALUE)
    parsed = changes.select(
        *_PARTITION, "offset", "timestamp", "isr", "replicas",
        F.when(F.col("leader") != _UNCHANGED, F.col("leader")).alias("leader"),
        value["addingReplicas"].alias("adding"), value["removingReplicas"].alias("removing"),
    )  # fmt: skip
    order = Window.partitionBy(*_PARTITION).orderBy("offset")
    so_far = order.rowsBetween(Window.unboundedPreceding, 0)
    whole = parsed
    for name in ("leader", "isr", "replicas", "adding", "removing"):
        whole = whole.withColumn(name, F.last(name, ignorenulls=True).over(so_far))
    return whole.withColumn("formerLeader", F.lag("leader").over(order)).withColumn(
        "formerIsr", F.lag("isr").over(order)
    )


def leader_elections(changes: DataFrame) -> DataFrame:
    """Returns those rows of `partition_changes` in which a partition got another leader or lost its leader."""
    return changes.where(F.col("formerLeader").isNotNull() & (F.col("leader") != F.col("formerLeader")))


def leaderless_times(changes: DataFrame) -> DataFrame:
    """Returns each period in which a partition had no leader: topicId, partition, since, until (null if the partition
    still has no leader) and seconds."""
    order = Window.partitionBy(*_PARTITION).orderBy("offset")
    lost = F.col("leader") == NO_LEADER
    edges = changes.where(F.col("formerLeader").isNull() | (lost != (F.col("formerLeader") == NO_LEADER)))
    spans = edges.withColumn("until", F.lead("timestamp").over(order)).where(lost)
    seconds = (F.col("until").cast("double") - F.col("timestamp").cast("double")).alias("seconds")
    return spans.select(*_PARTITION, F.col("timestamp").alias("since"), "until", seconds)


def isr_changes(changes: DataFrame) -> DataFrame:
    """Returns each change of an ISR: topicId, partition, offset, timestamp, `left` and `joined` (arrays of broker ids),
    size."""
    moved = changes.where(F.col("formerIsr").isNotNull()).select(
        *_PARTITION, "offset", "timestamp",
        F.array_except("formerIsr", "isr").alias("left"), F.array_except("isr", "formerIsr").alias("joined"),
        F.size("isr").alias("size"),
    )  # fmt: skip
    return moved.where((F.size("left") > 0) | (F.size("joined") > 0))


def last_states(metadata: DataFrame) -> DataFrame:
    """Returns topic, partition, replicas, leader and isr at the end of the log. A state that the log lacks comes
    from a snapshot. Deleted topics are left out."""
    fields = ("replicas", "leader", "isr")
    log = records_once(metadata).where(F.col("type").isin("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"))
    snapshots = metadata.where(F.col("snapshot") & (F.col("type") == "PARTITION_RECORD"))
    states = log.select(*_PARTITION, F.col("offset").alias("at"), *fields).unionByName(
        snapshots.select(*_PARTITION, snapshot_offset().alias("at"), *fields)
    )
    known = states.withColumn("leader", F.when(F.col("leader") != _UNCHANGED, F.col("leader")))
    last = known.groupBy(*_PARTITION).agg(
        *(F.max_by(name, F.when(F.col(name).isNotNull(), F.col("at"))).alias(name) for name in fields)
    )
    gone = metadata.where(F.col("type") == "REMOVE_TOPIC_RECORD").select("topicId").distinct()
    named = last.join(gone, "topicId", "left_anti").join(topic_names(metadata), "topicId")
    return named.select("topic", "partition", *fields)


def last_isr(metadata: DataFrame) -> DataFrame:
    """Returns topic, partition and broker of each member of an ISR at the end of the log, as input for
    `replica_audit`."""
    return last_states(metadata).select("topic", "partition", F.explode("isr").alias("broker"))


def flapping(changes: DataFrame, *, least: int = 3, window: str = "10 minutes") -> DataFrame:
    """Returns the partitions with at least `least` changes of the leader or the ISR within one `window`: topicId,
    partition, begin, elections, isrChanges."""
    moved = changes.where(F.col("formerLeader").isNotNull()).select(
        *_PARTITION, F.window("timestamp", window)["start"].alias("begin"),
        (F.col("leader") != F.col("formerLeader")).cast("int").alias("election"),
        (F.array_sort("isr") != F.array_sort("formerIsr")).cast("int").alias("isrChange"),
    )  # fmt: skip
    counted = moved.groupBy(*_PARTITION, "begin").agg(
        F.sum("election").alias("elections"), F.sum("isrChange").alias("isrChanges")
    )
    return counted.where((F.col("elections") >= least) | (F.col("isrChanges") >= least))


def reassignments(changes: DataFrame) -> DataFrame:
    """Returns each reassignment: topicId, partition, begin, end (null while it is in progress), adding, removing,
    seconds."""
    moving = (F.size(F.coalesce("adding", F.array())) > 0) | (F.size(F.coalesce("removing", F.array())) > 0)
    order = Window.partitionBy(*_PARTITION).orderBy("offset")
    marked = changes.withColumn("moving", moving).withColumn(
        "was", F.coalesce(F.lag("moving").over(order), F.lit(False))
    )
    edges = marked.where(F.col("moving") != F.col("was")).withColumn("end", F.lead("timestamp").over(order))
    seconds = (F.col("end").cast("double") - F.col("timestamp").cast("double")).alias("seconds")
    return edges.where("moving").select(
        *_PARTITION, F.col("timestamp").alias("begin"), "end", "adding", "removing", seconds
    )


def broker_events(metadata: DataFrame) -> DataFrame:
    """Returns registrations, fencings and departures of brokers: offset, timestamp, brokerId, brokerEpoch and event
    (`registered`, `fenced`, `unfenced`, `leaving`, `unregistered`)."""
    value = F.from_json("value", _VALUE)
    event = (
        F.when(F.col("type") == "REGISTER_BROKER_RECORD", "registered")
        .when(F.col("type") == "UNREGISTER_BROKER_RECORD", "unregistered")
        .when((F.col("type") == "FENCE_BROKER_RECORD") | (value["fenced"] == 1), "fenced")
        .when((F.col("type") == "UNFENCE_BROKER_RECORD") | (value["fenced"] == -1), "unfenced")
        .when(value["inControlledShutdown"] == 1, "leaving")
    )
    found = records_once(metadata).withColumn("event", event).where(F.col("event").isNotNull())
    return found.select("offset", "timestamp", "brokerId", "brokerEpoch", "event")


def feature_changes(metadata: DataFrame) -> DataFrame:
    """Returns each change of a feature's level: offset, timestamp, name, level."""
    levels = records_once(metadata).where(F.col("type") == "FEATURE_LEVEL_RECORD")
    return levels.select("offset", "timestamp", "name", F.from_json("value", _VALUE)["featureLevel"].alias("level"))
