"""Topics that are generated from a seed. Spark's own connector and our format must read the same rows from them, in a
batch and in a stream."""

import os

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

from generated_topics import GeneratedTopic
from seeds import SEED
from topic_filling import Topics

COUNT = int(os.environ.get("KAFKACORE_SPARK_TOPICS", "3"))  # the number of topics on each broker


def plain(row):
    """Returns a row as a tuple that can be compared."""
    headers = row["headers"]
    pairs = None if headers is None else [(pair["key"], _bytes(pair["value"])) for pair in headers]
    return (*(_bytes(each) if isinstance(each, bytearray) else each for each in row[:7]), pairs)


def _bytes(value):
    return None if value is None else bytes(value)


def in_order(rows):
    return sorted(map(plain, rows), key=lambda row: (row[3], row[4]))


@pytest.fixture
def generated(kafka, apache_in_use, topic_name):
    return lambda number: GeneratedTopic(
        Topics(kafka, f"{topic_name}.{number}"), f"{SEED}-{number}", transactions=apache_in_use
    )


@pytest.fixture
def apache_in_use(request):
    return request.node.callspec.params["kafka"] != "kafkacore"


def options_of(bootstrap, topic):
    return {
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, "includeHeaders": "true",
        "startingOffsets": "earliest", "kafka.isolation.level": topic.isolation,
    }  # fmt: skip


def streamed(spark, name, options, checkpoint):
    """Returns the rows of each micro-batch of a stream that reads the whole topic."""
    batches = {}

    def keep(frame, batch_id):
        batches[batch_id] = in_order(frame.collect())

    frame = spark.readStream.format(name).options(**options).load()
    query = (
        frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return batches


@pytest.mark.parametrize("number", range(COUNT))
def test_batch_and_stream_have_the_rows_of_the_connector(spark, connector, kafka, generated, number, tmp_path):
    topic = generated(number)
    options = options_of(kafka, topic)
    ours, theirs = (spark.read.format(name).options(**options).load() for name in ("kafkacore", connector))
    assert ours.schema == theirs.schema
    rows = in_order(ours.collect())
    assert rows == in_order(theirs.collect())
    assert [row[3:5] for row in rows] == topic.offsets

    limit = {"maxOffsetsPerTrigger": str(max(len(rows) // 3, 1))}
    found = streamed(spark, "kafkacore", options | limit, tmp_path / "ours")
    expected = streamed(spark, connector, options | limit, tmp_path / "theirs")
    assert found == expected
    assert sorted((row for batch in found.values() for row in batch), key=lambda row: row[3:5]) == rows
