"""Windowed counts: how many lines in each time window begin with each Python keyword. The query reads a topic, and
writes to Parquet and to another topic.

This pipeline shows how a query writes to two places that share no transaction with Spark's checkpoint. The query first
writes each batch to the topic, at least once. Then it writes the batch to Parquet, into a separate directory that a
second attempt overwrites. Every row contains its window and the id of its batch. So the last row of a key is its count,
no matter how often a batch ran. `differences` checks that topic and Parquet are equal.
"""

import keyword
from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

WINDOW: Final = "2 seconds"
_KEY: Final = ("start", "keyword")
_COUNTS: Final = ("lines", "bytes")
_VALUE: Final = "start timestamp, keyword string, lines bigint, bytes bigint, batch bigint"
_JSON: Final = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}


def counts(records: DataFrame, *, window: str = WINDOW, delay: str | None = None) -> DataFrame:
    """Counts the lines that begin with each keyword, in each window of the records' timestamps. Returns start, keyword,
    lines and bytes.

    A record without a value is not counted, and only advances the watermark.

    Args:
        records: value and timestamp, as the format `kafkacore` returns them.
        delay: how late a record of a stream may come. Spark drops older windows; in mode `append` it writes them first.
    """
    late = records if delay is None else records.withWatermark("timestamp", delay)
    first = F.regexp_extract(F.col("value").cast("string"), r"^\s*(\w+)", 1)
    word = F.when(first.isin(keyword.kwlist), first).otherwise("(other)").alias("keyword")
    grouped = late.groupBy(F.window("timestamp", window), word).agg(
        F.count("value").alias("lines"), F.coalesce(F.sum(F.length("value")), F.lit(0)).alias("bytes")
    )
    return grouped.where("lines > 0").select(F.col("window.start").alias("start"), "keyword", *_COUNTS)


def to_records(counted: DataFrame) -> DataFrame:
    """Returns the columns key and value for a topic. The key contains the window and the keyword. The value is the row
    as JSON."""
    key = F.concat_ws(" ", F.date_format("start", "yyyy-MM-dd'T'HH:mm:ss.SSS"), "keyword")
    return counted.select(key.alias("key"), F.to_json(F.struct(*counted.columns), _JSON).alias("value"))


def from_records(records: DataFrame) -> DataFrame:
    """Returns the rows that `to_records` made, with partition and offset. `batch` is null in rows without a batch
    id."""
    row = F.from_json(F.col("value").cast("string"), _VALUE, _JSON).alias("row")
    return records.select("partition", "offset", row).select("partition", "offset", "row.*")


def write_twice(
    path: str, options: dict[str, str], between: Callable[[int], None] = lambda batch_id: None
) -> Callable[[DataFrame, int], None]:
    """Returns a function for `foreachBatch` that writes a batch of `counts` in output mode `update`.

    Args:
        path: the Parquet table; the function writes each batch into its directory `batch=N`.
        options: the options of the format `kafkacore`, including the topic.
        between: called with the id of the batch after the write to the topic and before the write to Parquet.
    """

    def write(counted: DataFrame, batch_id: int) -> None:
        rows = counted.withColumn("batch", F.lit(batch_id).cast("long")).persist()
        try:
            to_records(rows).write.format("kafkacore").mode("append").options(**options).save()
            between(batch_id)
            rows.drop("batch").write.mode("overwrite").parquet(f"{path}/batch={batch_id}")
        finally:
            rows.unpersist()

    return write


def last_rows(rows: DataFrame, order: Column) -> DataFrame:
    """Returns one row for each window and keyword: the row with the greatest `order`. It has the columns start,
    keyword, lines and bytes, and also batch if `rows` has this column."""
    names = [name for name in (*_COUNTS, "batch") if name in rows.columns]
    last = rows.groupBy(*_KEY).agg(F.max_by(F.struct(*names), order).alias("last"))
    return last.select(*_KEY, "last.*")


def last_of_topic(rows: DataFrame) -> DataFrame:
    """Returns the last row of each key in the topic. `rows` comes from `from_records`. A key is in only one
    partition."""
    return last_rows(rows, F.col("offset"))


def last_of_table(rows: DataFrame) -> DataFrame:
    """Returns the last row of each key in the Parquet table that `write_twice` wrote."""
    return last_rows(rows.withColumn("batch", F.col("batch").cast("long")), F.col("batch"))


def repeated(rows: DataFrame) -> DataFrame:
    """Returns the rows that the topic contains more than once, because a batch ran again. The columns are start,
    keyword, batch and copies."""
    return rows.groupBy(*_KEY, "batch").agg(F.count("*").alias("copies")).where("copies > 1")


def differences(left: DataFrame, right: DataFrame) -> DataFrame:
    """Returns the keys whose rows differ, or that only one side has: start, keyword, left and right. A side that lacks
    the key is null.

    Compares the columns that both sides have.
    """
    names = [name for name in left.columns if name in right.columns and name not in _KEY]

    def side(rows: DataFrame, name: str) -> DataFrame:
        return rows.select(*_KEY, F.struct(*names).alias(name))

    both = side(left, "left").join(side(right, "right"), list(_KEY), "full")
    return both.where(~F.col("left").eqNullSafe(F.col("right")))
