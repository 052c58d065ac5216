"""Plane report: the times of requests by plane, API and minute, from request logs. A plane is a set of listeners with
its own threads and request queue: `data` for clients, `controller` for the quorum (KIP-291).

The report reads the sampled request log of kafkacore and Apache Kafka's `kafka-request.log`. The lines of both end with
the same JSON (KAFKA-9797, `RequestConvertToJson`), so the report can compare both kinds of broker. Lines of kafkacore
contain the plane. For lines of Apache Kafka, the listener that received the request counts as the plane.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

_ENTRY: Final = (
    "requestHeader struct<requestApiKeyName: string, requestApiVersion: int, clientId: string, correlationId: int>, "
    "totalTimeMs double, requestQueueTimeMs double, localTimeMs double, remoteTimeMs double, throttleTimeMs double, "
    "responseQueueTimeMs double, sendTimeMs double, listener string, plane string, sampledOf int, dropped bigint"
)
STAGES: Final = ("requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "responseQueueTimeMs", "sendTimeMs")
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
SHARES: Final = tuple(number / 100 for number in range(101))  # the points of a whole distribution
_ACCURACY: Final = 10_000
# `[2026-11-23 04:00:00,123] DEBUG Completed request:{...} (kafka.request.logger)`
_LINE: Final = r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\].*?(\{.*\})"


# The suffix of a rotated file: `kafka-request.log.1` in kafkacore, `kafka-request.log.2026-11-23-04` in Apache Kafka.
_ROTATION: Final = r"\.\d[\d-]*$"
# The APIs of controllers and of their quorum, which KIP-291 separates from the APIs of clients. The report recognises
# control requests by their API, so it also works for a broker that serves all requests on one listener.
CONTROL_APIS: Final = (
    "LEADER_AND_ISR", "STOP_REPLICA", "UPDATE_METADATA", "CONTROLLED_SHUTDOWN", "VOTE", "BEGIN_QUORUM_EPOCH",
    "END_QUORUM_EPOCH", "FETCH_SNAPSHOT", "ALTER_PARTITION", "ALTER_PARTITION_REASSIGNMENTS", "BROKER_REGISTRATION",
    "BROKER_HEARTBEAT", "CONTROLLER_REGISTRATION", "ALLOCATE_PRODUCER_IDS", "ENVELOPE", "ASSIGN_REPLICAS_TO_DIRS",
)  # fmt: skip
_CONTROL_PLANES: Final = ("control", "controller")
_WHERE: Final = ("log", "plane", "listener")


def read_logs(spark: SparkSession, paths: list[str]) -> DataFrame:
    """Returns the entries of request logs: log (the file name without the suffix of a rotation), at (timestamp), plane,
    listener, api, version, clientId, the total time and the stages in milliseconds, `weight` (the number of requests
    that an entry represents), and `dropped` (the number of samples that are missing before the entry).

    Lines in other formats are left out. The times in lines are interpreted in the session's time zone.
    """
    log = F.regexp_replace(F.input_file_name(), _ROTATION, "")
    lines = spark.read.text(paths).select("value", log.alias("log"))
    parts = lines.select("log", *(F.regexp_extract("value", _LINE, group).alias(f"part{group}") for group in (1, 2, 3)))
    entry = F.from_json("part3", _ENTRY)
    # Spark may parse the time of a line that it then filters out. So an invalid time must not raise an error.
    at = F.try_to_timestamp(F.concat_ws(".", "part1", "part2"), F.lit("yyyy-MM-dd HH:mm:ss.SSS"))
    parsed = parts.where(F.col("part3") != "").select(
        "log",
        at.alias("at"),
        entry.alias("entry"),
    )
    return parsed.where(F.col("entry.requestHeader").isNotNull()).select(
        "log", "at", F.coalesce("entry.plane", "entry.listener").alias("plane"), "entry.listener",
        F.col("entry.requestHeader.requestApiKeyName").alias("api"),
        F.col("entry.requestHeader.requestApiVersion").alias("version"),
        F.col("entry.requestHeader.clientId").alias("clientId"), "entry.totalTimeMs",
        *(f"entry.{stage}" for stage in STAGES),
        F.coalesce("entry.sampledOf", F.lit(1)).alias("weight"), F.coalesce("entry.dropped", F.lit(0)).alias("dropped"),
    )  # fmt: skip


def sampling(entries: DataFrame) -> DataFrame:
    """Returns how complete each log is: log, plane, entries, requests (the number that the entries represent), and
    `dropped` (the number of samples that the broker could not keep)."""
    return entries.groupBy("log", "plane").agg(
        F.count(F.lit(1)).alias("entries"), F.sum("weight").alias("requests"), F.sum("dropped").alias("dropped")
    )


def percentiles(entries: DataFrame, *, per: str = "1 minute") -> DataFrame:
    """Computes the number of requests, and the percentiles of the total time and of each stage, by log, plane,
    listener, API and time.

    Returns log, plane, listener, api, begin, requests, and for `total` and each stage an array with the values at
    QUANTILES, in milliseconds. Every entry counts once, so a group must not span a change of the sampling rate.
    """
    grouped = entries.groupBy(*_WHERE, "api", F.window("at", per)["start"].alias("begin"))
    return grouped.agg(F.sum("weight").alias("requests"), *_quantiles())


def overall(entries: DataFrame) -> DataFrame:
    """Returns the same columns as `percentiles`, but over the whole time."""
    return entries.groupBy(*_WHERE, "api").agg(F.sum("weight").alias("requests"), *_quantiles())


def _quantiles() -> list[Column]:
    columns = {"totalTimeMs": "total", **{stage: stage for stage in STAGES}}
    return [F.percentile_approx(column, list(QUANTILES), _ACCURACY).alias(name) for column, name in columns.items()]


def distribution(entries: DataFrame) -> DataFrame:
    """Returns whole distributions: log, plane, api, requests, and two arrays. The array `total` contains the total
    time, and `queue` the time in the request queue, at each of `SHARES` in milliseconds."""
    columns = {"total": "totalTimeMs", "queue": "requestQueueTimeMs"}
    return entries.groupBy("log", "plane", "api").agg(
        F.sum("weight").alias("requests"),
        *(F.percentile_approx(column, list(SHARES), _ACCURACY).alias(name) for name, column in columns.items()),
    )


def saturation(entries: DataFrame, *, per: str = "1 second", limit_ms: float = 10.0) -> DataFrame:
    """Returns how long requests waited for a handler: log, plane, listener, begin, requests, `waited` (the mean time in
    the request queue, in ms) and `late` (the share of requests that waited longer than `limit_ms`)."""
    grouped = entries.groupBy(*_WHERE, F.window("at", per)["start"].alias("begin"))
    return grouped.agg(*_waits(limit_ms))


def _waits(limit_ms: float) -> list[Column]:
    weight = F.col("weight")
    return [
        F.sum(weight).alias("requests"),
        (F.sum(F.col("requestQueueTimeMs") * weight) / F.sum(weight)).alias("waited"),
        (F.sum(F.when(F.col("requestQueueTimeMs") > limit_ms, weight).otherwise(0)) / F.sum(weight)).alias("late"),
    ]


def separation(entries: DataFrame, *, per: str = "1 second", limit_ms: float = 10.0) -> DataFrame:
    """Shows the effect of KIP-291: whether control requests wait while clients fill their own queue.

    A period is busy if client requests waited longer than `limit_ms` on average. Returns log, plane, `work` (`control`
    or `data`), `busy` (whether the period was busy), requests, waited and late as in `saturation`, and `queue`, an
    array of the time in the request queue at QUANTILES. If control requests have their own plane, their waits are as
    short in busy periods as in other periods. The cost is one more aggregation over the entries, and a join with one
    row for each log and period.
    """
    of_control = F.col("api").isin(*CONTROL_APIS) | F.col("plane").isin(*_CONTROL_PLANES)
    marked = entries.withColumn("work", F.when(of_control, "control").otherwise("data")).withColumn(
        "begin", F.window("at", per)["start"]
    )
    loads = marked.where("work = 'data'").groupBy("log", "begin").agg(*_waits(limit_ms))
    busy = loads.select("log", "begin", (F.col("waited") > limit_ms).alias("busy"))
    known = marked.join(busy, ["log", "begin"], "left").fillna(False, ["busy"])
    queue = F.percentile_approx("requestQueueTimeMs", list(QUANTILES), _ACCURACY).alias("queue")
    return known.groupBy("log", "plane", "work", "busy").agg(*_waits(limit_ms), queue)
