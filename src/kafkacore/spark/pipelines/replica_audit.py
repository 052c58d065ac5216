"""Replica audit: checks that the replicas of each partition are equal below the high watermark, and finds the first
difference.

A healthy follower stores the leader's batches unchanged. So the replicas of a partition that is not compacted hold the
same batches at the same offsets, without gaps. The audit compares:

- Each replica from its own first batch to its own end. A log that begins later or ends earlier is not a difference
  by itself.
- Only offsets below the committed end, which is the greatest high watermark that a replica has checkpointed. Later
  records may differ.
- The end of each replica. A replica that ends below its own checkpointed high watermark has lost records. A replica in
  the ISR that ends below the committed end has also lost records. If a replica was moved to another broker, a
  checkpoint of its former broker may still name it. Such a replica has no files and is not in the ISR, so it is no
  finding.
- Compacted partitions: the newest record of each key, because brokers clean at different times. A key whose newest
  record is a tombstone, or belongs to an aborted transaction, may be gone on another replica. A record may also be gone
  there if that replica already has a newer record of the key.

The brokers may run meanwhile. Retention and DeleteRecords then delete records of one replica before the audit reads
them, and of another replica afterwards. So the audit reads the starts of the logs after it has read all records, and
leaves out all records below these starts. It reads the high watermarks before it reads the records, so that each log
then reaches at least its high watermark.

Nothing is collected on the driver. The cost is one pass over the batches, two shuffles by partition and base offset,
and for compacted partitions a pass over the records with one shuffle by key.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from kafkacore.spark.log.layout import NO_BROKER

LOST: Final = "lost"  # other replicas hold records at these offsets
TRUNCATED: Final = "truncated"  # the replica ends before an offset that it must have
DUPLICATE: Final = "duplicate"  # a producer's batch is in the log twice
DIFFERENT: Final = "different"  # other replicas have different bytes at the same offset
CORRUPT: Final = "corrupt"  # bytes that are not an intact batch
_PARTITION: Final = ("topic", "partition")
_REPLICA: Final = ("topic", "partition", "broker")
_NO_PRODUCER: Final = -1
_HIGH_WATERMARK: Final = "replication-offset-checkpoint"
_CLEANED: Final = "cleaner-offset-checkpoint"
_LOG_START: Final = "log-start-offset-checkpoint"
_BATCHES: Final = (
    "broker,topic,partition,kind,file,position,baseOffset,lastOffset,leaderEpoch,producerId,producerEpoch,"
    "baseSequence,crc,crcOk,control,problem"
)
_RECORDS: Final = "broker,topic,partition,offset,key,value,problem"


class AuditError(ValueError):
    """The directories cannot be audited together. The text explains why."""


class Audit(NamedTuple):
    """`findings` has one row for each sign of damage, and no rows if the replicas agree. `replicas` has one row for
    each replica, as `replica_bounds` returns it."""

    findings: DataFrame
    replicas: DataFrame


def audit_directories(
    spark: SparkSession, paths: Iterable[str], *, compacted: Iterable[str] = (), isr: DataFrame | None = None
) -> Audit:
    """Audits the replicas in the log directories of several brokers.

    Args:
        paths: log directories of at least two brokers.
        compacted: compacted topics; topics that a cleaner has already cleaned can be left out.
        isr: topic, partition and broker of each member of an ISR, as `controller_report.last_isr` finds them.

    Raises:
        AuditError: two directories contain a replica of the same partition on the same broker.
    """
    given = ",".join(paths)

    def table(name: str, **options: str) -> DataFrame:
        return _load(spark, given, name, **options)

    segments = table("segments").cache()
    _refuse_replicas_of_one_broker(segments)
    checkpoints = table("checkpoints").cache()
    cleaned = compacted_partitions(checkpoints, compacted)
    topics = sorted(row["topic"] for row in cleaned.select("topic").distinct().collect())
    of_compacted = {"topics": ",".join(topics)}
    newest = newest_records(table("records", columns=_RECORDS, **of_compacted), cleaned).cache() if topics else None
    aborted = table("indexes", indexTypes="transaction", **of_compacted) if topics else None
    # All checks read the same batches. Without the cache, Spark would read the files once for each check.
    batches = table("batches", columns=_BATCHES).cache()
    for scanned in (batches, newest):
        if scanned is not None:
            scanned.count()  # reads the files now
    bounds = replica_bounds(_live(batches), segments, checkpoints, later=table("segments")).cache()
    found = findings(batches, bounds, newest, compacted=cleaned, aborted=aborted, isr=isr)
    return Audit(found.unionByName(_unreadable(checkpoints)).orderBy(*_PARTITION, "offset", "broker"), bounds)


def _load(spark: SparkSession, paths: str, name: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafkacore-log").option("path", paths).option("table", name)
    return reader.options(onCorrupt="rows", **options).load()


def _refuse_replicas_of_one_broker(segments: DataFrame) -> None:
    held = segments.where("kind = 'live'").groupBy(*_REPLICA)
    both = held.agg(F.min("directory").alias("one"), F.max("directory").alias("other")).where("one <> other")
    for row in both.orderBy(*_PARTITION).limit(1).collect():
        broker = "an unknown broker" if row["broker"] == NO_BROKER else f"broker {row['broker']}"
        raise AuditError(
            f"{row['one']} and {row['other']} both contain {row['topic']}-{row['partition']} of {broker}: name each"
            " broker's directories once, with their meta.properties, which tells the broker"
        )


def compacted_partitions(checkpoints: DataFrame, topics: Iterable[str] = ()) -> DataFrame:
    """Returns the partitions of `topics`, and the partitions that a cleaner has cleaned on any broker."""
    cleaned = (F.col("type") == _CLEANED) | F.col("topic").isin(list(topics))
    return checkpoints.where(cleaned & F.col("topic").isNotNull()).select(*_PARTITION).distinct()


def findings(
    batches: DataFrame,
    bounds: DataFrame,
    newest: DataFrame | None,
    *,
    compacted: DataFrame,
    aborted: DataFrame | None = None,
    isr: DataFrame | None = None,
) -> DataFrame:
    """Returns one row for each sign of damage: topic, partition, broker, kind (`lost`, `truncated`, `duplicate`,
    `different` or `corrupt`), offset (the first damaged one), endOffset (after the last damaged one, or null), and
    detail. There are no rows when the replicas agree.

    Args:
        batches: the table `batches`.
        bounds: the bounds of each replica.
        newest: the newest records of compacted partitions; None if there are none.
        compacted: topic and partition of compacted partitions.
        aborted: the entries of transaction indexes of compacted topics in the table `indexes`, if known.
        isr: topic, partition and broker of the members of each ISR, if known.
    """
    live = (
        _live(batches)
        .join(F.broadcast(compacted.withColumn("compacted", F.lit(True))), list(_PARTITION), "left")
        .withColumn("compacted", F.coalesce("compacted", F.lit(False)))
    )
    plain = live.where(~F.col("compacted") & F.col("problem").isNull())
    found = (
        _corrupt(live)
        .unionByName(_too_short(bounds, isr))
        .unionByName(_gaps(plain, bounds))
        .unionByName(_duplicates(plain))
        .unionByName(_differences(plain, bounds))
    )
    if newest is not None:
        found = found.unionByName(_differing_keys(newest, compacted, bounds, aborted))
    return found


def _live(batches: DataFrame) -> DataFrame:
    return batches.where((F.col("kind") == "live") & F.col("topic").isNotNull())


def newest_records(records: DataFrame, compacted: DataFrame) -> DataFrame:
    """Returns topic, partition, broker, key, and `newest`: the offset of the key's newest record on this replica, the
    hash of its value, and whether it is a tombstone (`gone`). The input is the table `records`."""
    kept = records.where(F.col("problem").isNull()).join(F.broadcast(compacted), list(_PARTITION), "left_semi")
    content = F.struct("offset", F.xxhash64("value").alias("hash"), F.col("value").isNull().alias("gone"))
    return kept.groupBy(*_REPLICA, "key").agg(F.max_by(content, "offset").alias("newest"))


def replica_bounds(batches: DataFrame, segments: DataFrame, checkpoints: DataFrame, *, later: DataFrame) -> DataFrame:
    """Returns for each replica the `start` and the `end` of its log, its checkpointed high watermark (0 if no file
    contains one), `present` (whether it has files), and `committed`, the greatest high watermark of the partition. A
    log without records ends where its last segment begins.

    `segments` and `checkpoints` were read before the batches. `later` is the table `segments`, read again after the
    batches. The `start` of a log is the greatest start in these tables. If all batches of a log were deleted meanwhile,
    this is also its `end`.
    """
    logs = batches.groupBy(*_REPLICA).agg((F.max("lastOffset") + 1).alias("lastEnd"))
    files = segments.where(F.col("kind") == "live").groupBy(*_REPLICA)
    bases = files.agg(F.min("baseOffset").alias("first"), F.max("baseOffset").alias("lastBase"))
    starts = later.where(F.col("kind") == "live").groupBy(*_REPLICA).agg(F.min("baseOffset").alias("laterFirst"))
    joined = bases.join(logs, list(_REPLICA), "full").join(starts, list(_REPLICA), "left")
    for kind, name in ((_HIGH_WATERMARK, "highWatermark"), (_LOG_START, "deletedTo")):
        joined = joined.join(_offsets_of(checkpoints, kind, name), list(_REPLICA), "full")
    zero = F.lit(0)
    known = joined.select(
        *_REPLICA,
        F.greatest(*(F.coalesce(name, zero) for name in ("first", "laterFirst", "deletedTo"))).alias("start"),
        F.greatest(*(F.coalesce(name, zero) for name in ("lastEnd", "lastBase", "laterFirst"))).alias("end"),
        F.coalesce("highWatermark", zero).alias("highWatermark"),
        F.col("first").isNotNull().alias("present"),
    )
    return known.withColumn("committed", F.max("highWatermark").over(Window.partitionBy(*_PARTITION)))


def _offsets_of(checkpoints: DataFrame, kind: str, name: str) -> DataFrame:
    found = checkpoints.where((F.col("type") == kind) & F.col("problem").isNull())
    return found.groupBy(*_REPLICA).agg(F.max("offset").alias(name))


def _row(kind: str, offset: Column, end: Column, detail: Column) -> list[Column]:
    return [
        *(F.col(name) for name in _REPLICA),
        F.lit(kind).alias("kind"),
        offset.cast("long").alias("offset"),
        end.cast("long").alias("endOffset"),
        detail.alias("detail"),
    ]


def _corrupt(batches: DataFrame) -> DataFrame:
    bad = batches.where(F.col("problem").isNotNull())
    where = F.format_string("%s, byte %s: %s", F.col("file"), F.col("position"), F.col("problem"))
    return bad.select(*_row(CORRUPT, F.col("baseOffset"), F.col("lastOffset") + 1, where))


def _unreadable(checkpoints: DataFrame) -> DataFrame:
    """Returns the checkpoints that cannot be read. Without them, the audit does not know how far replicas must agree,
    or which partitions are compacted."""
    nowhere = F.lit(None)
    bad = checkpoints.where(F.col("problem").isNotNull())
    return bad.select(*_row(CORRUPT, nowhere, nowhere, F.col("problem")))


def _too_short(bounds: DataFrame, isr: DataFrame | None) -> DataFrame:
    """Returns the replicas that end below their own high watermark, and the ISR members that end below the committed
    end."""
    if isr is None:
        must = bounds.withColumn("must", F.col("highWatermark"))
    else:
        members = isr.select(*_REPLICA).distinct().withColumn("member", F.lit(True))
        must = (
            bounds.join(members, list(_REPLICA), "left")
            .withColumn(
                "must", F.when(F.col("member"), F.col("committed")).when(F.col("present"), F.col("highWatermark"))
            )
            .unionByName(_absent(bounds, members), allowMissingColumns=True)
        )
    short = must.where(F.col("end") < F.col("must"))
    detail = F.format_string("the log ends at offset %s, but must reach %s", F.col("end"), F.col("must"))
    return short.select(*_row(TRUNCATED, F.col("end"), F.col("must"), detail))


def _absent(bounds: DataFrame, members: DataFrame) -> DataFrame:
    """Returns the ISR members without any file, if other files of their brokers exist."""
    given = bounds.select("broker").distinct()
    committed = bounds.groupBy(*_PARTITION).agg(F.max("committed").alias("must"))
    absent = members.join(given, "broker", "left_semi").join(bounds, list(_REPLICA), "left_anti")
    return absent.join(committed, list(_PARTITION)).withColumn("end", F.lit(0).cast("long"))


def _gaps(batches: DataFrame, bounds: DataFrame) -> DataFrame:
    """Returns gaps and overlaps. A gap is a range of offsets that no batch of a log covers, between the log's start and
    its last batch. Batches that share offsets overlap."""
    order = Window.partitionBy(*_REPLICA).orderBy("baseOffset", "lastOffset")
    ends = batches.withColumn("before", F.max("lastOffset").over(order.rowsBetween(Window.unboundedPreceding, -1)) + 1)
    holes = (
        ends.join(bounds.select(*_REPLICA, "start"), list(_REPLICA))
        .withColumn("before", F.greatest("before", "start"))
        .where(F.col("baseOffset") > F.col("before"))
    )
    detail = F.format_string(
        "no batch holds the offsets before the one at %s in %s", F.col("baseOffset"), F.col("file")
    )
    overlaps = ends.where(F.col("baseOffset") < F.col("before"))
    again = F.format_string(
        "the batch at byte %s of %s contains offsets that an earlier batch contains", F.col("position"), F.col("file")
    )
    return holes.select(*_row(LOST, F.col("before"), F.col("baseOffset"), detail)).unionByName(
        overlaps.select(*_row(DUPLICATE, F.col("baseOffset"), F.col("lastOffset") + 1, again))
    )


def _duplicates(batches: DataFrame) -> DataFrame:
    """Returns batches whose producer, epoch and first sequence occurred earlier in the replica's log. Sequence numbers
    wrap around after 2^31 records, so a repetition counts only if fewer offsets lie between the two batches."""
    numbered = batches.where((F.col("producerId") != _NO_PRODUCER) & (F.col("baseSequence") >= 0) & ~F.col("control"))
    same = Window.partitionBy(*_REPLICA, "producerId", "producerEpoch", "baseSequence").orderBy("baseOffset")
    earlier = numbered.withColumn("earlier", F.lag("baseOffset").over(same))
    twice = earlier.where(F.col("baseOffset") - F.col("earlier") < (1 << 31))
    detail = F.format_string(
        "producer %s, epoch %s, sequence %s is also at offset %s",
        F.col("producerId"), F.col("producerEpoch"), F.col("baseSequence"), F.col("earlier"),
    )  # fmt: skip
    return twice.select(*_row(DUPLICATE, F.col("baseOffset"), F.col("lastOffset") + 1, detail))


def _differences(batches: DataFrame, bounds: DataFrame) -> DataFrame:
    """Finds the first offset of each partition at which the replicas that reach this offset hold different batches.
    Returns a row for each replica with the rarer content. If no content is rarer, returns a row for every replica."""
    reach = bounds.select(*_REPLICA, "start", "end", "committed")
    seen = batches.join(reach, list(_REPLICA)).where(F.col("baseOffset") < F.col("committed"))
    content = F.struct("lastOffset", "crc", "leaderEpoch")
    at = seen.groupBy(*_PARTITION, "baseOffset").agg(
        F.collect_list(F.struct(content.alias("content"), F.col("broker"))).alias("copies"),
        F.count_distinct(content).alias("contents"),
    )
    first = Window.partitionBy(*_PARTITION).orderBy("baseOffset")
    unequal = at.where(F.col("contents") > 1).withColumn("rank", F.row_number().over(first)).where(F.col("rank") == 1)
    copies = unequal.select(*_PARTITION, "baseOffset", F.explode("copies").alias("copy"))
    votes = copies.select(*_PARTITION, "baseOffset", "copy.broker", "copy.content").withColumn(
        "votes", F.count("*").over(Window.partitionBy(*_PARTITION, "content"))
    )
    most = votes.withColumn("least", F.min("votes").over(Window.partitionBy(*_PARTITION)))
    rare = most.where(F.col("votes") == F.col("least"))
    detail = F.format_string(
        "%s of the replicas hold this content: CRC %s, leader epoch %s, last offset %s",
        F.col("votes"), F.col("content.crc"), F.col("content.leaderEpoch"), F.col("content.lastOffset"),
    )  # fmt: skip
    return rare.select(*_row(DIFFERENT, F.col("baseOffset"), F.col("content.lastOffset") + 1, detail))


def _differing_keys(newest: DataFrame, compacted: DataFrame, bounds: DataFrame, aborted: DataFrame | None) -> DataFrame:
    """Returns the keys of compacted partitions whose newest record is committed, is at an offset that all replicas
    reach, and differs between them."""
    reach = bounds.where("present").withColumn("common", F.max("start").over(Window.partitionBy(*_PARTITION)))
    reach = reach.withColumn("shared", F.least(F.min("end").over(Window.partitionBy(*_PARTITION)), F.col("committed")))
    kept = newest.join(reach.select(*_REPLICA, "common"), list(_REPLICA))
    replicas = (
        reach.join(F.broadcast(compacted), list(_PARTITION), "left_semi")
        .groupBy(*_PARTITION)
        .agg(F.collect_set("broker").alias("brokers"), F.first("shared").alias("shared"))
    )
    by_key = (
        kept.where(F.col("newest.offset") >= F.col("common"))
        .groupBy(*_PARTITION, "key")
        .agg(
            F.collect_list(F.struct("broker", "newest")).alias("copies"),
            F.max("newest.offset").alias("offset"),
            F.max_by("newest.gone", "newest.offset").alias("gone"),
            F.count_distinct("newest.offset", "newest.hash").alias("contents"),
        )
    )
    judged = by_key.join(F.broadcast(replicas), list(_PARTITION)).where(F.col("offset") < F.col("shared"))
    if aborted is not None:
        judged = _outside_of(judged, aborted)
    holders = F.transform(
        F.filter("copies", lambda copy: copy["newest"]["offset"] == F.col("offset")), lambda c: c["broker"]
    )
    lacking = judged.where(~F.col("gone")).withColumn("broker", F.explode(F.array_except("brokers", holders)))
    missing = F.lit("the newest record of a key is missing, although the log reaches this offset")
    changed = judged.where(F.col("contents") > 1).withColumn("same", F.size(holders)).where(
        (F.col("same") > 1)
        & (F.size(F.array_distinct(F.transform(
            F.filter("copies", lambda copy: copy["newest"]["offset"] == F.col("offset")),
            lambda copy: copy["newest"]["hash"],
        ))) > 1)
    ).withColumn("broker", F.explode(holders))  # fmt: skip
    other = F.lit("the replicas hold different values of the newest record of a key")
    return _first_of(lacking.select(*_row(LOST, F.col("offset"), F.col("offset") + 1, missing))).unionByName(
        _first_of(changed.select(*_row(DIFFERENT, F.col("offset"), F.col("offset") + 1, other)))
    )


def _outside_of(keys: DataFrame, aborted: DataFrame) -> DataFrame:
    """Leaves out the keys whose newest record lies between the first and the last offset of an aborted transaction. A
    cleaner removes the records of such a transaction, but a broker that has not cleaned yet still holds them."""
    spans = aborted.where(F.col("problem").isNull()).select(
        *_PARTITION, F.col("offset").alias("firstOffset"), F.col("position").alias("lastOffset")
    )  # fmt: skip
    same = [keys[name] == spans[name] for name in _PARTITION]
    within = keys["offset"].between(spans["firstOffset"], spans["lastOffset"])
    return keys.join(spans.distinct(), [*same, within], "left_anti")


def _first_of(found: DataFrame) -> DataFrame:
    """Returns each replica's finding with the lowest offset."""
    order = Window.partitionBy(*_REPLICA).orderBy("offset")
    return found.withColumn("rank", F.row_number().over(order)).where(F.col("rank") == 1).drop("rank")
