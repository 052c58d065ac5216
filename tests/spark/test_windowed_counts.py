"""The pipeline of `kafkacore spark demo`: the counts, the writing of each batch to the topic and to Parquet, and the
queries that compare the two."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytest.importorskip("pyspark", reason="no PySpark: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.spark.pipelines.windowed_counts import (
    counts,
    differences,
    from_records,
    last_of_table,
    last_of_topic,
    repeated,
    write_twice,
)
from topic_filling import Topics

COLUMNS = "start timestamp, keyword string, lines bigint, bytes bigint"


def at(second):
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def test_lines_are_counted_by_their_first_keyword_and_window(spark):
    lines = [
        (b"import os", at(0)), (b"  import sys", at(1)), (b"importer = 1", at(1)), (b"return", at(2)), (None, at(50)),
    ]  # fmt: skip
    records = spark.createDataFrame(lines, "value binary, timestamp timestamp")
    found = {(row.start.second, row.keyword, row.lines, row.bytes) for row in counts(records).collect()}
    assert found == {(0, "import", 2, 21), (0, "(other)", 1, 12), (2, "return", 1, 6)}


@pytest.fixture
def written(spark, our_node, topic_name, tmp_path):
    """Returns an object that writes batches of rows to a topic and to Parquet: `write(batch_id, rows)`. Its methods
    `in_topic()` and `in_table()` return the written rows."""

    class Written:
        topic = Topics(our_node.bootstrap, topic_name).create(2)
        options = {"kafka.bootstrap.servers": our_node.bootstrap, "topic": topic}  # noqa: RUF012

        def write(self, batch_id, *rows, between=lambda batch_id: None):
            write_twice(str(tmp_path / "table"), self.options, between)(spark.createDataFrame(rows, COLUMNS), batch_id)

        def in_topic(self):
            options = {"kafka.bootstrap.servers": our_node.bootstrap, "subscribe": self.topic}
            return from_records(spark.read.format("kafkacore").options(**options).load())

        def in_table(self):
            return last_of_table(spark.read.parquet(str(tmp_path / "table")))

    return Written()


def fails(batch_id):
    raise OSError("between the writes")


def test_last_rows_of_topic_and_table_agree_when_a_batch_runs_again(written):
    written.write(0, (at(0), "if", 1, 10), (at(0), "for", 5, 50))
    with pytest.raises(OSError, match="between the writes"):
        written.write(1, (at(0), "if", 3, 30), (at(2), "if", 1, 10), between=fails)
    assert differences(last_of_topic(written.in_topic()), written.in_table()).count() == 2
    written.write(1, (at(0), "if", 3, 30), (at(2), "if", 1, 10))
    assert differences(last_of_topic(written.in_topic()), written.in_table()).collect() == []
    found = {(row.start.second, row.keyword, row.batch, row.copies) for row in repeated(written.in_topic()).collect()}
    assert found == {(0, "if", 1, 2), (2, "if", 1, 2)}
    rows = {(row.start.second, row.keyword, row.lines, row.batch) for row in written.in_table().collect()}
    assert rows == {(0, "if", 3, 1), (0, "for", 5, 0), (2, "if", 1, 1)}


def test_differences_name_the_keys_that_one_side_lacks_or_has_otherwise(spark):
    left = [(at(0), "if", 1, 10), (at(0), "for", 2, 20), (at(0), "def", 3, 30)]
    right = [(at(0), "if", 1, 10), (at(0), "for", 2, 21), (at(2), "def", 3, 30)]
    found = differences(spark.createDataFrame(left, COLUMNS), spark.createDataFrame(right, COLUMNS)).collect()
    assert {(row.start.second, row.keyword, row.left is None, row.right is None) for row in found} == {
        (0, "for", False, False), (0, "def", False, True), (2, "def", True, False),
    }  # fmt: skip
