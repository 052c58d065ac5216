"""Functions on columns and on progress reports for queries over Kafka. They need no jar, and also work over Spark
Connect."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, conv, expr, hex, length, when  # noqa: A004

from kafkacore.spark.positions import TopicPartition, from_json_object

PREFIX_BYTES = 5  # a zero byte, and the schema id as a big-endian integer of four bytes


def confluent_schema_id(column: str = "value") -> Column:
    """Returns the schema id that Confluent's serializers write before the payload, or null if the value has no such
    prefix."""
    return when(_has_prefix(column), conv(hex(expr(f"substring(`{column}`, 2, 4)")), 16, 10).cast("int"))


def confluent_payload(column: str = "value") -> Column:
    """Returns the bytes after Confluent's five-byte prefix, or null if the value has no such prefix."""
    return when(_has_prefix(column), expr(f"substring(`{column}`, {PREFIX_BYTES + 1})"))


def _has_prefix(column: str) -> Column:
    return (length(col(column)) >= PREFIX_BYTES) & (expr(f"substring(`{column}`, 1, 1)") == expr("X'00'"))


def write_each_batch(**options: str) -> Callable[[DataFrame, int], None]:
    """Returns a function for `foreachBatch` that writes each batch to Kafka at least once.

    Use it as `.foreachBatch(write_each_batch(topic="t", ...))` in a query with the output mode `update`. Spark refuses
    this mode for Python sinks, but not for `foreachBatch`.
    """

    def write(frame: DataFrame, batch_id: int) -> None:  # Spark passes `batch_id`
        frame.write.format("kafkacore").mode("append").options(**options).save()

    return write


def lag(progress: Any, source: int = 0) -> dict[TopicPartition, int]:
    """Returns the number of offsets that a stream has not read yet, for each partition. `progress` is
    `query.lastProgress`, or the progress in an event that a listener receives.

    The result is empty for a failed batch, and while there is no progress yet.
    """
    if progress is None:
        return {}
    report = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    found = report["sources"][source]
    latest, end = (_positions(found.get(name)) for name in ("latestOffset", "endOffset"))
    if latest is None or end is None:
        return {}
    return {which: max(0, at - end.get(which, 0)) for which, at in latest.items()}


def _positions(offset: Any) -> dict[TopicPartition, int] | None:
    # In the progress of a failed batch, Spark writes the text "null".
    given = json.loads(offset) if isinstance(offset, str) else offset
    return None if given is None else from_json_object(given)[0]
