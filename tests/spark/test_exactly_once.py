"""The sink that writes each batch of a stream exactly once, to Apache Kafka. The tests kill its committer at each
point."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", "4.2", reason="streams need PySpark 4.2: pip install kafkacore[spark], or ci/spark.sh")

from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException

from kafkacore.client import Producer
from kafkacore.spark.exactly_once import ExactlyOnceWriter
from kafkacore.spark.options import sink_options
from kafkacore.spark.source import KafkaCoreSource
from topic_filling import Topics

MARKERS = "__kafkacore_spark_markers"
POINTS = ("staging", "staged", "committing", "before EndTxn", "after EndTxn", "committed")


def dies_at(plan, point):
    """Kills this process once, as SIGKILL does, if the file `plan` contains the name of the point."""
    path = Path(plan)
    if path.exists() and path.read_text() == point:
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(ExactlyOnceWriter):
    """A writer whose tasks are attempted twice each, and whose process ends at the point in the plan."""

    plan = ""

    def write(self, iterator):
        batches = list(iterator)
        dies_at(self.plan, "staging")
        super().write(iter(batches))
        message = super().write(iter(batches))
        dies_at(self.plan, "staged")
        return message

    def commit_staged(self, staged, batch_id):
        end = Producer.commit
        plan = self.plan

        def commit(producer):
            producer.flush()
            dies_at(plan, "before EndTxn")
            end(producer)
            dies_at(plan, "after EndTxn")

        Producer.commit = commit
        try:
            dies_at(plan, "committing")
            super().commit_staged(staged, batch_id)
        finally:
            Producer.commit = end
        dies_at(plan, "committed")


class DyingSource(KafkaCoreSource):
    @classmethod
    def name(cls):
        return "kafkacore-that-dies"

    def streamWriter(self, schema, overwrite):
        given = {name: value for name, value in self.options.items() if name != "plan"}
        writer = DyingWriter(sink_options(given, streaming=True), schema)
        writer.plan = self.options["plan"]
        return writer


class Copy:
    """A query that copies one topic to another. The test restarts it until it finishes."""

    def __init__(self, spark, bootstrap, directory, source, target, **options):
        self.spark, self.bootstrap, self.directory = spark, bootstrap, directory
        self.source, self.target, self.options = source, target, options
        self.plan = directory / "plan"
        self.errors = []

    def start(self, tasks):
        frame = self.spark.readStream.format("kafkacore").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap, "subscribe": self.source, "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "120", "minPartitions": str(tasks),
            }
        ).load()  # fmt: skip
        options = {
            "kafka.bootstrap.servers": self.bootstrap, "topic": self.target, "exactlyOnce": "true",
            "stagingLocation": str(self.directory / "staging"), "plan": str(self.plan),
            "checkpointLocation": str(self.directory / "checkpoint"), **self.options,
        }  # fmt: skip
        query = (
            frame.selectExpr("key", "value").writeStream.format("kafkacore-that-dies").options(**options)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            assert query.awaitTermination(120)
        except StreamingQueryException as error:
            self.errors.append(str(error))
            return False
        return True

    def run(self, point, tasks=2, pause_s=0.0):
        """Kills the process at `point` once. Restarts it with other numbers of tasks until everything is copied."""
        self.plan.write_text(point)
        for attempt in range(4):
            if self.start(tasks + attempt):
                return
            time.sleep(pause_s)
        raise AssertionError("\n\n".join(self.errors))


@pytest.fixture(scope="module")
def broker(spark, apache_kafka):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(DyingSource)
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    started = apache_kafka("apache-4.3", settings)
    Topics(started.bootstrap, "").create(1, {"cleanup.policy": "compact"}, name=MARKERS)
    return started


@pytest.fixture
def copy(spark, broker, topic_name, tmp_path):
    def make(**options):
        topics = Topics(broker.bootstrap, topic_name)
        source = topics.fill(topics.create(2), 180, partitions=2)
        return Copy(spark, broker.bootstrap, tmp_path, source, topics.create(3), **options)

    return make


def assert_equal(copying):
    def rows(topic):
        options = {
            "kafka.bootstrap.servers": copying.bootstrap, "subscribe": topic, "kafka.isolation.level": "read_committed",
        }  # fmt: skip
        frame = copying.spark.read.format("kafkacore").options(**options).load()
        return sorted(str((row.key, row.value)) for row in frame.select("key", "value").collect())

    assert rows(copying.target) == rows(copying.source)


@pytest.mark.parametrize("point", POINTS)
def test_output_equals_input_when_the_process_dies(copy, point):
    copying = copy()
    copying.run(point)
    assert copying.errors
    assert not copying.plan.exists()  # the process has died at the planned point
    assert_equal(copying)


def test_output_equals_input_when_the_driver_is_dead_for_longer_than_the_transaction_may_take(copy):
    copying = copy(**{"kafka.transaction.timeout.ms": "1000"})
    copying.run("before EndTxn", pause_s=2.5)
    assert copying.errors
    assert not copying.plan.exists()  # the process has died at the planned point
    assert_equal(copying)


def test_an_older_checkpoint_than_the_topics_is_refused(copy, tmp_path):
    copying = copy()
    assert copying.start(2)
    for name in ("commits", "offsets"):
        for number in (1, 2):
            for file in (tmp_path / "checkpoint" / name).glob(f"*{number}*"):
                file.unlink()
    assert not copying.start(2)
    assert_equal(copying)


def test_nothing_is_left_in_the_staging_location(copy, tmp_path):
    copying = copy()
    assert copying.start(2)
    assert [path for path in (tmp_path / "staging").rglob("*") if path.is_file()] == []


def test_our_node_refuses_exactly_once(spark, our_node, topic_name, tmp_path):
    topics = Topics(our_node.bootstrap, topic_name)
    source, target = topics.fill(topics.create(), 5), topics.create()
    frame = spark.readStream.format("kafkacore").options(
        **{"kafka.bootstrap.servers": our_node.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    ).load()  # fmt: skip
    options = {
        "kafka.bootstrap.servers": our_node.bootstrap, "topic": target, "exactlyOnce": "true",
        "stagingLocation": str(tmp_path / "staging"), "checkpointLocation": str(tmp_path / "checkpoint"),
        "kafka.default.api.timeout.ms": "5000",
    }  # fmt: skip
    query = frame.select("value").writeStream.format("kafkacore").options(**options).trigger(availableNow=True).start()
    with pytest.raises(
        Exception, match=r"batch 0 of query .* may not be committed: .* Transactions are not supported by this broker"
    ):
        query.awaitTermination(60)
    read = spark.read.format("kafkacore").options(
        **{"kafka.bootstrap.servers": our_node.bootstrap, "subscribe": target}
    )
    assert read.load().count() == 0
