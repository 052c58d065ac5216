"""Streams with the format `kafkacore`: AvailableNow, limits, restarts, data loss, and the sink that writes at least
once."""

import json

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

from kafkacore.spark.helpers import lag, write_each_batch


@pytest.fixture
def stream(spark, kafka):
    def make(topic, *, format="kafkacore", **options):  # noqa: A002
        given = {"kafka.bootstrap.servers": kafka, "subscribe": topic, **options}
        return spark.readStream.format(format).options(**given).load()

    return make


class Collected:
    """A sink that collects the offsets of each batch."""

    def __init__(self):
        self.batches = {}

    def __call__(self, frame, batch_id):
        self.batches[batch_id] = sorted((row.partition, row.offset) for row in frame.collect())

    @property
    def rows(self):
        return sorted(row for batch in self.batches.values() for row in batch)


def run(frame, checkpoint, sink=None):
    """Processes all available records with one AvailableNow query. Returns the sink."""
    sink = sink or Collected()
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()
    return sink


def expected(first, end, partitions=1):
    return [(partition, offset) for partition in range(partitions) for offset in range(first, end)]


def test_available_now_reads_everything_in_limited_batches(stream, topics, tmp_path):
    topic = topics.fill(topics.create(2), 500, partitions=2)
    sink = run(stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="400"), tmp_path)
    assert sink.rows == expected(0, 500, 2)
    assert [len(batch) for _, batch in sorted(sink.batches.items())] == [400, 400, 200]


def test_a_restart_continues_where_the_query_ended(stream, topics, tmp_path):
    topic = topics.fill(topics.create(), 50)
    assert run(stream(topic, startingOffsets="earliest"), tmp_path).rows == expected(0, 50)
    topics.fill(topic, 30)
    assert run(stream(topic, startingOffsets="earliest"), tmp_path).rows == expected(50, 80)


def test_latest_misses_nothing_when_the_driver_dies_before_the_first_commit(stream, topics, tmp_path):
    topic = topics.fill(topics.create(), 50)

    def dies(frame, batch_id):
        raise RuntimeError("the driver dies here")

    with pytest.raises(Exception, match="the driver dies here"):
        run(stream(topic), tmp_path, dies)
    assert (tmp_path / "offsets" / "0").exists()
    assert not (tmp_path / "commits" / "0").exists()
    topics.fill(topic, 25)
    assert run(stream(topic), tmp_path).rows == expected(50, 75)
    topics.fill(topic, 5)
    assert run(stream(topic), tmp_path).rows == expected(75, 80)


@pytest.mark.parametrize("starting", ["earliest", "json"])
def test_first_batch_is_repeated_when_partitions_are_new_since_the_driver_died(stream, topics, tmp_path, starting):
    topic = topics.fill(topics.create(1), 10)
    starting = json.dumps({topic: {"0": -2}}) if starting == "json" else starting

    def dies(frame, batch_id):
        raise RuntimeError("the driver dies here")

    with pytest.raises(Exception, match="the driver dies here"):
        run(stream(topic, startingOffsets=starting), tmp_path, dies)
    topics.add_partitions(topic, 2)
    topics.fill(topic, 5, partitions=2)
    sink = run(stream(topic, startingOffsets=starting), tmp_path)
    assert sink.batches[0] == [(0, at) for at in range(10)]
    assert sink.rows == [(0, at) for at in range(15)] + [(1, at) for at in range(5)]


def test_a_checkpoint_of_the_connector_is_continued(stream, topics, tmp_path, connector):
    topic = topics.fill(topics.create(2), 40, partitions=2)
    run(stream(topic, format=connector, startingOffsets="earliest"), tmp_path)
    topics.fill(topic, 10, partitions=2)
    assert run(stream(topic), tmp_path).rows == expected(40, 50, 2)


def test_a_checkpoint_of_another_source_is_refused(spark, stream, topics, tmp_path):
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "5").load()
    query = (
        rate.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    query.awaitTermination(60)
    topic = topics.fill(topics.create(), 5)
    with pytest.raises(Exception, match="another checkpointLocation"):
        run(stream(topic), tmp_path)


def test_new_partitions_are_read_from_their_beginning(stream, topics, tmp_path):
    topic = topics.fill(topics.create(1), 10)
    run(stream(topic, startingOffsets="earliest"), tmp_path)
    topics.add_partitions(topic, 2)
    topics.fill(topic, 10, partitions=2)
    assert run(stream(topic), tmp_path).rows == [(0, at) for at in range(10, 20)] + [(1, at) for at in range(10)]


def test_a_topic_created_again_stops_the_query(stream, topics, tmp_path):
    topic = topics.fill(topics.create(1), 10)
    run(stream(topic, startingOffsets="earliest"), tmp_path)
    topics.delete(topic)
    topics.create(1, name=topic)
    topics.fill(topic, 20)
    with pytest.raises(Exception, match="deleted and created again"):
        run(stream(topic), tmp_path)
    assert run(stream(topic, failOnDataLoss="false"), tmp_path).rows == expected(0, 20)


def test_records_that_retention_deleted_stop_the_query(stream, topics, tmp_path):
    topic = topics.fill(topics.create(1), 10)
    run(stream(topic, startingOffsets="earliest"), tmp_path)
    topics.fill(topic, 30)
    topics.delete_records(topic, 0, 25)
    with pytest.raises(Exception, match=r"-0 from offset 10 to 40: .* the log has 25 to 40"):
        run(stream(topic), tmp_path)
    assert run(stream(topic, failOnDataLoss="false"), tmp_path).rows == expected(25, 40)


def test_progress_shows_lag(stream, topics, tmp_path):
    topic = topics.fill(topics.create(1), 100)
    query = (
        stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger="60")
        .writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(60)
    seen = [sum(lag(progress).values()) for progress in query.recentProgress]
    assert seen[:2] == [40, 0]


def test_a_stream_is_written_at_least_once(spark, kafka, stream, topics, read, tmp_path):
    source, target = topics.fill(topics.create(2), 300, partitions=2), topics.create(3)
    frame = stream(source, startingOffsets="earliest", maxOffsetsPerTrigger="200").selectExpr("key", "value")
    options = {"kafka.bootstrap.servers": kafka, "topic": target, "checkpointLocation": str(tmp_path)}
    query = frame.writeStream.format("kafkacore").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    key = "cast(key as string)", "cast(value as string)"
    assert sorted(map(str, read(target).selectExpr(*key).collect())) == sorted(
        map(str, read(source).selectExpr(*key).collect())
    )


def test_output_mode_update_is_written_through_each_batch(kafka, stream, topics, read, tmp_path):
    source, target = topics.fill(topics.create(2), 50, partitions=2), topics.create(1)
    counts = stream(source, startingOffsets="earliest").groupBy("partition").count()
    frame = counts.selectExpr("cast(partition as string) as key", "cast(count as string) as value")
    write = write_each_batch(**{"kafka.bootstrap.servers": kafka, "topic": target})
    query = (
        frame.writeStream.outputMode("update").foreachBatch(write)
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(90)
    assert sorted((row.key, row.value) for row in read(target).collect()) == [(b"0", b"50"), (b"1", b"50")]


def test_output_mode_complete_appends_each_result(kafka, stream, topics, read, tmp_path):
    source, target = topics.fill(topics.create(), 50), topics.create()
    options = {"kafka.bootstrap.servers": kafka, "topic": target, "checkpointLocation": str(tmp_path)}
    for _ in range(2):
        counts = stream(source, startingOffsets="earliest").groupBy("partition").count()
        frame = counts.selectExpr("cast(count as string) as value")
        query = (
            frame.writeStream.outputMode("complete").format("kafkacore").options(**options)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(90)
        topics.fill(source, 10)
    assert [row.value for row in sorted(read(target).collect(), key=lambda row: row.offset)] == [b"50", b"60"]


def test_the_checkpoint_has_the_form_of_the_connector(stream, topics, tmp_path):
    topic = topics.fill(topics.create(1), 10)
    run(stream(topic, startingOffsets="earliest"), tmp_path)
    last = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1])
    assert last[topic] == {"0": 10}
