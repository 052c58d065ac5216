"""Helper functions on columns, which Spark runs, and the lag from a progress report in Spark's format."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.spark.helpers import confluent_payload, confluent_schema_id, lag


def test_the_prefix_of_confluent_is_read_and_cut(spark):
    values = [b"\0\0\0\1\2payload", b"\0\x7f\xff\xff\xff", b"\0\0\0\1", b"\1\0\0\0\1x", b"", None]
    frame = spark.createDataFrame([(value,) for value in values], "value binary")
    found = [tuple(row) for row in frame.select(confluent_schema_id(), confluent_payload()).collect()]
    nothing = (None, None)
    assert found == [(258, b"payload"), (2**31 - 1, b""), nothing, nothing, nothing, nothing]


def test_json_behind_the_prefix_becomes_columns(spark):
    from pyspark.sql.functions import from_json

    frame = spark.createDataFrame([(b'\0\0\0\0\7{"user":"ann","amount":2.5}',)], "value binary")
    event = frame.select(from_json(confluent_payload("value").cast("string"), "user string, amount double").alias("e"))
    assert [tuple(row.e) for row in event.collect()] == [("ann", 2.5)]


def test_lag_counts_the_offsets_between_the_end_of_a_batch_and_the_end_of_the_log():
    source = {
        "endOffset": {"t": {"0": 90, "1": 5}, "topic ids": {"t": "x"}},
        "latestOffset": {"t": {"0": 100, "1": 5, "2": 3}},
    }
    expected = {("t", 0): 10, ("t", 1): 0, ("t", 2): 3}
    assert lag({"sources": [source]}) == expected
    as_text = {name: json.dumps(value) for name, value in source.items()}
    assert lag(SimpleNamespace(json=json.dumps({"sources": [as_text]}))) == expected
    assert lag(None) == {}


@pytest.mark.parametrize("end", ["null", None])
def test_lag_is_empty_when_the_batch_failed(end):
    source = {"startOffset": None, "endOffset": end, "latestOffset": json.dumps({"t": {"0": 100}})}
    assert lag({"sources": [source]}) == {}
    assert lag(SimpleNamespace(json=json.dumps({"sources": [source]}))) == {}
